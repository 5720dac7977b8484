"""The pod scheduler as a client of the API: watches, decides, binds.

A decision is made at once on the scheduler's own books (the pod is *assumed* to be on its node) and written
in the background through the pod's binding subresource; if the write fails the books are put right and the
pod waits a back-off. Nothing is kept that the API does not tell after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from pykueue.api.selectors import Requirement, Selector
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.embedded.kinds.podspec import DEFAULT_SCHEDULER
from pykueue.embedded.podscheduler.cluster import Cluster
from pykueue.embedded.podscheduler.placer import Likeness, Placed, Placer, Unplaced, placed_at
from pykueue.embedded.podscheduler.podinfo import PodInfo, PodReader, is_terminal
from pykueue.embedded.podscheduler.queue import Queue
from pykueue.embedded.podscheduler.terms import Spread, default_spread
from pykueue.kube.client import Client, Object
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.resources import NAMESPACES, NODES, PODS, SERVICES
from pykueue.kube.transport import STRATEGIC_PATCH, Transport
from pykueue.kube.workqueue import WorkQueue

#: Requests that may be under way at the same time: bindings, and everything else.
BINDERS = 16
REPORTERS = 4
#: Pods placed before other tasks get their turn.
BATCH = 16

log = logging.getLogger(__name__)


class PodScheduler:
    """Places the pods whose `schedulerName` is `name`, until cancelled."""

    def __init__(
        self, transport: Transport, clock: Clock, rng: random.Random, *, name: str = DEFAULT_SCHEDULER
    ) -> None:
        self._name = name
        self._clock = clock
        self._client = Client(transport, clock=clock)
        self._events = EventRecorder(self._client, clock, name, rng)
        self._informers = InformerFactory(self._client, clock=clock)
        self._cluster = Cluster()
        self._placer = Placer(self._cluster, rng)
        self._queue: Queue[Likeness] = Queue()
        self._reader = PodReader()
        #: Selectors of the services of each namespace, by service name.
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        #: Nodes that may have become able to take more since the queue was last asked.
        self._improved: set[str] = set()
        #: Whether pods came to nodes, and whether pods went, since then.
        self._arrivals = False
        self._departures = False
        self._bindings: WorkQueue[str] = WorkQueue(clock)
        #: Pods on their way to a node: decided, not yet seen in the watch.
        self._assumed: dict[str, PodInfo] = {}
        self._reports: WorkQueue[str] = WorkQueue(clock)
        self._unplaced: dict[str, tuple[PodInfo, Unplaced]] = {}
        self._wake = asyncio.Event()
        for resource, handler in (
            (NODES, self._on_node),
            (PODS, self._on_pod),
            (SERVICES, self._on_service),
            (NAMESPACES, self._on_namespace),
        ):
            self._informers.informer(resource).on_event(self._waking(handler))

    async def run(self) -> None:
        """Schedule until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informers.run())
                group.create_task(self._events.run())
                for _ in range(BINDERS):
                    group.create_task(self._work(self._bindings, self._bind))
                for _ in range(REPORTERS):
                    group.create_task(self._work(self._reports, self._report))
                group.create_task(self._schedule())
        finally:
            self._bindings.close()
            self._reports.close()

    # What the watches tell

    def _waking(self, handler: Callable[[Any, Any], None]) -> Callable[[str, Any, Any], None]:
        def handle(_type: str, old: Any, new: Any) -> None:
            handler(old, new)
            self._wake.set()

        return handle

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._cluster.remove_node(old["metadata"]["name"])
        elif self._cluster.set_node(new):
            self._improved.add(new["metadata"]["name"])
            self._arrivals = self._departures = True

    def _on_namespace(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._cluster.set_namespace(old["metadata"]["name"], None)
        elif old is None or old["metadata"].get("labels") != new["metadata"].get("labels"):
            self._cluster.set_namespace(new["metadata"]["name"], new["metadata"].get("labels") or {})
            self._arrivals = self._departures = True

    def _on_service(self, old: Object | None, new: Object | None) -> None:
        service = new or old
        assert service is not None
        metadata = service["metadata"]
        selectors = self._services.setdefault(metadata["namespace"], {})
        selector = (new.get("spec") or {}).get("selector") if new is not None else None
        if selector:
            selectors[metadata["name"]] = selector
        else:
            selectors.pop(metadata["name"], None)
            if not selectors:
                del self._services[metadata["namespace"]]

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        if new is None or is_terminal(new):
            gone = new or old
            assert gone is not None
            self._gone(gone["metadata"]["uid"])
            return
        known = self._cluster.pods.get(new["metadata"]["uid"])
        if new["spec"].get("nodeName"):
            self._on_bound(known, new)
        else:
            self._on_unbound(known, old, new)

    def _on_bound(self, known: PodInfo | None, new: Object) -> None:
        metadata = new["metadata"]
        uid = metadata["uid"]
        if self._assumed.pop(uid, None) is None and known is None:
            self._drop_waiting(uid)
        if known is not None and _unchanged(known, new):
            known.manifest = new
            return
        pod = self._reader.read(new)
        if known is not None and pod is not None and _takes_the_same(known, pod):
            known.manifest, known.generation = new, pod.generation
            return
        if known is not None:
            self._cluster.remove_pod(uid)
            self._improved.add(known.node)
            self._departures = True
        if pod is not None:
            self._add(pod)

    def _on_unbound(self, assumed: PodInfo | None, old: Object | None, new: Object) -> None:
        metadata, spec = new["metadata"], new["spec"]
        uid = metadata["uid"]
        if assumed is not None:
            # Decided already; a change on the way is of no account, except that it may be the last.
            assumed.manifest = new
            return
        ours = (spec.get("schedulerName") or DEFAULT_SCHEDULER) == self._name
        if not ours or spec.get("schedulingGates") or metadata.get("deletionTimestamp") is not None:
            self._drop_waiting(uid)
            return
        pod = self._reader.read(new)
        if pod is None:
            log.warning(
                "pod %s/%s has amounts that are no quantities", metadata.get("namespace"), metadata["name"]
            )
            return
        if pod.nominated and uid not in self._queue:
            self._placer.nominate(pod, pod.nominated)
        if uid in self._queue and old is not None and _alike(old, new):
            self._queue.refresh(pod)
        else:
            self._queue.add(pod, self._now())

    def _gone(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        pod = self._cluster.remove_pod(uid)
        if pod is not None:
            self._improved.add(pod.node)
            self._departures = True
        self._drop_waiting(uid)

    def _drop_waiting(self, uid: str) -> None:
        self._queue.remove(uid, self._now())
        self._unplaced.pop(uid, None)
        nominated = self._placer.forget(uid)
        if nominated:
            self._improved.add(nominated)

    def _add(self, pod: PodInfo) -> None:
        if self._cluster.add_pod(pod):
            # An anti-affinity nobody had before divides the waiting pods anew.
            self._queue.wake_all(self._now())
        self._arrivals = True

    # Deciding

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _schedule(self) -> None:
        await self._informers.synced()
        while True:
            for _ in range(BATCH):
                self._wake_helped()
                pod = self._queue.pop(self._now())
                if pod is None:
                    await self._idle()
                    break
                self._decide(pod)
            else:
                await self._clock.sleep(0)

    async def _idle(self) -> None:
        """Wait until something happens, or a back-off ends."""
        self._wake.clear()
        until = self._queue.next_time()
        if until is None:
            await self._wake.wait()
            return
        timer = self._clock.call_later(until - self._now(), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _wake_helped(self) -> None:
        """Wake the sleeping pods that may fit after what happened since the last time."""
        if not self._improved and not self._arrivals and not self._departures:
            return
        nodes = [node for name in self._improved if (node := self._cluster.node(name)) is not None]
        arrivals, departures = self._arrivals, self._departures
        self._improved.clear()
        self._arrivals = self._departures = False
        now = self._now()
        for group in self._queue.groups():
            pod, said = group.example, group.example.relations
            if (
                (arrivals and said.helped_by_arrivals)
                or (departures and (said.helped_by_departures or group.key.repelled_by))
                or any(self._placer.could_help(pod, node) for node in nodes)
            ):
                self._queue.wake(group, now)

    def _decide(self, pod: PodInfo) -> None:
        now = self._now()
        try:
            outcome = self._placer.place(pod, self._default_spread(pod))
        except Exception:
            log.exception("pod %s cannot be scheduled", pod.key)
            self._queue.retry(pod, now)
            return
        if isinstance(outcome, Placed):
            self._queue.placed(pod.uid, now)
            self._placer.forget(pod.uid)
            self._unplaced.pop(pod.uid, None)
            assumed = placed_at(pod, outcome.node)
            self._assumed[pod.uid] = assumed
            self._add(assumed)
            self._bindings.add(pod.uid)
            return
        self._queue.failed(pod.uid, outcome.alike, now)
        if outcome.nominated:
            self._placer.nominate(pod, outcome.nominated)
        elif given_up := self._placer.forget(pod.uid):
            self._improved.add(given_up)
        self._unplaced[pod.uid] = (pod, outcome)
        self._reports.add(pod.uid)

    def _default_spread(self, pod: PodInfo) -> tuple[Spread, ...]:
        """Pods of services are spread a little although nobody asked."""
        services = self._services.get(pod.namespace)
        if not services:
            return ()
        wanted: dict[str, str] = {}
        for labels in services.values():
            if all(pod.labels.get(key) == value for key, value in labels.items()):
                wanted.update(labels)
        if not wanted:
            return ()
        selector = Selector([Requirement(key, "In", (value,)) for key, value in sorted(wanted.items())])
        return default_spread(selector, pod.namespace)

    # Writing

    async def _work(self, queue: WorkQueue[str], work: Callable[[str], Any]) -> None:
        while True:
            uid = await queue.get()
            try:
                await work(uid)
            finally:
                queue.done(uid)

    async def _bind(self, uid: str) -> None:
        pod = self._assumed.get(uid)
        if pod is None:
            return
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": pod.node},
        }
        try:
            await self._client.create(PODS, binding, name=pod.name, subresource="binding")
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.info("pod %s could not be bound to node %s: %s", pod.key, pod.node, error)
            if not await self._is_bound(pod):
                return
        self._bindings.forget(uid)
        self._events.event(
            pod.manifest, NORMAL, "Scheduled", f"Successfully assigned {pod.key} to {pod.node}"
        )

    async def _is_bound(self, pod: PodInfo) -> bool:
        """After a binding that seems to have failed: whether it was carried out nevertheless.

        Until that is known the pod keeps its place on the books, or somebody else would be given it too.
        """
        try:
            stored = await self._client.get(PODS, pod.name, pod.namespace)
        except (ApiError, ConnectionError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.not_found:
                self._unbind(pod)
            else:
                self._bindings.add_rate_limited(pod.uid)
            return False
        if stored["metadata"]["uid"] == pod.uid and stored["spec"].get("nodeName"):
            return bool(stored["spec"]["nodeName"] == pod.node)
        self._unbind(pod)
        return False

    def _unbind(self, pod: PodInfo) -> None:
        """The pod did not get its node: take it off the books, and try again unless it is gone."""
        if self._assumed.pop(pod.uid, None) is None:
            return
        self._cluster.remove_pod(pod.uid)
        self._improved.add(pod.node)
        self._departures = True
        self._wake.set()
        manifest = self._informers.informer(PODS).get(pod.namespace, pod.name)
        if manifest is None or manifest["metadata"]["uid"] != pod.uid or is_terminal(manifest):
            return
        waiting = self._reader.read(manifest)
        if waiting is not None and not waiting.node and not waiting.terminating:
            self._queue.retry(waiting, self._now())

    async def _report(self, uid: str) -> None:
        """Tell why a pod waits, and clear the way for it if that was decided."""
        found = self._unplaced.pop(uid, None)
        if found is None:
            return
        pod, outcome = found
        self._events.event(pod.manifest, WARNING, "FailedScheduling", outcome.message)
        try:
            await self._write_condition(pod, outcome)
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.info("pod %s: its condition could not be written: %s", pod.key, error)
        for victim in outcome.victims:
            try:
                await self._evict(victim, outcome.nominated, pod)
            except (ApiError, ConnectionError, TimeoutError) as error:
                log.info("pod %s could not be preempted: %s", victim.key, error)

    async def _write_condition(self, pod: PodInfo, outcome: Unplaced) -> None:
        status = pod.manifest.get("status") or {}
        condition = _condition(
            status, "PodScheduled", "False", "Unschedulable", outcome.message, self._clock.time()
        )
        change: Object = {}
        if condition is not None:
            change["conditions"] = [condition]
        if (status.get("nominatedNodeName") or "") != outcome.nominated:
            change["nominatedNodeName"] = outcome.nominated or None
        if change:
            await self._patch_status(pod, change)

    async def _evict(self, victim: PodInfo, node: str, preemptor: PodInfo) -> None:
        self._events.event(
            victim.manifest, NORMAL, "Preempted", f"Preempted by pod {preemptor.uid} on node {node}"
        )
        if victim.terminating:
            return
        message = f"{self._name}: preempting to accommodate a higher priority pod"
        now = self._clock.time()
        status = victim.manifest.get("status") or {}
        condition = _condition(status, "DisruptionTarget", "True", "PreemptionByScheduler", message, now)
        try:
            if condition is not None:
                await self._patch_status(victim, {"conditions": [condition]})
            await self._client.delete(PODS, victim.name, victim.namespace, uid=victim.uid)
        except ApiError as error:
            if not error.not_found:
                raise

    async def _patch_status(self, pod: PodInfo, change: Object) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": change}
        try:
            await self._client.patch(
                PODS, pod.name, pod.namespace, patch, content_type=STRATEGIC_PATCH, subresource="status"
            )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise


def _unchanged(known: PodInfo, manifest: Object) -> bool:
    """Whether a pod on its node is, at a glance, as it was but for its status."""
    metadata = manifest["metadata"]
    return bool(
        known.generation is not None
        and known.generation == metadata.get("generation")
        and known.node == manifest["spec"]["nodeName"]
        and known.terminating == (metadata.get("deletionTimestamp") is not None)
        and known.labels == (metadata.get("labels") or {})
    )


def _takes_the_same(known: PodInfo, pod: PodInfo) -> bool:
    """Whether a pod on its node takes there what it took before."""
    return (
        known.node == pod.node
        and known.shape is pod.shape
        and known.priority == pod.priority
        and known.terminating == pod.terminating
        and known.related == pod.related
        and known.labels == pod.labels
    )


def _alike(old: Object, new: Object) -> bool:
    """Whether a change of a waiting pod leaves it with the same chances."""
    return bool(
        old["spec"] == new["spec"]
        and old["metadata"].get("labels") == new["metadata"].get("labels")
        and old["metadata"].get("deletionTimestamp") == new["metadata"].get("deletionTimestamp")
    )


def _condition(
    status: Object, type_: str, value: str, reason: str, message: str, now: float
) -> Object | None:
    """The condition to write; None when the pod has it already."""
    since = format_time(now)
    for one in status.get("conditions") or ():
        if one.get("type") == type_:
            if (one.get("status"), one.get("reason"), one.get("message")) == (value, reason, message):
                return None
            if one.get("status") == value:
                since = one.get("lastTransitionTime") or since
    return {
        "type": type_,
        "status": value,
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": since,
    }
