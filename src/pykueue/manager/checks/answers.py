"""What the state of a ProvisioningRequest makes of the admission check that it was created for.

Source: docs/reference/admission-checks.md 11.6 and 11.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from pykueue.api import conditions
from pykueue.api.backoff import exponential_delay
from pykueue.api.kueue import names
from pykueue.api.kueue.checks import ProvisioningRequestConfigSpec, ProvisioningRequestRetryStrategy
from pykueue.api.meta import format_time
from pykueue.api.objects import Object, condition_of, get, replaced, section, true_condition
from pykueue.api.times import parse_time
from pykueue.manager.workloads.transitions import cut

#: Relative jitter of the delay before the next attempt (docs/reference/admission-checks.md 5.4).
RETRY_JITTER = 0.0001
#: Seconds after which the check of a request that no autoscaler has answered says so.
UNANSWERED = 60.0
INACTIVE = "the check is not active"
NOT_NEEDED = "the provisioning request is not needed"

PENDING, READY, RETRY, REJECTED = "Pending", "Ready", "Retry", "Rejected"


class Attempt(NamedTuple):
    """A request with its number, and what follows from it for the pod sets once it is provisioned."""

    request: Object
    number: int
    #: By entry of the request: the pod sets it stands for.
    pod_sets: Sequence[Sequence[str]]


class Answer(NamedTuple):
    """Fields of the check's state that change."""

    state: str
    message: str
    requeue_after: int | None = None
    updates: list[Object] | None = None


def retry_delay(strategy: ProvisioningRequestRetryStrategy, attempt: int, jitter: float) -> int:
    """Seconds before the attempt after `attempt`, the first being 1; `jitter` is from 0 to 1."""
    delay = exponential_delay(strategy.backoff_base_seconds, float(strategy.backoff_max_seconds), attempt - 1)
    return int(delay * (1 + RETRY_JITTER * jitter))


def answer(
    workload: Mapping[str, Any],
    check: Mapping[str, Any],
    config: ProvisioningRequestConfigSpec,
    attempt: Attempt,
    now: float,
    jitter: float = 0.0,
) -> Answer | None:
    """The check's new state at `now`, in seconds since 1970; None where it stays as it is."""
    status = section(attempt.request, "status")
    admitted = conditions.is_admitted(workload)
    if failed := true_condition(status, "Failed"):
        return _failed(check, config, attempt, jitter, ("failure", _message(failed)))
    if revoked := true_condition(status, "CapacityRevoked"):
        if conditions.is_active(workload) and not conditions.is_finished(workload):
            return Answer(REJECTED, _message(revoked))
        return None
    if expired := true_condition(status, "BookingExpired"):
        if admitted:
            return None
        return _failed(check, config, attempt, jitter, ("booking expired", _message(expired)))
    if provisioned := true_condition(status, "Provisioned"):
        if check.get("state") == READY:
            return None
        return Answer(READY, _message(provisioned), updates=_pod_set_updates(config, attempt))
    if admitted:
        return None
    if reported_at(attempt.request) <= now:
        return Answer(PENDING, _unanswered(attempt.request))
    estimate = condition_of(status, "Provisioned") if true_condition(status, "Accepted") else None
    return Answer(PENDING, "" if estimate is None else _message(estimate))


def reported_at(request: Mapping[str, Any]) -> float:
    """When the check reports that no autoscaler answers a request, in seconds since 1970; infinite if one
    has."""
    if get(request, "status", "conditions"):
        return inf
    return parse_time(str(request["metadata"]["creationTimestamp"])) + UNANSWERED


def _unanswered(request: Mapping[str, Any]) -> str:
    return (
        f"ProvisioningRequest {request['metadata']['name']} was not accepted within {UNANSWERED:.0f} s: "
        f"no autoscaler answers the provisioning class {get(request, 'spec', 'provisioningClassName')} "
        "(spec.provisioningClassName of the ProvisioningRequestConfig)"
    )


def _failed(
    check: Mapping[str, Any],
    config: ProvisioningRequestConfigSpec,
    attempt: Attempt,
    jitter: float,
    cause: tuple[str, str],
) -> Answer:
    """The next attempt, or none after the last one; `cause` is what failed, and its message."""
    what, message = cause
    if attempt.number > config.retry_strategy.backoff_limit_count:
        return Answer(REJECTED, message)
    text = f"Retrying after {what}: {message}"
    retries = int(check.get("retryCount") or 0)
    if attempt.number <= retries:  # this failure was answered already
        return Answer(str(check.get("state")), text)
    return Answer(RETRY, text, retry_delay(config.retry_strategy, retries + 1, jitter))


def _message(condition: Mapping[str, Any]) -> str:
    return cut(str(condition.get("message") or ""))


def _pod_set_updates(config: ProvisioningRequestConfigSpec, attempt: Attempt) -> list[Object]:
    """What the pods need to use the capacity, for every pod set that the request covers."""
    details = section(attempt.request, "status", "provisioningClassDetails")
    rules = config.pod_set_updates.node_selector if config.pod_set_updates is not None else []
    selector = {
        rule.key: details[rule.value_from_provisioning_class_detail]
        for rule in rules
        if rule.value_from_provisioning_class_detail in details
    }
    annotations = {
        names.CONSUME_PROVISIONING_REQUEST_ANNOTATION: attempt.request["metadata"]["name"],
        names.PROVISIONING_CLASS_NAME_ANNOTATION: get(attempt.request, "spec", "provisioningClassName"),
    }
    return [
        {"name": name, "annotations": annotations, **({"nodeSelector": selector} if selector else {})}
        for names_ in attempt.pod_sets
        for name in names_
    ]


def with_answer(workload: Object, check: str, change: Answer, now: float) -> Object:
    """The Workload with the state of one of its checks after the answer."""
    states = [
        applied(one, change, now) if one.get("name") == check else one
        for one in get(workload, "status", "admissionChecks") or ()
    ]
    return replaced(workload, ("status", "admissionChecks"), states or None)


def applied(check: Mapping[str, Any], change: Answer, now: float) -> Object:
    """The check's state after the answer; lastTransitionTime moves when the state changes."""
    result = dict(check)
    if check.get("state") != change.state:
        result["state"] = change.state
        result["lastTransitionTime"] = format_time(now)
        if change.requeue_after is not None:
            result["requeueAfterSeconds"] = change.requeue_after
        if change.state == READY:
            result.pop("podSetUpdates", None)
            if change.updates:
                result["podSetUpdates"] = change.updates
    result["message"] = change.message
    return result
