"""What a simulated node's kubelet says of its node: conditions, addresses, versions, heartbeats."""

from __future__ import annotations

from typing import Any

from pykueue.api.times import format_micro_time, format_time
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.resources import LEASES, NODES

Object = dict[str, Any]

KUBELET_VERSION = "v1.32.5"
LEASE_NAMESPACE = "kube-node-lease"
#: Seconds after which a missing heartbeat counts.
LEASE_DURATION = 40

_LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_CONDITIONS = (
    *((kind, "False", reason, message) for kind, reason, message in _PRESSURES),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def internal_address(node: Object) -> str:
    """The address the node's status gives, or ""."""
    for one in (node.get("status") or {}).get("addresses") or ():
        if one.get("type") == "InternalIP":
            return str(one.get("address") or "")
    return ""


async def register(client: Client, node: Object, address: str, now: float) -> Object | None:
    """Bring the node's labels and status to what a healthy kubelet says; the node as written, if it was.

    A Ready condition that somebody else set (any reason but the kubelet's) stays as it is.
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
    wanted = _status(status, name, address, now)
    if wanted != status:
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": wanted}
        written = await client.patch(NODES, name, None, patch, subresource="status")
    return written


def _status(status: Object, name: str, address: str, now: float) -> Object:
    stamp = format_time(now)
    conditions = list(status.get("conditions") or ())
    present = {one.get("type") for one in conditions}
    for kind, value, reason, message in _CONDITIONS:
        if kind not in present:
            conditions.append(
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": stamp,
                    "lastTransitionTime": stamp,
                }
            )
    new = {**status, "conditions": conditions}
    if not internal_address({"status": status}):
        given = [one for one in status.get("addresses") or () if one.get("type") != "InternalIP"]
        if not any(one.get("type") == "Hostname" for one in given):
            given.append({"type": "Hostname", "address": name})
        new["addresses"] = [{"type": "InternalIP", "address": address}, *given]
    info = status.get("nodeInfo") or {}
    if not info.get("kubeletVersion"):
        new["nodeInfo"] = _node_info(name) | {key: value for key, value in info.items() if value}
    if status.get("allocatable") and not status.get("capacity"):
        new["capacity"] = status["allocatable"]
    return new


def _node_info(name: str) -> Object:
    return {
        "architecture": "amd64",
        "bootID": "",
        "containerRuntimeVersion": "sim://1.0.0",
        "kernelVersion": "simulated",
        "kubeProxyVersion": KUBELET_VERSION,
        "kubeletVersion": KUBELET_VERSION,
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": "pykueue simulated node",
        "systemUUID": name,
    }


async def beat(client: Client, node: str, now: float) -> None:
    """Renew the node's Lease, creating it the first time."""
    renewed = format_micro_time(now)
    try:
        await client.patch(LEASES, node, LEASE_NAMESPACE, {"spec": {"renewTime": renewed}})
    except ApiError as error:
        if not error.not_found:
            raise
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": node, "namespace": LEASE_NAMESPACE},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_DURATION, "renewTime": renewed},
        }
        await client.create(LEASES, lease)
