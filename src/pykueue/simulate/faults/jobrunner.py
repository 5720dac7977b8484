"""A Job controller without pods: it writes Jobs' status as the real one would, at times a seed decides.

It also does what a cluster's garbage collector does to the Workloads of deleted Jobs. Its own requests are
reliable: the faults are the manager's to bear.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.jobs.objects import Object, get
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.resources import JOBS, WORKLOADS, Resource
from pykueue.manager.workloads import reading

Key = tuple[str, str]


@dataclass
class _Plan:
    """What is to become of a Job, over all its starts."""

    #: Starts in which not all pods become ready.
    stuck: int
    ready_after: float
    run_time: float
    fails: bool
    #: Whether the pods end one by one rather than all at once.
    one_by_one: bool
    #: Whether readiness is lost for a while.
    flaps: bool
    #: Whether the present start is one that never gets ready.
    hangs: bool = False


class JobRunner:
    """Plays the pods of all Jobs. `stuck` is how likely a start is that never gets ready."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random, stuck: float) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._stuck = stuck
        self._plans: dict[str, _Plan] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._syncing: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    # What leads to work; called in the step of the write

    def job_stored(self, before: Object | None, after: Object | None) -> None:
        job = after or before
        assert job is not None
        metadata = job["metadata"]
        if after is None:
            self._spawn(self._collect(metadata["namespace"], metadata["uid"]))
            return
        if before is not None and before.get("spec") == after.get("spec"):
            return
        self._poke((metadata["namespace"], metadata["name"]), self._rng.uniform(0.05, 1.0))

    def workload_stored(self, before: Object | None, after: Object | None) -> None:
        owner = reading.owner(after) if after is not None and before is None else None
        if after is not None and owner is not None:
            self._spawn(self._collect(after["metadata"]["namespace"], str(owner["uid"]), str(owner["name"])))

    def stop(self) -> list[asyncio.Task[None]]:
        """End everything; returns what has to be awaited."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    def _poke(self, key: Key, seconds: float) -> None:
        timer = self._timers.get(key)
        loop = asyncio.get_running_loop()
        if timer is not None and not timer.cancelled():
            if loop.time() < timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = self._clock.call_later(seconds, lambda: self._spawn(self._sync(key)))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Garbage

    async def _collect(self, namespace: str, uid: str, name: str = "") -> None:
        """Delete the Workloads of a Job that is gone."""
        await self._clock.sleep(self._rng.uniform(0.1, 2.0))
        if name:
            job = await self._get(JOBS, namespace, name)
            if job is not None and job["metadata"]["uid"] == uid:
                return
        for workload in (await self._client.list(WORKLOADS, namespace)).items:
            owner = reading.owner(workload)
            if owner is not None and owner.get("uid") == uid:
                await self._delete(workload)

    async def _delete(self, workload: Object) -> None:
        metadata = workload["metadata"]
        try:
            await self._client.delete(WORKLOADS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    async def _get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        try:
            return await self._client.get(resource, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    # Jobs

    def _plan(self, uid: str) -> _Plan:
        plan = self._plans.get(uid)
        if plan is None:
            rng = self._rng
            plan = self._plans[uid] = _Plan(
                stuck=rng.choice((1, 1, 2, 4)) if rng.random() < self._stuck else 0,
                ready_after=rng.uniform(0.0, 3.0),
                run_time=rng.uniform(1.0, 20.0),
                fails=rng.random() < 0.1,
                one_by_one=rng.random() < 0.3,
                flaps=rng.random() < 0.15,
            )
        return plan

    async def _sync(self, key: Key) -> None:
        if key in self._syncing:
            self._poke(key, 0.2)
            return
        self._syncing.add(key)
        try:
            job = await self._get(JOBS, *key)
            if job is None or job["metadata"].get("deletionTimestamp"):
                return
            status = self._status(job, key)
            if status is not None:
                await self._write(job, status)
        except ApiError as error:
            if error.not_found:
                return
            self._poke(key, 0.3)
            if not error.conflict:
                raise
        finally:
            self._syncing.discard(key)

    async def _write(self, job: Object, status: Object) -> None:
        metadata = job["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        await self._client.patch(JOBS, metadata["name"], metadata["namespace"], patch, subresource="status")

    def _status(self, job: Object, key: Key) -> Object | None:
        """The next change of the status; None where nothing is to be done now."""
        now = self._clock.time()
        if _true(job, "Complete") or _true(job, "Failed"):
            return None
        if get(job, "spec", "suspend"):
            if _true(job, "Suspended") and not get(job, "status", "active"):
                return None
            conditions = _with(job, "Suspended", "True", "JobSuspended", now)
            return {"active": 0, "ready": 0, "conditions": conditions}
        plan = self._plan(job["metadata"]["uid"])
        size = int(get(job, "spec", "parallelism") or 0)
        total = int(get(job, "spec", "completions") or size)
        succeeded = int(get(job, "status", "succeeded") or 0)
        wanted = min(size, total - succeeded)
        if get(job, "status", "startTime") is None or _true(job, "Suspended"):
            plan.hangs = plan.stuck > 0
            plan.stuck -= 1
            self._poke(key, plan.ready_after)
            conditions = _with(job, "Suspended", "False", "JobResumed", now)
            return {"startTime": format_time(now), "active": wanted, "ready": 0, "conditions": conditions}
        ready, active = (int(get(job, "status", name) or 0) for name in ("ready", "active"))
        if active != wanted:
            self._poke(key, plan.ready_after)
            return {"active": wanted, "ready": min(ready, wanted)}
        if plan.hangs:
            return {"ready": active - 1} if ready != active - 1 else None
        if ready < active:
            self._poke(key, plan.run_time)
            return {"ready": active}
        if plan.flaps and active > 1:
            plan.flaps = False
            self._poke(key, plan.ready_after)
            return {"ready": active - 1}
        if plan.one_by_one and succeeded + 1 < total:
            left = min(size, total - succeeded - 1)
            self._poke(key, plan.run_time / total)
            return {"succeeded": succeeded + 1, "active": left, "ready": left}
        return self._end(job, plan, total)

    def _end(self, job: Object, plan: _Plan, total: int) -> Object:
        now = self._clock.time()
        self._plans.pop(job["metadata"]["uid"], None)
        kinds = ("FailureTarget", "Failed") if plan.fails else ("SuccessCriteriaMet", "Complete")
        reason = "BackoffLimitExceeded" if plan.fails else "CompletionsReached"
        conditions = list(get(job, "status", "conditions") or ())
        conditions += [_condition(kind, "True", reason, now) for kind in kinds]
        ended: Object = {"active": 0, "ready": 0, "conditions": conditions}
        if plan.fails:
            return {**ended, "failed": 1}
        return {**ended, "succeeded": total, "completionTime": format_time(now)}


def _true(job: Object, kind: str) -> bool:
    conditions = get(job, "status", "conditions") or ()
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def _with(job: Object, kind: str, status: str, reason: str, now: float) -> list[Object]:
    others = [c for c in get(job, "status", "conditions") or () if c["type"] != kind]
    return [*others, _condition(kind, status, reason, now)]


def _condition(kind: str, status: str, reason: str, now: float) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": reason,
        "lastProbeTime": format_time(now),
        "lastTransitionTime": format_time(now),
    }
