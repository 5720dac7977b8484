"""What a node's kubelet says of its node: conditions, addresses, versions, Leases.

Leases are renewed four times in the time they last, as on any cluster. Those of a cluster last 40 s; ours
last a day, as 10 000 nodes would otherwise keep an idle machine busy with saying that nothing happened. What
is lost by it is nothing: an agent that knows when its node fails shortens the Lease to the usual time in
its last renewal, and from there on everything runs as on a cluster.
"""

from __future__ import annotations

import os
from typing import Any

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, true_condition
from pykueue.api.resources import LEASES, NODES
from pykueue.api.times import format_micro_time, format_time, parse_time
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

KUBELET_VERSION = "v1.32.5"
#: Annotation of a Node: "process" when its containers are processes of this machine.
RUNTIME = "pykueue.io/runtime"
LEASE_NAMESPACE = "kube-node-lease"
#: Seconds that the Lease of a node lasts, and the last Lease of one that is about to stop reporting.
LEASE_DURATION = 86400
LAST_LEASE_DURATION = 40

_LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_READY = ("KubeletReady", "kubelet is posting ready status")
_NOT_READY = "KubeletNotReady"
#: Reasons of conditions that are the kubelet's to change: its own, and those of its silence.
_OURS = {
    *(reason for _, reason, _ in _PRESSURES),
    _READY[0],
    _NOT_READY,
    "NodeStatusUnknown",
    "NodeStatusNeverUpdated",
}


def internal_address(node: Object) -> str:
    """The address the node's status gives, or ""."""
    for one in (node.get("status") or {}).get("addresses") or ():
        if one.get("type") == "InternalIP":
            return str(one.get("address") or "")
    return ""


def has_condition(node: Object, kind: str) -> bool:
    """Whether the node's status says anything of that condition."""
    return any(one.get("type") == kind for one in (node.get("status") or {}).get("conditions") or ())


def is_ready(node: Object) -> bool:
    """Whether the node's condition Ready is True."""
    return true_condition(node.get("status"), "Ready") is not None


def runs_processes(node: Object) -> bool:
    """Whether the node's containers are processes of this machine, and not simulated."""
    return (node["metadata"].get("annotations") or {}).get(RUNTIME) == "process"


async def register(
    client: Client, node: Object, address: str, now: float, *, trouble: str = ""
) -> Object | None:
    """Bring the node's labels and status to what its kubelet says; the node as written, if it was.

    `trouble` is why the node is not ready, if it is not. A condition that another client set (any reason but
    a kubelet's) stays as it is.
    """
    metadata, status = node["metadata"], node.get("status") or {}
    name = metadata["name"]
    written: Object | None = None
    labels = metadata.get("labels") or {}
    missing = {
        key: value for key, value in {"kubernetes.io/hostname": name, **_LABELS}.items() if key not in labels
    }
    if missing:
        written = await client.patch(NODES, name, None, {"metadata": {"labels": missing}})
        metadata = written["metadata"]
    wanted = _status(node, address, now, trouble)
    if wanted != status:
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": wanted}
        written = await client.patch(NODES, name, None, patch, subresource="status")
    return written


def _status(node: Object, address: str, now: float, trouble: str) -> Object:
    status, name = node.get("status") or {}, node["metadata"]["name"]
    new = {**status, "conditions": _conditions(status.get("conditions") or (), now, trouble)}
    if not internal_address({"status": status}):
        given = [one for one in status.get("addresses") or () if one.get("type") != "InternalIP"]
        if not any(one.get("type") == "Hostname" for one in given):
            given.append({"type": "Hostname", "address": name})
        new["addresses"] = [{"type": "InternalIP", "address": address}, *given]
    info = status.get("nodeInfo") or {}
    if not info.get("kubeletVersion"):
        new["nodeInfo"] = _node_info(node) | {key: value for key, value in info.items() if value}
    if status.get("allocatable") and not status.get("capacity"):
        new["capacity"] = status["allocatable"]
    return new


def _conditions(shown: Any, now: float, trouble: str) -> list[Object]:
    ready = ("Ready", "False", _NOT_READY, trouble) if trouble else ("Ready", "True", *_READY)
    wanted = [*((kind, "False", reason, message) for kind, reason, message in _PRESSURES), ready]
    known = {one.get("type"): one for one in shown}
    conditions: list[Object] = list(shown)
    for kind, status, reason, message in wanted:
        old = known.get(kind)
        has = old is not None and [old.get("status"), old.get("reason"), old.get("message")]
        if old is None or (has != [status, reason, message] and old.get("reason") in _OURS):
            conditions = set_condition(
                conditions, kind, status, reason, message, now, lastHeartbeatTime=format_time(now)
            )
    return conditions


def _node_info(node: Object) -> Object:
    name = node["metadata"]["name"]
    real = runs_processes(node)
    return {
        "architecture": "amd64",
        "bootID": "",
        "containerRuntimeVersion": "process://1.0.0" if real else "sim://1.0.0",
        "kernelVersion": os.uname().release if real else "simulated",
        "kubeProxyVersion": KUBELET_VERSION,
        "kubeletVersion": KUBELET_VERSION,
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": f"pykueue {'process' if real else 'simulated'} node",
        "systemUUID": name,
    }


async def renew(client: Client, node: Object, lease: Object | None, now: float, duration: int) -> float:
    """See to it that the node's Lease holds for `duration` seconds; seconds until it wants that again.

    `lease` is the Lease as far as it is known.
    """
    metadata = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
    if lease is not None:
        spec = lease.get("spec") or {}
        # A time of renewal in the future was written before the wall clock was set back.
        left = min(_renewed(spec), now) + duration / 4 - now
        owned = lease["metadata"].get("ownerReferences") == [owner]
        if left > 0 and owned and spec.get("leaseDurationSeconds") == duration:
            return left
    spec = {
        "holderIdentity": metadata["name"],
        "leaseDurationSeconds": duration,
        "renewTime": format_micro_time(now),
    }
    change = {"metadata": {"ownerReferences": [owner]}, "spec": spec}
    try:
        await client.patch(LEASES, metadata["name"], LEASE_NAMESPACE, change)
    except ApiError as error:
        if not error.not_found:
            raise
        names = {"name": metadata["name"], "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        new = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": names, "spec": spec}
        await client.create(LEASES, new)
    return duration / 4


def _renewed(lease: Object) -> float:
    return parse_time(lease["renewTime"]) if lease.get("renewTime") else 0.0
