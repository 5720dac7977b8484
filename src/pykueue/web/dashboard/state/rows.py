"""Small rows of objects, for lists: what is kept decoded of each Workload, pod, node and event."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from pykueue.api import conditions
from pykueue.api.meta import parse_time
from pykueue.api.objects import Object, annotations_of, condition_of, controller_of, get, labels_of
from pykueue.api.pods import is_ready, phase
from pykueue.engine.preemption.damping import preemption_paths, preemptor_uid

State = Literal[
    "Pending", "QuotaReserved", "Admitted", "Running", "Evicted", "Finished", "Failed", "Inactive"
]

#: In the order of a Workload's life; `Inactive` and `Failed` are the exceptions.
STATES: Final[tuple[State, ...]] = (
    "Pending",
    "QuotaReserved",
    "Admitted",
    "Running",
    "Evicted",
    "Finished",
    "Failed",
    "Inactive",
)
#: States without reserved quota in which a Workload can still be admitted.
IN_QUEUE: Final = frozenset({"Pending", "Evicted"})
#: States in which a Workload holds quota.
WITH_QUOTA: Final = frozenset({"QuotaReserved", "Admitted", "Running"})

#: Labels of pods that name their job, and the kinds of jobs they name.
_JOB_LABELS: Final = {
    "batch.kubernetes.io/job-name": ("Job",),
    "jobset.sigs.k8s.io/jobset-name": ("JobSet", "TrainJob"),
    "training.kubeflow.org/job-name": ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"),
    "ray.io/cluster": ("RayCluster",),
    "kueue.x-k8s.io/pod-group-name": ("Pod", "PodGroup"),
    "leaderworkerset.sigs.k8s.io/name": ("LeaderWorkerSet",),
    "spark-app-name": ("SparkApplication",),
}
#: Characters of a message that a row keeps.
MESSAGE_MAX: Final = 600


class PreemptedRow(NamedTuple):
    """A preemption, as the condition of its target says."""

    at: float
    reason: str
    preemptor: str
    """UID of the Workload; empty where it is not said."""
    queue: str
    """ClusterQueue of the preemptor; empty where it is not said."""


class WorkloadRow(NamedTuple):
    """A Workload in lists. Times are in seconds since 1970."""

    namespace: str
    name: str
    uid: str
    queue: str
    """Name of its LocalQueue."""
    cluster_queue: str
    """That of its admission; empty without one."""
    state: State
    message: str
    priority: int
    priority_class: str
    created: float
    since: float
    """When it came into its state."""
    job: str
    """`Kind name` of the object it is made for; empty without one."""
    pods: int
    ready: bool
    """Its pods are ready, as its condition PodsReady says; True where no manager reports it."""

    preempted: PreemptedRow | None
    """By which workload it was preempted last, as far as its conditions say."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def job_name(self) -> str:
        """Name of its job, or its own."""
        return self.job.partition(" ")[2] or self.name


class PodRow(NamedTuple):
    """A pod in lists."""

    namespace: str
    name: str
    phase: str
    ready: bool
    node: str
    message: str
    """Why it does not run, where a condition or container says so."""
    jobs: tuple[tuple[str, str], ...]
    """(kind, name) of the jobs it can belong to."""


class EventRow(NamedTuple):
    """An Event in lists."""

    namespace: str
    kind: str
    name: str
    """Of the object it is about."""
    type: str
    reason: str
    message: str
    times: int
    last: float


def workload_row(obj: Object) -> WorkloadRow:
    """The row of a Workload in version v1beta2."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    status = obj.get("status") or {}
    state, told = _state(spec, status)
    owner = controller_of(obj) or next(iter(metadata.get("ownerReferences") or ()), None)
    ready = condition_of(status, "PodsReady")
    created = _time(metadata.get("creationTimestamp"))
    return WorkloadRow(
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        spec.get("queueName") or "",
        get(status, "admission", "clusterQueue") or "",
        state,
        str(told.get("message", ""))[:MESSAGE_MAX],
        spec.get("priority") or 0,
        get(spec, "priorityClassRef", "name") or spec.get("priorityClassName") or "",
        created,
        _time(told.get("lastTransitionTime")) or created,
        f"{owner.get('kind')} {owner.get('name')}" if owner else "",
        sum(int(each.get("count", 1)) for each in spec.get("podSets") or ()),
        ready is None or ready.get("status") == "True",
        _preempted(status),
    )


def _preempted(status: Object) -> PreemptedRow | None:
    found = condition_of(status, "Preempted")
    if found is None or found.get("status") != "True":
        return None
    message = str(found.get("message", ""))
    paths = preemption_paths(message)
    return PreemptedRow(
        _time(found.get("lastTransitionTime")),
        str(found.get("reason", "")),
        preemptor_uid(message),
        paths[0][-1] if paths is not None else "",
    )


def _state(spec: Object, status: Object) -> tuple[State, Object]:
    """Its state, and the condition that says so."""
    workload = {"spec": spec, "status": status}

    def told(kind: str) -> Object:
        return dict(conditions.condition(workload, kind) or {})

    if conditions.is_finished(workload):
        finished = told("Finished")
        return ("Failed" if finished.get("reason") == "Failed" else "Finished"), finished
    if spec.get("active") is False:
        return "Inactive", told("Evicted") or told("QuotaReserved")
    if conditions.is_true(workload, "Evicted") and conditions.has_quota(workload):
        return "Evicted", told("Evicted")
    if conditions.is_admitted(workload):
        if conditions.is_true(workload, "PodsReady"):
            return "Running", told("PodsReady")
        return "Admitted", told("Admitted")
    if conditions.has_quota(workload):
        return "QuotaReserved", told("QuotaReserved")
    return "Pending", told("QuotaReserved")


def pod_row(obj: Object) -> PodRow:
    """The row of a pod."""
    metadata = obj["metadata"]
    labels = labels_of(obj)
    jobs = [
        (kind, labels[label]) for label, kinds in _JOB_LABELS.items() if label in labels for kind in kinds
    ]
    jobs += [(each["kind"], each["name"]) for each in metadata.get("ownerReferences") or ()]
    jobs.append(("Pod", metadata["name"]))
    if (workload := annotations_of(obj).get("kueue.x-k8s.io/workload")) is not None:
        jobs.append(("Workload", workload))
    return PodRow(
        metadata.get("namespace", ""),
        metadata["name"],
        "Terminating" if metadata.get("deletionTimestamp") else phase(obj) or "Pending",
        is_ready(obj),
        get(obj, "spec", "nodeName") or "",
        _trouble(obj)[:MESSAGE_MAX],
        tuple(dict.fromkeys(jobs)),
    )


def _trouble(pod: Object) -> str:
    """Why a pod does not run: its scheduling, then its containers."""
    status = pod.get("status") or {}
    scheduled = condition_of(status, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return str(scheduled.get("message") or scheduled.get("reason") or "not scheduled")
    for container in status.get("containerStatuses") or ():
        for state in ("waiting", "terminated"):
            found = get(container, "state", state)
            if found and found.get("reason") not in (None, "Completed"):
                return ": ".join(filter(None, (found.get("reason"), found.get("message"))))
    return str(status.get("message") or "")


def event_row(obj: Object) -> EventRow:
    """The row of an Event (v1)."""
    about = obj.get("involvedObject") or {}
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    return EventRow(
        obj["metadata"].get("namespace", ""),
        about.get("kind", ""),
        about.get("name", ""),
        obj.get("type", ""),
        obj.get("reason", ""),
        str(obj.get("message", ""))[:MESSAGE_MAX],
        int(series.get("count") or obj.get("count") or 1),
        _time(last or obj["metadata"].get("creationTimestamp")),
    )


def _time(text: Any) -> float:
    return float(parse_time(text)) if isinstance(text, str) and text else 0.0
