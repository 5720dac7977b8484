"""Priority: a pod's priority and preemption policy come from its PriorityClass, never from the pod itself."""

from __future__ import annotations

from pykueue.api.objects import Object
from pykueue.embedded.admission.contract import Lookup, pod_refused
from pykueue.embedded.objects.errors import forbidden_request

GROUP, PLURAL = "scheduling.k8s.io", "priorityclasses"

_PREEMPT = "PreemptLowerPriority"

#: The classes every cluster has: value and what for.
SYSTEM_CLASSES = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if "
        "necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}


def system_classes() -> list[Object]:
    """The PriorityClasses every cluster starts with."""
    return [
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
        }
        for name, (value, description) in SYSTEM_CLASSES.items()
    ]


def _default_class(lookup: Lookup) -> Object | None:
    """The lowest of the classes marked as global default; there should be one at most."""
    marked = [one for one in lookup.all(GROUP, PLURAL) if one.get("globalDefault")]
    return min(marked, key=lambda one: int(one.get("value") or 0), default=None)


def resolve_priority(pod: Object, lookup: Lookup) -> Object:
    """The pod with priority and preemption policy. 403 when it names no class or contradicts it."""
    spec = pod["spec"]
    name = spec.get("priorityClassName") or ""
    if name:
        found = lookup.find(GROUP, PLURAL, "", name)
        if found is None:
            raise pod_refused(pod, f"no PriorityClass with name {name} was found")
    else:
        found = _default_class(lookup)
        name = found["metadata"]["name"] if found is not None else ""
    value = int((found or {}).get("value") or 0)
    policy = (found or {}).get("preemptionPolicy") or _PREEMPT
    given = spec.get("priority")
    if given is not None and given != value:
        raise pod_refused(
            pod,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name",
        )
    wanted = spec.get("preemptionPolicy")
    if wanted is not None and wanted != policy:
        raise pod_refused(
            pod,
            f"the string value of PreemptionPolicy ({wanted}) must not be provided in pod spec; priority "
            f"admission controller computed {policy} from the given PriorityClass name",
        )
    resolved = {**spec, "priority": value, "preemptionPolicy": policy}
    if name:
        resolved["priorityClassName"] = name
    return {**pod, "spec": resolved}


def check_only_default(priority_class: Object, lookup: Lookup) -> None:
    """403 for a second global default."""
    if not priority_class.get("globalDefault"):
        return
    name = priority_class["metadata"].get("name") or ""
    for other in lookup.all(GROUP, PLURAL):
        if other.get("globalDefault") and other["metadata"]["name"] != name:
            raise forbidden_request(
                GROUP,
                PLURAL,
                name,
                f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default "
                "can exist",
            )
