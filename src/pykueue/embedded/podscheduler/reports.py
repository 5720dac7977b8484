"""Reports why pods are pending, and deletes the victims of those for which preemption was decided."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import NamedTuple

from pykueue.api.meta import new_condition
from pykueue.api.objects import Object, condition_of
from pykueue.api.resources import PODS
from pykueue.clock import Clock
from pykueue.embedded.kinds.podspec import DEFAULT_SCHEDULER
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.transport import STRATEGIC_PATCH
from pykueue.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)


class _News(NamedTuple):
    pod: PodInfo
    message: str
    nominated: str
    victims: tuple[PodInfo, ...]
    every_time: bool


class Reports:
    """Conditions, events and evictions that follow from decisions; the newest decision about a pod counts."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random, names: Iterable[str]) -> None:
        self._client = client
        self._clock = clock
        #: Events carry the name of the scheduler the pod asked for.
        self.recorders = {name: EventRecorder(client, clock, name, rng) for name in names}
        self.queue: WorkQueue[str] = WorkQueue(clock)
        self._news: dict[str, _News] = {}

    def event(self, pod: PodInfo, type_: str, reason: str, note: str) -> None:
        """Something happened to the pod."""
        self._recorder(pod).event(pod.manifest, type_, reason, note)

    def enqueue(
        self,
        pod: PodInfo,
        message: str,
        nominated: str = "",
        victims: tuple[PodInfo, ...] = (),
        *,
        every_time: bool = True,
    ) -> None:
        """The pod waits, for the `victims` to leave its `nominated` node if there are any.

        Without `every_time` there is an event only when it differs from the last one of the pod.
        """
        self._news[pod.uid] = _News(pod, message, nominated, victims, every_time)
        self.queue.add(pod.uid)

    def drop(self, uid: str) -> None:
        """Drop the pending report about the pod."""
        self._news.pop(uid, None)

    async def report(self, uid: str) -> None:
        """Write the report that `enqueue` left for this pod."""
        found = self._news.pop(uid, None)
        if found is None:
            return
        pod = found.pod
        status = pod.manifest.get("status") or {}
        condition = changed_condition(
            status, "PodScheduled", "False", "Unschedulable", found.message, self._clock.time()
        )
        if found.every_time or condition is not None:
            self.event(pod, WARNING, "FailedScheduling", found.message)
        change: Object = {}
        if condition is not None:
            change["conditions"] = [condition]
        if (status.get("nominatedNodeName") or "") != found.nominated:
            change["nominatedNodeName"] = found.nominated or None
        try:
            if change:
                await self._patch_status(pod, change)
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.info("pod %s: its condition could not be written: %s", pod.key, error)
        for victim in found.victims:
            try:
                await self._evict(victim, found.nominated, pod)
            except (ApiError, ConnectionError, TimeoutError) as error:
                log.info("pod %s could not be preempted: %s", victim.key, error)

    async def _evict(self, victim: PodInfo, node: str, preemptor: PodInfo) -> None:
        self.event(victim, NORMAL, "Preempted", f"Preempted by pod {preemptor.uid} on node {node}")
        if victim.terminating:
            return
        name = preemptor.manifest["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        message = f"{name}: preempting to accommodate a higher priority pod"
        now = self._clock.time()
        condition = changed_condition(
            victim.manifest.get("status"), "DisruptionTarget", "True", "PreemptionByScheduler", message, now
        )
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

    def _recorder(self, pod: PodInfo) -> EventRecorder:
        name = pod.manifest["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        # Victims may be another scheduler's.
        return self.recorders.get(name) or next(iter(self.recorders.values()))


def changed_condition(
    status: Object | None, type_: str, value: str, reason: str, message: str, now: float
) -> Object | None:
    """The condition to write; None when the pod has it already."""
    old = condition_of(status, type_)
    if old is not None and (old.get("status"), old.get("reason"), old.get("message")) == (
        value,
        reason,
        message,
    ):
        return None
    return new_condition(old, type_, value, reason, message, now, lastProbeTime=None)
