"""Why a Workload waits, for those the scheduler had no reason to look at.

A queue decides about its first Workload and parks those like it without a look; a Workload behind others is
not looked at either, be it new or back in its queue. Both get their reason once they have waited for a while,
the former with the amounts and limits of an evaluation of their own and an event. One write follows the
other, slowly, so that a long queue costs nothing that a busy manager would miss. What has a reason is left
alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Key, Object, is_deleting, key_of
from pykueue.api.pending_reasons import NOT_EVALUATED, PENDING_EVALUATION, PendingReason, behind_others
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING, EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.workloads import transitions
from pykueue.manager.writes import Writer

#: Seconds a Workload waits without a reason before it is given one.
PATIENCE = 5.0
#: Seconds between two such writes.
PACE = 0.02

log = logging.getLogger(__name__)


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
        #: Workloads without a reason, and since when (in seconds of the loop); oldest first.
        self._silent: dict[Key, float] = {}
        self._wake = asyncio.Event()
        cluster.workloads.on_event(self._changed)

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        key = key_of(old if new is None else new)
        if new is None or not _waits_silently(new):
            self._silent.pop(key, None)
        elif key not in self._silent:
            self._silent[key] = asyncio.get_running_loop().time()
            self._wake.set()

    async def run(self) -> None:
        """Explain until cancelled."""
        await self._cluster.synced()
        while True:
            while self._silent:
                key, since = next(iter(self._silent.items()))
                wait = since + PATIENCE - asyncio.get_running_loop().time()
                if wait > 0:
                    await self._clock.sleep(wait)
                    continue
                self._silent.pop(key)
                await self._explain(key)
            self._wake.clear()
            await self._wake.wait()

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
            if self._cluster.workload(key) is not None:
                self._silent[key] = asyncio.get_running_loop().time()
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


def _waits_silently(workload: Mapping[str, Any]) -> bool:
    known = conditions.condition(workload, conditions.QUOTA_RESERVED)
    return (
        (known is None or (known.get("reason"), known.get("message")) == NOT_EVALUATED)
        and conditions.is_active(workload)
        and not conditions.is_finished(workload)
        and not is_deleting(workload)
    )
