# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The kind PreemptionPolicy (pykueue.io/v1alpha1): limits on how often and how soon workloads are preempted.

Source of the rules: docs/reference/policies.md 3.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from pykueue.api.durations import parse_duration
from pykueue.api.kueue.common import Conditions, ObjectName
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import DEFAULTED, Cel, Model, Rule, atomic, checked, map_by, set_of
from pykueue.api.resources import OWN_GROUP, Resource

PREEMPTION_POLICIES: Final = Resource(OWN_GROUP, "v1alpha1", "preemptionpolicies", "PreemptionPolicy", False)

#: On a job or Workload: time of its last checkpoint (RFC 3339); a preemption does not lose earlier work.
CHECKPOINT_ANNOTATION: Final = "pykueue.io/checkpointed-at"
#: On a job or Workload: the minimum run time that it requests, up to the maximum of the policy.
MIN_ADMIT_DURATION_ANNOTATION: Final = "pykueue.io/min-admit-duration"

#: Preemptions listed in the status of a policy.
RECENT_MAX: Final = 50
#: Pairs of queues with totals in the status of a policy.
TOTALS_MAX: Final = 100

Duration = Annotated[str, Rule(maxLength=32, pattern=r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$")]


class MinAdmitDuration(Model):
    """How long a workload is protected after its admission, by the reason of the preemption."""

    within_cluster_queue: Duration | None = None
    """Protection from preemption by workloads of the same ClusterQueue."""
    reclaim_within_cohort: Duration | None = None
    """Protection from preemption by workloads whose ClusterQueue reclaims its quota, also while borrowing."""
    fair_sharing: Duration | None = None
    """Protection from preemption by workloads whose ClusterQueue has a lower share (fair sharing)."""


class PriorityClassProtection(Model):
    """The protection of workloads of one WorkloadPriorityClass."""

    name: ObjectName
    """Name of the WorkloadPriorityClass."""
    min_admit_duration: MinAdmitDuration
    """Durations that replace those of the policy; the policy's apply to fields that are not set here."""


class CoolDown(Model):
    """How long a ClusterQueue must wait before it preempts workloads of one that preempted its workloads.

    The first wait is base. Each time that the direction of preemption between the two ClusterQueues changes,
    the wait doubles, up to max. It starts again at base once neither preempted the other for window.
    """

    base: Annotated[Duration, DEFAULTED] = "5m"
    """Duration of the first wait."""
    max: Annotated[Duration, DEFAULTED] = "4h"
    """Duration of the longest wait."""
    window: Annotated[Duration, DEFAULTED] = "24h"
    """Time without preemptions between the two ClusterQueues after which the wait is base again."""


@checked(
    Cel(
        "!(has(self.clusterQueues) && size(self.clusterQueues) > 0 && has(self.cohort))",
        "clusterQueues and cohort are not accepted together",
    ),
)
class PreemptionPolicySpec(Model):
    """Which ClusterQueues the policy applies to, and its limits.

    A policy that names a ClusterQueue takes precedence over one for its cohort, that over one for a cohort
    above, and that over one for all ClusterQueues. One policy applies to a ClusterQueue: they are not merged.
    """

    cluster_queues: Annotated[list[ObjectName], set_of(maxItems=256)] = []
    """ClusterQueues that the policy applies to."""
    cohort: ObjectName | None = None
    """Cohort that the policy applies to, with all cohorts and ClusterQueues below it."""
    min_admit_duration: MinAdmitDuration | None = None
    """Protection of the workloads of these ClusterQueues."""
    priority_classes: Annotated[list[PriorityClassProtection], map_by("name", maxItems=64)] = []
    """Protection of workloads of some WorkloadPriorityClasses."""
    max_requested_duration: Duration | None = None
    """Longest protection that a workload can request with the annotation pykueue.io/min-admit-duration."""
    candidate_order: Annotated[Literal["Default", "LeastLostWork"], DEFAULTED] = "Default"
    """LeastLostWork: candidates of equal priority are preempted by the work they lose, the least first."""
    cool_down: CoolDown | None = None
    """Limits preemptions back and forth between these ClusterQueues and others."""
    max_preemptions_per_hour: Annotated[int | None, Rule(minimum=1, maximum=100000)] = None
    """Most workloads that are preempted for each of these ClusterQueues within an hour."""


class Preemption(Model):
    """One preemption."""

    time: str
    """When it was decided."""
    workload: Annotated[str, Rule(maxLength=512)]
    """The preempted Workload, namespace/name."""
    cluster_queue: Annotated[str, Rule(maxLength=253)]
    """The ClusterQueue of the preempted Workload."""
    preemptor_uid: Annotated[str, Rule(maxLength=64)] = msgspec.field(default="", name="preemptorUID")
    """The uid of the preempting Workload."""
    preemptor_cluster_queue: Annotated[str, Rule(maxLength=253)]
    """The ClusterQueue of the preempting Workload."""
    reason: Annotated[str, Rule(maxLength=64)]
    """The reason of the condition Preempted."""
    lost_resource_seconds: Annotated[dict[str, int], Rule(maxProperties=64)] = {}
    """Lost work by resource: CPUs, bytes or units times seconds since the start or the last checkpoint."""


class PreemptionTotal(Model):
    """Totals of the preemptions of workloads of one ClusterQueue for workloads of another."""

    preemptor_cluster_queue: Annotated[str, Rule(maxLength=253)]
    """The ClusterQueue of the preempting workloads."""
    cluster_queue: Annotated[str, Rule(maxLength=253)]
    """The ClusterQueue of the preempted workloads."""
    count: int = 0
    """Number of preempted workloads."""
    lost_resource_seconds: Annotated[dict[str, int], Rule(maxProperties=64)] = {}
    """Lost work by resource."""


class PreemptionPolicyStatus(Model):
    """Observed state of a PreemptionPolicy."""

    conditions: Conditions = []
    """Active says whether the policy is in force."""
    recent: Annotated[list[Preemption], atomic(maxItems=RECENT_MAX)] = []
    """Latest preemptions for workloads of these ClusterQueues, newest first."""
    totals: Annotated[list[PreemptionTotal], atomic(maxItems=TOTALS_MAX)] = []
    """Totals by pair of ClusterQueues; of more than 100, the pairs with the least lost work are dropped."""


class PreemptionPolicy(Model):
    """Limits on preemption for some ClusterQueues. Only administrators should be able to write it."""

    metadata: ObjectMeta
    spec: PreemptionPolicySpec = PreemptionPolicySpec()
    status: PreemptionPolicyStatus = PreemptionPolicyStatus()


def seconds(text: str | None) -> float:
    """A duration of a policy or an annotation in seconds; 0 for None and for what is not a duration."""
    try:
        return max(0.0, parse_duration(text)) if text else 0.0
    except ValueError:
        return 0.0
