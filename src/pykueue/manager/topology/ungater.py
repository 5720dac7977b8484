"""Lets pods go to the domains of their Workload's topology assignment, or to the flavors of its parts.

A pod of a placed pod set waits by a scheduling gate, which is removed in the write that pins the pod to its
domain. All that is needed is in the API: which pods run where, and which domains the Workload has. Source:
docs/reference/topology-aware-scheduling.md 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pykueue.api import conditions
from pykueue.api.decoding import decode_as
from pykueue.api.hybrid import parts_in
from pykueue.api.hybrid_losses import loss_policy, lost_flavors
from pykueue.api.kueue import Admission, PodSet, names
from pykueue.api.kueue.names import FLAVOR_LABEL
from pykueue.api.objects import Key, Object, get, key_of, labels_of, replaced, section
from pykueue.api.pods import without_gate
from pykueue.api.topologies import HOSTNAME
from pykueue.clock import Clock
from pykueue.jobs.podsets import PodSetInfo, injected
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.metrics import Metrics
from pykueue.manager.nodes.assignments import is_placed, pod_set_assignments, unhealthy_nodes
from pykueue.manager.nodes.outlines import is_topology_gated, slice_keys, slice_name
from pykueue.manager.writes import UnansweredWrites, Writer, write_each

from .losses import Losses
from .ranks import Placement, placements, spans

#: Pods ungated at the same time.
_AT_ONCE = 8
#: Seconds in which changes of pods of one Workload are collected.
_BATCH = 0.1


class Ungater:
    """Reconciles the pods of admitted Workloads that have a topology assignment."""

    def __init__(
        self,
        cluster: Cluster,
        writer: Writer,
        recorder: EventRecorder,
        metrics: Metrics,
        clock: Clock,
        workers: int,
    ) -> None:
        self._cluster = cluster
        self._losses = Losses(cluster, writer, recorder, clock)
        self._nodes = cluster.nodes
        #: Removals of gates, by Workload.
        self._ungating: UnansweredWrites[Key] = UnansweredWrites(writer)
        self._metrics = metrics
        self._clock = clock
        self.controller: Controller[Key] = Controller(
            "topology ungater",
            self.reconcile,
            clock=clock,
            workers=workers,
            wait_for=[cluster.synced, cluster.nodes.synced],
        )
        cluster.workloads.on_event(self._workload_changed)
        cluster.nodes.on_pod_event(self._pod_changed)
        cluster.cluster_queues.on_event(self._queue_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and is_placed(new) and (old is None or _placement(old) != _placement(new)):
            if self._nodes.pods is None and _is_split(new):
                self._nodes.watch_pods()
            self.controller.queue.add(key_of(new))

    def _queue_changed(self, type_: str, old: Any, new: Any) -> None:
        if self._nodes.pods is None or loss_policy(old) == loss_policy(new):
            return
        name = (old if new is None else new)["metadata"]["name"]
        for workload in self._cluster.workloads.list():
            if conditions.cluster_queue(workload) == name and _is_split(workload):
                self.controller.queue.add(key_of(workload))

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        # Pods of an elastic job have the name of its first slice; which slice has their domains changes.
        for key in slice_keys(old if new is None else new):
            for workload in self._cluster.workloads_of_slice(key):
                self.controller.queue.add_after(key_of(workload), _BATCH)

    async def reconcile(self, key: Key) -> float | None:
        """Ungate the pods of one Workload that have a domain."""
        await self._nodes.synced()
        if self._nodes.pods is None:
            return None
        await self._ungating.learn_outcomes(key, self._nodes.pods)
        workload = self._cluster.workload(key)
        if workload is None or not is_placed(workload):
            return None
        again: float | None = None
        if _is_split(workload):
            again = await self._losses.settle(key, workload)
            workload = self._cluster.workload(key)
            if workload is None or not is_placed(workload):
                return None
        await write_each(self._placements(workload), partial(self._ungate, key, workload), _AT_ONCE)
        return again

    def _placements(self, workload: Object) -> list[Placement]:
        pods = self._nodes.pods_of_slice((workload["metadata"].get("namespace") or "", slice_name(workload)))
        if not any(map(is_topology_gated, pods)):
            return []
        admission = decode_as(Admission, get(workload, "status", "admission"))
        pod_sets = [decode_as(PodSet, one) for one in get(workload, "spec", "podSets") or ()]
        by_name = {each.name: each for each in pod_sets}
        indexes = spans(pod_sets, admission)
        failed, held = set(unhealthy_nodes(workload)), self._losses.holds(workload)
        found: list[Placement] = []
        for given in admission.pod_set_assignments:
            if given.topology_assignment is None or given.name not in by_name:
                continue
            mine = [pod for pod in pods if labels_of(pod).get(names.POD_SET_LABEL) == given.name]
            mine.sort(
                key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), pod["metadata"]["name"])
            )
            found += placements(by_name[given.name], given, indexes[given.name], mine)
        return [
            one
            for one in found
            if one.node_labels.get(HOSTNAME) not in failed and not (one.flavor and held(one.pod, one.flavor))
        ]

    async def _ungate(self, key: Key, workload: Mapping[str, Any], placement: Placement) -> None:
        pod = placement.pod
        desired = without_gate(pod, names.TOPOLOGY_GATE)
        if placement.flavor:
            flavor = self._cluster.flavors.get("", placement.flavor)
            if flavor is None:
                return  # which has a finalizer: it was removed by force, and its node labels are not known
            desired = with_flavor(desired, flavor)
        else:
            selector = {**section(pod, "spec", "nodeSelector"), **placement.node_labels}
            desired = replaced(desired, ("spec", "nodeSelector"), selector)
        assert self._nodes.pods is not None
        try:
            await self._ungating.change(key, self._nodes.pods, pod, desired)
        except ApiError as error:
            if error.not_found:
                return
            raise
        self._metrics.observer.got_domain(workload)


def with_flavor(pod: Object, flavor: Mapping[str, Any]) -> Object:
    """A pod with the node labels and tolerations of its flavor, and a label that names the flavor."""
    info = PodSetInfo("", 1, labels={FLAVOR_LABEL: str(flavor["metadata"]["name"])}).with_flavor(flavor)
    return injected(pod, info)


def _is_split(workload: Mapping[str, Any]) -> bool:
    """Whether the pods of any of its pod sets have several flavors."""
    return any(map(parts_in, pod_set_assignments(workload)))


def _placement(workload: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides about where its pods go."""
    return (
        is_placed(workload),
        get(workload, "status", "admission"),
        get(workload, "status", "unhealthyNodes"),
        conditions.since(workload, conditions.ADMITTED),
        lost_flavors(workload),
    )
