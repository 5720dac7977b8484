"""ProvisioningRequests as the autoscaler reads and answers them.

Conditions: docs/reference/admission-checks.md 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from pykueue.api.kueue.names import CONSUME_PROVISIONING_REQUEST_ANNOTATION
from pykueue.api.meta import ConditionStatus, set_condition
from pykueue.api.objects import (
    Key,
    Object,
    annotations_of,
    condition_of,
    get,
    key_of,
    section,
    true_condition,
)
from pykueue.api.times import parse_time

CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
ATOMIC_SCALE_UP = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
QUEUED = "queued-provisioning.gke.io"
#: The classes that are answered, and their earlier names.
CLASSES = {
    CHECK_CAPACITY: CHECK_CAPACITY,
    ATOMIC_SCALE_UP: ATOMIC_SCALE_UP,
    QUEUED: QUEUED,
    "check-capacity.k8s.io": CHECK_CAPACITY,
    "generic-scale-up.k8s.io": ATOMIC_SCALE_UP,
}
#: Seconds that capacity stays booked, and after which a request that was not answered fails.
BOOKING = 600.0
EXPIRATION = 7 * 24 * 3600.0

ACCEPTED, PROVISIONED, FAILED = "Accepted", "Provisioned", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"


def class_of(request: Mapping[str, Any]) -> str:
    """Its class by the present name; empty for one of another autoscaler."""
    return CLASSES.get(str(get(request, "spec", "provisioningClassName")), "")


def is_open(request: Mapping[str, Any]) -> bool:
    """Whether it is still to be answered."""
    return class_of(request) != "" and true_condition(section(request, "status"), PROVISIONED, FAILED) is None


def is_booked(request: Mapping[str, Any]) -> bool:
    """Whether capacity is booked for it."""
    status = section(request, "status")
    ended = (FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED)
    return (
        class_of(request) != ""
        and true_condition(status, PROVISIONED) is not None
        and true_condition(status, *ended) is None
    )


def provisioned_at(request: Mapping[str, Any]) -> float:
    """When its capacity was there, in seconds since 1970."""
    found = condition_of(section(request, "status"), PROVISIONED) or {}
    return parse_time(str(found.get("lastTransitionTime")))


def expires_at(request: Mapping[str, Any]) -> float:
    """When it fails if it was not answered, in seconds since 1970."""
    return parse_time(request["metadata"]["creationTimestamp"]) + _seconds(
        request, "ValidUntilSeconds", EXPIRATION
    )


def revoked_at(request: Mapping[str, Any]) -> float:
    """When the capacity of a queued request is taken away, in seconds since 1970; infinite if never."""
    if class_of(request) != QUEUED:
        return inf
    return provisioned_at(request) + _seconds(request, "maxRunDurationSeconds", inf)


def is_tried_once(request: Mapping[str, Any]) -> bool:
    """Whether it fails at once where there is no capacity."""
    return str(get(request, "spec", "parameters", "noRetry")) == "true"


def _seconds(request: Mapping[str, Any], parameter: str, default: float) -> float:
    text = str(get(request, "spec", "parameters", parameter) or "")
    return float(text) if text.isdecimal() else default


def pods(
    request: Mapping[str, Any], template_of: Callable[[str, str], Object | None], used: int = 0
) -> list[Object]:
    """Pods as the request describes them, without the first `used` ones.

    `template_of` returns the PodTemplate of a namespace and name. Raises LookupError when one doesn't exist.
    """
    namespace, _ = key_of(request)
    found: list[Object] = []
    for entry in get(request, "spec", "podSets") or ():
        name = str(get(entry, "podTemplateRef", "name"))
        template = template_of(namespace, name)
        if template is None:
            raise LookupError(f"PodTemplate {name} doesn't exist")
        for _ in range(int(entry.get("count") or 0)):
            uid = f"{request['metadata']['uid']}/{len(found)}"
            metadata = {
                **section(template, "template", "metadata"),
                "name": uid,
                "namespace": namespace,
                "uid": uid,
            }
            found.append({"metadata": metadata, "spec": dict(section(template, "template", "spec"))})
    return found[used:]


def consumers(all_pods: Iterable[Mapping[str, Any]]) -> Counter[Key]:
    """How many pods with a node use the capacity of each request."""
    found: Counter[Key] = Counter()
    for pod in all_pods:
        name = annotations_of(pod).get(CONSUME_PROVISIONING_REQUEST_ANNOTATION)
        if name and get(pod, "spec", "nodeName"):
            found[key_of(pod)[0], name] += 1
    return found


def with_condition(
    request: Mapping[str, Any], kind: str, status: ConditionStatus, reason: str, message: str, now: float
) -> list[Object]:
    """Its conditions with this one set."""
    present = get(request, "status", "conditions") or ()
    generation = int(get(request, "metadata", "generation") or 0)
    return set_condition(present, kind, status, reason, message, now, generation)
