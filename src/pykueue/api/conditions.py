"""What the status of a Workload says: its conditions before all (docs/reference/kueue-api.md 5.1 and 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykueue.api.kueue.names import ADMISSION_GATED_BY_ANNOTATION
from pykueue.api.kueue.names import ADMITTED as ADMITTED
from pykueue.api.kueue.names import BLOCKED_ON_GATES as BLOCKED_ON_GATES
from pykueue.api.kueue.names import DEACTIVATION_TARGET as DEACTIVATION_TARGET
from pykueue.api.kueue.names import EVICTED as EVICTED
from pykueue.api.kueue.names import FINISHED as FINISHED
from pykueue.api.kueue.names import PODS_READY as PODS_READY
from pykueue.api.kueue.names import PREEMPTED as PREEMPTED
from pykueue.api.kueue.names import QUOTA_RESERVED as QUOTA_RESERVED
from pykueue.api.kueue.names import REQUEUED as REQUEUED
from pykueue.api.meta import parse_time
from pykueue.api.objects import Object, annotations_of, get
from pykueue.api.pending_reasons import DEACTIVATED as DEACTIVATED
from pykueue.api.pending_reasons import MISCONFIGURED as MISCONFIGURED
from pykueue.api.pending_reasons import ON_HOLD as ON_HOLD
from pykueue.api.pending_reasons import PENDING_EVALUATION as PENDING_EVALUATION

# Reasons, where programs test them.
WAIT_FOR_START: Final = "WaitForStart"
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
PREEMPTION_GATED: Final = "PreemptionGated"
DUE_TO: Final = "DueTo"
CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"

# What `holding` adds up.
HOLDS_QUOTA: Final = 1
IS_ADMITTED: Final = 2
IS_FINISHED: Final = 4
IS_EVICTED: Final = 8
HAS_PODS_READY: Final = 16
IS_REQUEUED: Final = 32
_BITS: Final[dict[str, int]] = {
    QUOTA_RESERVED: HOLDS_QUOTA,
    ADMITTED: IS_ADMITTED,
    FINISHED: IS_FINISHED,
    EVICTED: IS_EVICTED,
    PODS_READY: HAS_PODS_READY,
    REQUEUED: IS_REQUEUED,
}

Workload = Mapping[str, Any]


def condition(workload: Workload, kind: str) -> Mapping[str, Any] | None:
    """The condition of that type, or None."""
    # The hottest read of the manager: hence no helper, and types for the compiler.
    status: Object | None = workload.get("status")
    if status is not None:
        listed: list[Any] | None = status.get("conditions")
        if listed is not None:
            found: Object
            for found in listed:
                type_: str = found["type"]
                if type_ == kind:
                    return found
    return None


def is_true(workload: Workload, kind: str) -> bool:
    """Whether the condition is there and True."""
    found = condition(workload, kind)
    return found is not None and found["status"] == "True"


def holding(workload: Workload) -> int:
    """Which conditions are True, as the sum of HOLDS_QUOTA and so on: for those who ask for several."""
    result = 0
    status: Object | None = workload.get("status")
    if status is not None:
        listed: list[Any] | None = status.get("conditions")
        if listed is not None:
            found: Object
            for found in listed:
                value: str = found["status"]
                if value == "True":
                    bit: int = _BITS.get(found["type"], 0)
                    result |= bit
    return result


def is_false(workload: Workload, kind: str) -> bool:
    """Whether the condition is there and False."""
    found = condition(workload, kind)
    return found is not None and found.get("status") == "False"


def reason(workload: Workload, kind: str) -> str:
    """The condition's reason; empty where there is no such condition."""
    found = condition(workload, kind)
    return str(found.get("reason") or "") if found else ""


def since(workload: Workload, kind: str) -> float:
    """When the condition last changed, in seconds since 1970; 0 where there is none."""
    found = condition(workload, kind)
    text = found.get("lastTransitionTime") if found else None
    return parse_time(text) if text else 0.0


def created(workload: Workload) -> float:
    """When it was created, in seconds since 1970."""
    text = get(workload, "metadata", "creationTimestamp")
    return parse_time(text) if text else 0.0


def is_active(workload: Workload) -> bool:
    """`spec.active`, which is true where it is not written."""
    return get(workload, "spec", "active") is not False


def has_quota(workload: Workload) -> bool:
    """Whether quota is reserved for it: QuotaReserved is True."""
    return is_true(workload, QUOTA_RESERVED)


def is_admitted(workload: Workload) -> bool:
    """Whether Admitted is True."""
    return is_true(workload, ADMITTED)


def may_run(workload: Workload) -> bool:
    """Whether its job may run: Admitted=True counts only with a reservation and its admission."""
    return is_admitted(workload) and has_quota(workload) and bool(get(workload, "status", "admission"))


def is_finished(workload: Workload) -> bool:
    """Whether Finished is True."""
    return is_true(workload, FINISHED)


def is_evicted(workload: Workload) -> bool:
    """Whether Evicted is True."""
    return is_true(workload, EVICTED)


def is_gated(workload: Workload) -> bool:
    """Whether something outside keeps it out of its queue by annotation."""
    return bool(annotations_of(workload).get(ADMISSION_GATED_BY_ANNOTATION))


def is_on_hold(workload: Workload) -> bool:
    """Whether its job is on hold."""
    return is_false(workload, QUOTA_RESERVED) and reason(workload, QUOTA_RESERVED) == ON_HOLD


def requeue_at(workload: Workload) -> float | None:
    """When its back-off ends, in seconds since 1970; None where it has none."""
    text = get(workload, "status", "requeueState", "requeueAt")
    return parse_time(text) if text else None


def cluster_queue(workload: Workload) -> str:
    """The ClusterQueue whose quota it holds; empty where it holds none."""
    return str(get(workload, "status", "admission", "clusterQueue") or "")


def admitted_counts(workload: Workload) -> dict[str, int]:
    """Pods per pod set that the admission has quota for; empty without an admission.

    An assignment without a count is for all pods of its pod set, a pod set without one has one pod.
    """
    counts = {}
    sizes = {str(one.get("name")): one.get("count") for one in get(workload, "spec", "podSets") or ()}
    for assignment in get(workload, "status", "admission", "podSetAssignments") or ():
        name, count = str(assignment.get("name")), assignment.get("count")
        if count is None:
            count = sizes.get(name, 0)
        counts[name] = 1 if count is None else int(count)
    return counts


def reclaimable_counts(workload: Workload) -> dict[str, int]:
    """Pods per pod set that will not run again, as its status says; pod sets not named there are left out."""
    return {
        str(entry.get("name")): int(entry.get("count") or 0)
        for entry in get(workload, "status", "reclaimablePods") or ()
    }
