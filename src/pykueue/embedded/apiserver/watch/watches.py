"""Watches: what a watcher sees of a table's batches, decoded for this process or encoded for a connection.

Watchers of the same form share one encoding per batch. Selection, initial events and the end of history:
docs/reference/kubernetes-api-machinery.md, section 10.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial

import orjson

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.handlers.reads import query_number, version_number
from pykueue.embedded.apiserver.registry.call import Call
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.apiserver.watch.selection import Selection, Shown, moved
from pykueue.embedded.objects.errors import expired, forbidden, invalid_object
from pykueue.embedded.store.records import Batch, Event
from pykueue.embedded.store.table import HistoryGoneError
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import WatchEvent


class WatchOptions:
    """The query of a watch, checked."""

    def __init__(self, call: Call) -> None:
        query = call.query
        self.bookmarks = call.flag("allowWatchBookmarks")
        self.initial = query.get("sendInitialEvents", "")
        match = query.get("resourceVersionMatch", "")
        causes = []
        if self.initial and match != "NotOlderThan":
            causes.append(
                forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                )
            )
        elif match and not self.initial:
            causes.append(
                forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            )
        if causes:
            raise invalid_object("meta.k8s.io", "ListOptions", "", causes)
        version = query.get("resourceVersion", "")
        #: The revision to continue from, or None to begin with everything there is.
        self.after: int | None = (version_number(version) if version else 0) or None
        if self.initial == "true":
            self.after = None
        #: Seconds after which the server ends the watch, if the client said so.
        self.timeout: float | None = None
        seconds = query_number(query, "timeoutSeconds")
        if seconds is not None and seconds > 0:
            self.timeout = float(seconds)

    @property
    def marks_end(self) -> bool:
        """Whether a bookmark marks the end of the initial events."""
        return self.initial == "true" and self.bookmarks


def bookmark(endpoint: Endpoint, revision: int, initial_end: bool = False) -> Object:
    """A BOOKMARK's object: only a version, of the watched kind.

    The one that ends the initial events carries an empty list too: Go clients that list by watching fill it.
    """
    meta: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        blueprint = {
            "kind": endpoint.kind.list_kind,
            "apiVersion": endpoint.api_version,
            "metadata": {},
            "items": [],
        }
        meta["annotations"] = {
            "k8s.io/initial-events-end": "true",
            "kubernetes.io/initial-events-list-blueprint": b64encode(orjson.dumps(blueprint)).decode(),
        }
    return {"kind": endpoint.kind.kind, "apiVersion": endpoint.api_version, "metadata": meta}


#: Gets what is shown of a batch. The batch comes along when all of it is concerned, so that watches of one
#: selection can share its encoding.
Deliver = Callable[[list[Shown], Batch | None], None]


class Watch:
    """One open watch: a start (a snapshot or a place in history), then every published batch.

    `deliver` gets what is shown of each batch, in order, from within the publication; it must not block.
    Batches of objects with a conversion webhook wait for the conversion; `fail` is called when it fails.
    """

    def __init__(self, core: Core, call: Call) -> None:
        self.endpoint = call.endpoint
        self.options = WatchOptions(call)
        self.selection = Selection(call)
        self._core = core
        self._after = 0
        self._unsubscribe: Callable[[], None] | None = None
        self._converting: asyncio.Task[None] | None = None

    async def start(self, deliver: Deliver, fail: Callable[[ApiError], None]) -> list[Shown]:
        """Subscribe, and return the events that come before the first delivered one.

        410 when the history asked for is gone.
        """
        store, table, selection = self._core.store, self.endpoint.table, self.selection
        # Nothing is awaited from here to the subscription: it and the start are of one moment.
        if self.options.after is None:
            self._after = store.settled_revision
            first = selection.candidates()
        else:
            self._after = self.options.after
            try:
                first = table.since(self._after)
            except HistoryGoneError as error:
                raise expired(f"too old resource version: {self._after} ({error.floor})") from None
            self._after = max(self._after, store.published_revision)
        if self.endpoint.fetch is None:
            self._unsubscribe = table.subscribe(partial(self._show, deliver))
            return selection.show(first)
        batches: asyncio.Queue[Batch] = asyncio.Queue()
        self._unsubscribe = table.subscribe(batches.put_nowait)
        await self._fetch(first)
        loop = asyncio.get_running_loop()
        self._converting = loop.create_task(self._convert(batches, partial(self._show, deliver), fail))
        return selection.show(first)

    def _show(self, deliver: Deliver, batch: Batch) -> None:
        selection = self.selection
        if batch.first <= self._after:
            if batch.last <= self._after:
                return
            newer = selection.show(one for one in batch.events if one.revision > self._after)
            if newer:
                deliver(newer, None)
            return
        shown = batch.cache.get(selection.key)
        if shown is None:
            shown = batch.cache[selection.key] = selection.show(batch.events)
        if shown:
            deliver(shown, batch)

    async def _fetch(self, events: Iterable[Event]) -> None:
        wanted: list[Object] = []
        for _, record, previous in events:
            wanted.append(record.object)
            if previous is not None and self.selection.selective:
                wanted += (previous.object, moved(record, previous).object)
        await self.endpoint.ready(wanted)

    async def _convert(
        self, batches: asyncio.Queue[Batch], show: Callable[[Batch], None], fail: Callable[[ApiError], None]
    ) -> None:
        """Show batches once their objects are converted."""
        try:
            while True:
                batch = await batches.get()
                await self._fetch(batch.events)
                show(batch)
        except ApiError as error:
            self.stop()
            fail(error)

    def stop(self) -> None:
        """Deliver no more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._converting is not None and self._converting is not asyncio.current_task():
            self._converting.cancel()

    @property
    def start_revision(self) -> int:
        """The version the initial events are of."""
        return self._after

    @property
    def revision(self) -> int:
        """A version at which this watch has seen everything."""
        return max(self._core.store.published_revision, self._after)


#: Events an in-process watcher may fall behind before its watch is ended.
_BACKLOG = 200_000


async def watch_objects(core: Core, begin: Callable[[], Call]) -> AsyncGenerator[WatchEvent, None]:
    """A watch for a client in this process: shared objects, nothing encoded.

    `begin` makes the call, or raises ApiError, once the first event is asked for.
    """
    watch = Watch(core, begin())
    endpoint = watch.endpoint
    form = ("in process", watch.selection.key)
    waiting: deque[WatchEvent] = deque()
    ready = asyncio.Event()
    overrun = False
    failure: ApiError | None = None

    def fail(error: ApiError) -> None:
        nonlocal failure
        failure = error
        ready.set()

    def events(shown: list[Shown]) -> list[WatchEvent]:
        return [WatchEvent(kind, endpoint.from_storage(record.object)) for kind, record in shown]

    def deliver(shown: list[Shown], batch: Batch | None) -> None:
        nonlocal overrun
        if batch is None:
            waiting.extend(events(shown))
        else:
            # Most watchers within the process are of the same few selections.
            made = batch.cache.get(form)
            if made is None:
                made = batch.cache[form] = events(shown)
            waiting.extend(made)
        if len(waiting) > _BACKLOG:
            overrun = True
            watch.stop()
        ready.set()

    loop = asyncio.get_running_loop()
    timer, deadline = None, None
    if watch.options.timeout is not None:
        deadline = loop.time() + watch.options.timeout
        timer = loop.call_at(deadline, ready.set)
    try:
        for kind, record in await watch.start(deliver, fail):
            yield WatchEvent(kind, endpoint.from_storage(record.object))
        if watch.options.marks_end:
            yield WatchEvent("BOOKMARK", bookmark(endpoint, watch.start_revision, True))
        while True:
            while waiting:
                yield waiting.popleft()
            if failure is not None:
                raise failure
            if overrun or (deadline is not None and loop.time() >= deadline):
                return
            ready.clear()
            await ready.wait()
    finally:
        watch.stop()
        if timer is not None:
            timer.cancel()
