"""Nodes that have stopped reporting, and the taints that follow a node's conditions.

A node reports by renewing its Lease or writing its status. When it does neither for the duration of the
Lease and a little more, its conditions become Unknown. Conditions and cordons become taints; those that
evict come at the pace of the node's zone. Source: docs/reference/cluster-workloads.md, 4.6. Nothing here
polls: a
node is reconciled when it or its Lease changes, and when its time is up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, condition_of, true_condition
from pykueue.api.resources import NODES, PODS
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.embedded.controllers.nodelife.zones import Zones
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.kube.transport import STRATEGIC_PATCH

LEASE_NAMESPACE = "kube-node-lease"
#: Seconds that the Lease of a node lasts when it does not say, and the patience after that.
LEASE_DURATION = 40.0
PATIENCE = 10.0
#: Index of the pods' cache: the name of the node a pod is bound to.
BY_NODE = "node"
WORKERS = 4

_PREFIX = "node.kubernetes.io/"
NOT_READY = _PREFIX + "not-ready"
UNREACHABLE = _PREFIX + "unreachable"
_NO_SCHEDULE, _NO_EXECUTE = "NoSchedule", "NoExecute"
#: Condition -> its value -> the taint that keeps pods away.
_TAINTS = {
    "Ready": {"False": NOT_READY, "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": _PREFIX + "memory-pressure"},
    "DiskPressure": {"True": _PREFIX + "disk-pressure"},
    "PIDPressure": {"True": _PREFIX + "pid-pressure"},
    "NetworkUnavailable": {"True": _PREFIX + "network-unavailable"},
}
_CORDON = _PREFIX + "unschedulable"
_OWN = {_CORDON, *(taint for values in _TAINTS.values() for taint in values.values())}
_EVICTING = (NOT_READY, UNREACHABLE)
#: The conditions that become Unknown on a node that does not report.
_HEALTH = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_STOPPED = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
_NEVER = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
_ZONE_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


class _Heard(NamedTuple):
    """The last sign of life of a node, and when it was seen."""

    uid: str
    sign: tuple[str, str]
    at: float


class NodeMonitor:
    """Keyed by node; run by `run`."""

    def __init__(
        self,
        client: Client,
        nodes: Informer,
        leases: Informer,
        pods: Informer,
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._leases = leases
        self._pods = pods
        self._events = events
        self._clock = clock
        self._zones = Zones()
        self._heard: dict[str, _Heard] = {}
        #: Nodes that say, or of which it is known, that they are not ready.
        self._unready: set[str] = set()
        self._controller: Controller[str] = Controller(
            "node-lifecycle",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[nodes.synced, leases.synced, pods.synced],
        )
        pods.add_index(BY_NODE, lambda pod: [pod["spec"].get("nodeName") or ""])
        nodes.on_event(self._on_node)
        leases.on_event(self._on_lease)
        pods.on_event(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _on_node(self, type_: str, old: Any, new: Any) -> None:
        name = (new or old)["metadata"]["name"]
        if new is None:
            self._heard.pop(name, None)
            self._unready.discard(name)
            repaced = self._zones.remove(name)
            text = f"Node {name} event: Removing Node {name} from Controller"
            self._events.event(old, NORMAL, "RemovingNode", text)
        else:
            ready = _ready(new)
            if ready in ("", "True"):
                self._unready.discard(name)
            else:
                self._unready.add(name)
            repaced = self._zones.put(name, _zone(new), ready == "True" if ready else None)
        self._controller.queue.add(name)
        if repaced:
            # Whether and when others may lose their pods depends on how many have failed.
            for other in self._zones.failed:
                self._controller.queue.add(other)

    def _on_lease(self, type_: str, old: Any, new: Any) -> None:
        self._controller.queue.add((new or old)["metadata"]["name"])

    def _on_pod(self, type_: str, old: Any, new: Any) -> None:
        name = new["spec"].get("nodeName") if new is not None else None
        if name in self._unready and _pod_ready(new) is not None:
            self._controller.queue.add(name)

    async def _sync(self, name: str) -> float | None:
        node: Object | None = self._nodes.get(None, name)
        if node is None:
            return None
        left = self._time_left(node)
        if left <= 0:
            node = await self._lose(node)
        again = await self._taint(node)
        if _ready(node) not in ("", "True"):
            await self._fail_pods(name)
        waits = [one for one in (left, again) if one is not None and one > 0]
        return min(waits, default=None)

    # Reports of nodes

    def _time_left(self, node: Object) -> float:
        """Seconds until the node counts as lost, unless it reports."""
        metadata, now = node["metadata"], self._clock.monotonic()
        name = metadata["name"]
        lease = (self._leases.get(LEASE_NAMESPACE, name) or {}).get("spec") or {}
        beat = (condition_of(node.get("status"), "Ready") or {}).get("lastHeartbeatTime") or ""
        sign = (str(lease.get("renewTime") or ""), str(beat))
        heard = self._heard.get(name)
        if heard is None or heard.uid != metadata["uid"] or heard.sign != sign:
            heard = self._heard[name] = _Heard(metadata["uid"], sign, now)
        return heard.at + (lease.get("leaseDurationSeconds") or LEASE_DURATION) + PATIENCE - now

    async def _lose(self, node: Object) -> Object:
        """Say that nothing is known of the node any more."""
        conditions = list((node.get("status") or {}).get("conditions") or ())
        now = self._clock.time()
        for kind in _HEALTH:
            old = condition_of(node.get("status"), kind)
            if old is not None and old.get("status") == "Unknown":
                continue
            reason, message = _NEVER if old is None else _STOPPED
            beat = (
                {"lastHeartbeatTime": old["lastHeartbeatTime"]} if old and "lastHeartbeatTime" in old else {}
            )
            conditions = set_condition(conditions, kind, "Unknown", reason, message, now, **beat)
        if conditions == ((node.get("status") or {}).get("conditions") or []):
            return node
        metadata = node["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"conditions": conditions},
        }
        written = await self._client.patch(NODES, metadata["name"], None, patch, subresource="status")
        self._nodes.note(written)
        if _ready(node) == "True":
            text = f"Node {metadata['name']} status is now: NodeNotReady"
            self._events.event(node, NORMAL, "NodeNotReady", text)
        return written

    # Taints

    async def _taint(self, node: Object) -> float | None:
        """Bring the taints to what the conditions say; seconds after which there may be more to do."""
        metadata, spec = node["metadata"], node.get("spec") or {}
        shown = list(spec.get("taints") or ())
        stamp = format_time(self._clock.time())
        wanted = {(key, _NO_SCHEDULE) for key in _kept_away(node)}
        evicting, again = self._evicting(node, shown)
        if evicting:
            wanted.add((evicting, _NO_EXECUTE))
        taints = [one for one in shown if not _is_own(one) or (one["key"], one["effect"]) in wanted]
        present = {(one["key"], one["effect"]) for one in taints}
        taints += [
            {"key": key, "effect": effect, "timeAdded": stamp} for key, effect in sorted(wanted - present)
        ]
        if taints != shown:
            patch = {
                "metadata": {"resourceVersion": metadata["resourceVersion"]},
                "spec": {"taints": taints or None},
            }
            self._nodes.note(await self._client.patch(NODES, metadata["name"], None, patch))
        return again

    def _evicting(self, node: Object, shown: list[Object]) -> tuple[str, float | None]:
        """The taint by which the node is to lose its pods, or ""; when to ask again if it is not its turn."""
        key = _TAINTS["Ready"].get(_ready(node), "")
        if not key or self._zones.all_failed:
            return "", None
        if any(one["key"] in _EVICTING and one["effect"] == _NO_EXECUTE for one in shown):
            return key, None
        wait = self._zones.turn(_zone(node), self._clock.monotonic())
        return (key, None) if wait == 0 else ("", wait)

    # Pods

    async def _fail_pods(self, name: str) -> None:
        """Set Ready=False on the pods of a node that is not ready."""
        stamp = format_time(self._clock.time())
        for pod in self._pods.by_index(BY_NODE, name):
            ready = _pod_ready(pod)
            if ready is None:
                continue
            metadata = pod["metadata"]
            change = {
                "metadata": {"uid": metadata["uid"]},
                "status": {"conditions": [{**ready, "status": "False", "lastTransitionTime": stamp}]},
            }
            try:
                written = await self._client.patch(
                    PODS,
                    metadata["name"],
                    metadata["namespace"],
                    change,
                    content_type=STRATEGIC_PATCH,
                    subresource="status",
                )
            except ApiError as error:
                if not error.not_found and not error.conflict:
                    raise
                continue
            self._pods.note(written)
            self._events.event(pod, WARNING, "NodeNotReady", "Node is not ready")


def _ready(node: Object) -> str:
    """The value of the node's condition Ready; "" where it has none yet."""
    return str((condition_of(node.get("status"), "Ready") or {}).get("status") or "")


def _pod_ready(pod: Object) -> Object | None:
    """The condition by which the pod is ready, if it is."""
    return true_condition(pod.get("status"), "Ready")


def _kept_away(node: Object) -> list[str]:
    """The taints that the node's conditions and its cordon stand for."""
    keys = [_CORDON] if (node.get("spec") or {}).get("unschedulable") else []
    for one in (node.get("status") or {}).get("conditions") or ():
        key = _TAINTS.get(one.get("type") or "", {}).get(one.get("status") or "")
        if key:
            keys.append(key)
    return keys


def _is_own(taint: Object) -> bool:
    """Whether the taint follows from conditions; the evicting ones are those of Ready alone."""
    if taint.get("effect") == _NO_EXECUTE:
        return taint.get("key") in _EVICTING
    return taint.get("effect") == _NO_SCHEDULE and taint.get("key") in _OWN


def _zone(node: Object) -> tuple[str, ...]:
    labels = node["metadata"].get("labels") or {}
    return tuple(labels.get(key) or "" for key in _ZONE_LABELS)
