"""Feature gates: Kueue's names, stages and defaults (docs/reference/kueue-api.md 4).

A gate that this version does not know is an error, never ignored: a misspelt name must not silently leave a
behaviour as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykueue.api.similar import did_you_mean


def _names(text: str) -> list[str]:
    return text.split()


_ON = _names("""
PartialAdmission FlavorFungibility VisibilityOnDemand PrioritySortingWithinCohort MultiKueue
TopologyAwareScheduling LocalQueueMetrics TASProfileMixed AdmissionFairSharing TASFailedNodeReplacement
TASFailedNodeReplacementFailFast TASReplaceNodeOnPodTermination ElasticJobsViaWorkloadSlices
MultiKueueAdaptersForCustomJobs ReclaimablePods FairSharingPreemptWithinNominal
FairSharingPrioritizeNonBorrowing RemoveFinalizersWithStrictPatch TASReplaceNodeOnNodeTaints
AssignQueueLabelsForPods SchedulingEquivalenceHashing KueueDRAIntegration
KueueDRARejectWorkloadsWhenDRADisabled FinishOrphanedWorkloads MetricForWorkloadCreationLatency
WorkloadIdentifierAnnotations MetricsForCohorts TASHandleOverlappingFlavors PodIntegrationValidateGroupOwner
ValidateRayAndSparkJobUpdates KueueDRAIntegrationExtendedResource KueueDRAIntegrationPartitionableDevices
QuotaCheckStrategy AdmissionGatedBy TASMultiLayerTopology SkipReassignmentForPodOwnedWorkloads
TASAssignmentsEncodingByHostnamePrefix MultiKueueIncrementalDispatcherConfig
MultiKueueIncrementalDispatcherRespectConfigOrder CleanupProvisioningRequestsOnEviction
UnadmittedWorkloadsObservability TASRecomputeAssignmentWithinSchedulingCycle
DeferRayServiceFinalizationForRedisCleanup TASCacheNodeMatchResults TASCachingRemainingResources
VectorizedResourceRequests MultiKueueKubeConfigPathValidation WorkloadPriorityClassDefaulting
TASCacheTopologyTree WorkloadValidateResourcesAreNonNegative TASValidateWorkloadSliceSize
WorkloadValidationForPodSetMetadata LWSImmutableGroupSize FlavorFungibilityPreserveScanProgress
SkipAncestorCheckForDeletedWorkloads MultiKueueRemoteSpecSync RecomputeAssignmentUponPreemptionTargetsOverlap
ManagedJobsNamespaceSelectorAlwaysRespected TLSOptions
""")

_OFF_BETA = ["UnadmittedWorkloadsExplicitStatus", "TASReplaceNodeDueToNotReadyOverFixedTime"]
_OFF_ALPHA = _names("""
DisableWaitForPodsReady ElasticJobsViaWorkloadSlicesWithTAS TASBalancedPlacement
TASRespectNodeAffinityPreferred KueueDRAIntegrationConsumableCapacity WorkloadRequestUseMergePatch
MultiKueueClusterProfile MultiKueueOrchestratedPreemption MultiKueueManagerQuotaAutomation
FailureRecoveryPolicy CustomMetricLabels SparkApplicationIntegration PriorityBoost ShortWorkloadNames
FastQuotaReleaseInPodIntegration RejectUpdatesToCQWithInvalidOnFlavors ConcurrentAdmission
SchedulerLibraryIntegration PrioritizePreemptorWorkloads
""")

#: Every gate with its default.
DEFAULTS: dict[str, bool] = {
    **dict.fromkeys(_ON, True),
    **dict.fromkeys(_OFF_BETA, False),
    **dict.fromkeys(_OFF_ALPHA, False),
}
#: Gates whose behaviour is final: another value is refused.
LOCKED = frozenset({"ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"})

_TAS = "TopologyAwareScheduling"
#: Gate -> gates that must be on with it (docs/reference/kueue-api.md 4.3).
DEPENDENCIES: dict[str, tuple[str, ...]] = {
    "TASFailedNodeReplacement": (_TAS,),
    "TASBalancedPlacement": (_TAS,),
    "TASReplaceNodeOnNodeTaints": (_TAS,),
    "TASMultiLayerTopology": (_TAS,),
    "TASRespectNodeAffinityPreferred": (_TAS,),
    "TASHandleOverlappingFlavors": (_TAS,),
    "TASProfileMixed": (_TAS,),
    "TASRecomputeAssignmentWithinSchedulingCycle": (_TAS,),
    "TASFailedNodeReplacementFailFast": (_TAS, "TASFailedNodeReplacement"),
    "TASReplaceNodeOnPodTermination": (_TAS, "TASFailedNodeReplacement"),
    "TASReplaceNodeDueToNotReadyOverFixedTime": (_TAS, "TASFailedNodeReplacement"),
    "ElasticJobsViaWorkloadSlicesWithTAS": ("ElasticJobsViaWorkloadSlices", _TAS),
    "UnadmittedWorkloadsExplicitStatus": ("UnadmittedWorkloadsObservability",),
    "KueueDRAIntegrationExtendedResource": ("KueueDRAIntegration",),
    "KueueDRAIntegrationPartitionableDevices": ("KueueDRAIntegration",),
    "KueueDRAIntegrationConsumableCapacity": ("KueueDRAIntegration",),
    "FlavorFungibilityPreserveScanProgress": ("FlavorFungibility",),
}
#: Gates that stand for all of a stage, and those they stand for.
GROUPS = {"AllAlpha": _OFF_ALPHA, "AllBeta": [*(g for g in _ON if g not in LOCKED), *_OFF_BETA]}


class FeatureGates(Mapping[str, bool]):
    """The value of every known gate."""

    def __init__(self, chosen: Mapping[str, bool] | None = None) -> None:
        self._values = dict(DEFAULTS)
        chosen = chosen or {}
        for group, names in GROUPS.items():
            if group in chosen:
                self._values.update(dict.fromkeys(names, chosen[group]))
        self._values.update({name: value for name, value in chosen.items() if name in DEFAULTS})

    def __getitem__(self, name: str) -> bool:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def problems(chosen: Mapping[str, bool]) -> list[tuple[str, str]]:
    """What is wrong with a choice of gates, as pairs of a gate's name and a message."""
    found: list[tuple[str, str]] = []
    for name, value in chosen.items():
        if name not in DEFAULTS and name not in GROUPS:
            found.append((name, "unknown feature gate" + _similar(name)))
        elif name in LOCKED and value != DEFAULTS[name]:
            found.append((name, f"is locked to {str(DEFAULTS[name]).lower()}"))
    gates = FeatureGates(chosen)
    for name, needed in DEPENDENCIES.items():
        missing = [other for other in needed if not gates[other]]
        if gates[name] and missing:
            where = name if name in chosen else missing[0]
            found.append((where, f"{name} is on and needs {' and '.join(missing)}, which is off"))
    return found


def _similar(name: str) -> str:
    """What may have been meant: gates of a like name, else all there are."""
    known = (*DEFAULTS, *GROUPS)
    return did_you_mean(name, known, cutoff=0.75) or f"; accepted: {', '.join(sorted(known))}"


def parse_flag(text: str) -> dict[str, bool]:
    """The command-line form `A=true,B=false`. Raises ValueError naming the item that is not of this form."""
    chosen: dict[str, bool] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or value.lower() not in {"true", "false"}:
            raise ValueError(f"{item!r} is not a feature gate; accepted: NAME=true or NAME=false")
        chosen[name] = value.lower() == "true"
    return chosen
