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

#: Of a job or Workload: when its state was last saved (RFC 3339); what it did before is not lost.
CHECKPOINT_ANNOTATION: Final = "pykueue.io/checkpointed-at"
#: Of a job or Workload: the minimum run time it asks for, up to what the policy allows.
MIN_ADMIT_DURATION_ANNOTATION: Final = "pykueue.io/min-admit-duration"

#: Preemptions listed in the status of a policy.
RECENT_MAX: Final = 50
#: Pairs of queues with totals in the status of a policy.
TOTALS_MAX: Final = 100

Duration = Annotated[str, Rule(maxLength=32, pattern=r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$")]


class MinAdmitDuration(Model):
    """For how long after its admission a workload is protected, by the reason of the preemption."""

    within_cluster_queue: Duration | None = None
    """From workloads of its own ClusterQueue."""
    reclaim_within_cohort: Duration | None = None
    """From workloads whose ClusterQueue takes back quota that it lent, also while borrowing."""
    fair_sharing: Duration | None = None
    """From workloads whose ClusterQueue has a lower share."""


class PriorityClassProtection(Model):
    """The protection of workloads of one WorkloadPriorityClass."""

    name: ObjectName
    """Name of the WorkloadPriorityClass."""
    min_admit_duration: MinAdmitDuration
    """Instead of the policy's own, reason by reason."""


class CoolDown(Model):
    """How long a ClusterQueue that was preempted by another must wait before it preempts that one in turn.

    The first turn waits for base, every further turn twice as long as the one before, at most for max. Turns
    are forgotten once neither preempted the other for window.
    """

    base: Annotated[Duration, DEFAULTED] = "5m"
    """The first wait."""
    max: Annotated[Duration, DEFAULTED] = "4h"
    """The longest wait."""
    window: Annotated[Duration, DEFAULTED] = "24h"
    """After which turns are forgotten."""


@checked(
    Cel(
        "!(has(self.clusterQueues) && size(self.clusterQueues) > 0 && has(self.cohort))",
        "clusterQueues and cohort are not accepted together",
    ),
)
class PreemptionPolicySpec(Model):
    """Which ClusterQueues the policy is for, and its limits.

    A policy that names a ClusterQueue comes before one for its cohort, that before one for a cohort above,
    and that before one for all ClusterQueues. A ClusterQueue follows one policy, never parts of several.
    """

    cluster_queues: Annotated[list[ObjectName], set_of(maxItems=256)] = []
    """ClusterQueues that the policy is for."""
    cohort: ObjectName | None = None
    """Cohort that the policy is for, with everything below it."""
    min_admit_duration: MinAdmitDuration | None = None
    """Protection of the workloads of these ClusterQueues."""
    priority_classes: Annotated[list[PriorityClassProtection], map_by("name", maxItems=64)] = []
    """Protection of workloads of some WorkloadPriorityClasses."""
    max_requested_duration: Duration | None = None
    """Longest protection that a workload gets by its annotation pykueue.io/min-admit-duration."""
    candidate_order: Annotated[Literal["Default", "LeastLostWork"], DEFAULTED] = "Default"
    """LeastLostWork: of candidates of equal priority those go first whose preemption loses least work."""
    cool_down: CoolDown | None = None
    """For preemptions in turns between these ClusterQueues and others."""
    max_preemptions_per_hour: Annotated[int | None, Rule(minimum=1, maximum=100000)] = None
    """Workloads preempted for each of these ClusterQueues within an hour, before the next must wait."""


class Preemption(Model):
    """One preemption."""

    time: str
    """When it was decided."""
    workload: Annotated[str, Rule(maxLength=512)]
    """The preempted Workload, namespace/name."""
    cluster_queue: Annotated[str, Rule(maxLength=253)]
    """Its ClusterQueue."""
    preemptor_uid: Annotated[str, Rule(maxLength=64)] = msgspec.field(default="", name="preemptorUID")
    """The uid of the Workload that it was preempted for."""
    preemptor_cluster_queue: Annotated[str, Rule(maxLength=253)]
    """The ClusterQueue of that Workload."""
    reason: Annotated[str, Rule(maxLength=64)]
    """Why, as in the condition Preempted."""
    lost_resource_seconds: Annotated[dict[str, int], Rule(maxProperties=64)] = {}
    """Lost work by resource: cpus, bytes or pieces times seconds since the start or the last checkpoint."""


class PreemptionTotal(Model):
    """All preemptions of workloads of one ClusterQueue for another."""

    preemptor_cluster_queue: Annotated[str, Rule(maxLength=253)]
    """The ClusterQueue that they were for."""
    cluster_queue: Annotated[str, Rule(maxLength=253)]
    """The ClusterQueue of the preempted workloads."""
    count: int = 0
    """Number of preempted workloads."""
    lost_resource_seconds: Annotated[dict[str, int], Rule(maxProperties=64)] = {}
    """Lost work by resource."""


class PreemptionPolicyStatus(Model):
    """What happened under the policy."""

    conditions: Conditions = []
    """Active says whether the policy is in force."""
    recent: Annotated[list[Preemption], atomic(maxItems=RECENT_MAX)] = []
    """Latest preemptions for the ClusterQueues of the policy, newest first."""
    totals: Annotated[list[PreemptionTotal], atomic(maxItems=TOTALS_MAX)] = []
    """Totals by pair of ClusterQueues; the pairs that lost least are dropped beyond the bound."""


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
