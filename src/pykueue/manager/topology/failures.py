"""Notices failed nodes: Workloads with pods assigned to them get other nodes, or are evicted.

A host that failed for a Workload is listed in `status.unhealthyNodes`; the scheduler then assigns another one
in a second pass. A second host that fails meanwhile evicts the Workload. Everything follows from the nodes,
the pods on them and the assignments as they are. Source: docs/reference/topology-aware-scheduling.md 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.meta import parse_time, set_condition
from pykueue.api.objects import (
    Key,
    Object,
    condition_of,
    get,
    is_deleting,
    key_of,
    replaced,
    true_condition,
)
from pykueue.api.variants import GATE as VARIANTS_GATE
from pykueue.api.variants import has_variants
from pykueue.clock import Clock
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.nodes.assignments import assigned_hosts, is_placed, unhealthy_nodes
from pykueue.manager.nodes.outlines import (
    hostname,
    is_placed_by_topology,
    is_topology_gated,
    pinned_host,
    slice_name,
)
from pykueue.manager.nodes.tolerance import Tolerance, tolerance
from pykueue.manager.workloads import transitions
from pykueue.manager.writes import Writer

#: Seconds after which a node that is not ready has failed, where pods are not waited for.
NOT_READY_SECONDS = 30.0
#: Seconds in which changes of the pods of one node are collected.
_BATCH = 0.1
#: The eviction reason of Workloads whose nodes failed.
NODE_FAILURES = "NodeFailures"
_TERMINATED = "TerminatedByKueue"
_UNSCHEDULABLE = "UnschedulableOnAssignedNode"
_UNSCHEDULABLE_TEXT = "The pod waits for a node that failed or that its workload is not assigned to any more"


class NodeFailures:
    """Reconciles hosts: which Workloads have to leave them."""

    def __init__(
        self, cluster: Cluster, writer: Writer, recorder: EventRecorder, clock: Clock, workers: int
    ) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        gates = cluster.configuration.gates
        self._awaits_pods = gates["TASReplaceNodeOnPodTermination"]
        self._by_taints = gates["TASReplaceNodeOnNodeTaints"]
        self._by_time = gates["TASReplaceNodeDueToNotReadyOverFixedTime"]
        self._has_variants = gates[VARIANTS_GATE]
        self.controller: Controller[str] = Controller(
            "node failures",
            self.reconcile,
            clock=clock,
            workers=workers,
            wait_for=[cluster.synced, cluster.nodes.synced],
        )
        cluster.nodes.on_node_event(self._node_changed)
        cluster.nodes.on_pod_event(self._pod_changed)
        cluster.workloads.on_event(self._workload_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # What leads to work

    def _node_changed(self, type_: str, old: Any, new: Any) -> None:
        if old is None or new is None or _health(old) != _health(new) or hostname(old) != hostname(new):
            for node in (old, new):
                if node is not None:
                    self.controller.queue.add(hostname(node))

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        """A pod that left its node may have been the last; one that is pinned to a failed host is stuck."""
        pod = old if new is None else new
        if not is_placed_by_topology(pod):
            return
        bound = str(get(pod, "spec", "nodeName") or "")
        if bound and (new is None or is_deleting(pod)):
            self.controller.queue.add_after(self._host_of_node(bound), _BATCH)
        elif not bound and (host := pinned_host(pod)):
            self.controller.queue.add_after(host, _BATCH)

    def _host_of_node(self, name: str) -> str:
        node = self._nodes.nodes.get("", name) if self._nodes.nodes is not None else None
        return hostname(node) if node is not None else name

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        """A new assignment may name a host that has failed, and pods may wait for a host of the old one."""
        if new is None or not is_placed(new):
            return
        before = get(old or {}, "status", "admission"), is_placed(old or {})
        if before == (get(new, "status", "admission"), True):
            return
        hosts = dict.fromkeys(assigned_hosts(new))
        left = [host for host in assigned_hosts(old or {}) if host not in hosts]
        for host in (*left, *(host for host in hosts if not self._is_sound(host))):
            self.controller.queue.add_after(host, _BATCH)

    def _is_sound(self, host: str) -> bool:
        nodes = self._nodes.nodes_of_host(host)
        return bool(nodes) and all(_is_ready(node) and not _taints(node) for node in nodes)

    # The work

    async def reconcile(self, host: str) -> float | None:
        """Bring the Workloads with pods on a host up to date; returns when to look again, in seconds."""
        await self._nodes.synced()
        keys = {key_of(workload) for workload in self._cluster.workloads.by_index("host", host)}
        pinned: dict[Key, list[Object]] = {}
        for pod in self._nodes.pods_of_host(host):
            pinned.setdefault((pod["metadata"].get("namespace") or "", slice_name(pod)), []).append(pod)
        again: list[float] = []
        for key in sorted(keys):
            workload = self._cluster.workload(key)
            if workload is None or (self._has_variants and has_variants(workload)):
                continue  # of a parent its admitted variant is marked
            failed = self._has_failed(host, workload, pinned.get((key[0], slice_name(workload)), []))
            if isinstance(failed, float):
                again.append(failed)
            else:
                await self._mark(key, host, failed)
        for (namespace, name), pods in sorted(pinned.items()):
            await self._end_stuck(host, namespace, name, pods)
        return min(again, default=None)

    def _has_failed(self, host: str, workload: Object, pods: list[Object]) -> bool | float:
        """Whether the host has failed for a Workload; or after how many seconds it will have (15.2)."""
        nodes = self._nodes.nodes_of_host(host)
        if all(_ready(node) is None for node in nodes):
            return True  # deleted, or never seen by its kubelet
        gone = not any(map(_progresses, pods))
        if not any(map(_is_ready, nodes)):
            left = min(self._until_failed(node) for node in nodes)
            if self._awaits_pods and not self._by_time:
                return gone
            if left <= 0 or (self._awaits_pods and gone):
                return True
            return left
        if not self._by_taints:
            return False
        worst = max((self._tolerance(workload, host, node) for node in nodes), default=Tolerance.FOREVER)
        if worst is Tolerance.FOREVER:
            return False
        return gone or (worst is Tolerance.NONE and not self._awaits_pods)

    def _until_failed(self, node: Mapping[str, Any]) -> float:
        condition = _ready(node) or {}
        since = condition.get("lastTransitionTime")
        return NOT_READY_SECONDS - (self._clock.time() - parse_time(since)) if since else 0.0

    def _tolerance(self, workload: Object, host: str, node: Mapping[str, Any]) -> Tolerance:
        flavors = self._cluster.flavors
        return tolerance(workload, host, _taints(node), lambda name: flavors.get("", name))

    async def _mark(self, key: Key, host: str, failed: bool) -> None:
        """List the host with the Workload, or no longer; evict the Workload if another host is listed."""
        evictions: list[str] = []

        def step(workload: Object) -> Object | None:
            evictions.clear()
            listed = unhealthy_nodes(workload)
            if not failed:
                left = [{"name": name} for name in listed if name != host]
                return replaced(workload, ("status", "unhealthyNodes"), left or None)
            if host in listed or host not in assigned_hosts(workload):
                return None
            if not listed:
                return replaced(workload, ("status", "unhealthyNodes"), [{"name": host}])
            evictions.append(f"Several assigned nodes failed: {', '.join([*listed, host])}")
            return transitions.evicted(workload, NODE_FAILURES, evictions[0], self._clock.time())

        known = self._cluster.workload(key)
        if known is None or step(known) in (None, known):
            return
        written = await self._writer.update(self._cluster.workloads, key, step)
        if written is not None and evictions:
            self._recorder.event(written, NORMAL, f"EvictedDueTo{NODE_FAILURES}", evictions[0])

    async def _end_stuck(self, host: str, namespace: str, name: str, pods: list[Object]) -> None:
        """End the pods that are pinned to the host and cannot be bound, so that their job replaces them."""
        stuck = [pod for pod in pods if _waits_for(pod, host)]
        for pod in stuck:
            key = (namespace, str(get(pod, "metadata", "annotations", names.WORKLOAD_ANNOTATION) or name))
            workload = self._cluster.workload(key)
            if workload is None or not is_placed(workload):
                continue
            assigned = host in assigned_hosts(workload)
            if assigned and host not in unhealthy_nodes(workload):
                continue
            await self._end(pod)

    async def _end(self, pod: Object) -> None:
        assert self._nodes.pods is not None
        # The outline has no conditions: the patch replaces those of the pod as it is.
        stored = await self._cluster.connection.client.get(
            self._nodes.pods.resource, pod["metadata"]["name"], pod["metadata"].get("namespace")
        )
        if get(stored, "spec", "nodeName") or stored["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        present = get(stored, "status", "conditions") or ()
        changed = set_condition(
            present, _TERMINATED, "True", _UNSCHEDULABLE, _UNSCHEDULABLE_TEXT, self._clock.time()
        )
        desired = replaced(stored, ("status", "conditions"), changed)
        desired = replaced(desired, ("status", "phase"), "Failed")
        try:
            written = await self._writer.change(self._nodes.pods, stored, desired, "status")
        except ApiError as error:
            if error.not_found:
                return
            raise
        self._recorder.event(written, NORMAL, "PodTerminatedByKueue", _UNSCHEDULABLE_TEXT)


def _ready(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return condition_of(node.get("status"), "Ready")


def _is_ready(node: Mapping[str, Any]) -> bool:
    return true_condition(node.get("status"), "Ready") is not None


def _taints(node: Mapping[str, Any]) -> list[Object]:
    """The taints that keep pods off the node."""
    taints = get(node, "spec", "taints") or ()
    return [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]


def _health(node: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a node decides whether it has failed."""
    return (_ready(node), _taints(node))


def _progresses(pod: Mapping[str, Any]) -> bool:
    """Whether a pod that has not terminated is on a node and stays there."""
    return bool(get(pod, "spec", "nodeName")) and not is_deleting(pod)


def _waits_for(pod: Mapping[str, Any], host: str) -> bool:
    """Whether the pod may be bound to this host alone, and is not."""
    return (
        pinned_host(pod) == host
        and not get(pod, "spec", "nodeName")
        and not is_topology_gated(pod)
        and not is_deleting(pod)
        and get(pod, "status", "phase") in ("Pending", None)
    )
