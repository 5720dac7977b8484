"""What the engine knows of one workload: read once from its object, and where it stands.

Source of the rules: docs/reference/kueue-semantics.md 2.7, 4.2, 4.3, 4.8 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.hybrid_losses import missing_pods
from pykueue.api.kueue.names import ADMISSION_GATED_BY_ANNOTATION, PRIORITY_BOOST_ANNOTATION
from pykueue.api.meta import Condition, parse_time
from pykueue.engine.options import Options

if TYPE_CHECKING:
    from pykueue.engine.capacity import Requests, Reservations
    from pykueue.engine.flavors.scheduling_class import SchedulingClass
    from pykueue.engine.queues.cluster_queue import Candidate, ClusterQueue
    from pykueue.engine.queues.local_queue import LocalQueue
    from pykueue.engine.queues.pending import Bucket
    from pykueue.engine.quota.capacity import QuotaDemand

#: Places a workload can be in.
OUT: Final = "out"
ACTIVE: Final = "active"
INADMISSIBLE: Final = "inadmissible"
IN_FLIGHT: Final = "in flight"
RESERVED: Final = "reserved"


#: No FlavorResources: one object for all workloads.
_NONE: Final[frozenset[int]] = frozenset()
#: Nothing is left to go on from; shared, never changed.
NO_SCAN: Final[Mapping[tuple[int, str], int]] = {}


#: What is known of a workload; apart from its class, which has no `__slots__` where it is compiled.
_FIELDS: Final = (
    "admission",
    "admitted",
    "assumed",
    "bucket",
    "candidate",
    "created",
    "end",
    "entry",
    "evicted",
    "eviction_assumed",
    "fitted",
    "flavor_resources",
    "gated",
    "key",
    "level_limit",
    "local",
    "namespace",
    "obj",
    "parent",
    "place",
    "preempted_for",
    "preemption_attempts",
    "priority",
    "promise",
    "queue",
    "queue_since",
    "quota",
    "quota_for",
    "quota_of",
    "ready",
    "reason",
    "replaces",
    "requeue_at",
    "requeue_blocked",
    "reservable",
    "reserved_at",
    "scan",
    "scan_cycle",
    "scan_generation",
    "scanned_at",
    "scheduling_class",
    "shared",
    "shared_requests",
    "superseded",
    "timestamp",
    "tried",
    "tried_at",
    "uid",
    "usage",
)


class WorkloadInfo:
    """One workload."""

    __slots__ = _FIELDS

    def __init__(self, key: str, namespace: str) -> None:
        self.key = key
        self.namespace = namespace
        self.obj: kueue.Workload
        self.uid = ""
        self.created = 0.0
        self.priority = 0
        #: Queue-order timestamp (4.3).
        self.timestamp = 0.0
        #: When it was created or last put back into its queue.
        self.queue_since = 0.0
        self.scheduling_class: SchedulingClass | None = None
        self.local: LocalQueue | None = None
        #: What it requests of shared capacities.
        self.shared_requests: Requests = ()
        #: The queue it waits in, or holds quota of.
        self.queue: ClusterQueue | None = None
        self.place = OUT

        # While it waits. Compiled, attributes that are true or false take less if they follow one another.
        self.requeue_blocked = False
        self.gated = False
        #: Whether capacity may be reserved for it: nothing but capacity keeps it from starting (backfill).
        self.reservable = True
        self.bucket: Bucket | None = None
        #: Its entry in the bucket's heap; entries that are not this one are stale.
        self.entry: Any = None
        self.requeue_at = 0.0
        #: The uid of the Workload that it is a variant of; empty where it is none.
        self.parent = ""
        #: Key of the workload slice it replaces.
        self.replaces = ""
        #: Index of the last flavor tried, by (pod set, resource), where others are left (6.8).
        self.scan: Mapping[tuple[int, str], int] = NO_SCAN
        self.scan_cycle = 0
        self.scan_generation = 0
        #: `State.changes` when the last flavor was tried without success; -1 while others are to be tried.
        self.scanned_at = -1
        #: What `scan` was in turn while `State.changes` was `tried_at`.
        self.tried: tuple[Mapping[tuple[int, str], int], ...] = ()
        self.tried_at = -1
        #: Key of the workload it was preempted for last.
        self.preempted_for = ""
        #: How many times others were preempted for it since it last got quota.
        self.preemption_attempts = 0
        #: The highest borrowing level it may get quota at by shrinking; -1: any.
        self.level_limit = -1
        #: Why it waits, in the words of the last decision.
        self.reason = ""
        #: When it first had a reservation, and from when on capacity was reserved then (backfill).
        self.promise: Promise | None = None

        # While it holds quota.
        self.admission: kueue.Admission | None = None
        #: (FlavorResource, amount), each FlavorResource once.
        self.usage: tuple[tuple[int, int], ...] = ()
        #: FlavorResources it reserves, those with amount zero included.
        self.flavor_resources = _NONE
        #: What it reserves of shared capacities.
        self.shared: Reservations = ()
        #: What it reserves of its queue's quota, for which tree and which usage (see `quota.capacity`).
        self.quota: QuotaDemand = ()
        self.quota_of: Any = None
        self.quota_for: Any = None
        #: Its place in the order of candidates within its queue.
        self.candidate: Candidate | None = None
        self.reserved_at = 0.0
        #: Its run time in seconds by finished workloads like it; 0: none is known, None: not looked for.
        self.fitted: float | None = None
        #: Its place in the order of ends within its queue, while there is a BackfillPolicy.
        self.end: End | None = None
        #: Reserved by a decision that the API does not show yet.
        self.assumed = False
        self.admitted = False
        self.ready = False
        self.evicted = False
        #: To be evicted by a decision that the API does not show yet.
        self.eviction_assumed = False
        #: Another slice took its place: it counts for nothing while it waits to be finished (11.9).
        self.superseded = False

    def snapshot(self) -> tuple[Any, ...]:
        """What `restore` brings back: everything but the place in a queue, which moves have inverses for."""
        return tuple([getattr(self, name, None) for name in _MEMENTO])

    def restore(self, values: tuple[Any, ...]) -> None:
        """Take back the values that `snapshot` returned."""
        for name, value in zip(_MEMENTO, values, strict=True):
            setattr(self, name, value)

    def clear_reservation(self) -> None:
        """It holds no quota any more; what it reserved is released already."""
        self.assumed = self.admitted = self.ready = False
        self.evicted = self.eviction_assumed = False
        self.fitted = None
        self.admission, self.usage, self.flavor_resources, self.shared = None, (), _NONE, ()

    def __repr__(self) -> str:
        return f"<WorkloadInfo {self.key} {self.place}>"


class End(NamedTuple):
    """When a workload with reserved quota ends, as far as that is known (backfill)."""

    at: float
    """In seconds since 1970."""
    key: str
    info: WorkloadInfo


class Promise(NamedTuple):
    """The reservations of a pending workload so far; times in seconds since 1970."""

    made: float
    """When it first had one."""
    start: float
    """From when on capacity was reserved then."""
    certainty: int
    """Percentage of the ends that it followed from that are kept: 100 if all are declared, 0 if unknown."""
    found: Any
    """What it would get, as computed last; after a dump the flavors alone."""


#: What moves keep, or what is the same at all times.
_NOT_RESTORED: Final = frozenset(
    (
        "bucket",
        "candidate",
        "end",
        "entry",
        "key",
        "namespace",
        "place",
        "quota",
        "quota_for",
        "quota_of",
    )
)
_MEMENTO: Final = tuple(name for name in _FIELDS if name not in _NOT_RESTORED)


class Facts:
    """What the conditions and the metadata of a Workload say, read in one pass."""

    __slots__ = (
        "admitted",
        "evicted",
        "finished",
        "has_reservation",
        "may_queue",
        "preempted",
        "ready",
        "requeued",
        "reserved",
    )

    def __init__(self, obj: kueue.Workload, options: Options) -> None:
        finished = evicted = preempted = requeued = reserved = None
        self.admitted = self.ready = False
        waiting_for_pods = False
        for condition in obj.status.conditions:
            kind = condition.type
            if kind == "QuotaReserved":
                reserved = condition
            elif kind == "Admitted":
                self.admitted = condition.status == "True"
            elif kind == "Finished":
                finished = condition
            elif kind == "Evicted":
                evicted = condition
            elif kind == "Preempted":
                preempted = condition
            elif kind == "Requeued":
                requeued = condition
            elif kind == "PodsReady":
                self.ready = condition.status == "True"
            elif kind == "WaitingForReplacementPods":
                waiting_for_pods = condition.status == "True"
        self.reserved: Condition | None = reserved
        self.evicted: Condition | None = evicted if evicted is not None and evicted.status == "True" else None
        self.preempted: Condition | None = (
            preempted if preempted is not None and preempted.status == "True" else None
        )
        self.requeued: Condition | None = requeued
        self.finished = finished is not None and finished.status == "True"
        has_quota = reserved is not None and reserved.status == "True"
        self.has_reservation = has_quota and not self.finished and obj.status.admission is not None
        self.may_queue = (
            not self.finished
            and obj.spec.active
            and not has_quota
            and not waiting_for_pods
            and not (reserved is not None and reserved.status == "False" and reserved.reason == "OnHold")
            and not is_admission_gated(obj, options)
        )


def is_admission_gated(obj: kueue.Workload, options: Options) -> bool:
    """Whether an annotation keeps the workload out of its queue (gate AdmissionGatedBy)."""
    gated_by = obj.metadata.annotations.get(ADMISSION_GATED_BY_ANNOTATION)
    return bool(gated_by) and options.enabled("AdmissionGatedBy")


def effective_priority(obj: kueue.Workload, options: Options) -> int:
    """Priority in queues and preemption: the base plus, with gate PriorityBoost, the boost annotation."""
    priority = obj.spec.priority or 0
    boost = obj.metadata.annotations.get(PRIORITY_BOOST_ANNOTATION)
    if boost and options.enabled("PriorityBoost"):
        with suppress(ValueError):  # the webhook refuses it; what got past keeps its base priority
            priority += int(boost)
    return priority


def queue_timestamp(obj: kueue.Workload, facts: Facts, options: Options, created: float) -> float:
    """The time a workload queues by, in seconds (4.3)."""
    evicted = facts.evicted
    if (evicted is not None and evicted.last_transition_time) and (
        evicted.reason == "AdmissionCheck"
        or (evicted.reason == "PodsReadyTimeout" and options.requeuing_timestamp == "Eviction")
    ):
        return parse_time(evicted.last_transition_time)
    preempted = facts.preempted
    if (
        preempted is not None
        and preempted.last_transition_time
        and preempted.reason == "InCohortReclaimWhileBorrowing"
        and not options.enabled("PrioritySortingWithinCohort")
    ):
        return parse_time(preempted.last_transition_time) + 0.001
    return created


def effective_counts(obj: kueue.Workload, options: Options) -> list[int]:
    """Pods of each pod set that need quota: those the job no longer needs are left out (2.7)."""
    pod_sets = obj.spec.pod_sets
    if not obj.status.reclaimable_pods or not options.enabled("ReclaimablePods"):
        return [pods.count for pods in pod_sets]
    done = {item.name: item.count for item in obj.status.reclaimable_pods}
    return [pods.count - min(done.get(pods.name, 0), pods.count) for pods in pod_sets]


def has_delayed_domains(admission: kueue.Admission | None) -> bool:
    """Whether the domains of any pod set are to be chosen after the admission checks."""
    return admission is not None and any(
        each.delayed_topology_request == "Pending" for each in admission.pod_set_assignments
    )


def lacks_pods(obj: kueue.Workload) -> bool:
    """Whether pods of a hybrid assignment have lost their flavor and have no other one."""
    admission = obj.status.admission
    for given in admission.pod_set_assignments if admission is not None else ():
        if given.topology_assignment is not None:  # few have one, and this is asked at every event
            return any(True for _ in missing_pods(obj))
    return False


def needs_second_pass(obj: kueue.Workload, replaces_nodes: bool) -> bool:
    """Whether domains are to be chosen for a workload that holds quota.

    `replaces_nodes`: failed nodes are replaced (gate TASFailedNodeReplacement).
    """
    status = obj.status
    if status.admission is None:
        return False
    if status.unhealthy_nodes and replaces_nodes:
        return obj.condition_is("Admitted")
    if lacks_pods(obj):
        return obj.condition_is("Admitted")
    checks = status.admission_checks
    return (
        has_delayed_domains(status.admission)
        and bool(checks)
        and all(check.state == "Ready" for check in checks)
        and not obj.condition_is("Admitted")
    )


def has_closed_gate(obj: kueue.Workload) -> bool:
    """Whether a preemption gate of the workload is closed; a gate the status does not show is (11.11)."""
    gates = obj.spec.preemption_gates
    if not gates:
        return False
    opened = {gate.name for gate in obj.status.preemption_gates if gate.position == "Open"}
    return any(gate.name not in opened for gate in gates)
