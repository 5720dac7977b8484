"""Domains for workloads that hold quota already: after admission checks, and in place of failed nodes.

So are flavors for pods that lost theirs (`pod_replacement`).
Such workloads come before all others of a cycle. One that cannot be placed is tried again later, or evicted.
Source of the rules: docs/reference/topology-aware-scheduling.md 13 and 15.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.backoff import exponential_delay
from pykueue.api.kueue.names import IS_GROUP_WORKLOAD_ANNOTATION
from pykueue.engine.cycle.evaluation import Evaluator
from pykueue.engine.cycle.pod_replacement import PodReplacement
from pykueue.engine.decisions import Assign, Decision, Delay, Evict
from pykueue.engine.options import Options
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.state import State
from pykueue.engine.topology.capacity import NodeCapacity
from pykueue.engine.topology.demands import NodeReservation, lost
from pykueue.engine.workload import RESERVED, WorkloadInfo, effective_counts, lacks_pods

#: The longest time between two attempts, in seconds; the first attempts are 2 s, 4 s, ... apart.
DELAY_MAX: Final = 30.0


class SecondPass:
    """The second passes of one cycle."""

    def __init__(self, state: State, nodes: NodeCapacity, evaluator: Evaluator, now: float) -> None:
        self._state = state
        self._nodes = nodes
        self._evaluator = evaluator
        self._options = evaluator.options
        self._now = now
        #: Workloads that got other nodes.
        self.moved: set[WorkloadInfo] = set()
        #: Where pods were before this cycle: they may still be there.
        self._left: list[NodeReservation] = []

    def run(self) -> list[Decision]:
        """Decide about the workloads whose second pass is due."""
        state = self._state
        decisions: list[Decision] = []
        for key, (_, attempts) in sorted(self._due(), key=lambda each: self._rank(each[0])):
            info = state.workloads.get(key)
            if info is None or info.place != RESERVED or info.evicted or not state.needs_second_pass(info):
                state.undo_log.drop(state.second_pass, key)
                continue
            decision = self._decide(info, attempts + 1)
            if isinstance(decision, Delay):
                state.undo_log.put(state.second_pass, key, (decision.until, attempts + 1))
            else:
                state.undo_log.drop(state.second_pass, key)
            decisions.append(decision)
        return decisions

    def _due(self) -> list[tuple[str, tuple[float, int]]]:
        return [each for each in self._state.second_pass.items() if each[1][0] <= self._now]

    def _rank(self, key: str) -> tuple[int, float, float, str]:
        """The order among second passes: as that of other entries."""
        info = self._state.workloads.get(key)
        return (-info.priority, info.timestamp, info.created, key) if info is not None else (0, 0.0, 0.0, key)

    def end(self) -> None:
        """The cycle is over: domains that pods left are free."""
        for left in self._left:
            self._nodes.release(left)

    def _decide(self, info: WorkloadInfo, attempts: int) -> Assign | Evict | Delay:
        nodes, queue, options = self._nodes, info.queue, self._options
        assert queue is not None
        if lacks_pods(info.obj):
            return self._replace_pods(info, queue, attempts)
        request = nodes.request_of(info.obj, info.scheduling_class)
        failed = [node.name for node in info.obj.status.unhealthy_nodes]
        old: NodeReservation = next((found for shared, found in info.shared if shared is nodes), ())
        if not failed:
            found = nodes.place_delayed(info.obj, request, old)
            if not isinstance(found, str):
                return self._assign(info, old, found, True)
        elif _keeps_nodes(info.obj, options):
            return self._assign(info, old, old, info.admitted)
        else:
            hosts = {values[-1] for placed in old for values, _ in placed.domains}
            lost_hosts = [name for name in failed if name in hosts]
            # Which slices are whole is not known once several nodes are gone: it starts again (15.3).
            several = len(lost_hosts) > 1
            found = (
                "several of its nodes failed"
                if several
                else nodes.replace_host(info.obj, request, old, (lost_hosts or failed)[0])
            )
            if not isinstance(found, str):
                return self._assign(info, old, found, info.admitted)
            found = f"no replacement for unhealthy node(s) {', '.join(failed)}: {found}"
            if several or options.enabled("TASFailedNodeReplacementFailFast"):
                self._state.undo_log.set(info, "eviction_assumed", True)
                self._state.mark_evicted(info, True)
                return Evict(info.key, "NodeFailures", found, queue.name, self._state.cycle)
        return self._delay(info, queue, found, attempts)

    def _delay(self, info: WorkloadInfo, queue: ClusterQueue, why: str, attempts: int) -> Delay:
        until = self._now + exponential_delay(1.0, DELAY_MAX, attempts)
        return Delay(info.key, queue.name, why, until, self._state.cycle)

    def _replace_pods(self, info: WorkloadInfo, queue: ClusterQueue, attempts: int) -> Assign | Delay:
        """Give pods that lost their flavor another one, beside those that run."""
        state = self._state
        found = PodReplacement(info, self._evaluator).find()
        if isinstance(found, str):
            return self._delay(info, queue, found, attempts)
        state.release(info)
        state.record_undo(info)
        info.obj = replace(info.obj, status=replace(info.obj.status, admission=found))
        state.set_reservation(info, found, effective_counts(info.obj, self._options))
        state.reserve(info, queue)
        return Assign(info.key, queue.name, found, info.admitted, state.cycle)

    def _assign(
        self, info: WorkloadInfo, old: NodeReservation, new: NodeReservation, admitted: bool
    ) -> Assign:
        """Reserve the domains in place of those that the workload held."""
        state, nodes, queue = self._state, self._nodes, info.queue
        assert queue is not None
        assert info.admission is not None
        state.release(info)
        state.record_undo(info)
        others = tuple([each for each in info.shared if each[0] is not nodes])
        info.shared = (*others, (nodes, new))
        info.admission = nodes.write(_ready(info.admission), new)
        info.admitted = admitted
        # Until the API shows the decision, the object is read as if it did.
        status = replace(info.obj.status, admission=info.admission, unhealthy_nodes=[])
        info.obj = replace(info.obj, status=status)
        state.reserve(info, queue)
        left = lost(old, new)
        nodes.reserve(left)
        self._left.append(left)
        self.moved.add(info)
        return Assign(info.key, queue.name, info.admission, admitted, state.cycle)


def _keeps_nodes(obj: kueue.Workload, options: Options) -> bool:
    """Whether the workload is that of a single pod, which cannot move (15.4)."""
    owners = obj.metadata.owner_references
    return (
        options.enabled("SkipReassignmentForPodOwnedWorkloads")
        and len(owners) == 1
        and owners[0].kind == "Pod"
        and owners[0].api_version == "v1"
        and IS_GROUP_WORKLOAD_ANNOTATION not in obj.metadata.annotations
    )


def _ready(admission: kueue.Admission) -> kueue.Admission:
    """The admission with every delayed topology request Ready."""
    given = [
        replace(each, delayed_topology_request="Ready")
        if each.delayed_topology_request == "Pending"
        else each
        for each in admission.pod_set_assignments
    ]
    return replace(admission, pod_set_assignments=given)
