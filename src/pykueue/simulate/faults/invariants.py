"""What must hold after every write that reaches the store, and once everything has settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api.kueue.names import QUEUE_LABEL
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.jobs.objects import Object, get, labels_of
from pykueue.kube.resources import CLUSTER_QUEUES, COHORTS, PODS, WORKLOADS, Resource
from pykueue.manager.workloads import reading

from .jobkinds import KINDS, active, ended, requests
from .quota import Books, usage
from .trace import Trace

#: Seconds after the manager has heard of a smaller quota during which what it decided before may be written.
OVERHANG = 15.0

#: Seconds after a job is stopped during which its controller may still make pods of a start it saw before.
#: A Job's status does not say which version of the Job it is about, so nobody can wait for that.
CONTROLLER_LAG = 3.0

_WATCHED = (WORKLOADS, *KINDS.values(), PODS, CLUSTER_QUEUES, COHORTS)


class Invariants:
    """Sees every write of the run in the step in which it is stored.

    `knows_quotas` tells whether the manager has heard of the newest ClusterQueues and Cohorts: until then its
    reservations rest on the quotas that were.
    """

    def __init__(self, server: Server, clock: Clock, trace: Trace) -> None:
        self._server = server
        self._clock = clock
        self._trace = trace
        self.knows_quotas: Callable[[], bool] = lambda: True
        self._excused_until = 0.0
        self._stopped: dict[str, float] = {}
        self.writes = 0
        for resource in _WATCHED:
            server.core.on_stored(f"{resource.group}/{resource.plural}", self._on_stored(resource))

    def objects(self, resource: Resource) -> list[Object]:
        """All stored objects of a resource."""
        found = self._server.core.all(resource.group, resource.plural)
        return [{"kind": resource.kind, **obj} for obj in found]

    def jobs(self) -> Iterable[Object]:
        """All stored Jobs and JobSets."""
        for resource in KINDS.values():
            yield from self.objects(resource)

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._server.core.find(resource.group, resource.plural, namespace, name)

    def _on_stored(self, resource: Resource) -> Callable[[Any, Any, Any], None]:
        check = {
            WORKLOADS: self._workload,
            **dict.fromkeys(KINDS.values(), self._job),
            PODS: self._pod,
            CLUSTER_QUEUES: self._quotas,
            COHORTS: self._quotas,
        }[resource]

        def stored(_: Any, new: Any, old: Any) -> None:
            self.writes += 1
            after, before = (None if record is None else record.object for record in (new, old))
            obj = after if after is not None else before
            assert obj is not None
            verb = "deleted" if after is None else "created" if before is None else "changed"
            self._trace.note("write", f"{resource.kind} {obj['metadata']['name']} {verb}{_gist(after)}")
            try:
                check(before, after)
            except Exception as error:  # it must not become an answer of the server
                self._trace.violate(f"{obj['metadata']['name']} could not be checked: {error!r}")

        return stored

    def _violate(self, obj: Mapping[str, Any], what: str) -> None:
        self._trace.violate(f"{obj['metadata']['name']}: {what}")

    # Queues

    def _quotas(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or before.get("spec") != after.get("spec"):
            self._excused_until = float("inf")

    def _excused(self) -> bool:
        now = self._clock.time()
        if self._excused_until == float("inf") and self.knows_quotas():
            self._excused_until = now + OVERHANG
        return now < self._excused_until

    # Workloads

    def _workload(self, before: Object | None, after: Object | None) -> None:
        had = before is not None and reading.has_quota(before) and not reading.is_finished(before)
        has = after is not None and reading.has_quota(after) and not reading.is_finished(after)
        if before is not None and after is not None:
            self._conditions(before, after)
            if reading.is_finished(before) and not reading.is_finished(after):
                self._violate(after, "is not finished any more")
            if had and has and get(before, "status", "admission") != get(after, "status", "admission"):
                self._violate(after, "its admission changed while it holds quota")
        if after is not None:
            self._consistent(after)
            if has and not had:
                self._reserved(after)
        if before is not None and had and not has and (after is None or not reading.is_finished(after)):
            self._quota_returned(before)

    def _conditions(self, before: Object, after: Object) -> None:
        """Conditions' lastTransitionTime changes only with status."""
        known = {c["type"]: c for c in get(before, "status", "conditions") or ()}
        for condition in get(after, "status", "conditions") or ():
            old = known.get(condition["type"])
            if old is None:
                continue
            same = old["status"] == condition["status"]
            if same and old["lastTransitionTime"] != condition["lastTransitionTime"]:
                self._violate(after, f"{condition['type']} has a new time without a new status")

    def _consistent(self, workload: Object) -> None:
        has = reading.has_quota(workload)
        if reading.is_admitted(workload) and not has:
            self._violate(workload, "is admitted without quota")
        if has != bool(get(workload, "status", "admission")) and not reading.is_finished(workload):
            self._violate(workload, "QuotaReserved and status.admission contradict each other")

    def _reserved(self, workload: Object) -> None:
        """Quota is never exceeded: what it got was there to be had."""
        for other in self.objects(WORKLOADS):
            owner, mine = reading.owner(other), reading.owner(workload)
            same = owner is not None and mine is not None and owner.get("uid") == mine.get("uid")
            if same and reading.key(other) != reading.key(workload) and _holds(other):
                self._violate(workload, f"its job has quota twice, also as {other['metadata']['name']}")
        if not reading.is_active(workload):
            self._violate(workload, "got quota although spec.active is false")
        if self._excused():
            return
        others = [w for w in self.objects(WORKLOADS) if reading.key(w) != reading.key(workload)]
        books = Books(self.objects(CLUSTER_QUEUES), self.objects(COHORTS), others)
        name = reading.cluster_queue(workload)
        for pair, amount in usage(workload).items():
            left = books.available(name, pair)
            if amount > left:
                pair_text = "/".join(pair)
                self._violate(workload, f"got {amount}m {pair_text} of {name}, which had {left}m left")

    def _quota_returned(self, workload: Object) -> None:
        """Quota goes back only when nothing runs on it any more."""
        job = self._job_of(workload)
        if job is None or job["metadata"].get("deletionTimestamp") or ended(job):
            return
        if not get(job, "spec", "suspend"):
            self._violate(workload, f"gave its quota back while the job {_name(job)} is not suspended")
        elif active(job):
            self._violate(workload, f"gave its quota back while pods of {_name(job)} are active")
        if self._just_stopped(job):
            return
        for pod in self.objects(PODS):
            ours = any(owner["metadata"]["uid"] == job["metadata"]["uid"] for owner in self._owners(pod))
            over = get(pod, "status", "phase") in ("Succeeded", "Failed")
            if ours and not over and not pod["metadata"].get("deletionTimestamp"):
                self._violate(workload, f"gave its quota back while pod {_name(pod)} runs")

    def _just_stopped(self, job: Mapping[str, Any]) -> bool:
        stopped = self._stopped.get(job["metadata"]["uid"])
        return stopped is not None and self._clock.time() < stopped + CONTROLLER_LAG

    def _job_of(self, workload: Mapping[str, Any]) -> Object | None:
        owner = reading.owner(workload)
        if owner is None:
            return None
        return self._owner(workload, owner)

    def _owner(self, obj: Mapping[str, Any], owner: Mapping[str, Any]) -> Object | None:
        """The job that an ownerReference names, if it is still that one."""
        resource = KINDS.get(str(owner.get("kind")))
        if resource is None:
            return None
        job = self.find(resource, obj["metadata"]["namespace"], str(owner["name"]))
        return job if job is not None and job["metadata"]["uid"] == owner["uid"] else None

    # Jobs

    def _job(self, before: Object | None, after: Object | None) -> None:
        if after is None or not labels_of(after).get(QUEUE_LABEL):
            return
        if before is not None and ended(before) and not ended(after):
            self._violate(after, "the job has not ended any more")
        runs = not get(after, "spec", "suspend")
        if not runs and before is not None and not get(before, "spec", "suspend"):
            self._stopped[after["metadata"]["uid"]] = self._clock.time()
        if runs and (before is None or get(before, "spec", "suspend")):
            self._started(after)

    def _started(self, job: Object) -> None:
        """A job starts only admitted, with no more than was admitted."""
        admitted = [
            workload
            for workload in self._workloads_of(job)
            if reading.is_admitted(workload) and not reading.is_finished(workload)
        ]
        if not admitted:
            self._violate(job, "the job was started without an admitted workload")
            return
        allowed = {resource: 0 for _, resource in usage(admitted[0])}
        for (_, resource), amount in usage(admitted[0]).items():
            allowed[resource] += amount
        for resource, amount in requests(job).items():
            if amount > allowed.get(resource, 0):
                self._violate(
                    job, f"runs with {amount}m {resource}, admitted are {allowed.get(resource, 0)}m"
                )

    def _workloads_of(self, job: Mapping[str, Any]) -> Iterable[Object]:
        for workload in self.objects(WORKLOADS):
            owner = reading.owner(workload)
            if owner is not None and owner.get("uid") == job["metadata"]["uid"]:
                yield workload

    # Pods

    def _pod(self, before: Object | None, after: Object | None) -> None:
        """A pod of a job that waits its turn is never created."""
        if before is not None or after is None:
            return
        for job in self._owners(after):
            if self._just_stopped(job):
                continue
            if labels_of(job).get(QUEUE_LABEL) and not any(map(_holds, self._workloads_of(job))):
                self._violate(after, f"a pod of {_name(job)} came although the job holds no quota")

    def _owners(self, obj: Mapping[str, Any]) -> Iterable[Object]:
        """The jobs it belongs to: a pod to its Job, and that perhaps to a JobSet."""
        for owner in get(obj, "metadata", "ownerReferences") or ():
            job = self._owner(obj, owner)
            if job is not None:
                yield job
                yield from self._owners(job)

    # In the end

    def unsettled(self) -> list[str]:
        """Jobs and Workloads that have neither come to their end nor say why not."""
        found = []
        for job in self.jobs():
            workloads = [w for w in self._workloads_of(job) if not w["metadata"].get("deletionTimestamp")]
            if labels_of(job).get(QUEUE_LABEL) and not ended(job) and not workloads:
                found.append(f"job {_name(job)} has no Workload")
        for workload in self.objects(WORKLOADS):
            why = self._open(workload)
            if why:
                found.append(f"workload {_name(workload)} {why}")
        return found

    def _open(self, workload: Object) -> str:
        job = self._job_of(workload)
        if job is None:
            return "belongs to no job"
        if workload["metadata"].get("deletionTimestamp"):
            return "is still being deleted"
        if reading.is_finished(workload):
            return (
                ""
                if ended(job)
                else f"is finished ({reading.reason(workload, reading.FINISHED)}) before its job"
            )
        if ended(job):
            return "is not finished, but its job is"
        if not reading.is_active(workload):
            reserved = reading.condition(workload, reading.QUOTA_RESERVED) or {}
            told = reserved.get("status") == "False" and reserved.get("reason") and reserved.get("message")
            if not told:
                return "is deactivated and does not say so"
            return "" if get(job, "spec", "suspend") else "is deactivated and its job runs"
        reserved = reading.condition(workload, reading.QUOTA_RESERVED) or {}
        if reserved.get("status") == "True":
            return "is still running" if reading.is_admitted(workload) else "is not admitted with its quota"
        return f"still waits: {reserved.get('reason')}: {reserved.get('message')}"


def _holds(workload: Mapping[str, Any]) -> bool:
    return reading.has_quota(workload) and not reading.is_finished(workload)


def _name(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _gist(obj: Mapping[str, Any] | None) -> str:
    """The part of an object's state that tells the story."""
    if obj is None:
        return ""
    parts = [f" rv={obj['metadata']['resourceVersion']}"]
    conditions = get(obj, "status", "conditions") or ()
    parts += [f"{c['type']}={c['status'][0]}({c.get('reason')})" for c in conditions]
    for field in ("active", "suspend", "parallelism", "stopPolicy", "priority", "queueName"):
        value = get(obj, "spec", field)
        if value is not None:
            parts.append(f"{field}={value}")
    for field in ("active", "ready", "succeeded"):
        value = get(obj, "status", field)
        if value:
            parts.append(f"status.{field}={value}")
    return " ".join(parts)
