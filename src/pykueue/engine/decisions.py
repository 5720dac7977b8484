"""What the engine answers: values that say what to do with a workload, and why.

A decision is already part of the engine's own state when it is handed out (an admitted workload uses its
quota, a preempted one is known to be leaving). A failed write is reported with
`Engine.forget` or `Engine.forget_preemption`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pykueue.api.kueue import Admission
from pykueue.engine.explanation import Explanation

#: Reasons of QuotaReserved=False (docs/reference/kueue-semantics.md 5.9).
PendingReason = Literal[
    "NoMatchingFlavor",
    "ExceedsMaxQuota",
    "WaitingForQuota",
    "TopologyPlacementFailed",
    "WaitingForPreemptedWorkloads",
    "WaitingForPodsReady",
    "Misconfigured",
    "Suspended",
    "PendingEvaluation",
    "AdmissionGated",
    "Pending",
    "Inadmissible",
    "Waiting",
]

#: Reasons of Preempted=True (docs/reference/kueue-semantics.md 8.10).
PreemptionReason = Literal[
    "InClusterQueue",
    "InCohortReclamation",
    "InCohortReclaimWhileBorrowing",
    "InCohortFairSharing",
]

#: Why a considered workload went back to its queue (docs/reference/kueue-semantics.md 4.5).
RequeueReason = Literal[
    "Generic",
    "NamespaceMismatch",
    "Held",
    "NoFit",
    "PreemptionNoCandidates",
    "PreemptionGated",
    "PendingPreemption",
    "PendingMigration",
    "FailedAfterNomination",
    "WouldDelay",
]


class Admit(Struct, tag=True, array_like=True, gc=False):
    """Reserve quota for a workload: write `admission`, QuotaReserved=True, and Admitted=True if `admitted`.

    Evicted, Preempted and BlockedOnPreemptionGates that are True become False in the same write.
    """

    key: str
    """`namespace/name` of the workload."""
    cluster_queue: str
    admission: Admission
    admitted: bool
    """Every admission check the assigned flavors require is Ready (or none is): Admitted=True in the same
    write."""
    queued_since: float
    """When the wait began, in seconds: creation, or the last time it was put back into its queue."""
    cycle: int
    explanation: Explanation
    replaces: str = ""
    """Key of the workload slice this one replaces: after the write, it is Finished
    (WorkloadSliceReplaced)."""


class Preempt(Struct, tag=True, array_like=True, gc=False):
    """Evict a workload that holds quota, so that `preemptor` may start: Evicted=True (Preempted),
    Preempted=True."""

    key: str
    """`namespace/name` of the workload that has to go."""
    reason: PreemptionReason
    preemptor: str
    """`namespace/name` of the workload it has to go for."""
    preemptor_uid: str
    cluster_queue: str
    """Queue of the workload that has to go."""
    path: tuple[str, ...]
    """From the root cohort to the queue of the workload that has to go."""
    preemptor_path: tuple[str, ...]
    """From the root cohort to the queue of the preemptor."""
    cycle: int
    lost_resource_seconds: dict[str, int] = {}
    """What the workload loses by resource, in cpus, bytes or pieces times seconds; empty unless there is a
    PreemptionPolicy."""


class Requeue(Struct, tag=True, array_like=True, gc=False):
    """The workload was considered and waits: QuotaReserved=False with this reason; `render.message` gives
    the text."""

    key: str
    cluster_queue: str
    reason: PendingReason
    requeue: RequeueReason
    inadmissible: bool
    """False: it is looked at again in the next cycle. True: only after something it needs may have
    changed."""
    cycle: int
    explanation: Explanation
    blocked_on_gates: bool = False
    """It needs preemption and one of its preemption gates is closed: BlockedOnPreemptionGates=True."""


class Assign(Struct, tag=True, array_like=True, gc=False):
    """Write the domains of a workload that holds quota: `admission`, no unhealthy nodes, and Admitted=True if
    `admitted`."""

    key: str
    """`namespace/name` of the workload."""
    cluster_queue: str
    admission: Admission
    admitted: bool
    cycle: int


class Evict(Struct, tag=True, array_like=True, gc=False):
    """Evict a workload that cannot go on where it is: Evicted=True with this reason."""

    key: str
    """`namespace/name` of the workload."""
    reason: Literal["NodeFailures", "FlavorMigration"]
    message: str
    cluster_queue: str
    cycle: int


class Delay(Struct, tag=True, array_like=True, gc=False):
    """No domains were found for a workload that holds quota: it keeps the quota, and placement is retried."""

    key: str
    """`namespace/name` of the workload."""
    cluster_queue: str
    message: str
    until: float
    """When, in seconds since 1970."""
    cycle: int


Decision = Admit | Preempt | Requeue | Assign | Evict | Delay
