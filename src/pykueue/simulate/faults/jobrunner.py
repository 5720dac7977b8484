"""Job and JobSet controllers without pods: they write status as the real ones would, at times a seed decides.

It also does what a cluster's garbage collector does to the Workloads of deleted Jobs. Its own requests are
reliable: the faults are the manager's to bear.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Object, controller_of, get, is_deleting
from pykueue.api.resources import JOB_SETS, WORKLOADS, Resource
from pykueue.api.times import format_time
from pykueue.api.variants import has_variants
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

from .jobkinds import KINDS, active, end_conditions, ended, with_conditions
from .writers import independent_task

#: A job: its resource, namespace and name.
ObjectKey = tuple[Resource, str, str]


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
        self._syncing: set[ObjectKey] = set()
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}

    # What leads to work; called in the step of the write

    def job_stored(self, resource: Resource, before: Object | None, after: Object | None) -> None:
        """React to a write of a job: run it, or collect what it owned."""
        job = after or before
        assert job is not None
        metadata = job["metadata"]
        if after is None:
            self._spawn(self._collect(metadata["namespace"], metadata["uid"]))
            return
        if before is not None and before.get("spec") == after.get("spec"):
            return
        self._poke((resource, metadata["namespace"], metadata["name"]), self._rng.uniform(0.05, 1.0))

    def workload_stored(self, before: Object | None, after: Object | None) -> None:
        """React to a write of a Workload: collect one whose owner is gone already, and its variants."""
        if after is None and before is not None and has_variants(before):
            self._spawn(self._collect(before["metadata"]["namespace"], str(before["metadata"]["uid"])))
        owner = controller_of(after) if after is not None else None
        if after is not None and owner is not None and (before is None or owner != controller_of(before)):
            self._spawn(self._collect(after["metadata"]["namespace"], str(owner["uid"]), owner))

    def stop(self) -> list[asyncio.Task[None]]:
        """End everything; returns what has to be awaited."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    def _poke(self, key: ObjectKey, seconds: float) -> None:
        timer = self._timers.get(key)
        loop = asyncio.get_running_loop()
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = self._clock.call_later(seconds, lambda: self._due(key))

    def _due(self, key: ObjectKey) -> None:
        # Removed first: a timer may fire slightly early, and would count as pending.
        del self._timers[key]
        self._spawn(self._sync(key))

    def _spawn(self, work: Any) -> None:
        task = independent_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Garbage

    async def _collect(self, namespace: str, uid: str, owner: Mapping[str, Any] | None = None) -> None:
        """Delete the Workloads of a job that is gone."""
        await self._clock.sleep(self._rng.uniform(0.1, 2.0))
        if owner is not None:
            # The owner of a variant is a Workload.
            kind = KINDS.get(str(owner["kind"]), WORKLOADS)
            job = await self._client.find(kind, str(owner["name"]), namespace)
            if job is not None and job["metadata"]["uid"] == uid:
                return
        for workload in (await self._client.list(WORKLOADS, namespace)).items:
            owner = controller_of(workload)
            if owner is not None and owner.get("uid") == uid:
                await self._delete(workload)

    async def _delete(self, workload: Object) -> None:
        metadata = workload["metadata"]
        try:
            await self._client.delete(WORKLOADS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except ApiError as error:
            if not error.not_found and not error.conflict:
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

    async def _sync(self, key: ObjectKey) -> None:
        if key in self._syncing:
            self._poke(key, 0.2)
            return
        self._syncing.add(key)
        try:
            resource, namespace, name = key
            job = await self._client.find(resource, name, namespace)
            if job is None or is_deleting(job):
                return
            status = self._status(job, key)
            if status is not None:
                await self._write(key, job, status)
        except ApiError as error:
            if error.not_found:
                return
            self._poke(key, 0.3)
            if not error.conflict:
                raise
        finally:
            self._syncing.discard(key)

    async def _write(self, key: ObjectKey, job: Object, status: Object) -> None:
        resource, namespace, name = key
        patch = {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "status": status}
        await self._client.patch(resource, name, namespace, patch, subresource="status")

    def _status(self, job: Object, key: ObjectKey) -> Object | None:
        """The next change of the status; None where nothing is to be done now."""
        if ended(job):
            return None
        is_set = key[0] is JOB_SETS
        now = format_time(self._clock.time())
        if get(job, "spec", "suspend"):
            if conditions.is_true(job, "Suspended") and not active(job):
                return None
            present = with_conditions(job, ("Suspended",), "True", "JobSuspended", now)
            counts = _set_counts(job, 0, 0) if is_set else {"active": 0, "ready": 0}
            return {**counts, "conditions": present}
        plan = self._plan(job["metadata"]["uid"])
        if is_set:
            return self._set_status(job, key, plan, now)
        return self._job_status(job, key, plan, now)

    def _job_status(self, job: Object, key: ObjectKey, plan: _Plan, now: str) -> Object | None:
        size = int(get(job, "spec", "parallelism") or 0)
        total = int(get(job, "spec", "completions") or size)
        succeeded = int(get(job, "status", "succeeded") or 0)
        wanted = min(size, total - succeeded)
        if get(job, "status", "startTime") is None or conditions.is_true(job, "Suspended"):
            self._begin(key, plan)
            present = with_conditions(job, ("Suspended",), "False", "JobResumed", now)
            return {"startTime": now, "active": wanted, "ready": 0, "conditions": present}
        ready, at_work = (int(get(job, "status", name) or 0) for name in ("ready", "active"))
        if at_work != wanted:
            self._poke(key, plan.ready_after)
            return {"active": wanted, "ready": min(ready, wanted)}
        if plan.hangs:
            return {"ready": at_work - 1} if ready != at_work - 1 else None
        if ready < at_work:
            self._poke(key, plan.run_time)
            return {"ready": at_work}
        if plan.flaps and at_work > 1:
            plan.flaps = False
            self._poke(key, plan.ready_after)
            return {"ready": at_work - 1}
        if plan.one_by_one and succeeded + 1 < total:
            left = min(size, total - succeeded - 1)
            self._poke(key, plan.run_time / total)
            return {"succeeded": succeeded + 1, "active": left, "ready": left}
        self._plans.pop(job["metadata"]["uid"], None)
        done: Object = {"failed": 1} if plan.fails else {"succeeded": total, "completionTime": now}
        return {"active": 0, "ready": 0, **done, "conditions": _ended(job, key[0], plan, now)}

    def _set_status(self, job: Object, key: ObjectKey, plan: _Plan, now: str) -> Object | None:
        """A set's Jobs are ready, and end, all at once or one replicated job after the other."""
        counts = get(job, "status", "replicatedJobsStatus") or ()
        if not conditions.is_false(job, "Suspended"):
            self._begin(key, plan)
            present = with_conditions(job, ("Suspended",), "False", "ResumeJobs", now)
            return {**_set_counts(job, 1, 0), "conditions": present}
        if plan.hangs:
            return None
        if any(one["ready"] + one["succeeded"] == 0 for one in counts):
            self._poke(key, plan.run_time)
            return _set_counts(job, 1, 1)
        if plan.one_by_one and sum(one["succeeded"] > 0 for one in counts) + 1 < len(counts):
            self._poke(key, plan.run_time / len(counts))
            first = next(one["name"] for one in counts if not one["succeeded"])
            return _set_counts(job, 1, 1, [first])
        self._plans.pop(job["metadata"]["uid"], None)
        done = [] if plan.fails else [one["name"] for one in counts]
        return {**_set_counts(job, 0, 0, done), "conditions": _ended(job, key[0], plan, now)}

    def _begin(self, key: ObjectKey, plan: _Plan) -> None:
        """A start: is it one that never gets ready?"""
        plan.hangs = plan.stuck > 0
        plan.stuck -= 1
        self._poke(key, plan.ready_after)


def _set_counts(job: Object, at_work: int, ready: int, done: Collection[str] = ()) -> Object:
    """The counts of all replicated jobs: all at work and ready, or none, but those that have succeeded."""
    over = {one["name"] for one in get(job, "status", "replicatedJobsStatus") or () if one["succeeded"]}
    over.update(done)
    found = []
    for one in get(job, "spec", "replicatedJobs"):
        replicas = int(one.get("replicas") or 1)
        left = 0 if one["name"] in over else replicas
        found.append(
            {
                "name": one["name"],
                "active": left * at_work,
                "ready": left * ready,
                "succeeded": replicas - left,
                "failed": 0,
                "suspended": left * (1 - at_work),
            }
        )
    return {"restarts": int(get(job, "status", "restarts") or 0), "replicatedJobsStatus": found}


def _ended(job: Object, resource: Resource, plan: _Plan, now: str) -> list[Object]:
    """The conditions of a job that has come to the planned end."""
    reason = "BackoffLimitExceeded" if plan.fails else "CompletionsReached"
    succeeded, failed = end_conditions(resource)
    return with_conditions(job, failed if plan.fails else succeeded, "True", reason, now)
