"""Why a Workload waits, for those the scheduler had no reason to look at.

A queue decides about its first Workload and parks those like it without a look; a Workload behind others is
not looked at either, be it new or back in its queue. Both get their reason once they have waited for a while,
the former with the amounts and limits of an evaluation of their own and an event. One write follows the
other, some hundreds and then slowly, one of each LocalQueue in turn, so that a long queue costs nothing that
a busy manager or another queue would miss. What has a reason is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from sys import intern
from typing import Any, NamedTuple

from pykueue.api import conditions
from pykueue.api.objects import Key, Object, get, is_deleting, key_of
from pykueue.api.pending_reasons import NOT_EVALUATED, PENDING_EVALUATION, PendingReason, behind_others
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING, EventRecorder
from pykueue.kube.limiter import TokenBucket
from pykueue.manager.cluster import Cluster
from pykueue.manager.workloads import transitions
from pykueue.manager.writes import Writer

#: Seconds a Workload waits without a reason before it is given one.
PATIENCE = 5.0
#: Seconds between two such writes.
PACE = 0.02
#: Such writes per second in the long run, and those beyond it after a while without any.
RATE = 10.0
BURST = 500

log = logging.getLogger(__name__)


class _Silence(NamedTuple):
    """A Workload waits without a reason."""

    key: Key
    #: Since when, in seconds of the clock that never jumps.
    since: float
    #: The name of its LocalQueue.
    queue: str


class Explainer:
    """Gives a reason to every Workload that waits without one."""

    def __init__(
        self, engine: Engine, cluster: Cluster, writer: Writer, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._limiter = TokenBucket(clock, RATE, BURST)
        #: Workloads that have not waited for long without a reason.
        self._silent: dict[Key, _Silence] = {}
        #: The same, oldest first, with others that have a reason by now.
        self._recent: deque[_Silence] = deque()
        #: Names of those that have, oldest first, by LocalQueue; the queue that is next is first.
        self._due: OrderedDict[Key, dict[str, None]] = OrderedDict()
        self._wake = asyncio.Event()
        cluster.workloads.on_event(self._changed)

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        key = key_of(old if new is None else new)
        if new is not None and _waits_silently(new):
            if key not in self._silent and (old is None or key[1] not in self._due_like(old)):
                self._remember(key, new)
        elif self._silent.pop(key, None) is None and self._due and old is not None:
            self._due_like(old).pop(key[1], None)

    def _due_like(self, workload: Mapping[str, Any]) -> dict[str, None]:
        """The names of those of the same LocalQueue that have waited for long."""
        return self._due.get((key_of(workload)[0], _queue_name(workload)), {})

    def _remember(self, key: Key, workload: Mapping[str, Any]) -> None:
        queue = intern(_queue_name(workload))
        silence = self._silent[key] = _Silence(key, self._clock.monotonic(), queue)
        self._recent.append(silence)
        self._wake.set()

    async def run(self) -> None:
        """Explain until cancelled."""
        await self._cluster.synced()
        while True:
            wait = self._sort()
            key = self._next()
            if key is not None:
                await self._limiter.acquire()
                await self._explain(key)
            elif wait is not None:
                await self._clock.sleep(wait)
            else:
                self._wake.clear()
                await self._wake.wait()

    def _sort(self) -> float | None:
        """Find those that have waited for long; the seconds until the next one has, None: there is none."""
        now = self._clock.monotonic()
        while self._recent:
            silence = self._recent[0]
            key = silence.key
            if self._silent.get(key) is silence:
                if silence.since + PATIENCE > now:
                    return silence.since + PATIENCE - now
                del self._silent[key]
                self._due.setdefault((key[0], silence.queue), {})[key[1]] = None
            self._recent.popleft()
        return None

    def _next(self) -> Key | None:
        """The oldest of the next queue that has waited for long without a reason."""
        while self._due:
            queue, names = self._due.popitem(last=False)
            if names:
                name = next(iter(names))
                del names[name]
                if names:
                    self._due[queue] = names
                return queue[0], name
        return None

    async def _explain(self, key: Key) -> None:
        why = self._reason(key)
        if why is None:
            return
        requests = transitions.resource_requests(self._engine.workload("/".join(key)))

        def step(workload: Object) -> Object | None:
            if not _waits_silently(workload):
                return None
            return transitions.pending(workload, why, self._clock.time(), requests)

        try:
            written = await self._writer.update(self._cluster.workloads, key, step)
            if written is not None and why.reason != PENDING_EVALUATION:
                self._recorder.event(written, WARNING, why.reason, why.message)
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.info("the pending reason of %s/%s could not be written: %s", *key, error)
            workload = self._cluster.workload(key)
            if workload is not None:
                self._remember(key, workload)
        await self._clock.sleep(PACE)

    def _reason(self, key: Key) -> PendingReason | None:
        name = "/".join(key)
        view = self._engine.workload(name)
        if view is None or view.state not in ("active", "inadmissible"):
            return None
        reason, text = self._engine.pending_reason(name)
        if reason not in ("", PENDING_EVALUATION):
            return PendingReason(reason, text)
        return behind_others(view.cluster_queue)


def _queue_name(workload: Mapping[str, Any]) -> str:
    return str(get(workload, "spec", "queueName") or "")


def _waits_silently(workload: Mapping[str, Any]) -> bool:
    known = conditions.condition(workload, conditions.QUOTA_RESERVED)
    return (
        (known is None or (known.get("reason"), known.get("message")) == NOT_EVALUATED)
        and conditions.is_active(workload)
        and not conditions.is_finished(workload)
        and not is_deleting(workload)
    )
