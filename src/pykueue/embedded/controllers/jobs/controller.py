"""The Job controller's loop: what a sync reads, decides and writes.

All its requests, those of its events included, share one limit, and the pods of a Job are created in batches
of 1, 2, 4, 8, ... each awaited before the next, so that Jobs started close together get their pods
interleaved (docs/reference/cluster-workloads.md, section 0, fact 1). What a crash may leave half done, the
next
sync finishes: all state is in the Job's status and on its pods.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from pykueue.api.objects import Key, Object, controller_of, is_deleting
from pykueue.api.pods import is_ready, is_terminal, phase
from pykueue.api.resources import JOBS, PODS
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.embedded.controllers.jobs.ownership import MANAGED_BY, Ownership, untrack
from pykueue.embedded.controllers.jobs.pods import PodMaker, is_tracked, uid_of
from pykueue.embedded.controllers.jobs.state import (
    COMPLETE,
    SUSPENDED,
    Failures,
    JobState,
    Outcome,
    add_results,
)
from pykueue.embedded.controllers.jobs.status import (
    is_finished,
    with_condition,
    with_counts,
)
from pykueue.embedded.controllers.jobs.tracking import Counting
from pykueue.embedded.controllers.parallel import first_error, outcomes
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.kube.workqueue import WorkQueue

#: Jobs worked on at the same time.
WORKERS = 5
#: Seconds by which a sync that a pod or a status change asks for is put off, so that several become one.
BATCH_DELAY = 1.0
#: Retry after a failed sync, in seconds: doubles from the first to the second.
RETRY_BASE = 1.0
RETRY_CAP = 60.0
#: Most pods one sync creates or deletes.
MAX_PODS_PER_SYNC = 500

log = logging.getLogger(__name__)


class _Managed(NamedTuple):
    """The result of creating and deleting pods."""

    active: int
    ready: int
    wake: float | None
    error: Exception | None


class JobController:
    """Makes and counts the pods of all Jobs; run by `run`."""

    def __init__(
        self,
        client: Client,
        jobs: Informer,
        pods: Informer,
        recorder: EventRecorder,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._controller: Controller[Key] = Controller(
            "job",
            self._sync,
            queue=WorkQueue(clock, base=RETRY_BASE, cap=RETRY_CAP),
            workers=WORKERS,
            wait_for=[jobs.synced, pods.synced],
        )
        self._queue = self._controller.queue
        self._ownership = Ownership(client, jobs, pods, clock)
        #: Pods whose deletion was confirmed, until the cache shows it.
        self._deleted: set[str] = set()
        #: Jobs of which a creation may or may not have happened: their pods are read from the server.
        self._uncertain: set[str] = set()
        #: Back-off per Job; after a restart it is made again from the pods.
        self._failures: dict[str, Failures] = {}
        jobs.on_event(self._on_job)
        pods.on_event(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ownership.run())
            group.create_task(self._controller.run())

    # Events

    def _on_job(self, type_: str, old: Any, new: Any) -> None:
        job = new if new is not None else old
        key = (job["metadata"]["namespace"], job["metadata"]["name"])
        if new is None:
            self._failures.pop(job["metadata"]["uid"], None)
            self._uncertain.discard(job["metadata"]["uid"])
            self._ownership.job_ended(job)
            self._queue.add(key)
        elif old is None or old["metadata"].get("generation") != new["metadata"].get("generation"):
            self._queue.add(key)
        else:
            self._queue.add_after(key, BATCH_DELAY)

    def _on_pod(self, type_: str, old: Any, new: Any) -> None:
        pod = new if new is not None else old
        if new is None or is_deleting(pod):
            self._deleted.discard(uid_of(pod))
        owner = controller_of(pod)
        if old is not None and new is not None:
            before = controller_of(old)
            if before is not None and (owner is None or owner["uid"] != before["uid"]):
                # Moved to another owner: the former owner must be reconciled too.
                self._wake_owner(pod, before)
        if owner is not None:
            self._wake_owner(pod, owner)
        elif new is not None:
            for job in self._ownership.possible_owners(pod):
                self._queue.add_after((job["metadata"]["namespace"], job["metadata"]["name"]), BATCH_DELAY)
        if new is not None and is_tracked(pod):
            self._ownership.check(pod)

    def _wake_owner(self, pod: Object, owner: Object) -> None:
        if owner.get("kind") != JOBS.kind:
            return
        job = self._jobs.get(pod["metadata"]["namespace"], owner["name"])
        if job is not None and job["metadata"]["uid"] == owner["uid"]:
            self._queue.add_after((job["metadata"]["namespace"], job["metadata"]["name"]), BATCH_DELAY)

    # One sync

    async def _sync(self, key: Key) -> float | None:
        job = self._jobs.get(*key)
        if job is None:
            return None
        if job["spec"].get("managedBy") not in (None, MANAGED_BY):
            return None
        uid = job["metadata"]["uid"]
        if is_finished(job):
            self._failures.pop(uid, None)
            self._ownership.job_ended(job)
            return None
        if uid in self._uncertain:
            await self._look_again(job)
        pods = await self._ownership.claim(job)
        now = self._clock.time()
        state = JobState(job, pods, now, self._deleted)
        failures = state.failures_after(self._known_failures(state))
        wakes: list[float] = []
        status = state.status
        if status.get("startTime") is None and not state.suspended:
            status = {**status, "startTime": format_time(now)}
            if state.spec.get("activeDeadlineSeconds") is not None:
                wakes.append(float(state.spec["activeDeadlineSeconds"]))
        left = state.until_deadline()
        if left is not None and left > 0.0:
            wakes.append(left)

        outcome = state.outcome()
        error: Exception | None = None
        active, ready, terminating = len(state.active), len(state.ready), len(state.terminating)
        if outcome is not None:
            removed, error = await self._delete(job, state.active, tracked=True)
            active, ready = _left(state.active, removed)
            terminating += len(removed)
        else:
            may_manage = not is_deleting(job)
            if may_manage:
                active, ready, wake, error = await self._manage(state, failures)
                if wake is not None:
                    wakes.append(wake)
            outcome = state.completion(active)
            if outcome is None and may_manage:
                status = self._with_suspension(job, status, now)

        status = with_counts(status, active, ready, terminating)
        counting = Counting(self._client, self._jobs, self._pods, self._clock, state, status, outcome)
        await counting.record()
        if uid in self._failures or failures.number:
            self._failures[uid] = failures
        if await counting.settle() and outcome is not None:
            self._tell_end(job, state, outcome)
        if error is not None:
            raise error
        return min(wakes, default=None)

    def _known_failures(self, state: JobState) -> Failures:
        """The back-off as of the last sync; after a restart the pods counted so far tell it."""
        known = self._failures.get(state.job["metadata"]["uid"])
        if known is not None:
            return known
        written = {*state.uncounted_succeeded, *state.uncounted_failed}
        counted = [
            pod
            for pod in state.pods
            if is_terminal(pod) and not is_deleting(pod) and (not is_tracked(pod) or uid_of(pod) in written)
        ]
        succeeded = [pod for pod in counted if phase(pod) == "Succeeded"]
        failed = [pod for pod in counted if phase(pod) == "Failed"]
        return add_results(Failures(), succeeded, failed)

    def _with_suspension(self, job: Object, status: Object, now: float) -> Object:
        """The Suspended condition, its event, and the start time that goes with it (1.5)."""
        if job["spec"].get("suspend"):
            status, changed = with_condition(status, SUSPENDED, True, "JobSuspended", "Job suspended", now)
            if changed:
                self._recorder.event(job, NORMAL, "Suspended", "Job suspended")
            return {key: value for key, value in status.items() if key != "startTime"}
        status, changed = with_condition(status, SUSPENDED, False, "JobResumed", "Job resumed", now)
        if changed:
            self._recorder.event(job, NORMAL, "Resumed", "Job resumed")
            status = {**status, "startTime": format_time(now)}
        return status

    def _tell_end(self, job: Object, state: JobState, outcome: Outcome) -> None:
        if outcome.type != COMPLETE:
            self._recorder.event(job, WARNING, outcome.reason, outcome.message)
            return
        if state.completions is not None and state.succeeded > state.completions:
            text = "Too many succeeded pods running after completion count reached"
            self._recorder.event(job, WARNING, "TooManySucceededPods", text)
        self._recorder.event(job, NORMAL, "Completed", "Job completed")

    async def _look_again(self, job: Object) -> None:
        """Take in what the server has, after requests whose end is unknown."""
        metadata = job["metadata"]
        selector = ",".join(
            f"{key}={value}"
            for key, value in (job["spec"].get("selector") or {}).get("matchLabels", {}).items()
        )
        found = await self._client.list(PODS, metadata["namespace"], label_selector=selector)
        for pod in found.items:
            self._pods.note(pod)
        self._uncertain.discard(metadata["uid"])

    # Creating and deleting pods

    async def _manage(self, state: JobState, failures: Failures) -> _Managed:
        """Create or delete pods as the Job wants; never both in one sync."""
        surplus = state.surplus()[:MAX_PODS_PER_SYNC]
        if surplus or state.suspended:
            removed, error = await self._delete(state.job, surplus, tracked=False)
            active, ready = _left(state.active, removed)
            return _Managed(active, ready, None, error)
        active, ready = len(state.active), len(state.ready)
        missing = min(state.missing(), MAX_PODS_PER_SYNC)
        if not missing:
            return _Managed(active, ready, None, None)
        wake: float | None = None
        indexes: list[int | None]
        if not state.per_index and (wait := failures.wait(state.now)) > 0.0:
            return _Managed(active, ready, wait, None)
        if state.indexed:
            pending = state.pending_indexes(missing)
            waits = {index: state.index_wait(index) for index in pending}
            wake = min((wait for wait in waits.values() if wait > 0.0), default=None)
            indexes = [index for index in pending if waits[index] <= 0.0]
        else:
            indexes = [None] * missing
        created, error = await self._create(state, indexes)
        return _Managed(active + created, ready, wake, error)

    async def _create(self, state: JobState, indexes: list[int | None]) -> tuple[int, Exception | None]:
        """Create a pod per entry in batches of doubling size; how many there are, and the first error."""
        maker = PodMaker(state.job)
        created, size, start = 0, 1, 0
        while start < len(indexes):
            batch = indexes[start : start + size]
            start += len(batch)
            # The requests of a batch are sent at the same time: their order is random.
            self._rng.shuffle(batch)
            results = await outcomes(self._create_one(state, maker, index) for index in batch)
            created += sum(result is True for result in results)
            error = first_error(results)
            if error is not None:
                return created, error
            size *= 2
        return created, None

    async def _create_one(self, state: JobState, maker: PodMaker, index: int | None) -> bool:
        """Whether the pod exists now; False when its namespace is terminating, which is not an error."""
        job = state.job
        failures = (0, 0) if index is None else state.index_failures(index)
        try:
            pod = await self._client.create(PODS, maker.make(index, *failures), given=True)
        except ApiError as error:
            if error.namespace_terminating:
                return False
            if error.code >= 500:
                self._uncertain.add(job["metadata"]["uid"])
            self._recorder.event(job, WARNING, "FailedCreate", f"Error creating: {error}")
            raise
        except (ConnectionError, TimeoutError):
            self._uncertain.add(job["metadata"]["uid"])
            raise
        self._pods.note(pod)
        self._recorder.event(job, NORMAL, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        return True

    async def _delete(
        self, job: Object, pods: Iterable[Object], *, tracked: bool
    ) -> tuple[list[Object], Exception | None]:
        """Delete pods; those that are gone or going, and the first error.

        Unless `tracked`, the finalizer goes first, so that they are never counted.
        """
        pods = list(pods)
        results = await outcomes(self._delete_one(job, pod, tracked) for pod in pods)
        removed = [pod for pod, result in zip(pods, results, strict=True) if result is None]
        return removed, first_error(results)

    async def _delete_one(self, job: Object, pod: Object, tracked: bool) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            if not tracked and is_tracked(pod):
                await untrack(self._client, self._pods, pod)
            await self._client.delete(PODS, name, namespace, propagation="Background", uid=metadata["uid"])
        except ApiError as error:
            if not error.not_found and not error.conflict:
                self._recorder.event(job, WARNING, "FailedDelete", f"Error deleting: {error}")
                raise
        else:
            self._recorder.event(job, NORMAL, "SuccessfulDelete", f"Deleted pod: {name}")
        shown = self._pods.get(namespace, name)
        if shown is not None and uid_of(shown) == metadata["uid"] and not is_deleting(shown):
            self._deleted.add(metadata["uid"])


def _left(active: list[Object], removed: list[Object]) -> tuple[int, int]:
    """How many of the active pods are left, and how many of those are ready."""
    gone = {uid_of(pod) for pod in removed}
    left = [pod for pod in active if uid_of(pod) not in gone]
    return len(left), sum(is_ready(pod) for pod in left)
