# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The Workload: what asks for quota, and everything decided about it. Source: docs/reference/kueue-api.md
1.6."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pykueue.api.core import PodTemplateSpec
from pykueue.api.decoding import decode_as
from pykueue.api.kueue.common import (
    AdmissionCheckName,
    Amounts,
    Conditions,
    LevelKey,
    ObjectName,
    PodSetName,
    Tolerations,
)
from pykueue.api.meta import ObjectMeta, Time, condition_is
from pykueue.api.model import DEFAULTED, REQUIRED, Cel, Model, Published, Rule, atomic, checked, map_by

#: Marks the field whose schema is that of a pod template.
POD_TEMPLATE: Final = Published("io.k8s.api.core.v1.PodTemplateSpec")


class TopologyConstraint(Model):
    """One layer of slices."""

    topology: LevelKey
    """Level each slice must fit in."""
    size: Annotated[int, Rule(minimum=1)]
    """Pods per slice."""


class PodSetTopologyRequest(Model):
    """Where the pods of a pod set must stand relative to each other."""

    required: LevelKey | None = None
    """Level of which one domain must hold all pods."""
    preferred: LevelKey | None = None
    """Level of which one domain should hold all pods."""
    unconstrained: bool | None = None
    """Accounts for topology without any rule of locality."""
    pod_index_label: Annotated[str, Rule(maxLength=317)] | None = None
    """Pod label that holds the pod's index."""
    sub_group_index_label: Annotated[str, Rule(maxLength=317)] | None = None
    """Pod label that holds the index of the replicated job the pod belongs to."""
    sub_group_count: Annotated[int, Rule(minimum=0)] | None = None
    """Number of replicated jobs in the pod set."""
    pod_set_group_name: Annotated[str, Rule(maxLength=256)] | None = None
    """Pod sets of one group are placed as a unit."""
    pod_set_slice_required_topology: LevelKey | None = None
    """Level each slice must fit in."""
    pod_set_slice_size: Annotated[int, Rule(minimum=1)] | None = None
    """Pods per slice."""
    podset_slice_required_topology_constraints: Annotated[list[TopologyConstraint], atomic(maxItems=3)] = []
    """Nested layers of slices, outermost first."""

    @property
    def explicit(self) -> bool:
        """Whether it says where pods must stand, rather than only how they are ranked."""
        return bool(
            self.required
            or self.preferred
            or self.unconstrained is not None
            or self.pod_set_slice_required_topology
            or self.pod_set_slice_size
            or self.podset_slice_required_topology_constraints
        )


@checked(Cel("!has(self.minCount) || self.minCount <= self.count", "minCount must not exceed count"))
class PodSet(Model, dict=True, gc=True):
    """Pods that are alike."""

    template: Annotated[dict[str, Any], POD_TEMPLATE]
    """The pods' template."""
    name: Annotated[PodSetName, DEFAULTED] = "main"
    """Name of the pod set."""
    count: Annotated[int, Rule(minimum=0), DEFAULTED] = 1
    """Number of pods."""
    min_count: Annotated[int, Rule(minimum=1)] | None = None
    """Fewest pods the job can run with; lets a part of it be admitted."""
    topology_request: PodSetTopologyRequest | None = None
    """Where the pods must stand relative to each other."""

    @cached_property
    def pod_template(self) -> PodTemplateSpec:
        """The fields of the template this project reads, decoded at first use. `template` has all of them."""
        return decode_as(PodTemplateSpec, self.template)


@checked(
    Cel(
        "(self.group == 'kueue.x-k8s.io' && self.kind == 'WorkloadPriorityClass')"
        " || (self.group == 'scheduling.k8s.io' && self.kind == 'PriorityClass')",
        "kind must be WorkloadPriorityClass for group kueue.x-k8s.io, PriorityClass for scheduling.k8s.io",
    )
)
class PriorityClassRef(Model):
    """The class the priority comes from."""

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """API group of the class."""
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """Kind of the class."""
    name: ObjectName
    """Name of the class."""


class PreemptionGate(Model):
    """Holds back preemption by this workload until it is opened in the status."""

    name: Annotated[str, Rule(minLength=1, maxLength=63)]
    """Name of the gate."""


@checked(
    Cel(
        "!has(self.priorityClassRef) || has(self.priority)",
        "priority is required when priorityClassRef is set",
    )
)
class WorkloadSpec(Model):
    """What is asked for."""

    pod_sets: Annotated[list[PodSet], map_by("name", minItems=1, maxItems=18)] = []
    """The pods that must all be there for the job to run."""
    queue_name: ObjectName = ""
    """LocalQueue to wait in."""
    priority_class_ref: PriorityClassRef | None = None
    """The class the priority comes from."""
    priority: int | None = None
    """Higher goes first, and may preempt lower; 0 when unset."""
    active: Annotated[bool, DEFAULTED] = True
    """False takes the workload out of the queue, and evicts it when it is admitted."""
    maximum_execution_time_seconds: Annotated[int, Rule(minimum=1)] | None = None
    """Admitted time in seconds after which the workload is deactivated."""
    preemption_gates: Annotated[list[PreemptionGate], map_by("name", maxItems=8)] = []
    """Gates that hold back preemption by this workload."""


@checked(
    Cel("has(self.universal) != has(self.individual)", "exactly one of universal and individual is required")
)
class TopologyAssignmentSlicePodCounts(Model):
    """Pods in each domain of a slice."""

    universal: Annotated[int, Rule(minimum=1)] | None = None
    """The same number in all domains."""
    individual: (
        Annotated[list[Annotated[int, Rule(minimum=1)]], atomic(minItems=1, maxItems=100000)] | None
    ) = None
    """One number per domain."""


class TopologyAssignmentSliceLevelValuesIndividual(Model):
    """Values that differ between domains; value i is prefix + roots[i] + suffix."""

    roots: Annotated[list[Annotated[str, Rule(maxLength=63)]], atomic(minItems=1, maxItems=100000)]
    """The part that differs, one per domain."""
    prefix: Annotated[str, Rule(maxLength=63)] = ""
    """What all values begin with."""
    suffix: Annotated[str, Rule(maxLength=63)] = ""
    """What all values end with."""


@checked(
    Cel("has(self.universal) != has(self.individual)", "exactly one of universal and individual is required")
)
class TopologyAssignmentSliceLevelValues(Model):
    """Values of one level in the domains of a slice."""

    universal: Annotated[str, Rule(maxLength=63)] | None = None
    """The same value in all domains."""
    individual: TopologyAssignmentSliceLevelValuesIndividual | None = None
    """Values that differ between domains."""


class TopologyAssignmentSlice(Model):
    """Consecutive domains, written in short."""

    domain_count: Annotated[int, Rule(minimum=1, maximum=100000)]
    """Number of domains."""
    values_per_level: Annotated[list[TopologyAssignmentSliceLevelValues], atomic(minItems=1, maxItems=16)]
    """Values of the domains, one entry per level."""
    pod_counts: TopologyAssignmentSlicePodCounts
    """Pods in each domain."""


class TopologyAssignment(Model):
    """Which domains the pods go to."""

    levels: Annotated[list[Annotated[str, Rule(minLength=1, maxLength=317)]], atomic(minItems=1, maxItems=16)]
    """Node labels, widest first."""
    slices: Annotated[list[TopologyAssignmentSlice], atomic(maxItems=1000)] = []
    """The domains, in order."""


class PodSetAssignment(Model):
    """What one pod set was given."""

    name: Annotated[PodSetName, DEFAULTED] = "main"
    """Name of the pod set."""
    flavors: dict[str, ObjectName] = {}
    """Flavor by resource."""
    resource_usage: Amounts = {}
    """Amount of each resource for all pods together."""
    count: Annotated[int, Rule(minimum=0)] | None = None
    """Number of pods admitted; unset means all of them."""
    topology_assignment: TopologyAssignment | None = None
    """Which domains the pods go to."""
    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Pending while the domains are still to be chosen after the admission checks."""


class Admission(Model):
    """The quota a workload holds."""

    cluster_queue: ObjectName
    """The ClusterQueue that gave it."""
    pod_set_assignments: Annotated[list[PodSetAssignment], map_by("name", maxItems=18)]
    """What each pod set was given."""


class RequeueState(Model):
    """When and how often the workload was queued again after its pods failed to become ready."""

    count: Annotated[int, Rule(minimum=0)] | None = None
    """How often."""
    requeue_at: Time | None = None
    """It is not considered before this time."""


class ReclaimablePod(Model):
    """Pods whose quota is no longer needed."""

    name: PodSetName
    """Name of the pod set."""
    count: Annotated[int, Rule(minimum=0)]
    """Number of pods."""


class PodSetUpdate(Model):
    """What an admission check adds to the pods of a pod set."""

    name: PodSetName
    """Name of the pod set."""
    labels: dict[str, str] = {}
    """Labels to add."""
    annotations: dict[str, str] = {}
    """Annotations to add."""
    node_selector: dict[str, str] = {}
    """Node labels to select."""
    tolerations: Tolerations = []
    """Tolerations to add."""


class AdmissionCheckState(Model):
    """How far one admission check is."""

    name: AdmissionCheckName
    """Name of the AdmissionCheck."""
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """Ready is passed; Retry gives the quota back and waits; Rejected deactivates the workload."""
    last_transition_time: Annotated[Time | None, REQUIRED] = None
    """When the state last changed."""
    message: Annotated[str, Rule(maxLength=32768)] = ""
    """Why, for people."""
    requeue_after_seconds: Annotated[int, Rule(minimum=0)] | None = None
    """With Retry: seconds from lastTransitionTime before which the workload is not considered again."""
    retry_count: Annotated[int, Rule(minimum=0)] | None = None
    """How many times in a row the check asked for a retry."""
    pod_set_updates: Annotated[list[PodSetUpdate], atomic(maxItems=18)] = []
    """What to add to the pods."""


class PodSetRequest(Model):
    """What one pod set asks for."""

    name: Annotated[PodSetName, DEFAULTED] = "main"
    """Name of the pod set."""
    resources: Amounts = {}
    """Amount of each resource for all pods together."""


class WorkloadSchedulingStatsEviction(Model):
    """How often the workload was evicted for one reason."""

    reason: Annotated[str, Rule(maxLength=316)]
    """Reason of the eviction."""
    underlying_cause: Annotated[str, Rule(maxLength=316)]
    """Finer reason; may be empty."""
    count: Annotated[int, Rule(minimum=0)]
    """How often."""


class SchedulingStats(Model):
    """What happened to the workload."""

    evictions: Annotated[
        list[WorkloadSchedulingStatsEviction], map_by("reason", "underlyingCause", maxItems=256)
    ] = []
    """Evictions by reason."""


class UnhealthyNode(Model):
    """A node that holds pods of the workload and failed."""

    name: Annotated[str, Rule(minLength=1, maxLength=63)]
    """Host name of the node."""


class PreemptionGateState(Model):
    """State of one preemption gate."""

    name: Annotated[str, Rule(minLength=1, maxLength=63)]
    """Name of the gate."""
    position: Literal["Closed", "Open"]
    """Open lets the workload preempt."""
    last_transition_time: Annotated[Time | None, REQUIRED] = None
    """When the position last changed."""


@checked(
    Cel(
        "!(has(self.clusterName) && has(self.nominatedClusterNames) && size(self.nominatedClusterNames) > 0)",
        "clusterName and nominatedClusterNames are mutually exclusive",
    ),
    Cel(
        "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        "clusterName is immutable once set",
    ),
)
class WorkloadStatus(Model):
    """What was decided."""

    conditions: Conditions = []
    """QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished and others."""
    admission: Admission | None = None
    """The quota held."""
    requeue_state: RequeueState | None = None
    """When and how often it was queued again."""
    reclaimable_pods: Annotated[list[ReclaimablePod], map_by("name", maxItems=18)] = []
    """Pods whose quota is no longer needed."""
    admission_checks: Annotated[list[AdmissionCheckState], map_by("name", maxItems=8)] = []
    """How far the admission checks are."""
    resource_requests: Annotated[list[PodSetRequest], map_by("name", maxItems=18)] = []
    """What is asked for, while it waits."""
    accumulated_past_execution_time_seconds: int | None = None
    """Admitted time of earlier runs in seconds."""
    scheduling_stats: SchedulingStats | None = None
    """What happened to the workload."""
    nominated_cluster_names: Annotated[
        list[Annotated[str, Rule(minLength=1, maxLength=256)]], atomic(maxItems=20)
    ] = []
    """Clusters that may take the workload."""
    cluster_name: Annotated[str, Rule(maxLength=256)] | None = None
    """Cluster that took the workload."""
    unhealthy_nodes: Annotated[list[UnhealthyNode], map_by("name", maxItems=8)] = []
    """Failed nodes that hold pods of the workload."""
    preemption_gates: Annotated[list[PreemptionGateState], map_by("name", maxItems=8)] = []
    """State of the preemption gates."""


def _holds(this: str, condition: str) -> str:
    return (
        f"(has({this}.status) && has({this}.status.conditions) && "
        f"{this}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True'))"
    )


def _while(condition: str, rule: str) -> str:
    """`rule` must hold on updates before and after which the condition holds."""
    return f"!{_holds('oldSelf', condition)} || !{_holds('self', condition)} || ({rule})"


_REF = "self.spec.priorityClassRef"
_OLD_REF = "oldSelf.spec.priorityClassRef"
_MAX_TIME = "spec.maximumExecutionTimeSeconds"


@checked(
    Cel(
        f"!{_holds('self', 'QuotaReserved')} || !has(self.status.admission)"
        " || size(self.spec.podSets) == size(self.status.admission.podSetAssignments)",
        "podSetAssignments must have the same number of podSets as the spec",
    ),
    Cel(
        _while(
            "QuotaReserved",
            "has(oldSelf.spec.queueName) == has(self.spec.queueName)"
            " && (!has(self.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName)",
        ),
        "queueName is immutable while quota is reserved",
    ),
    Cel(
        _while("QuotaReserved", f"has({_OLD_REF}) == has({_REF})"),
        "priorityClassRef cannot be added or removed while quota is reserved",
    ),
    Cel(
        _while(
            "QuotaReserved",
            f"!has({_OLD_REF}) || !has({_REF})"
            f" || ({_OLD_REF}.group == {_REF}.group && {_OLD_REF}.kind == {_REF}.kind)",
        ),
        "priorityClassRef.group and priorityClassRef.kind are immutable while quota is reserved",
    ),
    Cel(
        _while(
            "QuotaReserved",
            f"!has({_OLD_REF}) || !has({_REF}) || {_REF}.kind != 'PriorityClass'"
            f" || {_OLD_REF}.name == {_REF}.name",
        ),
        "priorityClassRef.name is immutable for a PriorityClass while quota is reserved",
    ),
    Cel(
        _while(
            "Admitted",
            f"has(oldSelf.{_MAX_TIME}) == has(self.{_MAX_TIME})"
            f" && (!has(self.{_MAX_TIME}) || oldSelf.{_MAX_TIME} == self.{_MAX_TIME})",
        ),
        "maximumExecutionTimeSeconds is immutable while admitted",
    ),
)
class Workload(Model):
    """A job as the queue sees it: pods that start together or not at all."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    def condition_is(self, type: str, status: str = "True") -> bool:
        """Whether the workload has that condition with that status."""
        return condition_is(self.status.conditions, type, status)
