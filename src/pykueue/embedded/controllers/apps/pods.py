"""What the serving controllers read from pods, and how they make new ones from a template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pykueue.api.objects import Object, is_deleting, true_condition
from pykueue.api.pods import is_ready, is_terminal, phase
from pykueue.api.times import parse_time

#: Pods whose deletion costs less go first; a whole number, 0 where there is none.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PHASE_RANK = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}


def active_pods(pods: Iterable[Object]) -> list[Object]:
    """Those that run, or are to."""
    return [pod for pod in pods if not is_terminal(pod) and not is_deleting(pod)]


def ready_since(pod: Object) -> float:
    """When the pod became ready, in seconds since 1970; 0 while it is not."""
    stamp = (true_condition(pod.get("status"), "Ready") or {}).get("lastTransitionTime")
    return parse_time(stamp) if stamp else 0.0


def until_available(pod: Object, min_ready_seconds: int, now: float) -> float | None:
    """Seconds until the pod counts as available: 0 if it does, None while it is not ready."""
    if not is_ready(pod):
        return None
    return max(0.0, ready_since(pod) + min_ready_seconds - now) if min_ready_seconds else 0.0


def removal_order(pods: list[Object]) -> list[Object]:
    """Active pods of which some must go, those that go first at the front.

    First those without a node, then by phase, not ready ones, cheap ones by their annotation, those whose
    node has more of them, the most recently ready, those restarted more often, the newest.
    """
    per_node = Counter(pod["spec"].get("nodeName") for pod in pods)

    def key(pod: Object) -> tuple[Any, ...]:
        node = pod["spec"].get("nodeName")
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        restarts = max((int(one.get("restartCount") or 0) for one in statuses), default=0)
        return (
            bool(node),
            _PHASE_RANK.get(phase(pod), 0),
            is_ready(pod),
            _deletion_cost(pod),
            -per_node[node],
            -ready_since(pod),
            -restarts,
            -parse_time(pod["metadata"]["creationTimestamp"]),
            pod["metadata"]["name"],
        )

    return sorted(pods, key=key)


def _deletion_cost(pod: Object) -> int:
    try:
        return int((pod["metadata"].get("annotations") or {}).get(DELETION_COST) or 0)
    except ValueError:
        return 0


def from_template(template: Object, namespace: str, owner: Object, **metadata: Any) -> Object:
    """A pod of the template; `metadata` names it, with `labels` that are added to the template's."""
    given = template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), **metadata.pop("labels", {})}
    annotations = given.get("annotations")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "namespace": namespace,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            **({"finalizers": given["finalizers"]} if given.get("finalizers") else {}),
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }
