"""Why a workload without quota is pending: reasons and messages of QuotaReserved=False, and who writes them.

Each reason has one writer. The workload controller writes, and withdraws, what follows from the Workload and
its queues (`OF_QUEUES`); the job's controller writes OnHold; every other reason is a decision of the
scheduler. AdmissionGated and Misconfigured have two causes: a decision with these reasons is the scheduler's,
which the engine knows (`Engine.pending_reason`). Source: docs/reference/kueue-semantics.md 5.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pykueue.api.kueue.names import ADMISSION_GATED_BY_ANNOTATION


class PendingReason(NamedTuple):
    """Reason and message of QuotaReserved=False."""

    reason: str
    message: str


PENDING_EVALUATION: Final = "PendingEvaluation"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
DEACTIVATED: Final = "Deactivated"
ADMISSION_GATED: Final = "AdmissionGated"
ON_HOLD: Final = "OnHold"

#: Reasons that the workload controller derives, and withdraws when their cause is gone.
OF_QUEUES: Final = frozenset({MISCONFIGURED, SUSPENDED, DEACTIVATED, ADMISSION_GATED})

NOT_EVALUATED: Final = PendingReason(PENDING_EVALUATION, "The workload has not been evaluated yet")
INACTIVE: Final = PendingReason(DEACTIVATED, "The workload is deactivated")
GATED: Final = PendingReason(
    ADMISSION_GATED, f"Admission is gated by the annotation {ADMISSION_GATED_BY_ANNOTATION}"
)
#: Message of OnHold where no controller gave another.
ON_HOLD_MESSAGE: Final = "The workload is on hold"
#: Message of PendingEvaluation after a hold, where the controller gives no other.
OFF_HOLD_MESSAGE: Final = "The job is no longer on hold"


def on_hold(message: str = ON_HOLD_MESSAGE) -> PendingReason:
    """The job is not to be queued for now."""
    return PendingReason(ON_HOLD, message)


def off_hold(message: str = OFF_HOLD_MESSAGE) -> PendingReason:
    """The job can be queued again."""
    return PendingReason(PENDING_EVALUATION, message)


def behind_others(cluster_queue: str) -> PendingReason:
    """Other workloads of its ClusterQueue come first."""
    return PendingReason(
        PENDING_EVALUATION, f"The workload waits for its turn in ClusterQueue {cluster_queue}"
    )


def not_found(kind: str, name: str) -> PendingReason:
    """The LocalQueue or ClusterQueue does not exist."""
    return PendingReason(MISCONFIGURED, f"{kind} {name} doesn't exist")


def namespace_mismatch(cluster_queue: str, namespace: str) -> PendingReason:
    """The selector of the ClusterQueue does not match the namespace."""
    return PendingReason(
        MISCONFIGURED, f"ClusterQueue {cluster_queue} does not take workloads of namespace {namespace}"
    )


def of_queue(
    kind: str,
    name: str,
    *,
    exists: bool = True,
    terminating: bool = False,
    stopped: bool = False,
    problems: Sequence[str] = (),
) -> PendingReason | None:
    """Why a LocalQueue or ClusterQueue admits no workload; None where it does.

    `problems`: why a ClusterQueue is inactive, apart from being stopped or terminating.
    """
    if not exists:
        return not_found(kind, name)
    if terminating:
        return PendingReason(MISCONFIGURED, f"{kind} {name} is terminating")
    if stopped:
        return PendingReason(SUSPENDED, f"{kind} {name} is stopped")
    if problems:
        return PendingReason(SUSPENDED, f"{kind} {name} is inactive: {'; '.join(problems)}")
    return None
