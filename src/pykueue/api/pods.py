"""What a Pod and its status say (docs/reference/cluster-workloads.md 1.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .objects import Object, get, replaced, true_condition

#: Selects, by their fields, pods that have not ended.
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
#: Fields of a pod spec that decide where and whether a pod fits, besides its containers
#: (docs/reference/kueue-semantics.md 4.7).
CLASS_FIELDS: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
    "resources",
)


def phase(pod: Mapping[str, Any]) -> str:
    """`status.phase`; empty before it has one."""
    # Asked for several times at every event of a pod: hence no helper.
    status = pod.get("status")
    return str(status.get("phase") or "") if status.__class__ is dict else ""


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """Whether it has terminated: succeeded or failed."""
    return phase(pod) in ("Succeeded", "Failed")


def has_gate(pod: Mapping[str, Any], name: str) -> bool:
    """Whether it has the scheduling gate of this name."""
    return {"name": name} in (get(pod, "spec", "schedulingGates") or ())


def without_gate(pod: Mapping[str, Any], name: str) -> Object:
    """The pod without the scheduling gate of this name."""
    gates = [gate for gate in get(pod, "spec", "schedulingGates") or () if gate != {"name": name}]
    return replaced(pod, ("spec", "schedulingGates"), gates or None)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether its condition Ready is True."""
    return true_condition(pod.get("status"), "Ready") is not None
