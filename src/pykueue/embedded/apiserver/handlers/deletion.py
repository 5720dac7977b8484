"""Deleting: preconditions, propagation, grace, finalizers, whole collections.

An object goes at once unless something holds it: a finalizer, a grace period, or the content of a namespace.
Then it is marked, and goes with the write that takes the last hold away.
Source: docs/reference/kubernetes-api-machinery.md, section 13.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import Answer, Call, DeleteOptions, delete_options
from pykueue.embedded.apiserver.registry.core import Core, HookContext
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.apiserver.webhooks.admission import Admission, Attributes
from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.objects.errors import conflict, forbidden_request, not_found, success
from pykueue.embedded.objects.metadata import time_text
from pykueue.embedded.store.records import Record

#: The finalizer by which the garbage collector is asked for each policy.
_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}

#: Seconds of the longest grace period: about 68 years, as a deletion time must be a date.
LONGEST_GRACE = 2**31 - 1


class Deletion:
    """DELETE requests."""

    def __init__(self, core: Core, admission: Admission) -> None:
        self._core = core
        self._admission = admission

    async def delete(self, call: Call) -> Answer:
        """DELETE on an object."""
        endpoint, target = call.endpoint, call.target
        options = delete_options(call)
        while True:
            current = endpoint.table.get((target.namespace, target.name))
            if current is None:
                raise not_found(endpoint.group, endpoint.plural, target.name)
            answer = await self.remove(call, options, current)
            if answer is not None:
                return answer

    async def remove(self, call: Call, options: DeleteOptions, current: Record) -> Answer | None:
        """Delete one object; None when another write came between."""
        core, endpoint = self._core, call.endpoint
        storage = endpoint.storage
        namespace, name = current.key
        old = current.object
        self.check_preconditions(endpoint, options, old)
        refusal = storage.kind.refuses_deletion(old)
        if refusal:
            raise forbidden_request(endpoint.group, endpoint.plural, name, refusal)
        if self._admission.wanted("DELETE", call, options.dry_run):
            attributes = Attributes("DELETE", call, name, namespace, old, options.dry_run)
            await self._admission.validate(attributes, None)
            if endpoint.table.get(current.key) is not current:
                return None
        if storage.kind.default_propagation_warning and not options.propagation:
            call.warnings.append(storage.kind.default_propagation_warning)
        marked, goes = self._marked(call, storage, options, old)
        if options.dry_run:
            await core.store.settle()
            return (
                self._answer(endpoint, old, None)
                if goes
                else Answer(200, Record(current.key, current.revision, marked))
            )
        if goes:
            last = core.store.remove(endpoint.table, current.key)
            await core.store.settled(last.revision)
            return self._answer(endpoint, old, last)
        if marked is old:
            await core.store.settled(current.revision)
            return Answer(200, current)
        record = core.store.put(endpoint.table, current.key, marked)
        await core.store.settled(record.revision)
        return Answer(200, record)

    def _answer(self, endpoint: Endpoint, old: Object, last: Record | None) -> Answer:
        """Kinds with graceful deletion show the object, the others a Status."""
        kind = endpoint.storage.kind
        if kind.shows_deleted or type(kind).grace_period is not Kind.grace_period:
            return Answer(200, last, endpoint.from_storage(old))
        meta = old["metadata"]
        return Answer(200, None, success(endpoint.group, endpoint.plural, meta["name"], meta["uid"]))

    def check_preconditions(self, endpoint: Endpoint, options: DeleteOptions, old: Object) -> None:
        """Raises ApiError (409) when the object is not the one that is meant."""
        meta = old["metadata"]
        faults = []
        if options.uid and options.uid != meta["uid"]:
            faults.append(
                f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {meta['uid']}"
            )
        if options.resource_version and options.resource_version != meta["resourceVersion"]:
            faults.append(
                f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, "
                f"ResourceVersion in object meta: {meta['resourceVersion']}"
            )
        if faults:
            raise conflict(endpoint.group, endpoint.plural, meta["name"], faults[0])

    def _marked(
        self, call: Call, storage: Endpoint, options: DeleteOptions, old: Object
    ) -> tuple[Object, bool]:
        """The object after the mark (itself when nothing changes), and whether it goes at once."""
        kind = storage.kind
        old_meta = old["metadata"]
        finalizers = list(old_meta.get("finalizers") or ())
        policy = options.propagation or kind.default_propagation
        if options.propagation or not old_meta.get("deletionTimestamp"):
            kept = [one for one in finalizers if one not in _FINALIZERS.values()]
            wanted = _FINALIZERS.get(policy)
            if wanted is not None:
                kept.append(wanted)
            if sorted(kept) != sorted(finalizers):
                finalizers = kept
        now = self._core.clock.time()
        grace = min(kind.grace_period(old, options.grace), LONGEST_GRACE)
        deleting = old_meta.get("deletionTimestamp")
        left = old_meta.get("deletionGracePeriodSeconds") or 0
        meta: dict[str, Any] = old_meta
        if not deleting:
            meta = {
                **old_meta,
                "deletionTimestamp": time_text(int(now) + grace),
                "deletionGracePeriodSeconds": grace,
            }
            if kind.has_generation:
                meta["generation"] = old_meta.get("generation", 0) + 1
        elif grace < left:
            meta = {
                **old_meta,
                "deletionTimestamp": time_text(int(now) + grace),
                "deletionGracePeriodSeconds": grace,
            }
        if finalizers != list(old_meta.get("finalizers") or ()):
            meta = {**meta, "finalizers": finalizers}
            if not finalizers:
                del meta["finalizers"]
        marked = old if meta is old_meta else {**old, "metadata": meta}
        if not deleting:
            context = HookContext(self._core, call.user, options.dry_run)
            marked = kind.mark_deleted(marked, context)
        goes = (
            not finalizers and not meta.get("deletionGracePeriodSeconds") and not kind.holds_content(marked)
        )
        return marked, goes
