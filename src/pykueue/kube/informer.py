"""Watch caches: the objects of one resource as the API server shows them, kept up to date.

A cache lists once, then follows the watch. When the watch breaks it goes on where it stopped; when the server
no longer remembers that point (410) it lists again and tells its handlers only what really changed. Events of
one cache are delivered strictly in the order of their versions, and none is skipped: an object that came
and went
while the connection was down is the only event a handler does not get.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import aclosing
from operator import itemgetter
from sys import intern
from typing import Any, Literal, NamedTuple

import orjson

from pykueue.api.backoff import exponential_delay
from pykueue.api.json_bytes import encode_kept
from pykueue.api.objects import Key, Object, key_of
from pykueue.api.resources import CRDS, Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.compression import Compressed, Compressor
from pykueue.kube.entries import Entry
from pykueue.kube.errors import ApiError
from pykueue.kube.indexes import Index, KeyFunction, move_in

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"

#: Annotation of the bookmark that ends the initial events of a streamed list.
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

#: Delay before the connection is tried again, in seconds: doubles from the first to the second.
BACKOFF_BASE = 0.8
BACKOFF_CAP = 30.0
#: Seconds between looks for an optional resource that is not served, where definitions cannot be watched.
ABSENT_POLL = 5.0
#: A watch that ends within this many seconds without a single event counts as a failure.
SHORT_WATCH = 1.0
#: Objects of one cache, the last stored, that are not packed yet.
RECENT = 150
#: Texts of one cache, the last packed of those that are compressed later, that are not compressed yet.
TEXTS = 500
#: Packed objects of one cache, the last unpacked, that are kept unpacked as well.
OPENED = 64

#: Called with the kind of change, the object before (None for ADDED) and after (None for DELETED).
Handler = Callable[[str, Any, Any], None]
#: How an object is kept that is seldom read; None as it is.
Packing = Literal["text", "compressed", "compressed later"] | None
Objects = list[Any]

log = logging.getLogger(__name__)


def _object(entry: Entry) -> Any:
    """The object that an entry keeps."""
    kept = entry.kept
    if type(kept) is not bytes:
        return kept
    return orjson.loads(kept if entry.dictionary is None else Compressed(kept, entry.dictionary).text)


class _Listing(NamedTuple):
    """The part of a list that has come so far."""

    #: The uids of its objects.
    present: dict[Key, str]
    #: Those that are not in the cache as they are here.
    changed: dict[Key, Entry]


class Informer:
    """A cache of one resource, or of the part of it that a namespace and selectors pick out.

    `transform` turns each object into what is kept (a typed view, or fewer fields) to save memory; without it
    the objects themselves are kept, which for a server in the same process costs nothing. With `stream` the
    first list comes as a watch, so that it is never in memory as a whole; servers that cannot do that are
    asked for a plain list. An `optional` resource that the server does not serve has no objects: the cache is
    synced with nothing in it, and lists again when the CustomResourceDefinition of the resource appears.

    Objects for which `pack` says so are kept as text, a fifth of the memory, and decoded each time they are
    read (3 us for a Workload); as compressed text a sixth of that, for 7 us when it is kept and 1 us when it
    is read. The RECENT last stored are not packed: most objects are read, and change, several times shortly
    after.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        *,
        clock: Clock | None = None,
        transform: Callable[[Object], Any] | None = None,
        pack: Callable[[Object], Packing] | None = None,
        stream: bool = False,
        optional: bool = False,
    ) -> None:
        self.resource = resource
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._clock = clock or Clock()
        self._transform = transform
        self._pack = pack
        self._stream = stream
        self._optional = optional
        self._compressor = Compressor()
        self._entries: dict[Key, Entry] = {}
        #: Packed entries that were unpacked last, with their objects: what is read is often written next.
        self._opened: dict[Key, tuple[Entry, Any]] = {}
        #: Entries that are not packed although `pack` may say so; the first is packed next.
        self._unpacked: OrderedDict[Key, None] = OrderedDict()
        #: Entries that are kept as text until there are enough of them: most change before.
        self._texts: deque[tuple[Key, Entry]] = deque()
        self._indexes: dict[str, Index] = {}
        self._handlers: list[tuple[int, Handler]] = []
        self._version: str | None = None
        self._is_served = True
        #: Objects noted as gone, until the watch or a list says so too.
        self._gone: set[str] = set()
        self._synced = asyncio.Event()

    # Reading

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, namespace: str | None, name: str) -> Any | None:
        """The cached object, or None."""
        key = (namespace or "", name)
        entry = self._entries.get(key)
        if entry is None:
            return None
        kept = entry.kept
        return kept if type(kept) is not bytes else self._opened_again(key, entry)

    def _opened_again(self, key: Key, entry: Entry) -> Any:
        """An object that is packed, which may have been read before."""
        opened = self._opened
        known = opened.get(key)
        if known is not None and known[0] is entry:
            return known[1]
        obj = _object(entry)
        if len(opened) >= OPENED:
            del opened[next(iter(opened))]
        opened[key] = (entry, obj)
        return obj

    def keys(self) -> tuple[Key, ...]:
        """The keys of all cached objects."""
        return tuple(self._entries)

    def list(self, namespace: str | None = None) -> Objects:
        """All cached objects, or those of one namespace."""
        if namespace is None:
            return [_object(entry) for entry in self._entries.values()]
        return [_object(entry) for key, entry in self._entries.items() if key[0] == namespace]

    def add_index(
        self, name: str, key_function: KeyFunction, *, of_metadata: bool = False, of_spec: bool = False
    ) -> None:
        """Keep objects findable by the keys `key_function` gives them; the same name twice is one index."""
        if name in self._indexes:
            return
        index = self._indexes[name] = Index(key_function, of_metadata, of_spec)
        for key, entry in self._entries.items():
            index.add(key, _object(entry))

    def by_index(self, name: str, key: Hashable) -> Objects:
        """The objects that have `key` in that index, in the order in which they got it."""
        return [_object(self._entries[found]) for found in self._indexes[name].keys.get(key, ())]

    def keys_by_index(self, name: str, key: Hashable) -> tuple[Key, ...]:
        """The keys of the objects that `by_index` returns, which are not read for it."""
        return tuple(self._indexes[name].keys.get(key, ()))

    def on_event(self, handler: Handler, order: int = 0) -> None:
        """Call `handler` for every change, beginning with an ADDED for everything that is cached already.

        Handlers are called in ascending `order`; those of the same order as they were added.
        """
        insort(self._handlers, (order, handler), key=itemgetter(0))
        for entry in list(self._entries.values()):
            try:
                handler(ADDED, None, _object(entry))
            except Exception:
                log.exception("an event handler failed on %s", ADDED)

    def off_event(self, handler: Handler) -> None:
        """Call a handler no longer."""
        self._handlers = [(order, one) for order, one in self._handlers if one != handler]

    def note(self, obj: Object) -> None:
        """Take in what a write returned, without waiting for the watch to show it.

        A reader of the cache sees its own writes, and handlers are called at once; the
        watch then repeats nothing, and never leads the cache back behind it. What the watch has already
        passed by is not taken: it may be gone again.
        """
        entry = self._entry(obj)
        if entry is None or entry.uid in self._gone or not self.has_synced:
            return
        # While the cache lists again it has no version: the list then says whether the object is still there.
        if self._version is not None and not _older(_number(self._version), entry.version):
            return
        known = self._entries.get(key_of(obj))
        if known is None or _older(known.version, entry.version):
            self._store(key_of(obj), entry)

    def note_gone(self, obj: Object) -> None:
        """Take in that a delete succeeded: the object is gone, whatever older events are still to come."""
        known = self._entries.get(key_of(obj))
        uid = obj["metadata"].get("uid", "")
        if known is not None and known.uid == uid:
            self._gone.add(uid)
            self._delete(key_of(obj), known)

    @property
    def has_synced(self) -> bool:
        """Whether the handlers have got all objects of the first list."""
        return self._synced.is_set()

    @property
    def is_served(self) -> bool:
        """False while the server does not serve the resource, which is optional."""
        return self._is_served

    async def synced(self) -> None:
        """Wait for the first list."""
        await self._synced.wait()

    # Following the server

    async def run(self) -> None:
        """Keep the cache up to date until cancelled."""
        failures = 0
        while True:
            started = asyncio.get_running_loop().time()
            before = self._version
            absent = False
            try:
                if self._version is None:
                    await self._list()
                    self._is_served = True
                await self._watch()
            except ApiError as error:
                if error.expired:
                    log.info("%s: version %s is forgotten by the server; listing again", self, self._version)
                    self._version = None
                elif error.not_found and self._optional:
                    self._absent()
                    absent = True
                else:
                    log.warning("%s: %s", self, error)
            except (ConnectionError, TimeoutError) as error:
                log.info("%s: connection lost: %s", self, error)
            else:
                if asyncio.get_running_loop().time() - started >= SHORT_WATCH:
                    failures = 0
                    continue
            if absent:
                started = asyncio.get_running_loop().time()
                await self._definition()
                # A definition that exists is served a little later, or never in the version asked for.
                if asyncio.get_running_loop().time() - started >= SHORT_WATCH:
                    failures = 0
            if self._version is not None and self._version != before:
                failures = 0
            await self._clock.sleep(exponential_delay(BACKOFF_BASE, BACKOFF_CAP, failures))
            failures += 1

    def _absent(self) -> None:
        """The server does not serve the resource (any more)."""
        if not self.has_synced or self._version is not None:
            log.info("%s: not served", self)
        self._version = None
        self._is_served = False
        for key, entry in list(self._entries.items()):
            self._delete(key, entry)
        self._synced.set()

    async def _definition(self) -> None:
        """Wait until the CustomResourceDefinition of the resource exists, or for a change of it.

        Where definitions cannot be watched, for ABSENT_POLL seconds.
        """
        name = f"{self.resource.plural}.{self.resource.group}"
        watch = self._client.watch(CRDS, field_selector=f"metadata.name={name}")
        try:
            async with aclosing(watch) as events:
                async for type_, _ in events:
                    if type_ in (ADDED, MODIFIED):
                        return
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.debug("%s: cannot watch the definition: %s", self, error)
        await self._clock.sleep(ABSENT_POLL)

    def __str__(self) -> str:
        where = f" in {self._namespace}" if self._namespace else ""
        return f"cache of {self.resource.plural}{where}"

    async def _list(self) -> None:
        if self._stream:
            try:
                await self._list_streamed()
                return
            except ApiError as error:
                if error.expired or error.code == 429:
                    raise
                # A server whose storage cannot report progress says so with 500. Where it is the server that
                # fails, the plain list fails too.
                log.info("%s: the server cannot stream lists (%s)", self, error)
                self._stream = False
        listing = _Listing({}, {})
        async for page in self._client.pages(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        ):
            self._listed(listing, page.items)
            version = page.resource_version
        self._complete(listing, version)

    async def _list_streamed(self) -> None:
        """Take the first list from a watch, and go on with the same watch."""
        listing = _Listing({}, {})
        watch = self._client.watch(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            initial_events=True,
        )
        async with aclosing(watch) as events:
            complete = False
            async for type_, obj in events:
                if complete:
                    self._take(type_, obj)
                elif type_ == BOOKMARK:
                    if INITIAL_EVENTS_END in (obj["metadata"].get("annotations") or {}):
                        complete = True
                        self._complete(listing, obj["metadata"]["resourceVersion"])
                elif type_ == DELETED:
                    listing.present.pop(key_of(obj), None)
                    listing.changed.pop(key_of(obj), None)
                else:
                    self._listed(listing, [obj])
            if not complete:
                raise ConnectionError("the watch ended before the list was complete")

    def _listed(self, listing: _Listing, objects: Iterable[Object]) -> None:
        """Take in a part of a list.

        At once where it is the first list, so that it is never in memory as a whole. Of a later one, what is
        gone comes first.
        """
        for obj in objects:
            key, entry = key_of(obj), self._entry(obj)
            if entry is None:
                continue
            known = self._entries.get(key)
            listing.present[key] = entry.uid
            if known is not None and known.uid == entry.uid and not _older(known.version, entry.version):
                continue
            if self.has_synced:
                listing.changed[key] = entry
            else:
                self._store(key, entry)

    def _complete(self, listing: _Listing, version: str) -> None:
        """All of a list was taken in; it shows the objects as they were at `version`."""
        self._replace(listing, version)
        self._version = version
        self._synced.set()

    async def _watch(self) -> None:
        watch = self._client.watch(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            resource_version=self._version,
        )
        async with aclosing(watch) as events:
            async for type_, obj in events:
                self._take(type_, obj)

    def _take(self, type_: str, obj: Object) -> None:
        metadata = obj["metadata"]
        if type_ != BOOKMARK:
            version = _number(metadata["resourceVersion"])
            key, uid = key_of(obj), metadata.get("uid", "")
            known = self._entries.get(key)
            # What a write of our own brought is not taken back when the watch comes to where it was before.
            if uid in self._gone:
                if type_ == DELETED:
                    self._gone.discard(uid)
            elif type_ == DELETED or known is None or _older(known.version, version):
                entry = self._entry(obj)
                if entry is not None and type_ != DELETED:
                    self._store(key, entry)
                elif known is None or known.uid == uid or _older(known.version, version):
                    self._delete(key, entry)
        self._version = metadata["resourceVersion"]

    def _replace(self, listing: _Listing, version: str) -> None:
        shown = _number(version)
        gone = [
            key
            for key, entry in self._entries.items()
            if key not in listing.present and not _older(shown, entry.version, unknown=False)
        ]
        for key in gone:
            self._delete(key, self._entries[key])
        self._gone.intersection_update(listing.present.values())
        for key, entry in listing.changed.items():
            if entry.uid in self._gone:
                continue
            known = self._entries.get(key)
            if known is None or known.uid != entry.uid or _older(known.version, entry.version):
                self._store(key, entry)

    def _store(self, key: Key, entry: Entry) -> None:
        known = self._entries.get(key)
        if known is None:
            key = (intern(key[0]), key[1])  # one text of each namespace
        if known is not None and known.uid != entry.uid:
            # Deleted and created again while there was no watch: two objects; handlers get both events.
            self._delete(key, known)
            known = None
        if known is not None:
            entry.uid = known.uid  # one text for all versions of an object
        new = entry.kept
        self._keep(key, entry)
        if known is None:
            for index in self._indexes.values():
                index.add(key, new)
            self._notify(ADDED, None, new)
            return
        opened = self._opened.pop(key, None)
        old = _object(known) if opened is None or opened[0] is not known else opened[1]
        move_in(self._indexes.values(), key, old, new)
        self._notify(MODIFIED, old, new)

    def _delete(self, key: Key, last: Entry | None) -> None:
        known = self._entries.pop(key, None)
        if known is None:
            return
        self._unpacked.pop(key, None)
        self._opened.pop(key, None)
        before = _object(known)
        for index in self._indexes.values():
            index.remove(key, before)
        self._notify(DELETED, before if last is None else _object(last), None)

    def _notify(self, type_: str, old: Any, new: Any) -> None:
        for _, handler in self._handlers:
            try:
                handler(type_, old, new)
            except Exception:
                # The cache and the other handlers go on: one's fault must not cost them this event.
                log.exception("an event handler failed on %s", type_)

    def _keep(self, key: Key, entry: Entry) -> None:
        """Keep the entry as it is for the present, and pack the one that was stored longest ago."""
        self._entries[key] = entry
        if self._pack is None:
            return
        self._unpacked[key] = None
        self._unpacked.move_to_end(key)
        if len(self._unpacked) > RECENT:
            oldest, _ = self._unpacked.popitem(last=False)
            self._pack_entry(self._pack, oldest, self._entries[oldest])

    def _pack_entry(self, pack: Callable[[Object], Packing], key: Key, entry: Entry) -> None:
        """Turn the entry into what it is kept as for long."""
        packing = pack(entry.kept)
        if packing == "compressed":
            entry.kept, entry.dictionary = self._compressor.compress(orjson.dumps(entry.kept))
        elif packing is not None:
            entry.kept = encode_kept(entry.kept)
            if packing == "compressed later":
                self._texts.append((key, entry))
                if len(self._texts) > TEXTS:
                    key, entry = self._texts.popleft()
                    if self._entries.get(key) is entry:
                        entry.kept, entry.dictionary = self._compressor.compress(entry.kept)

    def _entry(self, obj: Object) -> Entry | None:
        """What is kept of an object; None when it cannot be read, and is then as good as absent."""
        metadata = obj["metadata"]
        try:
            kept = obj if self._transform is None else self._transform(obj)
        except Exception:
            log.exception("%s: cannot read %s/%s", self, *key_of(obj))
            return None
        return Entry(metadata.get("uid", ""), _number(metadata.get("resourceVersion", "")), kept)


def _number(version: str) -> int | str:
    """A version as the number that most servers count with, which takes less memory."""
    try:
        return int(version)
    except ValueError:
        return version


def _older(version: int | str, other: int | str, unknown: bool = True) -> bool:
    """Whether `version` comes before `other`; `unknown` where they differ and are not numbers to compare."""
    if isinstance(version, int) and isinstance(other, int):
        return version < other
    return unknown and version != other


class InformerFactory:
    """One cache per resource and selection, however many controllers ask for it.

    Caches may be asked for before and while the factory runs.
    """

    def __init__(self, client: Client, *, clock: Clock | None = None, stream: bool = False) -> None:
        self._client = client
        self._clock = clock or Clock()
        self._stream = stream
        self._informers: dict[tuple[object, ...], Informer] = {}
        self._group: asyncio.TaskGroup | None = None

    def informer(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        *,
        transform: Callable[[Object], Any] | None = None,
        pack: Callable[[Object], Packing] | None = None,
        optional: bool = False,
    ) -> Informer:
        """The shared cache of this selection; `pack` and `optional` as the first to ask says."""
        identity = (resource, namespace, label_selector, field_selector, transform)
        informer = self._informers.get(identity)
        if informer is None:
            informer = self._informers[identity] = Informer(
                self._client,
                resource,
                namespace,
                label_selector,
                field_selector,
                clock=self._clock,
                transform=transform,
                pack=pack,
                stream=self._stream,
                optional=optional,
            )
            if self._group is not None:
                self._group.create_task(informer.run())
        return informer

    def whole(self, resource: Resource) -> Informer | None:
        """The cache of all objects of a resource as they are, if it was asked for."""
        return self._informers.get((resource, None, None, None, None))

    async def run(self) -> None:
        """Keep all caches up to date until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for informer in self._informers.values():
                    group.create_task(informer.run())
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None

    async def synced(self) -> None:
        """Wait for the first list of every cache asked for so far."""
        for informer in list(self._informers.values()):
            await informer.synced()
