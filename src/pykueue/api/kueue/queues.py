# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""What administrators set up: flavors, ClusterQueues, Cohorts, LocalQueues, priority classes, topologies.

Source: docs/reference/kueue-api.md 1.2 to 1.5, 1.7 and 1.9.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pykueue.api.kueue.common import (
    AdmissionCheckName,
    Amounts,
    Conditions,
    FairSharing,
    FairSharingStatus,
    ObjectName,
    ResourceGroup,
    ResourceName,
    StopPolicy,
    Taints,
    Tolerations,
)
from pykueue.api.meta import LabelSelector, ObjectMeta, Time
from pykueue.api.model import DEFAULTED, Cel, Model, Rule, atomic, checked, map_by, set_of
from pykueue.api.quantity import Quantity


@checked(
    Cel(
        "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
        "at least one nodeLabel is required when topologyName is set",
    ),
    Cel(
        "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "topologyName is immutable once set",
    ),
)
class ResourceFlavorSpec(Model):
    """What distinguishes the nodes of this flavor."""

    node_labels: Annotated[dict[str, str], Rule(maxProperties=8, **{"x-kubernetes-map-type": "atomic"})] = {}
    """Labels of the nodes; admitted pods are sent to nodes that carry them."""
    node_taints: Taints = []
    """Taints of the nodes; a workload must tolerate those with effect NoSchedule or NoExecute."""
    tolerations: Tolerations = []
    """Tolerations given to admitted pods."""
    topology_name: ObjectName | None = None
    """Topology of the nodes; makes placement topology-aware. Immutable once set."""


class ResourceFlavor(Model):
    """A kind of capacity: which nodes it is and how pods get there."""

    metadata: ObjectMeta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


@checked(
    Cel(
        "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor'"
        " && self.whenCanPreempt == 'TryNextFlavor')",
        "preference needs both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
    )
)
class FlavorFungibility(Model):
    """Whether to try the next flavor before borrowing or preempting in the current one."""

    when_can_borrow: Annotated[Literal["MayStopSearch", "TryNextFlavor"], DEFAULTED] = "MayStopSearch"
    """When a workload would fit by borrowing."""
    when_can_preempt: Annotated[Literal["MayStopSearch", "TryNextFlavor"], DEFAULTED] = "TryNextFlavor"
    """When a workload would fit by preempting."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which is the smaller evil after all flavors were tried; BorrowingOverPreemption when unset."""


class BorrowWithinCohort(Model):
    """Preemption of others in the cohort by a workload that itself has to borrow."""

    policy: Annotated[Literal["Never", "LowerPriority"], DEFAULTED] = "Never"
    """Whose workloads may be preempted."""
    max_priority_threshold: int | None = None
    """Only workloads of at most this priority are preempted."""


@checked(
    Cel(
        "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort)"
        " && self.borrowWithinCohort.policy != 'Never')",
        "reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never is not a valid combination",
    )
)
class ClusterQueuePreemption(Model):
    """Which admitted workloads make room for a pending one of this queue."""

    reclaim_within_cohort: Annotated[Literal["Never", "LowerPriority", "Any"], DEFAULTED] = "Never"
    """Which workloads of queues that borrow may be preempted to use one's own nominal quota."""
    borrow_within_cohort: Annotated[BorrowWithinCohort, DEFAULTED] = BorrowWithinCohort()
    """Which workloads of other queues may be preempted although this one borrows."""
    within_cluster_queue: Annotated[
        Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"], DEFAULTED
    ] = "Never"
    """Which workloads of this same queue may be preempted."""


class AdmissionCheckStrategyRule(Model):
    """An AdmissionCheck and the flavors it applies to."""

    name: AdmissionCheckName
    """Name of the AdmissionCheck."""
    on_flavors: Annotated[list[ObjectName], set_of(maxItems=64)] = []
    """Flavors whose workloads must pass the check; empty means all flavors."""


class AdmissionChecksStrategy(Model):
    """Checks that workloads must pass after they got quota."""

    admission_checks: Annotated[
        list[AdmissionCheckStrategyRule], map_by("name", minItems=1, maxItems=64)
    ] = []
    """The checks."""


class AdmissionScope(Model):
    """Whether LocalQueues of this ClusterQueue are ordered by what they used before."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """UsageBasedAdmissionFairSharing takes first what comes from the LocalQueue that used least."""


class MigrationConstraints(Model):
    """Bounds of a migration."""

    last_acceptable_flavor_name: ObjectName | None = None
    """The least preferred flavor that still ends the search."""


@checked(
    Cel(
        "!has(self.constraints) || !has(self.constraints.lastAcceptableFlavorName)"
        " || self.mode == 'TryPreferredFlavors'",
        "lastAcceptableFlavorName needs mode TryPreferredFlavors",
    )
)
class ConcurrentAdmissionMigration(Model):
    """What happens when a more preferred flavor becomes free."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """TryPreferredFlavors moves the workload there; RetainFirstAdmission leaves it."""
    constraints: MigrationConstraints | None = None
    """Bounds of the migration."""


class ConcurrentAdmissionPolicy(Model):
    """Makes every workload ask for all flavors at once."""

    migration: ConcurrentAdmissionMigration
    """What happens after the first admission."""


@checked(
    Cel(
        "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(rg, "
        "rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
        "borrowingLimit must be unset when cohortName is unset",
    ),
    Cel(
        "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(rg, "
        "rg.flavors.all(f, f.resources.all(r, !has(r.lendingLimit))))",
        "lendingLimit must be unset when cohortName is unset",
    ),
)
class ClusterQueueSpec(Model):
    """Quotas, and the rules by which workloads get them."""

    resource_groups: Annotated[list[ResourceGroup], atomic(maxItems=16)] = []
    """Quotas, by groups of resources that share flavors."""
    cohort_name: ObjectName | None = None
    """Cohort to borrow from and lend to. The Cohort object need not exist."""
    borrowing_limit_percent: Annotated[int, Rule(minimum=0)] | None = None
    """Limits borrowing to this percentage of nominalQuota, rounded down, for every resource without a
    borrowingLimit of its own."""
    lendable_percent: Annotated[int, Rule(minimum=0, maximum=100)] | None = None
    """Limits lending to this percentage of nominalQuota, rounded down, for every resource without a
    lendingLimit of its own."""
    queueing_strategy: Annotated[Literal["StrictFIFO", "BestEffortFIFO"], DEFAULTED] = "BestEffortFIFO"
    """Whether a workload that does not fit blocks those behind it (StrictFIFO) or not (BestEffortFIFO)."""
    namespace_selector: Annotated[LabelSelector, Rule(**{"x-kubernetes-map-type": "atomic"})] | None = None
    """Namespaces whose workloads may use this queue: unset matches none, {} matches all."""
    flavor_fungibility: Annotated[FlavorFungibility, DEFAULTED] = FlavorFungibility()
    """Whether to try the next flavor before borrowing or preempting."""
    preemption: Annotated[ClusterQueuePreemption, DEFAULTED] = ClusterQueuePreemption()
    """Which admitted workloads make room for a pending one."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Checks that workloads must pass after they got quota."""
    stop_policy: Annotated[StopPolicy, DEFAULTED] = "None"
    """Stops admission (Hold), or stops it and evicts what is admitted (HoldAndDrain)."""
    fair_sharing: FairSharing | None = None
    """The weight of this queue under fair sharing; 1 when unset."""
    admission_scope: AdmissionScope | None = None
    """Order among the LocalQueues of this queue."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Makes every workload ask for all flavors at once. Immutable."""


class ResourceUsage(Model):
    """Use of one resource in one flavor."""

    name: ResourceName
    """Name of the resource."""
    total: Quantity = Quantity(0)
    """What is used, borrowed amounts included."""
    borrowed: Quantity = Quantity(0)
    """How much of it is above the nominal quota."""


class FlavorUsage(Model):
    """Use of one flavor."""

    name: ObjectName
    """Name of the ResourceFlavor."""
    resources: Annotated[list[ResourceUsage], map_by("name", maxItems=64)]
    """Use by resource."""


class ClusterQueueStatus(Model):
    """What the queue holds."""

    conditions: Conditions = []
    """Active says whether the queue can admit workloads."""
    flavors_reservation: Annotated[list[FlavorUsage], map_by("name", maxItems=64)] = []
    """Use by workloads that hold quota."""
    flavors_usage: Annotated[list[FlavorUsage], map_by("name", maxItems=64)] = []
    """Use by admitted workloads."""
    pending_workloads: int = 0
    """Workloads waiting for quota."""
    reserving_workloads: int = 0
    """Workloads holding quota."""
    admitted_workloads: int = 0
    """Workloads admitted and not finished."""
    fair_sharing: FairSharingStatus | None = None
    """Present share, when fair sharing is on."""


class ClusterQueue(Model):
    """A pool of quota shared by many namespaces, and the rules for getting it."""

    metadata: ObjectMeta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


@checked(
    Cel(
        "has(self.parentName) || !has(self.resourceGroups) || self.resourceGroups.all(rg, "
        "rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit) && !has(r.lendingLimit))))",
        "borrowingLimit and lendingLimit must be unset when parentName is unset",
    )
)
class CohortSpec(Model):
    """The cohort's place in the tree and its own quota."""

    parent_name: ObjectName | None = None
    """The cohort above; unset for a root. The Cohort object need not exist."""
    resource_groups: Annotated[list[ResourceGroup], atomic(maxItems=16)] = []
    """Quota shared by everything below."""
    fair_sharing: FairSharing | None = None
    """The weight of this cohort among its siblings; 1 when unset."""


class CohortStatus(Model):
    """What the cohort's members use."""

    conditions: Conditions = []
    """Active is False with reason CohortCycle while the parent links lead into a cycle."""
    fair_sharing: FairSharingStatus | None = None
    """Present share, when fair sharing is on."""


class Cohort(Model):
    """A group of ClusterQueues and Cohorts that lend each other what they do not use."""

    metadata: ObjectMeta
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


@checked(
    Cel(
        "!has(oldSelf.clusterQueue) || (has(self.clusterQueue) && self.clusterQueue == oldSelf.clusterQueue)",
        "clusterQueue is immutable once set",
    )
)
class LocalQueueSpec(Model):
    """Where the queue's workloads go."""

    cluster_queue: ObjectName = ""
    """ClusterQueue that admits this queue's workloads. Immutable once set."""
    stop_policy: Annotated[StopPolicy, DEFAULTED] = "None"
    """Stops admission (Hold), or stops it and evicts what is admitted (HoldAndDrain)."""
    fair_sharing: FairSharing | None = None
    """The weight of this queue under admission fair sharing; 1 when unset."""


class LocalQueueResourceUsage(Model):
    """Use of one resource in one flavor."""

    name: ResourceName
    """Name of the resource."""
    total: Quantity = Quantity(0)
    """What is used."""


class LocalQueueFlavorUsage(Model):
    """Use of one flavor."""

    name: ObjectName
    """Name of the ResourceFlavor."""
    resources: Annotated[list[LocalQueueResourceUsage], map_by("name", maxItems=64)]
    """Use by resource."""


class AdmissionFairSharingStatus(Model):
    """What the queue used before, fading with time."""

    consumed_resources: Amounts = {}
    """Decayed use by resource."""
    last_update: Time | None = None
    """When it was last computed."""


class LocalQueueFairSharingStatus(Model):
    """The queue's present share."""

    weighted_share: Annotated[int, Rule(format="int64")]
    """Largest ratio of used to lendable amounts over all resources, in thousandths, divided by the weight."""
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """What the queue used before, under admission fair sharing."""


class LocalQueueStatus(Model):
    """What the queue holds."""

    conditions: Conditions = []
    """Active says whether workloads of this queue can be admitted."""
    flavors_reservation: Annotated[list[LocalQueueFlavorUsage], map_by("name", maxItems=64)] = []
    """Use by workloads that hold quota."""
    flavors_usage: Annotated[list[LocalQueueFlavorUsage], map_by("name", maxItems=64)] = []
    """Use by admitted workloads."""
    pending_workloads: int = 0
    """Workloads waiting for quota."""
    reserving_workloads: int = 0
    """Workloads holding quota."""
    admitted_workloads: int = 0
    """Workloads admitted and not finished."""
    fair_sharing: LocalQueueFairSharingStatus | None = None
    """Present share."""


class LocalQueue(Model):
    """The door of one namespace to a ClusterQueue."""

    metadata: ObjectMeta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class WorkloadPriorityClass(Model):
    """A named priority for queueing and preemption that leaves the priority of pods alone."""

    metadata: ObjectMeta
    value: int
    """The priority; higher goes first. A change reaches the workloads that use the class."""
    description: Annotated[str, Rule(maxLength=2048)] = ""
    """When to use this class."""


class TopologyLevel(Model):
    """One level of the hierarchy of nodes."""

    node_label: Annotated[str, Rule(minLength=1, maxLength=316)]
    """Node label whose values are the domains of this level, for example kubernetes.io/hostname."""


class TopologySpec(Model):
    """The hierarchy of nodes."""

    levels: Annotated[
        list[TopologyLevel],
        atomic(minItems=1, maxItems=16),
        Cel(
            "self.all(x, self.exists_one(y, x.nodeLabel == y.nodeLabel))",
            "levels must be distinct",
        ),
        Cel(
            "size(self) < 2 || self.filter(x, x.nodeLabel == 'kubernetes.io/hostname').size() == 0"
            " || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            "kubernetes.io/hostname must be the lowest level",
        ),
        Cel(
            "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'"
            " && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
            "levels can only be changed when the lowest level is kubernetes.io/hostname before and after",
        ),
    ]
    """Levels from the widest to the narrowest."""


class Topology(Model):
    """How nodes are grouped into racks, blocks and similar domains."""

    metadata: ObjectMeta
    spec: TopologySpec
