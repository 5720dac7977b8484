"""The forecasts of a manager: when its pending workloads start, as far as it is asked for.

A forecast is made when someone asks and the last one is old, by one process at a time at the lowest priority.
The state is taken in one go, and encoded in small steps, between which the manager decides.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from heapq import nlargest
from typing import Final

import msgspec

from pykueue.api import conditions, decode_as, encode, kueue
from pykueue.api.kueue.names import FINISHED
from pykueue.api.objects import Object, condition_of
from pykueue.engine.dump import manifest_of, objects_of
from pykueue.kube.errors import ApiError
from pykueue.manager.manager import Manager
from pykueue.simulate.live.kept import Store
from pykueue.simulate.live.protocol import Ask, Starts
from pykueue.simulate.scores import Scores

#: Seconds for which a forecast is served; an older one is made again when it is asked for.
KEPT_SECONDS: Final = 60.0
#: Seconds after which a forecast is not shown any more, because a newer one could not be made.
OLD_SECONDS: Final = 600.0
#: Seconds for which a request waits for a new forecast.
WAIT_SECONDS: Final = 5.0
#: Futures of a forecast at most, and seconds of real time in which they are simulated.
FUTURES_MAX: Final = 20
SIMULATION_SECONDS: Final = 10.0
#: Seconds for which a dry run waits for its forecast: webhooks have 3 s.
ADVICE_SECONDS: Final = 2.0
#: Seconds after which the process is ended.
PROCESS_SECONDS: Final = 30.0
#: Workloads that are not finished, beyond which no forecast is made.
WORKLOADS_MAX: Final = 5000
#: Newest finished Workloads that run times are learnt from.
FINISHED_MAX: Final = 2000
#: Objects that are read or encoded in one step.
_STEP: Final = 100

log = logging.getLogger(__name__)

#: Answers an encoded `Ask` with encoded `Starts`.
Run = Callable[[bytes], Awaitable[bytes]]


async def run_process(document: bytes) -> bytes:
    """The answer of a process of its own. Raises OSError, TimeoutError and, if it fails, RuntimeError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pykueue.simulate.live.process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROCESS_SECONDS):
            answer, errors = await process.communicate(document)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"the process ended with status {process.returncode}: {last}")
    return answer


class Forecasts:
    """When the pending workloads of a manager start."""

    def __init__(self, manager: Manager, run: Run = run_process, store: Store | None = None) -> None:
        """`store` keeps how good past forecasts were; without it they are forgotten with this object."""
        self._manager = manager
        self._run = run
        self._scores = Scores()
        self._store = store
        self._last: Starts | None = None
        #: When the last one was begun, in seconds of the manager's clock.
        self._at = float("-inf")
        self._making: asyncio.Task[None] | None = None
        #: What a dry run asked for last, when, and the answer: one at a time has a process.
        self._submitted: Object | None = None
        self._submitted_at = float("-inf")
        self._advising: asyncio.Task[Starts | None] | None = None

    async def starts(self) -> Starts | None:
        """The newest forecast; None where there is none yet, or none can be made."""
        now = self._manager.now()
        if not 0 <= now - self._at < KEPT_SECONDS:
            if self._making is None or self._making.done():
                self._making = asyncio.create_task(self._make(now))
            await asyncio.wait([self._making], timeout=WAIT_SECONDS)
        return self._last if now - self._at < OLD_SECONDS else None

    async def start_of(self, workload: Object) -> Starts | None:
        """When a Workload that does not exist would start; None where that is not known yet, or cannot be.

        Asked again about the same soon after, it answers from what was simulated meanwhile.
        """
        now, spec = self._manager.now(), workload["spec"]
        if spec != self._submitted or not 0 <= now - self._submitted_at < KEPT_SECONDS:
            if self._advising is not None and not self._advising.done():
                return None  # about another one
            self._submitted, self._submitted_at = spec, now
            self._advising = asyncio.create_task(self._simulated(now, workload))
        assert self._advising is not None
        await asyncio.wait([self._advising], timeout=ADVICE_SECONDS)
        if not self._advising.done():
            return None
        self._submitted = None  # what is asked next is asked about the state of then
        return self._advising.result()

    async def _simulated(self, now: float, submit: Object | None = None) -> Starts | None:
        """The answer of a process; None where there is none."""
        try:
            document = await self._ask(now, submit)
            return None if document is None else msgspec.json.decode(await self._run(document), type=Starts)
        except (OSError, RuntimeError, TimeoutError, msgspec.DecodeError) as error:
            log.warning("when workloads start could not be forecast: %s", error or "timeout")
            return None

    async def stop(self) -> None:
        """End a forecast that is being made."""
        for task in (self._making, self._advising):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    async def _make(self, now: float) -> None:
        found = await self._simulated(now)
        if found is not None:
            await self._score(found)
            self._last, self._at = found, now

    async def _score(self, found: Starts) -> None:
        """Judge past forecasts, keep these, and say how good those of each queue were."""
        scores = self._scores
        await self._save()  # what was kept before a restart is judged too
        scores.judge(filter(None, map(self._workload, scores.unjudged())))
        for key, start in found.starts.items():
            workload = self._workload(key)
            if workload is not None and workload.status.admission is None:
                scores.add(workload, start.earliest, start.latest, first=True)
        await self._save()
        found.scores = scores.of_queues()

    def _workload(self, key: str) -> kueue.Workload | None:
        namespace, _, name = key.partition("/")
        found = self._manager.cluster.workloads.get(namespace, name)
        return None if found is None else decode_as(kueue.Workload, found)

    async def _save(self) -> None:
        if self._store is None:
            return
        try:
            await self._store.save(self._scores)
        except (ApiError, OSError, TimeoutError) as error:
            log.warning("scores of forecasts could not be kept: %s", error or "timeout")

    async def _ask(self, now: float, submit: Object | None = None) -> bytes | None:
        """The state of the manager's engine; None with too many workloads."""
        engine = self._manager.engine
        if engine.workload_count > WORKLOADS_MAX:
            log.warning("starts are not forecast with more than %d workloads", WORKLOADS_MAX)
            return None
        objects = list(objects_of(engine))
        encoded = []
        for number, each in enumerate(objects):
            encoded.append(msgspec.Raw(msgspec.json.encode(manifest_of(each))))
            if number % _STEP == 0:
                await asyncio.sleep(0)
        encoded += [msgspec.Raw(msgspec.json.encode(each)) for each in await self._finished()]
        ask = Ask(
            now=now,
            options=encode(engine.options),
            objects=encoded,  # type: ignore[arg-type]
            submit=submit,
            futures=FUTURES_MAX,
            seconds=SIMULATION_SECONDS,
        )
        return msgspec.json.encode(ask)

    async def _finished(self) -> list[Object]:
        """The Workloads that finished last."""
        cache = self._manager.cluster.workloads
        found: list[tuple[str, int, Object]] = []
        for number, key in enumerate(cache.keys()):
            workload = cache.get(*key)
            if workload is not None and conditions.is_finished(workload):
                condition = condition_of(workload["status"], FINISHED) or {}
                found.append((str(condition.get("lastTransitionTime") or ""), number, workload))
            if len(found) > 2 * FINISHED_MAX:
                found = nlargest(FINISHED_MAX, found)
            if number % _STEP == 0:
                await asyncio.sleep(0)
        return [workload for _, _, workload in nlargest(FINISHED_MAX, found)]
