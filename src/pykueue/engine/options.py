"""What an administrator can set about decisions: feature gates, fairness, requests, requeuing.

Names, values and defaults are those of Kueue's configuration (docs/reference/kueue-api.md 3 and 4); the
manager
reads the file and fills this in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pykueue.api.quantity import Quantity

#: Gates that change decisions, with Kueue's defaults (docs/reference/kueue-semantics.md 1).
GATES: Final[Mapping[str, bool]] = {
    "PartialAdmission": True,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "PrioritySortingWithinCohort": True,
    "FairSharingPreemptWithinNominal": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
    "SchedulingEquivalenceHashing": True,
    "QuotaCheckStrategy": True,
    "ReclaimablePods": True,
    "ElasticJobsViaWorkloadSlices": True,
    "AdmissionFairSharing": True,
    "AdmissionGatedBy": True,
    "UnadmittedWorkloadsObservability": True,
    "TopologyAwareScheduling": True,
    "TASProfileMixed": True,
    "TASMultiLayerTopology": True,
    "TASHandleOverlappingFlavors": True,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "TASAssignmentsEncodingByHostnamePrefix": True,
    "TASFailedNodeReplacement": True,
    "TASFailedNodeReplacementFailFast": True,
    "SkipReassignmentForPodOwnedWorkloads": True,
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "SchedulerLibraryIntegration": False,
    "TASBalancedPlacement": False,
    "TASRespectNodeAffinityPreferred": False,
    "PriorityBoost": False,
    "PrioritizePreemptorWorkloads": False,
    "ConcurrentAdmission": False,
    "MultiKueueOrchestratedPreemption": False,
    "KueueDRAIntegration": True,
    "KueueDRAIntegrationExtendedResource": True,
    "KueueDRAIntegrationPartitionableDevices": True,
    "KueueDRAIntegrationConsumableCapacity": False,
    "KueueDRARejectWorkloadsWhenDRADisabled": True,
}

FairSharingStrategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


@dataclass(frozen=True, slots=True)
class Transformation:
    """Turns a requested resource into others before quota is looked at (docs/reference/kueue-semantics.md
    2.5)."""

    input: str
    outputs: Mapping[str, Quantity]
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = ""


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """What devices of a driver are charged as: an amount of a counter that they use, or of their capacity."""

    kind: Literal["counter", "capacity"]
    name: str
    driver: str
    selector: str = ""
    """A CEL expression over `device`; empty selects all devices of the driver."""


@dataclass(frozen=True, slots=True)
class DeviceMapping:
    """The resource of quota that devices of some classes are charged as
    (docs/reference/kueue-semantics.md 2.10)."""

    resource: str
    classes: tuple[str, ...]
    sources: tuple[DeviceSource, ...] = ()
    """What is charged instead of the number of devices."""


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Orders workloads of one queue by what their LocalQueues used before (docs/reference/kueue-semantics.md
    10)."""

    usage_half_life: float = 0.0
    """Seconds in which past usage loses half its weight; 0 remembers nothing."""
    sampling_interval: float = 300.0
    """Seconds between samples."""
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each resource, 1 where not named."""


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the engine's decisions depend on besides the objects."""

    gates: Mapping[str, bool] = field(default_factory=dict)
    """Gates that differ from `GATES`; names the engine does not know are ignored."""
    fair_sharing: bool = False
    preemption_strategies: tuple[FairSharingStrategy, ...] = (
        "LessThanOrEqualToFinalShare",
        "LessThanInitialShare",
    )
    admission_fair_sharing: AdmissionFairSharing | None = None
    block_admission: bool = False
    """Admit one workload at a time: nothing new while a workload that holds quota is not PodsReady."""
    requeuing_timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Where a workload evicted by PodsReadyTimeout queues: by the time of the eviction or of its creation."""
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    device_mappings: tuple[DeviceMapping, ...] = ()
    hybrid_assignments: bool = True
    """ClusterQueues may permit pod sets to be split over flavors. False: as Kueue, which knows of none."""
    flush_delay: float = 0.0
    """Seconds from the first change that may let inadmissible workloads of a cohort tree fit until they are
    active again (4.6). 0: before the next cycle. Kueue: 1."""

    def enabled(self, gate: str) -> bool:
        """Whether that gate is on. Raises KeyError for a gate that changes no decision."""
        chosen = self.gates.get(gate)
        return GATES[gate] if chosen is None else chosen
