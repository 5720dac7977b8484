"""Serving what CustomResourceDefinitions define: an endpoint per served version, and the end of a definition.

A definition's endpoints are there from the moment its write is settled. A deleted definition's objects are
deleted first; then its endpoints go. Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from pykueue.api.objects import Object, is_deleting
from pykueue.embedded.apiserver.handlers.deletion import Deletion
from pykueue.embedded.apiserver.registry.call import Call, DeleteOptions, Target, User
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Convert, Endpoint, version_order
from pykueue.embedded.apiserver.webhooks.services import Services
from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.kinds.crd import CLEANUP_FINALIZER, is_established
from pykueue.embedded.objects.errors import bad_request
from pykueue.embedded.schema.walk import clean
from pykueue.embedded.store.memory import StoreError
from pykueue.embedded.store.records import Batch, Record
from pykueue.kube.errors import ApiError

from .conversion import WebhookConversion
from .kind import CustomKind
from .structural import custom_schema

log = logging.getLogger(__name__)

#: Seconds until what could not be deleted is tried again.
_RETRY = 1.0

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"

#: Converts an object to an API version of the same group.
GroupConversion = Callable[[Object, str], Object]


def _pruned(obj: Object, endpoint: Endpoint) -> Object:
    """A stored object in the name of another version, without the fields that version does not have."""
    found: Object = clean({**obj, "apiVersion": endpoint.api_version}, endpoint.schema.node, None, [])
    return found


def _deprecation(spec: Object, kind: Kind) -> str:
    """The warning about a deprecated version, with the best newer one that is not."""
    newer = [
        one["name"]
        for one in spec["versions"]
        if one.get("served")
        and not one.get("deprecated")
        and version_order(one["name"]) < version_order(kind.version)
    ]
    text = f"{kind.api_version} {kind.kind} is deprecated"
    if not newer:
        return text
    return f"{text}; use {kind.group}/{min(newer, key=version_order)} {kind.kind}"


class CustomResources:
    """Keeps the registry in step with the stored definitions."""

    def __init__(
        self, core: Core, deletion: Deletion, services: Services, spawn: Callable[..., asyncio.Task[Any]]
    ) -> None:
        self._core = core
        self._services = services
        self._deletion = deletion
        self._spawn = spawn
        self._served: dict[str, list[Endpoint]] = {}
        self._conversions: dict[str, GroupConversion] = {}
        self._ending: set[str] = set()
        core.on_stored(f"{GROUP}/{PLURAL}", self._on_stored)

    def register_conversion(self, group: str, conversion: GroupConversion) -> None:
        """Convert objects of a group between versions with a function of this process."""
        self._conversions[group] = conversion
        for crd in self._core.all_settled(GROUP, PLURAL):
            if crd["spec"]["group"] == group:
                self._serve(crd)

    def load(self) -> None:
        """Serve what the stored definitions define, and go on with ending those being deleted."""
        for crd in self._core.all_settled(GROUP, PLURAL):
            self._on_definition(crd)

    def _on_stored(self, new: Record | None, old: Record | None) -> None:
        if new is None:
            assert old is not None
            self._withdraw(old.key[1])
            return
        self._on_definition(new.object, old.object if old is not None else None)

    def _on_definition(self, crd: Object, old: Object | None = None) -> None:
        if old is None or crd["spec"] != old["spec"] or is_established(crd) != is_established(old):
            self._serve(crd)
        name = crd["metadata"]["name"]
        if is_deleting(crd) and name not in self._ending:
            self._ending.add(name)
            for endpoint in self._served.get(name, ()):
                endpoint.ending = True
            self._spawn(self._end(crd))

    def _withdraw(self, name: str) -> None:
        for endpoint in self._served.pop(name, ()):
            self._core.registry.remove(endpoint)

    def _serve(self, crd: Object) -> None:
        name = crd["metadata"]["name"]
        self._withdraw(name)
        if not is_established(crd):
            return
        spec = crd["spec"]
        versions = {one["name"]: one for one in spec["versions"]}
        stored = next(one for one in versions.values() if one["storage"])
        table = self._core.store.table(f"{spec['group']}/{spec['names']['plural']}")
        storage = self._endpoint(crd, stored, table, None)
        webhook = None
        if (spec.get("conversion") or {}).get("strategy") == "Webhook" and (
            spec["group"] not in self._conversions
        ):
            webhook = WebhookConversion(crd, self._services, self._core.rng, self._spawn)
        endpoints = [
            storage if one is stored else self._endpoint(crd, one, table, storage, webhook)
            for one in versions.values()
            if one.get("served") or one is stored
        ]
        # The stored version is the form of the table even when it is not served itself.
        served = [one for one in endpoints if versions[one.version].get("served")]
        self._served[name] = served
        for endpoint in served:
            endpoint.ending = is_deleting(crd)
            self._core.registry.add(endpoint)

    def _endpoint(
        self,
        crd: Object,
        version: Object,
        table: Any,
        storage: Endpoint | None,
        webhook: WebhookConversion | None = None,
    ) -> Endpoint:
        kind = CustomKind(crd, version)
        openapi = (version.get("schema") or {}).get("openAPIV3Schema")
        down: Convert | None = None
        up: Convert | None = None
        renamed = False
        endpoint: Endpoint
        if storage is not None:
            renamed = webhook is None and crd["spec"]["group"] not in self._conversions
            if renamed:
                stored = storage.api_version
                up, down = (lambda obj: {**obj, "apiVersion": stored}), (lambda obj: _pruned(obj, endpoint))
            else:
                up, down = self._converters(crd, storage.api_version, kind.api_version, webhook)
        warning = ""
        if version.get("deprecated"):
            warning = version.get("deprecationWarning") or _deprecation(crd["spec"], kind)
        endpoint = Endpoint(
            kind,
            lambda: custom_schema(kind.group, kind.version, kind.kind, kind.namespaced, openapi),
            table,
            storage,
            up,
            down,
            warning,
            custom=True,
            fingerprint=f"{crd['metadata']['uid']}:{crd['metadata'].get('generation', 0)}",
        )
        endpoint.renamed = renamed
        if webhook is not None:
            endpoint.fetch = webhook.fetch
        return endpoint

    def _converters(
        self, crd: Object, stored: str, other: str, webhook: WebhookConversion | None
    ) -> tuple[Convert, Convert]:
        convert = self._conversions.get(crd["spec"]["group"])
        if convert is None and webhook is not None:
            convert = webhook.convert

        def change(obj: Object, version: str) -> Object:
            assert convert is not None
            try:
                return convert(obj, version)
            except ValueError as error:
                raise bad_request(f"the object cannot be converted to {version}: {error}") from error

        return (lambda obj: change(obj, stored)), (lambda obj: change(obj, other))

    async def _end(self, crd: Object) -> None:
        """Delete all objects of a definition, wait until they are gone, then let the definition go."""
        core, name = self._core, crd["metadata"]["name"]
        spec = crd["spec"]
        endpoint = core.registry.storage(spec["group"], spec["names"]["plural"])
        if endpoint is not None:
            await self._delete_all(endpoint)
        definitions = core.registry.storage(GROUP, PLURAL)
        assert definitions is not None
        while (record := definitions.table.get(("", name))) is not None:
            meta = record.object["metadata"]
            finalizers = [one for one in meta.get("finalizers") or () if one != CLEANUP_FINALIZER]
            if finalizers == (meta.get("finalizers") or []):
                break
            if finalizers:
                changed = {**record.object, "metadata": {**meta, "finalizers": finalizers}}
                last = core.store.put(definitions.table, record.key, changed)
            else:
                last = core.store.remove(definitions.table, record.key)
            try:
                await core.store.settled(last.revision)
            except StoreError as error:
                log.warning("removing the finalizer of %s: %s", name, error)
                await core.clock.sleep(_RETRY)
        self._ending.discard(name)

    async def _delete_all(self, endpoint: Endpoint) -> None:
        table = endpoint.table
        changed = asyncio.Event()

        def on_batch(_: Batch) -> None:
            changed.set()

        unsubscribe = table.subscribe(on_batch)
        try:
            while table.count:
                changed.clear()
                retry = False
                for record in table.records():
                    if is_deleting(record.object):
                        continue
                    namespace, name = record.key
                    call = Call("DELETE", Target(endpoint, namespace, name, ""), {}, _CLEANER)
                    try:
                        await self._deletion.remove(call, _BACKGROUND, record)
                    except (ApiError, StoreError) as error:
                        log.warning("deleting %s %s/%s: %s", endpoint.plural, namespace, name, error)
                        retry = True
                if retry:
                    await self._core.clock.sleep(_RETRY)
                elif table.count:
                    await changed.wait()
        finally:
            unsubscribe()


_CLEANER = User("system:apiserver", ("system:masters",))
_BACKGROUND = DeleteOptions("Background", None, "", "", False)
