"""Every object of the cluster, as far as deletion is concerned: identity, owners, finalizers.

One watch per resource feeds it, that of the other controllers where they have one. Resources are discovered
again whenever a CustomResourceDefinition changes. The garbage collector and the namespace controller read it.
Events are left out: they neither own objects nor have owners, and there are many.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import CRDS, Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Handler, Informer, InformerFactory
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
    return Entry(
        resource,
        metadata.get("namespace") or "",
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        bool(metadata.get("deletionTimestamp")),
        _owners(metadata.get("ownerReferences") or ()),
        tuple(metadata.get("finalizers") or ()),
    )


def _changed_entry(entry: Entry, old: Object, new: Object) -> Entry:
    """The entry of an object that has changed, most often in nothing that is kept but its version."""
    before, after = old["metadata"], new["metadata"]
    owners, finalizers = after.get("ownerReferences"), after.get("finalizers")
    return Entry(
        entry.resource,
        entry.namespace,
        entry.name,
        entry.uid,
        after["resourceVersion"],
        bool(after.get("deletionTimestamp")),
        entry.owners if owners is before.get("ownerReferences") else _owners(owners or ()),
        entry.finalizers if finalizers is before.get("finalizers") else tuple(finalizers or ()),
    )


def _owners(references: Iterable[Object]) -> tuple[Owner, ...]:
    return tuple(
        Owner(one["apiVersion"], one["kind"], one["name"], one["uid"], bool(one.get("blockOwnerDeletion")))
        for one in references
    )


class _Followed(NamedTuple):
    """A resource that is followed."""

    informer: Informer
    handler: Handler
    #: Runs the informer; None for one of the other controllers.
    task: asyncio.Task[None] | None


class Inventory:
    """Keeps the entries of all objects up to date; run by `run`, beside `informers` of other controllers."""

    def __init__(self, client: Client, informers: InformerFactory, clock: Clock) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._content: dict[str, dict[str, None]] = {}
        #: All namespaced resources whose objects can be deleted, events included.
        self.namespaced: tuple[Resource, ...] = ()
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._followed: dict[Resource, _Followed] = {}
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
        for one in list(self._followed.values()):
            await one.informer.synced()

    # Following

    async def run(self) -> None:
        """Follow all resources until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._stale.clear()
                found: list[Resource] | None = None
                try:
                    found = await self._discover()
                except (ApiError, ConnectionError, TimeoutError) as error:
                    log.info("discovery failed: %s", error)
                if found is None:
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
        for resource in [one for one in self._followed if one not in wanted]:
            informer, handler, task = self._followed.pop(resource)
            informer.off_event(handler)
            if task is not None:
                task.cancel()
            for entry in [one for one in self._entries.values() if one.resource == resource]:
                self._note(entry, None)
        for resource in found:
            if resource not in self._followed:
                self._followed[resource] = self._follow_one(group, resource)

    def _follow_one(self, group: asyncio.TaskGroup, resource: Resource) -> _Followed:
        shared = self._informers.whole(resource)
        if shared is not None:
            handler = partial(self._heard_object, resource)
            shared.on_event(handler)
            return _Followed(shared, handler, None)
        transform = partial(entry_of, resource)
        informer = Informer(self._client, resource, clock=self._clock, transform=transform)
        informer.on_event(self._heard)
        return _Followed(informer, self._heard, group.create_task(informer.run()))

    def _heard_object(self, resource: Resource, type_: str, old: Any, new: Any) -> None:
        entry = None if old is None else self._entries.get(old["metadata"]["uid"])
        if new is None:
            if entry is not None:
                self._heard(type_, entry, None)
        elif entry is None:
            self._heard(type_, None, entry_of(resource, new))
        else:
            self._heard(type_, entry, _changed_entry(entry, old, new))

    def _heard(self, type_: str, old: Entry | None, new: Entry | None) -> None:
        self._note(old, new)
        entry = new or old
        assert entry is not None
        if entry.resource.group == CRDS.group and entry.resource.plural == CRDS.plural:
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


def _discard(index: dict[str, dict[str, None]], key: str, uid: str) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(uid, None)
        if not found:
            del index[key]
