"""The JobSet controller's loop: what a pass reads, decides and writes.

A pass reads a set and its Jobs, takes every step that is due, and writes the status once, with the
resourceVersion it read; so a restart is counted once. Names of Jobs follow from the set: what a crash left
incomplete, the next pass continues. Source: docs/reference/cluster-workloads.md 2.4.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from pykueue.api.objects import Key, Object, controller_of, is_deleting
from pykueue.api.resources import JOB_SETS, JOBS, Resource
from pykueue.clock import Clock
from pykueue.embedded.controllers.jobset import children
from pykueue.embedded.controllers.jobset.state import FAIL, RESTART, JobSetState
from pykueue.embedded.controllers.jobset.status import COMPLETED, FAILED, RESTARTING, SUSPENDED, Progress
from pykueue.embedded.controllers.parallel import first_error, outcomes
from pykueue.embedded.jobset.names import CONTROLLER
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.kube.workqueue import WorkQueue

#: Sets worked on at the same time.
WORKERS = 5
#: Most Jobs of a set that are created, changed or deleted at the same time.
MAX_PARALLEL = 50
#: Retry after a failed pass, in seconds: doubles from the first to the second.
RETRY_BASE = 0.1
RETRY_CAP = 60.0

_BY_OWNER = "jobset by uid"


class JobSetController:
    """Carries out all JobSets; run by `run`."""

    def __init__(
        self,
        client: Client,
        jobsets: Informer,
        jobs: Informer,
        services: Informer,
        claims: Informer,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._jobsets = jobsets
        self._jobs = jobs
        self._services = services
        self._claims = claims
        self._recorder = recorder
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "jobset",
            self._sync,
            queue=WorkQueue(clock, base=RETRY_BASE, cap=RETRY_CAP),
            workers=WORKERS,
            wait_for=[jobsets.synced, jobs.synced, services.synced, claims.synced],
        )
        jobs.add_index(_BY_OWNER, _owning_set, of_metadata=True)
        jobsets.on_event(self._on_jobset)
        for owned in (jobs, services, claims):
            owned.on_event(self._on_owned)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _on_jobset(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._controller.queue.add((new["metadata"]["namespace"], new["metadata"]["name"]))

    def _on_owned(self, type_: str, old: Any, new: Any) -> None:
        for obj in (old, new):
            owner = _owner(obj) if obj is not None else None
            if owner is not None:
                self._controller.queue.add((obj["metadata"]["namespace"], owner["name"]))

    # One pass

    async def _sync(self, key: Key) -> float | None:
        jobset = self._jobsets.get(*key)
        if jobset is None or is_deleting(jobset):
            return None
        if jobset["spec"].get("managedBy") not in (None, CONTROLLER):
            return None
        state = JobSetState(jobset, self._jobs.by_index(_BY_OWNER, jobset["metadata"]["uid"]))
        progress = Progress(state.status, self._clock.time())
        progress.put("restarts", state.restarts)
        progress.put("replicatedJobsStatus", state.replicated_jobs_status())
        if progress.ended_at is not None:
            await self._write(jobset, progress)
            return await self._clean_up(state, progress.ended_at)
        failure: Exception | None = None
        try:
            await self._advance(state, progress)
        except (ApiError, ConnectionError, TimeoutError) as error:
            failure = error
        # What was found out is written even where a step did not succeed.
        await self._write(jobset, progress)
        if failure is not None:
            raise failure
        return None

    async def _advance(self, state: JobSetState, progress: Progress) -> None:
        await self._delete_jobs(state.previous)
        if not state.suspended and state.all_ready:
            progress.deny(RESTARTING, "JobsReady", "all jobs are ready")
        if state.failed:
            _apply_failure_policy(state, progress)
            return
        if state.successful and state.is_successful():
            progress.end(COMPLETED, "AllJobsCompleted", "jobset completed successfully", NORMAL)
            return
        await self._ensure_service(state.jobset)
        await self._ensure_claims(state.jobset)
        if state.suspended:
            await self._suspend(state)
        else:
            progress.deny(SUSPENDED, "ResumeJobs", "jobset is resumed")
        for one in state.startable():
            await self._start(state, one)
        if state.in_order and not state.suspended:
            progress.order(in_progress=not all(map(state.has_started, state.replicated_jobs)))
        if state.suspended:
            if state.has_stopped:
                progress.affirm(SUSPENDED, "SuspendedJobs", "jobset is suspended")
            progress.deny(RESTARTING, "JobSetSuspended", "jobset is suspended", None)

    async def _clean_up(self, state: JobSetState, ended_at: float) -> float | None:
        """What is left to do for a set that has ended; seconds until more is."""
        await self._delete_jobs(state.active)
        ttl = state.spec.get("ttlSecondsAfterFinished")
        if ttl is None:
            return None
        left = ended_at + float(ttl) - self._clock.time()
        if left <= 0.0:
            await self._delete(JOB_SETS, state.jobset)
            return None
        return left

    async def _write(self, jobset: Object, progress: Progress) -> None:
        """Write the status if it changed, then emit its events."""
        if progress.status != (jobset.get("status") or {}):
            written = await self._client.update(
                JOB_SETS, {**jobset, "status": progress.status}, subresource="status"
            )
            self._jobsets.note(written)
        for note in progress.notes:
            self._recorder.event(jobset, *note)

    # Steps

    async def _start(self, state: JobSetState, replicated_job: Object) -> None:
        """Create the missing Jobs of a replicated job, and let the suspended ones run if the set does."""
        new = [
            children.job(state.jobset, replicated_job, index, state.restarts)
            for index in state.missing(replicated_job)
        ]
        await _all(self._create_job(state.jobset, job) for job in new)
        if not state.suspended:
            await _all(self._resume(job, replicated_job) for job in state.suspended_jobs(replicated_job))

    async def _create_job(self, jobset: Object, job: Object) -> None:
        await self._create(jobset, self._jobs, job, "JobCreationFailed")

    async def _create(self, jobset: Object, informer: Informer, obj: Object, failure: str) -> None:
        """Create what belongs to a set; one of the set's own that is there already will do."""
        try:
            created = await self._client.create(informer.resource, obj)
        except ApiError as error:
            if error.already_exists and await self._is_own(jobset, informer, obj):
                return
            self._recorder.event(jobset, WARNING, failure, str(error))
            raise
        informer.note(created)

    async def _is_own(self, jobset: Object, informer: Informer, obj: Object) -> bool:
        metadata = obj["metadata"]
        present = await self._client.get(informer.resource, metadata["name"], metadata["namespace"])
        informer.note(present)
        owner = _owner(present)
        if informer.resource != JOBS:
            return True
        return owner is not None and owner["uid"] == jobset["metadata"]["uid"]

    async def _ensure_service(self, jobset: Object) -> None:
        service = children.service(jobset)
        if service is not None and self._is_missing(self._services, service):
            await self._create(jobset, self._services, service, "HeadlessServiceCreationFailed")

    async def _ensure_claims(self, jobset: Object) -> None:
        for claim in children.claims(jobset):
            if self._is_missing(self._claims, claim):
                await self._create(jobset, self._claims, claim, "PVCCreationFailed")

    @staticmethod
    def _is_missing(informer: Informer, obj: Object) -> bool:
        return informer.get(obj["metadata"]["namespace"], obj["metadata"]["name"]) is None

    async def _suspend(self, state: JobSetState) -> None:
        running = [job for job in state.active if not job["spec"].get("suspend")]
        await _all(self._change(job, {"spec": {"suspend": True}}) for job in running)

    async def _resume(self, job: Object, replicated_job: Object) -> None:
        """Let a Job run, with what its template has gained meanwhile.

        A template can change only while the Job has no pods left: until then its next status is awaited.
        """
        template = children.resumed_template(job, replicated_job)
        status = job.get("status") or {}
        spec: Object = {"suspend": False}
        if template != job["spec"]["template"]:
            if status.get("active"):
                return
            spec["template"] = template
        if status.get("startTime"):
            await self._change(job, {"status": {"startTime": None}}, "status")
        await self._change(job, {"spec": spec})

    async def _change(self, job: Object, patch: Object, subresource: str | None = None) -> None:
        """Change this very Job; one that is gone needs no change."""
        if is_deleting(job):
            return
        metadata = job["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, **patch}
        try:
            changed = await self._client.patch(
                JOBS, metadata["name"], metadata["namespace"], patch, subresource=subresource
            )
        except ApiError as error:
            if not error.not_found:
                raise
        else:
            self._jobs.note(changed)

    async def _delete_jobs(self, jobs: Iterable[Object]) -> None:
        await _all(self._delete(JOBS, job) for job in jobs if not is_deleting(job))

    async def _delete(self, resource: Resource, obj: Object) -> None:
        metadata = obj["metadata"]
        try:
            await self._client.delete(
                resource,
                metadata["name"],
                metadata["namespace"],
                propagation="Foreground",
                uid=metadata["uid"],
            )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise


def _apply_failure_policy(state: JobSetState, progress: Progress) -> None:
    verdict = state.verdict()
    if verdict is None:
        name = state.first_failed["metadata"]["name"]
        text = f"jobset failed due to one or more job failures (first failed job: {name})"
        progress.end(FAILED, "FailedJobs", text, WARNING)
        return
    if verdict.action == FAIL:
        text = f"jobset failed due to FailJobSet failure policy action (first failed job: {verdict.job})"
        progress.end(FAILED, "FailJobSetFailurePolicyAction", text, WARNING)
        return
    counted = int(state.status.get("restartsCountTowardsMax") or 0)
    if verdict.action == RESTART:
        if counted >= int(state.spec["failurePolicy"].get("maxRestarts") or 0):
            text = f"jobset failed due to reaching max number of restarts (first failed job: {verdict.job})"
            progress.end(FAILED, "ReachedMaxRestarts", text, WARNING)
            return
        counted += 1
    progress.put("restarts", state.restarts + 1)
    progress.put("restartsCountTowardsMax", counted)
    reason = "DefaultFailurePolicy" if verdict.rule is None else f"FailurePolicy_{verdict.rule}"
    text = f"jobset is restarting (restart {state.restarts + 1}) because job {verdict.job} failed"
    progress.affirm(RESTARTING, reason, text, WARNING)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it, some at the same time; raises the first error once everything has been tried."""
    error = first_error(await outcomes(work, MAX_PARALLEL))
    if error is not None:
        raise error


def _owner(obj: Object) -> Object | None:
    """The set that controls an object."""
    owner = controller_of(obj)
    if owner is None or owner.get("kind") != JOB_SETS.kind:
        return None
    return owner if str(owner.get("apiVersion")).partition("/")[0] == JOB_SETS.group else None


def _owning_set(job: Object) -> list[str]:
    owner = _owner(job)
    return [] if owner is None else [owner["uid"]]
