"""Counting finished pods exactly once, whatever crashes in between.

A finished pod is first written into the Job's status as uncounted, then loses its finalizer, and only then
moves into the counters (docs/reference/cluster-workloads.md, 1.7). For succeeded pods of Indexed Jobs the
index in
completedIndexes does what the list of uncounted pods does for the others.
"""

from __future__ import annotations

import asyncio

from pykueue.api.objects import Object, is_deleting
from pykueue.api.pods import phase
from pykueue.api.resources import JOBS
from pykueue.clock import Clock
from pykueue.embedded.controllers.jobs.ownership import untrack
from pykueue.embedded.controllers.jobs.pods import completion_index, is_tracked, uid_of
from pykueue.embedded.controllers.jobs.state import FAILED, JobState, Outcome
from pykueue.embedded.controllers.jobs.status import (
    with_condition,
    with_number,
    with_outcome,
    with_uncounted,
)
from pykueue.embedded.kinds.jobindexes import format_indexes
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer

#: Most pods that wait in the status to be counted; the rest follows in the next syncs.
MAX_UNCOUNTED = 500


class Counting:
    """Takes one Job's status through the steps: `record`, then `settle`."""

    def __init__(
        self,
        client: Client,
        jobs: Informer,
        pods: Informer,
        clock: Clock,
        state: JobState,
        status: Object,
        outcome: Outcome | None,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._clock = clock
        self._state = state
        self._outcome = outcome
        #: The Job as last written.
        self._job = state.job
        #: Pods that may lose their finalizer once the status knows them.
        self._leaving: list[Object] = []
        self._complete = True
        self._status = self._counted(status)

    async def record(self) -> None:
        """Write down which pods are finished, and that the Job is about to end if it is."""
        await self._write()

    async def settle(self) -> bool:
        """Let the recorded pods go, move them into the counters, and end the Job when none is left.

        Whether the Job ended. Raises the first error, after everything else has been done.
        """
        results = await asyncio.gather(
            *(untrack(self._client, self._pods, pod) for pod in self._leaving), return_exceptions=True
        )
        gone = {uid_of(pod) for pod, result in zip(self._leaving, results, strict=True) if result is None}
        self._status = self._moved(self._status, gone)
        finished = False
        outcome = self._outcome
        if (
            outcome is not None
            and self._complete
            and not any(self._status["uncountedTerminatedPods"].values())
            and not self._status.get("terminating")
        ):
            self._status = with_outcome(self._status, outcome, self._clock.time())
            finished = True
        await self._write()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return finished

    async def _write(self) -> None:
        if self._status == (self._job.get("status") or {}):
            return
        new = {**self._job, "status": self._status}
        self._job = await self._client.update(JOBS, new, subresource="status")
        self._jobs.note(self._job)

    def _counted(self, status: Object) -> Object:
        """The status with every finished pod in it, as far as there is room."""
        state, outcome = self._state, self._outcome
        tracked = [pod for pod in state.pods if is_tracked(pod)]
        known = {uid_of(pod) for pod in tracked}
        # What lost its finalizer before a crash or a failed write goes into the counters first.
        lost = {uid for uid in (*state.uncounted_succeeded, *state.uncounted_failed) if uid not in known}
        status = with_uncounted(status, state.uncounted_succeeded, state.uncounted_failed)
        status = self._moved(status, lost)
        succeeded = list(status["uncountedTerminatedPods"].get("succeeded") or ())
        failed = list(status["uncountedTerminatedPods"].get("failed") or ())
        indexes = set(state.known_succeeded_indexes)
        listed = {*succeeded, *failed}
        new_indexes = 0
        for pod in tracked:
            if len(succeeded) + len(failed) + new_indexes >= MAX_UNCOUNTED:
                self._complete = False
                break
            if not self._may_leave(pod):
                continue
            self._leaving.append(pod)
            uid, index = uid_of(pod), completion_index(pod)
            has_place = not state.indexed or (index is not None and index < (state.completions or 0))
            if uid in listed or not has_place:
                continue
            if phase(pod) == "Succeeded":
                if index is not None and state.indexed:
                    new_indexes += index not in indexes
                    indexes.add(index)
                else:
                    succeeded.append(uid)
            elif self._has_failed(pod) and state.verdict(pod).counts:
                failed.append(uid)
        status = with_uncounted(status, succeeded, failed)
        if state.indexed:
            status = with_number(status, "succeeded", len(indexes))
            text = format_indexes(indexes)
            status = {key: value for key, value in status.items() if key != "completedIndexes"}
            if text:
                status["completedIndexes"] = text
        if state.per_index:
            status = {**status, "failedIndexes": format_indexes(state.failed_indexes)}
        if outcome is not None:
            now = self._clock.time()
            status, _ = with_condition(status, outcome.interim, True, outcome.reason, outcome.message, now)
        return status

    def _has_failed(self, pod: Object) -> bool:
        """When a Job fails, every pod it still had has failed with it."""
        job_failed = self._outcome is not None and self._outcome.type == FAILED
        return job_failed or self._state.has_failed(pod)

    def _may_leave(self, pod: Object) -> bool:
        """Whether the pod need not be held any longer once it is written down."""
        state = self._state
        if self._outcome is not None or is_deleting(state.job) or phase(pod) == "Succeeded":
            return True
        if not state.has_failed(pod):
            return False
        index = completion_index(pod)
        awaited = state.awaiting_replacement.get(index) if index is not None else None
        return awaited is None or uid_of(awaited) != uid_of(pod)

    def _moved(self, status: Object, gone: set[str]) -> Object:
        """The status with pods that have lost their finalizer moved into the counters."""
        uncounted = status.get("uncountedTerminatedPods") or {}
        left: dict[str, list[str]] = {}
        for field in ("succeeded", "failed"):
            waiting = list(uncounted.get(field) or ())
            left[field] = [uid for uid in waiting if uid not in gone]
            moved = len(waiting) - len(left[field])
            if moved:
                status = with_number(status, field, int(status.get(field) or 0) + moved)
        return with_uncounted(status, left["succeeded"], left["failed"])
