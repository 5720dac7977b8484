"""Nodes: defaults, validation, and the row `kubectl get nodes` prints.

Source: docs/reference/kubernetes-api-machinery.md, 21; the Kubernetes API reference of Node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pykueue.api.objects import Object
from pykueue.api.quantity import QuantityError, parse
from pykueue.embedded.kinds.base import STATUS, Column, Context, Kind
from pykueue.embedded.kinds.podspec import canonical_amounts, changed
from pykueue.embedded.kinds.podvalidation import NOT_NEGATIVE, QUANTITY_RULE, validate_taints
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import Cause, forbidden, invalid

_ROLE = "node-role.kubernetes.io/"
_OLD_ROLE = "kubernetes.io/role"
_NO_NAME = "<none>"
_UNKNOWN = "<unknown>"
#: The fields of `status.nodeInfo` that a node always has.
_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


class Node(Kind):
    """v1 Node."""

    kind = "Node"
    plural = "nodes"
    short_names = ("no",)
    namespaced = False
    has_generation = False
    keeps_status_at_create = True
    zero_status: ClassVar[Object] = {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": dict.fromkeys(_INFO, ""),
    }
    subresources = (STATUS,)
    columns = (
        Column("Name", format="name"),
        Column("Status", description="Whether the node takes pods."),
        Column("Roles", description="The node's roles, from its labels."),
        Column("Age"),
        Column("Version", description="The version of the node's kubelet."),
        Column("Internal-IP", priority=1),
        Column("External-IP", priority=1),
        Column("OS-Image", priority=1),
        Column("Kernel-Version", priority=1),
        Column("Container-Runtime", priority=1),
    )
    field_selectors: Mapping[str, Callable[[Object], str]] = {
        "spec.unschedulable": lambda node: (
            "true" if (node.get("spec") or {}).get("unschedulable") else "false"
        ),
    }

    def default(self, obj: Object) -> Object:
        """Amounts in canonical text; what is allocatable is the capacity unless the node says less."""
        status = obj.get("status")
        if not status:
            return obj
        for key in ("capacity", "allocatable"):
            if status.get(key):
                status = changed(status, key, canonical_amounts(status[key]))
        if status.get("capacity") and not status.get("allocatable"):
            status = {**status, "allocatable": status["capacity"]}
        return changed(obj, "status", status)

    def prepare_create(self, obj: Object, context: Context) -> Object:
        return changed(obj, "spec", obj.get("spec") or {})

    def prepare_status(self, new: Object, old: Object, context: Context) -> Object:
        return self.default(super().prepare_status(new, old, context))

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj.get("spec") or {}
        return validate_taints(spec.get("taints") or (), "spec.taints") + self._amounts(obj)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        after, before = new.get("spec") or {}, old.get("spec") or {}
        return [
            forbidden(f"spec.{field}", "node updates may not change it once it is set")
            for field in ("podCIDR", "providerID")
            if before.get(field) and after.get(field) != before[field]
        ]

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        return self._amounts(new)

    @staticmethod
    def _amounts(obj: Object) -> list[Cause]:
        causes: list[Cause] = []
        status = obj.get("status") or {}
        for key in ("capacity", "allocatable"):
            for name, quantity in (status.get(key) or {}).items():
                path = f"status.{key}[{name}]"
                try:
                    negative = parse(quantity).nanos < 0
                except QuantityError:
                    causes.append(invalid(path, quantity, QUANTITY_RULE))
                    continue
                if negative:
                    causes.append(invalid(path, quantity, NOT_NEGATIVE))
        return causes

    def cells(self, obj: Object, now: float) -> list[Any]:
        status = obj.get("status") or {}
        info = status.get("nodeInfo") or {}
        addresses = {one.get("type"): one.get("address") for one in reversed(status.get("addresses") or [])}
        return [
            obj["metadata"]["name"],
            _status_cell(obj),
            _roles_cell(obj),
            age_cell(obj, now),
            info.get("kubeletVersion") or "",
            addresses.get("InternalIP") or _NO_NAME,
            addresses.get("ExternalIP") or _NO_NAME,
            info.get("osImage") or _UNKNOWN,
            info.get("kernelVersion") or _UNKNOWN,
            info.get("containerRuntimeVersion") or _UNKNOWN,
        ]


def _status_cell(node: Object) -> str:
    ready = "Unknown"
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            ready = "Ready" if condition.get("status") == "True" else "NotReady"
    return ready + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def _roles_cell(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and len(key) > len(_ROLE)}
    if labels.get(_OLD_ROLE):
        roles.add(labels[_OLD_ROLE])
    return ",".join(sorted(roles)) or _NO_NAME
