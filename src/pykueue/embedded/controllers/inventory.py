"""Every object of the cluster, as far as deletion is concerned: identity, owners, finalizers.

One watch per resource feeds it, and resources are discovered again whenever a CustomResourceDefinition
changes. The garbage collector and the namespace controller read it. Events are left out: they neither own
objects nor have owners, and there are many.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import CRDS, Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.kube.transport import Request

#: Seconds by which discovery follows a change of a definition, so that many changes cost one.
DISCOVERY_DELAY = 0.1
#: Seconds until discovery is tried again when the server could not answer.
DISCOVERY_RETRY = 1.0

_NEEDED_VERBS = {"list", "watch", "delete"}

log = logging.getLogger(__name__)


class Owner(NamedTuple):
    """An owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str
    #: Whether the owner, deleted in the foreground, waits for this dependent.
    blocks: bool


class Entry(NamedTuple):
    """What is kept of an object."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: str
    deleting: bool
    owners: tuple[Owner, ...]
    finalizers: tuple[str, ...]


#: Called with an entry before (None when new) and after (None when gone) a change.
Listener = Callable[[Entry | None, Entry | None], None]


def entry_of(resource: Resource, obj: Object) -> Entry:
    """The entry of an object."""
    metadata = obj["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return Entry(
        resource,
        metadata.get("namespace") or "",
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        bool(metadata.get("deletionTimestamp")),
        tuple(
            Owner(
                one["apiVersion"], one["kind"], one["name"], one["uid"], bool(one.get("blockOwnerDeletion"))
            )
            for one in owners
        ),
        tuple(metadata.get("finalizers") or ()),
    )


class Inventory:
    """Keeps the entries of all objects up to date; run by `run`."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._content: dict[str, dict[str, None]] = {}
        #: All namespaced resources whose objects can be deleted, events included.
        self.namespaced: tuple[Resource, ...] = ()
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._watched: dict[Resource, tuple[Informer, asyncio.Task[None]]] = {}
        self._listeners: list[Listener] = []
        self._discovery_listeners: list[Callable[[], None]] = []
        self._stale = asyncio.Event()
        self._discovered = asyncio.Event()

    # Reading

    def get(self, uid: str) -> Entry | None:
        """The object with that UID, if there is one."""
        return self._entries.get(uid)

    def dependents(self, uid: str) -> list[Entry]:
        """The objects that name that UID as an owner."""
        return [self._entries[one] for one in self._dependents.get(uid, ())]

    def content(self, namespace: str) -> list[Entry]:
        """The objects in a namespace."""
        return [self._entries[one] for one in self._content.get(namespace, ())]

    def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """The resource that serves a kind, whatever version names it."""
        return self._kinds.get((api_version.rpartition("/")[0], kind))

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with every change of an entry."""
        self._listeners.append(listener)

    def on_discovery(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the set of resources has been read again."""
        self._discovery_listeners.append(listener)

    async def synced(self) -> None:
        """Wait until everything there was at the start is known."""
        await self._discovered.wait()
        for informer, _ in list(self._watched.values()):
            await informer.synced()

    # Following

    async def run(self) -> None:
        """Follow all resources until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._stale.clear()
                try:
                    found = await self._discover()
                except (ApiError, ConnectionError, TimeoutError) as error:
                    log.info("discovery failed: %s", error)
                    await self._clock.sleep(DISCOVERY_RETRY)
                    continue
                self._follow(group, found)
                self._discovered.set()
                for listener in self._discovery_listeners:
                    listener()
                await self._stale.wait()
                await self._clock.sleep(DISCOVERY_DELAY)

    async def _discover(self) -> list[Resource]:
        """The resources to follow, one version of each."""
        groups = [("", "v1", ["v1"])]
        listed = await self._client.call(Request("GET", "/apis"))
        for group in listed.get("groups") or ():
            versions = [one["version"] for one in group.get("versions") or ()]
            groups.append((group["name"], group["preferredVersion"]["version"], versions))
        kinds: dict[tuple[str, str], Resource] = {}
        found: dict[tuple[str, str], Resource] = {}
        for name, preferred, versions in groups:
            for version in sorted(versions, key=lambda one: one != preferred):
                for resource, verbs in await self._resources(name, version):
                    if verbs >= _NEEDED_VERBS:
                        chosen = found.setdefault((name, resource.plural), resource)
                        kinds.setdefault((name, resource.kind), chosen)
        self._kinds = kinds
        self.namespaced = tuple(resource for resource in found.values() if resource.namespaced)
        return [resource for resource in found.values() if resource.plural != "events"]

    async def _resources(self, group: str, version: str) -> list[tuple[Resource, set[str]]]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = await self._client.call(Request("GET", path))
        except ApiError as error:
            if error.not_found:
                return []
            raise
        return [
            (
                Resource(group, version, one["name"], one["kind"], bool(one["namespaced"])),
                set(one.get("verbs") or ()),
            )
            for one in answer.get("resources") or ()
            if "/" not in one["name"]
        ]

    def _follow(self, group: asyncio.TaskGroup, found: Iterable[Resource]) -> None:
        wanted = set(found)
        for resource in [one for one in self._watched if one not in wanted]:
            informer, task = self._watched.pop(resource)
            task.cancel()
            for entry in informer.list():
                self._note(entry, None)
        for resource in found:
            if resource not in self._watched:
                informer = Informer(self._client, resource, clock=self._clock, transform=_transform(resource))
                informer.on_event(self._heard)
                self._watched[resource] = (informer, group.create_task(informer.run()))

    def _heard(self, type_: str, old: Any, new: Any) -> None:
        self._note(old, new)
        resource: Resource = (new or old).resource
        if resource.group == CRDS.group and resource.plural == CRDS.plural:
            self._stale.set()

    def _note(self, old: Entry | None, new: Entry | None) -> None:
        if old is not None and (new is None or old.owners != new.owners):
            for owner in old.owners:
                _discard(self._dependents, owner.uid, old.uid)
        if new is None:
            assert old is not None
            self._entries.pop(old.uid, None)
            _discard(self._content, old.namespace, old.uid)
        else:
            self._entries[new.uid] = new
            for owner in new.owners:
                self._dependents.setdefault(owner.uid, {})[new.uid] = None
            if new.namespace:
                self._content.setdefault(new.namespace, {})[new.uid] = None
        for listener in self._listeners:
            listener(old, new)


def _transform(resource: Resource) -> Callable[[Object], Entry]:
    def transform(obj: Object) -> Entry:
        return entry_of(resource, obj)

    return transform


def _discard(index: dict[str, dict[str, None]], key: str, uid: str) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(uid, None)
        if not found:
            del index[key]
