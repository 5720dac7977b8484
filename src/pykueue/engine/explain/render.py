"""Explanations as sentences, for conditions, events and people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykueue.api.hybrid import parts_of, parts_text
from pykueue.api.meta import format_time
from pykueue.engine.decisions import Admit, Assign, Decision, Delay, Evict, Preempt, PreemptionReason, Requeue
from pykueue.engine.explanation import Attempt, BackfillProof, Explanation, Shadow
from pykueue.engine.quota.usage import is_unlimited, to_quantity

#: Why a workload is preempted, to follow "due to" (docs/reference/kueue-semantics.md 8.10).
PREEMPTION_CAUSES: Final[dict[PreemptionReason, str]] = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "fair sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}


#: Why a workload with a closed preemption gate waits.
GATE_CLOSED_MESSAGE: Final = "Workload requires preemption, but its preemption gate is closed"

#: Why a workload that could preempt others waits.
PREEMPTION_LIMIT_MESSAGE: Final = (
    "Workload preempted others several times without lasting effect; it may preempt again once another "
    "workload of its cohort finishes or a quota changes"
)


def amount(resource: str, units: int) -> str:
    """An amount in quota units as people write it."""
    return "unlimited" if is_unlimited(units) else str(to_quantity(resource, units))


def message(decision: Decision) -> str:
    """What a decision says about itself, in one line."""
    match decision:
        case Admit():
            return _considered(decision.explanation)
        case Preempt():
            return f"Preempted to accommodate {decision.preemptor}: {decision.reason}"
        case Requeue():
            return reason_text(decision.explanation)
        case Assign():
            split = [
                f"{given.name}: {parts_text(parts)}"
                for given in decision.admission.pod_set_assignments
                if (parts := parts_of(given))
            ]
            return f"Flavors assigned: {', '.join(split)}" if split else "Domains of the topology assigned"
        case Evict() | Delay():
            return decision.message


def reason_text(explanation: Explanation) -> str:
    """Why a workload waits."""
    if explanation.problem:
        return explanation.problem
    failures = ". ".join((*filter(None, [failures_text(explanation.attempts)]), *explanation.shortages))
    match explanation.outcome:
        case "Preempting":
            text = f"Pending the preemption of {explanation.pending_preemptions} workload(s)"
        case "Deferred":
            text = "Fits once the workloads preempted for others in this cycle are gone"
        case "TargetsTaken":
            text = "Workload has overlapping preemption targets with another workload"
        case "NoLongerFits":
            text = "Workload no longer fits after processing another workload"
        case "PreemptionLimit":
            text = PREEMPTION_LIMIT_MESSAGE
        case "NoCandidates" if explanation.search is not None and explanation.search.protected:
            text = f"Workloads it could preempt are protected: {explanation.search.protection}"
        case "PreemptionGated":
            text = GATE_CLOSED_MESSAGE
        case "PreferredVariantAdmitted":
            text = "A variant with a more preferred flavor is admitted"
        case "MigrationNotAllowed":
            text = "Another variant is admitted, and its job may not migrate to this flavor"
        case "Migrating":
            text = "Pending the migration from a less preferred flavor"
        case "PodsNotReady":
            text = "Waiting for all admitted workloads to be in PodsReady condition"
        case "WouldDelay" if explanation.backfill is not None:
            text = _delay_text(explanation.backfill)
        case _:
            text = ""
    return ". ".join(part for part in (failures, text, shadow_text(explanation.shadow)) if part)


def basis_text(declared: bool, probability: int) -> str:
    """What times follow from."""
    if declared:
        return "declared run times"
    if probability:
        return f"fitted run times, each kept with a probability of {probability} %"
    return "assumed run times"


def shadow_text(shadow: Shadow | None) -> str:
    """The reservation of a workload that does not fit yet; empty where it has none."""
    if shadow is None:
        return ""
    basis = basis_text(shadow.declared, shadow.probability)
    return (
        f"Capacity is reserved for it from {format_time(shadow.start)} "
        f"(BackfillPolicy {shadow.policy}, {basis})"
    )


def proof_text(proof: BackfillProof) -> str:
    """Why a workload may start before one that is first in order."""
    basis = basis_text(proof.declared, proof.probability)
    how = (
        f"ends by {format_time(proof.end)}, before"
        if proof.kind == "EndsBefore"
        else "needs only what is spare beside"
    )
    return (
        f"Admitted before {proof.head}: {how} its reservation at {format_time(proof.start)} "
        f"(BackfillPolicy {proof.policy}, {basis})"
    )


def _delay_text(proof: BackfillProof) -> str:
    if proof.kind == "RunsIntoReservation":
        return (
            f"Would use quota of Reservation {proof.policy}, whose window begins at "
            f"{format_time(proof.start)}: the workload would end at {format_time(proof.end)}"
        )
    return (
        f"Would delay {proof.head}, for which capacity is reserved from {format_time(proof.start)} "
        f"(BackfillPolicy {proof.policy})"
    )


def failures_text(attempts: Iterable[Attempt]) -> str:
    """What every flavor that was looked at lacked, by pod set."""
    reasons: dict[str, set[str]] = {}
    for attempt in _allowed(attempts):
        if attempt.mode != "Fit":
            reasons.setdefault(attempt.pod_set, set()).add(attempt_text(attempt))
    return "; ".join(
        f"couldn't assign flavors to pod set {pod_set}: {', '.join(sorted(texts))}"
        for pod_set, texts in reasons.items()
    )


def _allowed(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Without the flavors that are those of other variants, unless no others were looked at."""
    every = list(attempts)
    return [attempt for attempt in every if attempt.blocker != "FlavorNotAllowed"] or every


def attempt_text(attempt: Attempt) -> str:
    """What stood in the way of one resource in one flavor."""
    resource, flavor = attempt.resource, attempt.flavor
    match attempt.blocker:
        case "ResourceNotCovered":
            return f"resource {resource} unavailable in ClusterQueue"
        case "FlavorNotFound":
            return f"flavor {flavor} not found"
        case "FlavorNotNominated":
            return f"flavor {flavor} is not the one it was nominated for ({attempt.detail})"
        case "FlavorOfReplacedSlice":
            return f"flavor {flavor} is not the one of the slice it replaces ({attempt.detail})"
        case "FlavorNotAllowed":
            return f"flavor {flavor} is not the one of this variant"
        case "Topology" | "NotSplit":
            return attempt.detail
        case "Taint":
            return f"untolerated taint {attempt.detail} in flavor {flavor}"
        case "Affinity":
            return f"flavor {flavor} doesn't match node affinity"
        case "ExceedsMaximum":
            before = ""
            if attempt.assumed:
                before = f"previously considered podsets requests ({amount(resource, attempt.assumed)}) + "
            return (
                f"insufficient quota for {resource} in flavor {flavor}, {before}"
                f"current podset request ({amount(resource, attempt.requested)}) > "
                f"maximum capacity ({amount(resource, attempt.maximum)})"
            )
        case _:
            short = attempt.total_requested - attempt.available
            return (
                f"insufficient unused quota for {resource} in flavor {flavor}, "
                f"{amount(resource, short)} more needed{_limit(attempt)}"
            )


def _limit(attempt: Attempt) -> str:
    match attempt.blocker:
        case "BorrowingLimit":
            return f" (borrowing limit of {attempt.detail})"
        case "LendingLimit":
            return f" (lending limits in cohort {attempt.detail})"
        case "CohortExhausted":
            return f" (cohort {attempt.detail} is exhausted)"
        case _:
            return ""


def _considered(explanation: Explanation) -> str:
    """The flavors looked at on the way to an admission."""
    by_pod_set: dict[str, list[str]] = {}
    for attempt in _allowed(explanation.attempts):
        text = f"{attempt.flavor}({attempt.mode}"
        if attempt.borrowing_level:
            text += f";borrow={attempt.borrowing_level}"
        if attempt.mode != "Fit":
            text += f";{attempt_text(attempt)}"
        flavors = by_pod_set.setdefault(attempt.pod_set, [])
        text += ")"
        if text not in flavors:
            flavors.append(text)
    return ", ".join(f"{pod_set}: {', '.join(flavors)}" for pod_set, flavors in by_pod_set.items())
