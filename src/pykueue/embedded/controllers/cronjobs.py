"""CronJobs as a factory of Jobs, at their times. Source: docs/reference/cluster-workloads.md, 1.18.

Of the times missed while no controller ran, or while a CronJob was suspended, only the most recent one is
started.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pykueue.api.cronschedule import Schedule, ScheduleError, time_zone
from pykueue.api.objects import Key, Object, controller_of, is_deleting, true_condition
from pykueue.api.resources import CRON_JOBS, JOBS
from pykueue.api.times import format_time, parse_time
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
WORKERS = 5
#: Missed times from which on a warning is due.
MANY_MISSED = 100
TOO_MANY_MISSED = (
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
)

_BY_OWNER = "cron job by uid"


class CronJobController:
    """Keyed by namespace and name; run by `run`, beside its recorder."""

    def __init__(
        self, client: Client, cron_jobs: Informer, jobs: Informer, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._cron_jobs = cron_jobs
        self._jobs = jobs
        self._recorder = recorder
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "cronjob", self._sync, clock=clock, workers=WORKERS, wait_for=[cron_jobs.synced, jobs.synced]
        )
        jobs.add_index(_BY_OWNER, _owning_cron_job, of_metadata=True)
        cron_jobs.on_event(self._cron_job_changed)
        jobs.on_event(self._job_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _cron_job_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._controller.queue.add((new["metadata"]["namespace"], new["metadata"]["name"]))

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        job = new if new is not None else old
        owner = controller_of(job)
        if owner is not None and owner["kind"] == CRON_JOBS.kind:
            self._controller.queue.add((job["metadata"]["namespace"], owner["name"]))

    # One sync

    async def _sync(self, key: Key) -> float | None:
        cron_job = self._cron_jobs.get(*key)
        if cron_job is None:
            return None
        jobs = self._jobs.by_index(_BY_OWNER, cron_job["metadata"]["uid"])
        status = self._followed(cron_job, jobs)
        await self._clean_up(cron_job, jobs)
        wake: float | None = None
        if not is_deleting(cron_job) and not cron_job["spec"].get("suspend"):
            status, wake = await self._start(cron_job, status)
        if status != (cron_job.get("status") or {}):
            written = await self._client.update(
                CRON_JOBS, {**cron_job, "status": status}, subresource="status"
            )
            self._cron_jobs.note(written)
        return wake

    def _followed(self, cron_job: Object, jobs: list[Object]) -> Object:
        """The status with what became of the Jobs it lists."""
        status: Object = cron_job.get("status") or {}
        by_uid = {job["metadata"]["uid"]: job for job in jobs}
        listed = {one["uid"] for one in status.get("active") or ()}
        active: list[Object] = []
        for reference in status.get("active") or ():
            job = by_uid.get(reference["uid"])
            if job is None:
                text = f"Active job went missing: {reference['name']}"
                self._recorder.event(cron_job, NORMAL, "MissingJob", text)
            elif (end := _end_of(job)) is not None:
                text = f"Saw completed job: {reference['name']}, condition: {end}"
                self._recorder.event(cron_job, NORMAL, "SawCompletedJob", text)
            else:
                active.append(reference)
        for job in jobs:
            if job["metadata"]["uid"] not in listed and _end_of(job) is None:
                text = f"Saw a job that the controller did not create or forgot: {job['metadata']['name']}"
                self._recorder.event(cron_job, WARNING, "UnexpectedJob", text)
                active.append(_reference(job))
        times = [
            job["status"]["completionTime"]
            for job in jobs
            if _end_of(job) == "Complete" and job["status"].get("completionTime")
        ]
        new = {key: value for key, value in status.items() if key != "active"}
        if active:
            new["active"] = active
        if times and max(times) > status.get("lastSuccessfulTime", ""):
            new["lastSuccessfulTime"] = max(times)
        return new

    async def _clean_up(self, cron_job: Object, jobs: list[Object]) -> None:
        """Delete the oldest finished Jobs beyond the limits."""
        spec = cron_job["spec"]
        for end, field in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            limit = spec.get(field)
            if limit is None:
                continue
            finished = sorted(
                (job for job in jobs if _end_of(job) == end),
                key=lambda job: (job["status"].get("startTime", ""), job["metadata"]["name"]),
            )
            for job in finished[: max(0, len(finished) - limit)]:
                await self._delete(cron_job, job)

    async def _delete(self, cron_job: Object, job: Object) -> None:
        if is_deleting(job):
            return
        metadata = job["metadata"]
        try:
            await self._client.delete(
                JOBS, metadata["name"], metadata["namespace"], propagation="Background", uid=metadata["uid"]
            )
        except ApiError as error:
            if error.not_found or error.conflict:
                return
            self._recorder.event(cron_job, WARNING, "FailedDelete", f"Deleted job: {error}")
            raise
        self._recorder.event(cron_job, NORMAL, "SuccessfulDelete", f"Deleted job {metadata['name']}")

    async def _start(self, cron_job: Object, status: Object) -> tuple[Object, float | None]:
        """Start what is due; the status then, and the seconds until the next time."""
        spec, now = cron_job["spec"], self._clock.time()
        try:
            zone = time_zone(spec.get("timeZone"))
        except ScheduleError as error:
            self._recorder.event(cron_job, WARNING, "UnknownTimeZone", f"invalid timeZone: {error}")
            return status, None
        try:
            schedule = Schedule(spec["schedule"], zone)
        except ScheduleError as error:
            text = f"unparseable schedule: {spec['schedule']!r} : {error}"
            self._recorder.event(cron_job, WARNING, "UnparseableSchedule", text)
            return status, None
        upcoming = schedule.next(now)
        if upcoming is None:
            text = f"invalid schedule: {spec['schedule']!r} has no next time"
            self._recorder.event(cron_job, WARNING, "InvalidSchedule", text)
            return status, None
        wake = upcoming - now
        deadline = spec.get("startingDeadlineSeconds")
        since = parse_time(status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"])
        if deadline is not None:
            since = max(since, now - float(deadline))
        due, missed = schedule.latest(since, now)
        if missed > MANY_MISSED:
            self._recorder.event(cron_job, WARNING, "TooManyMissedTimes", TOO_MANY_MISSED)
        if due is None:
            await self._tell_missed(cron_job, status, schedule, now)
            return status, wake
        active = status.get("active") or []
        if any(one["name"] == _job_name(cron_job, due) for one in active):
            # Created by a sync that did not get to write it down.
            return {**status, "lastScheduleTime": format_time(due)}, wake
        policy = spec.get("concurrencyPolicy")
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._recorder.event(cron_job, NORMAL, "JobAlreadyActive", text)
            return status, wake
        if policy == "Replace":
            for reference in active:
                job = self._jobs.get(cron_job["metadata"]["namespace"], reference["name"])
                if job is not None and job["metadata"]["uid"] == reference["uid"]:
                    await self._delete(cron_job, job)
            active = []
        started = await self._create(cron_job, due, zone)
        if started is not None:
            active = [*active, _reference(started)]
        new = {**status, "lastScheduleTime": format_time(due)}
        if active:
            new["active"] = active
        else:
            new.pop("active", None)
        return new, wake

    async def _tell_missed(self, cron_job: Object, status: Object, schedule: Schedule, now: float) -> None:
        """Whether a time went by that was too old to be started."""
        if cron_job["spec"].get("startingDeadlineSeconds") is None:
            return
        since = parse_time(status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"])
        due, _ = schedule.latest(since, now)
        if due is not None:
            text = f"Missed scheduled time to start a job: {format_time(due)}"
            self._recorder.event(cron_job, WARNING, "MissSchedule", text)

    async def _create(self, cron_job: Object, due: float, zone: Any) -> Object | None:
        """Create the Job of one time, or find that it is there; None when it is not this CronJob's."""
        job = job_for(cron_job, due, zone)
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        try:
            created = await self._client.create(JOBS, job)
        except ApiError as error:
            if error.already_exists:
                found = await self._client.get(JOBS, name, namespace)
                return found if _owning_cron_job(found) == [cron_job["metadata"]["uid"]] else None
            if not error.namespace_terminating:
                self._recorder.event(cron_job, WARNING, "FailedCreate", f"Error creating job: {error}")
            raise
        self._jobs.note(created)
        self._recorder.event(cron_job, NORMAL, "SuccessfulCreate", f"Created job {name}")
        return created


def job_for(cron_job: Object, due: float, zone: Any) -> Object:
    """The Job of one scheduled time; its name follows from that time, so that it is created only once."""
    metadata, template = cron_job["metadata"], cron_job["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    stamp = datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": _job_name(cron_job, due),
            "namespace": metadata["namespace"],
            "labels": given.get("labels") or {},
            "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: stamp},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template["spec"],
    }


def _job_name(cron_job: Object, due: float) -> str:
    return f"{cron_job['metadata']['name']}-{int(due) // 60}"


def _reference(job: Object) -> Object:
    metadata = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }


def _end_of(job: Object) -> str | None:
    """Complete or Failed, None while it is neither."""
    end = true_condition(job.get("status"), "Complete", "Failed")
    return str(end["type"]) if end is not None else None


def _owning_cron_job(job: Object) -> list[str]:
    owner = controller_of(job)
    return [owner["uid"]] if owner is not None and owner["kind"] == CRON_JOBS.kind else []
