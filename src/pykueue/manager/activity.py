"""Whether a queue takes part: the condition Active of ClusterQueues and LocalQueues and its reason.

Source: reference/kueue-semantics.md 3.9, reference/kueue-api.md 1.3 and 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pykueue.jobs.objects import Object, get

from .queue_parts import check_names, check_rules, flavor_names, topology_name

Lookup = Callable[[str], Object | None]

MULTI_KUEUE = "kueue.x-k8s.io/multikueue"
PROVISIONING = "kueue.x-k8s.io/provisioning-request"


class Activity(NamedTuple):
    """The condition Active."""

    active: bool
    reason: str
    message: str


READY_MESSAGE = "Can admit new workloads"


def cluster_queue_activity(
    queue: Mapping[str, Any], flavor: Lookup, check: Lookup, topology: Lookup
) -> Activity:
    """Active is False when any of these holds; the first gives the reason, all of them the message."""
    causes: list[tuple[str, str]] = []
    if get(queue, "metadata", "deletionTimestamp"):
        causes.append(("Terminating", "the ClusterQueue is being deleted"))
    if (get(queue, "spec", "stopPolicy") or "None") != "None":
        causes.append(("Stopped", "it is stopped"))
    flavors = {name: flavor(name) for name in flavor_names(queue)}
    if missing := [name for name, found in flavors.items() if found is None]:
        causes.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {', '.join(missing)}"))
    causes.extend(_check_causes(queue, check))
    topologies = {topology_name(found) for found in flavors.values() if found is not None} - {""}
    if missing := sorted(name for name in topologies if topology(name) is None):
        causes.append(("TopologyNotFound", f"references missing Topology(s): {', '.join(missing)}"))
    if not causes:
        return Activity(True, "Ready", READY_MESSAGE)
    texts = "; ".join(text for _, text in causes)
    return Activity(False, causes[0][0], f"Can't admit new workloads: {texts}")


def _check_causes(queue: Mapping[str, Any], check: Lookup) -> list[tuple[str, str]]:
    causes: list[tuple[str, str]] = []
    checks = {name: check(name) for name in check_names(queue)}
    if missing := [name for name, found in checks.items() if found is None]:
        causes.append(
            ("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {', '.join(missing)}")
        )
    inactive = [name for name, found in checks.items() if found is not None and not _is_active(found)]
    if inactive:
        causes.append(
            ("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {', '.join(inactive)}")
        )
    controllers = {name: get(found, "spec", "controllerName") for name, found in checks.items() if found}
    multi = [name for name, controller in controllers.items() if controller == MULTI_KUEUE]
    if len(multi) > 1:
        causes.append(
            ("MultipleMultiKueueAdmissionChecks", f"uses more than one MultiKueue check: {', '.join(multi)}")
        )
    per_flavor = [
        str(rule.get("name"))
        for rule in check_rules(queue)
        if rule.get("name") in multi and rule.get("onFlavors")
    ]
    if per_flavor:
        causes.append(
            (
                "MultiKueueAdmissionCheckAppliedPerFlavor",
                f"applies MultiKueue checks to single flavors: {', '.join(per_flavor)}",
            )
        )
    provisioning = [name for name, controller in controllers.items() if controller == PROVISIONING]
    if multi and provisioning:
        causes.append(
            (
                "MultiKueueWithProvisioningRequest",
                f"combines MultiKueue with provisioning: {', '.join([*multi, *provisioning])}",
            )
        )
    return causes


def _is_active(check: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "Active" and condition.get("status") == "True"
        for condition in get(check, "status", "conditions") or ()
    )


def local_queue_activity(queue: Mapping[str, Any], cluster_queue: Activity | None) -> Activity:
    """`cluster_queue` is that of the ClusterQueue it leads to; None where there is none."""
    if (get(queue, "spec", "stopPolicy") or "None") != "None":
        return Activity(False, "Stopped", "LocalQueue is stopped")
    if cluster_queue is None:
        return Activity(
            False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue: it doesn't exist"
        )
    if not cluster_queue.active:
        return Activity(
            False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue: it is inactive"
        )
    return Activity(True, "Ready", "Can submit new workloads to localQueue")
