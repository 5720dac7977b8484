"""The one cache of the dashboard: an engine that follows the cluster, and rows of what lists show.

Everything is read with the credentials of the dashboard; what a user may see of it is decided by
`security.reviews`. Objects are kept compressed; only rows and the engine's view of unfinished Workloads are
decoded. Nothing is followed before `run` is called.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from pykueue.api import DecodeError, resources
from pykueue.api.conversion import ConversionError, convert
from pykueue.api.kueue import V1BETA2
from pykueue.api.kueue.names import MANAGER_NAMESPACE
from pykueue.api.objects import Key, Object, get, key_of
from pykueue.api.resources import KUEUE_GROUP, Resource
from pykueue.clock import Clock
from pykueue.engine import Engine, Options, Removed, Upsert
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer, InformerFactory
from pykueue.kube.transport import Request
from pykueue.questions.cluster_state import followed_kinds, read_options, typed

from .rows import EventRow, PodRow, PreemptedRow, WorkloadRow, event_row, pod_row, workload_row

#: Kinds that are followed beside those that decisions depend on.
BESIDE: Final = (resources.NODES, resources.PODS, resources.EVENTS, resources.WORKLOAD_PRIORITY_CLASSES)
#: An answer computed for all pages is used for this time (seconds), and for this many times what it took.
MEMO_TIME, MEMO_FACTOR = 0.3, 5.0
#: Preemptions that are remembered.
PREEMPTIONS_MAX: Final = 5000
#: Seconds after which kinds that could not be listed are tried again.
RETRY = 30.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class Board:
    """What is known of a cluster. Times are in seconds since 1970."""

    def __init__(
        self,
        client: Client,
        clock: Clock | None = None,
        manager_namespace: str = MANAGER_NAMESPACE,
        options: Options | None = None,
    ) -> None:
        """`options` are those of the manager; without them its configuration is read."""
        self.clock = clock or Clock()
        self._client = client
        self._manager_namespace = manager_namespace
        self._options = options
        self.engine = Engine()
        self.workloads: dict[Key, WorkloadRow] = {}
        self.local_queues: dict[Key, str] = {}
        """LocalQueues by namespace and name, with the names of their ClusterQueues."""
        self.preemptions: deque[tuple[WorkloadRow, PreemptedRow]] = deque(maxlen=PREEMPTIONS_MAX)
        """Targets of preemptions and what is known of each, the oldest first."""
        self.by_uid: dict[str, Key] = {}
        self.events: dict[str, dict[Key, EventRow]] = {}
        """By `Kind namespace/name` of the object."""
        self.pods: dict[tuple[str, str, str], dict[str, PodRow]] = {}
        """By namespace, kind and name of the job."""
        self._caches = InformerFactory(client, clock=self.clock, stream=True)
        self._informers: dict[str, Informer] = {}
        self._versions: dict[str, Resource] = {}
        self._denied: list[Resource] = []
        self.unread: dict[str, str] = {}
        """What could not be read, and why."""
        self.notes: list[str] = []
        self.revision = 0
        self.ready = asyncio.Event()
        """Set when everything that can be read has been read once."""
        self._changed = asyncio.Event()
        self._memo: dict[str, tuple[int, float, float, Any]] = {}

    # --- following --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the cluster until cancelled. Retries while it cannot be reached."""
        while True:
            try:
                await self._start()
                break
            except (ApiError, ConnectionError, TimeoutError) as error:
                self.unread["cluster"] = str(error)
                log.warning("the cluster cannot be read: %s", error)
                await self.clock.sleep(min(RETRY, 5.0))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._caches.run())
            await self._caches.synced()
            self.ready.set()
            self._touch()
            while self._denied:
                await self.clock.sleep(RETRY)
                await self._follow_readable()

    async def _start(self) -> None:
        options = self._options
        self.unread.clear()
        if options is None:
            state = await read_options(self._client, self._manager_namespace)
            self.unread.update({text.partition(":")[0]: text for text in state.unread})
            self.notes, options = state.notes, state.options()
        kinds = await followed_kinds(self._client)
        self.engine = Engine(options)
        self._denied = [*kinds, *BESIDE]
        await self._follow_readable()

    async def _follow_readable(self) -> None:
        """Begin to follow what may be listed by now."""
        verdicts = await asyncio.gather(*map(self._listable, self._denied))
        for kind, readable in zip(list(self._denied), verdicts, strict=True):
            if readable:
                self._denied.remove(kind)
                self._follow(kind)

    async def _listable(self, kind: Resource) -> bool:
        try:
            await self._client.call(Request("GET", kind.path(), {"limit": "1"}))
        except ApiError as error:
            if error.code in (401, 403):
                self.unread[kind.plural] = f"{kind.plural}: {error.message}"
                return False
        except (ConnectionError, TimeoutError):
            return False
        self.unread.pop(kind.plural, None)
        return True

    def _follow(self, kind: Resource) -> None:
        custom = kind.group == KUEUE_GROUP
        informer = self._caches.informer(kind, optional=custom, pack=lambda _: "compressed")
        self._informers[kind.kind] = informer
        self._versions[kind.kind] = kind
        informer.on_event(self._handler(kind))

    def _handler(self, kind: Resource) -> Callable[[str, Any, Any], None]:
        to_engine = kind.kind not in {each.kind for each in BESIDE} or kind.kind in ("Node", "Pod")
        index: Callable[[Any, Any], None] = {
            "Workload": self._index_workload,
            "LocalQueue": self._index_local_queue,
            "Pod": self._index_pod,
            "Event": self._index_event,
        }.get(kind.kind, lambda before, after: None)

        def on_event(_type: str, before: Any, after: Any) -> None:
            before, after = self._current(kind, before), self._current(kind, after)
            try:
                index(before, after)
                if to_engine:
                    self._apply(kind, before, after)
            except (ConversionError, DecodeError) as error:
                namespace, name = key_of(after if after is not None else before)
                self.unread[f"{kind.plural}/{namespace}/{name}"] = f"{kind.plural} {name}: {error}"
            self._touch()

        return on_event

    def _current(self, kind: Resource, obj: Any) -> Any:
        """The object in the version that rows read."""
        if obj is None or kind.group != KUEUE_GROUP or kind.api_version == V1BETA2:
            return obj
        return convert({"apiVersion": kind.api_version, "kind": kind.kind, **obj}, V1BETA2)

    def _apply(self, kind: Resource, before: Any, after: Any) -> None:
        if after is None:
            namespace, name = key_of(before)
            self.engine.apply(Removed(kind.kind, namespace, name))
        else:
            current = kind._replace(version="v1beta2") if kind.group == KUEUE_GROUP else kind
            self.engine.apply(Upsert(typed(after, current)))

    def _index_workload(self, before: Any, after: Any) -> None:
        old = self.workloads.pop(key_of(before), None) if before is not None else None
        if old is not None:
            self.by_uid.pop(old.uid, None)
        if after is not None:
            row = self.workloads[key_of(after)] = workload_row(after)
            self.by_uid[row.uid] = key_of(after)
            if row.preempted is not None and (old is None or old.preempted != row.preempted):
                # Its ClusterQueue is that of the admission it loses.
                known = row if row.cluster_queue or old is None else old
                self.preemptions.append((known, row.preempted))

    def _index_local_queue(self, before: Any, after: Any) -> None:
        if after is None:
            self.local_queues.pop(key_of(before), None)
        else:
            self.local_queues[key_of(after)] = get(after, "spec", "clusterQueue") or ""

    def _index_pod(self, before: Any, after: Any) -> None:
        for obj, add in ((before, False), (after, True)):
            if obj is None:
                continue
            row = pod_row(obj)
            for kind, name in row.jobs:
                place = (row.namespace, kind, name)
                if add:
                    self.pods.setdefault(place, {})[row.name] = row
                elif place in self.pods:
                    self.pods[place].pop(row.name, None)
                    if not self.pods[place]:
                        del self.pods[place]

    def _index_event(self, before: Any, after: Any) -> None:
        for obj, add in ((before, False), (after, True)):
            if obj is None:
                continue
            row = event_row(obj)
            place = f"{row.kind} {row.namespace}/{row.name}"
            if add:
                self.events.setdefault(place, {})[key_of(obj)] = row
            elif place in self.events:
                self.events[place].pop(key_of(obj), None)
                if not self.events[place]:
                    del self.events[place]

    def _touch(self) -> None:
        self.revision += 1
        self._changed.set()

    async def changed(self, revision: int) -> int:
        """Wait until the revision is another one; that revision."""
        while self.revision == revision:
            self._changed.clear()
            await self._changed.wait()
        return self.revision

    # --- reading ----------------------------------------------------------------------------------------

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object as the cluster stores it, with apiVersion and kind; None if there is none."""
        informer = self._informers.get(kind)
        found = informer.get(namespace, name) if informer is not None else None
        if found is None:
            return None
        return {"apiVersion": self._versions[kind].api_version, "kind": kind, **found}

    def objects(self, kind: str) -> list[Object]:
        """All objects of a kind that is followed; decoded for each call, so not for kinds with many."""
        informer = self._informers.get(kind)
        if informer is None:
            return []
        version = self._versions[kind].api_version
        return [{"apiVersion": version, "kind": kind, **obj} for obj in informer.list()]

    def queue_of(self, row: WorkloadRow) -> str:
        """The ClusterQueue that a Workload has quota of, or is queued in; empty where there is none."""
        return row.cluster_queue or self.local_queues.get((row.namespace, row.queue), "")

    def pods_of(self, row: WorkloadRow) -> list[PodRow]:
        """The pods of a Workload's job, by name."""
        kind, _, name = row.job.partition(" ")
        found = {
            **self.pods.get((row.namespace, "Workload", row.name), {}),
            **(self.pods.get((row.namespace, kind, name), {}) if name else {}),
        }
        return [found[pod] for pod in sorted(found)]

    def events_of(self, *objects: tuple[str, str, str]) -> list[EventRow]:
        """Events about objects (kind, namespace, name), the latest first."""
        found = [
            row
            for kind, namespace, name in objects
            for row in self.events.get(f"{kind} {namespace}/{name}", {}).values()
        ]
        return sorted(found, key=lambda row: -row.last)

    def event_objects(self, kind: str, namespace: str, name: str) -> Iterable[Object]:
        """Events about an object, as the cluster stores them."""
        informer = self._informers.get("Event")
        for key in self.events.get(f"{kind} {namespace}/{name}", {}):
            found = informer.get(*key) if informer is not None else None
            if found is not None:
                yield found

    def namespaces(self) -> list[str]:
        """Namespaces with LocalQueues or Workloads, sorted."""
        return self.memo("namespaces", self._namespaces)

    def _namespaces(self) -> list[str]:
        return sorted({namespace for namespace, _ in (*self.workloads, *self.local_queues)})

    def memo(self, name: str, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed again only after changes, and not more often than is sensible."""
        now = asyncio.get_running_loop().time()
        known = self._memo.get(name)
        if known is not None and (known[0] == self.revision or now < known[1] + known[2]):
            found: T = known[3]
            return found
        revision = self.revision
        found = compute()
        took = asyncio.get_running_loop().time() - now
        self._memo[name] = (revision, now, max(MEMO_TIME, took * MEMO_FACTOR), found)
        return found
