"""The garbage collector: deletes objects whose owners are gone, in the order their deletion asked for.

An object all of whose owners are gone (by UID) is deleted; as long as one is real, only the dangling
references are dropped. An owner deleted in the foreground stays until the dependents that block it are gone;
one deleted with Orphan leaves its dependents behind without the reference. Source:
docs/reference/cluster-workloads.md, 4.9; docs/reference/kubernetes-api-machinery.md, 13.

Nothing is remembered that the API does not say, so a restart changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any

from pykueue.clock import Clock
from pykueue.embedded.controllers.inventory import Entry, Inventory, Owner, entry_of
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING, EventRecorder

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

WORKERS = 20

log = logging.getLogger(__name__)


class _Owner(Enum):
    """How an owner stands."""

    THERE = "there"
    GONE = "gone"
    #: Being deleted in the foreground: it waits for its dependents.
    WAITS = "waits"
    #: Of a kind the server does not know, or invalid: nothing follows from it.
    UNKNOWN = "unknown"


class GarbageCollector:
    """Keyed by UID; run by `run`, beside its inventory and recorder."""

    def __init__(self, client: Client, inventory: Inventory, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._inventory = inventory
        self._recorder = recorder
        self._controller: Controller[str] = Controller(
            "garbage-collector", self._look, clock=clock, workers=WORKERS, wait_for=[inventory.synced]
        )
        self._queue = self._controller.queue
        #: Objects with an owner of a kind that is not served (yet).
        self._unresolved: set[str] = set()
        inventory.on_change(self._changed)
        inventory.on_discovery(self._resources_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    # What to look at

    def _changed(self, old: Entry | None, new: Entry | None) -> None:
        if new is not None and self._concerns(new):
            self._queue.add(new.uid)
        if old is not None and new is None:
            self._unresolved.discard(old.uid)
            for dependent in self._inventory.dependents(old.uid):
                self._queue.add(dependent.uid)
        if old is not None and old.owners and (new is None or new.owners != old.owners):
            for owner in old.owners:
                waiting = self._inventory.get(owner.uid)
                if waiting is not None and waiting.deleting and FOREGROUND in waiting.finalizers:
                    self._queue.add(owner.uid)

    def _concerns(self, entry: Entry) -> bool:
        """Whether there may be something to do about an object."""
        if entry.deleting and _waits(entry.finalizers):
            return True
        return any(self._may_be_over(owner) for owner in entry.owners)

    def _may_be_over(self, owner: Owner) -> bool:
        known = self._inventory.get(owner.uid)
        return known is None or (known.deleting and FOREGROUND in known.finalizers)

    def _resources_changed(self) -> None:
        for uid in sorted(self._unresolved):
            self._queue.add(uid)
        self._unresolved.clear()

    # Looking at one object

    async def _look(self, uid: str) -> None:
        entry = self._inventory.get(uid)
        if entry is None:
            return
        try:
            if entry.deleting:
                if ORPHAN in entry.finalizers:
                    await self._orphan(entry)
                elif FOREGROUND in entry.finalizers:
                    await self._foreground(entry)
                return
            if entry.owners:
                await self._owned(entry)
        except ApiError as error:
            if not error.not_found:
                raise
            # Gone in the meantime; the watch will say so.

    async def _owned(self, entry: Entry) -> None:
        standing = {owner: await self._standing(entry, owner) for owner in entry.owners}
        if _Owner.UNKNOWN in standing.values():
            self._unresolved.add(entry.uid)
            return
        over = {owner.uid for owner, how in standing.items() if how is not _Owner.THERE}
        if not over:
            return
        if _Owner.THERE in standing.values():
            await self._drop_references(entry, over)
        elif _Owner.WAITS in standing.values() and self._inventory.dependents(entry.uid):
            await self._delete(entry, "Foreground")
        elif ORPHAN in entry.finalizers:
            await self._delete(entry, "Orphan")
        elif FOREGROUND in entry.finalizers:
            await self._delete(entry, "Foreground")
        else:
            await self._delete(entry, "Background")

    async def _standing(self, entry: Entry, owner: Owner) -> _Owner:
        known = self._inventory.get(owner.uid)
        if known is not None and known.namespace in ("", entry.namespace):
            return _Owner.WAITS if known.deleting and FOREGROUND in known.finalizers else _Owner.THERE
        resource = self._inventory.resource_of(owner.api_version, owner.kind)
        if resource is None:
            return _Owner.UNKNOWN
        if known is not None or (resource.namespaced and not entry.namespace):
            self._tell_invalid(entry, owner)
            if not entry.namespace:
                return _Owner.UNKNOWN
        # Asked of the server: the watch of the owner's resource may be behind that of the dependent's.
        found = await self._client.find(
            resource, owner.name, entry.namespace if resource.namespaced else None
        )
        if found is None:
            return _Owner.GONE
        there = entry_of(resource, found)
        if there.uid != owner.uid:
            return _Owner.GONE
        return _Owner.WAITS if there.deleting and FOREGROUND in there.finalizers else _Owner.THERE

    def _tell_invalid(self, entry: Entry, owner: Owner) -> None:
        about = {
            "apiVersion": entry.resource.api_version,
            "kind": entry.resource.kind,
            "metadata": {"name": entry.name, "namespace": entry.namespace, "uid": entry.uid},
        }
        text = (
            f"ownerRef [{owner.api_version}/{owner.kind}, namespace: {entry.namespace}, name: {owner.name}, "
            f"uid: {owner.uid}] does not exist in namespace {entry.namespace!r}"
        )
        self._recorder.event(about, WARNING, "OwnerRefInvalidNamespace", text)

    async def _foreground(self, entry: Entry) -> None:
        blocking = [
            one
            for one in self._inventory.dependents(entry.uid)
            if any(owner.uid == entry.uid and owner.blocks for owner in one.owners)
        ]
        for dependent in self._inventory.dependents(entry.uid):
            if not dependent.deleting:
                self._queue.add(dependent.uid)
        if not blocking:
            await self._drop_finalizer(entry, FOREGROUND)

    async def _orphan(self, entry: Entry) -> None:
        for dependent in self._inventory.dependents(entry.uid):
            try:
                await self._drop_references(dependent, {entry.uid})
            except ApiError as error:
                if not error.not_found:
                    raise
        await self._drop_finalizer(entry, ORPHAN)

    # Writing

    async def _delete(self, entry: Entry, propagation: str) -> None:
        """Delete the object as it was looked at: should it change in between, it is looked at again."""
        await self._client.delete(
            entry.resource,
            entry.name,
            entry.namespace or None,
            propagation=propagation,
            uid=entry.uid,
            resource_version=entry.version,
        )

    async def _drop_references(self, entry: Entry, owners: Collection[str]) -> None:
        await self._change(
            entry,
            "ownerReferences",
            lambda references: [one for one in references if one["uid"] not in owners],
        )

    async def _drop_finalizer(self, entry: Entry, finalizer: str) -> None:
        await self._change(
            entry, "finalizers", lambda finalizers: [one for one in finalizers if one != finalizer]
        )

    async def _change(self, entry: Entry, field: str, change: Callable[[list[Any]], list[Any]]) -> None:
        """Write one list of the object's metadata, based on what the server has now."""
        obj = await self._client.get(entry.resource, entry.name, entry.namespace or None)
        metadata = obj["metadata"]
        old = list(metadata.get(field) or ())
        new = change(old)
        if metadata["uid"] != entry.uid or new == old:
            return
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], field: new or None}}
        await self._client.patch(entry.resource, entry.name, entry.namespace or None, patch)


def _waits(finalizers: Collection[str]) -> bool:
    return FOREGROUND in finalizers or ORPHAN in finalizers
