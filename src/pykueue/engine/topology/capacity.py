"""Nodes as a shared capacity: pods of workloads that use a flavor with a topology are placed on its nodes.

Usage belongs to the node: flavors that share a host see what others use of it, unless a gate says otherwise.
Source of the rules: docs/reference/topology-aware-scheduling.md 6, 7, 9.1 and 12.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from pykueue.api import kueue
from pykueue.api.core import Node, Pod
from pykueue.api.kueue import names
from pykueue.api.topologies import HOSTNAME
from pykueue.engine.capacity import AssignedPodSet, ImpossibleReason, SharedCapacity
from pykueue.engine.flavors.host_ports import host_port_amounts
from pykueue.engine.flavors.requests import pod_requests
from pykueue.engine.flavors.scheduling_class import PodSetClass
from pykueue.engine.topology.assumed import Use, assume, change, drop_assumed, used_by
from pykueue.engine.topology.balanced import place_unit
from pykueue.engine.topology.counts import CountSpec, amounts_of, counts_of
from pykueue.engine.topology.demands import (
    NodeDemand,
    NodeReservation,
    PlacedPodSet,
    PodSetNeeds,
    Unit,
    assigned_domains,
    demand_of,
    placed_pod_sets,
    with_assignments,
)
from pykueue.engine.topology.elastic import Continued, continued, problem_of
from pykueue.engine.topology.failure import Failure, failure_text
from pykueue.engine.topology.nodes import Amounts, NodeFacts, PodFilter, node_facts
from pykueue.engine.topology.placement import Placed
from pykueue.engine.topology.replacement import Loss, loss_of, lost_together, merged
from pykueue.engine.topology.requests import TopologyRules, layout, level_request
from pykueue.engine.topology.tree import Domain, FlavorTree, LeafUsage, add_usage, usage_key
from pykueue.engine.undo_log import UndoLog

_ANNOTATIONS = (
    names.REQUIRED_TOPOLOGY_ANNOTATION,
    names.PREFERRED_TOPOLOGY_ANNOTATION,
    names.UNCONSTRAINED_TOPOLOGY_ANNOTATION,
    names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    names.SLICE_CONSTRAINTS_ANNOTATION,
)


#: Demands that are kept per request.
_DEMANDS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What the workloads of a scheduling class request of nodes."""

    pod_sets: tuple[PodSetNeeds, ...]
    demands: dict[tuple[Hashable, ...], NodeDemand | None] = field(default_factory=dict, compare=False)
    """What it came to, by the flavors and counts: workloads with equal demands are placed once."""


class NodeCapacity(SharedCapacity):
    """The nodes of all flavors with a topology."""

    name: ClassVar[str] = "nodes"
    impossible: ClassVar[ImpossibleReason] = "TopologyPlacementFailed"
    by_class: ClassVar[bool] = True

    def __init__(self, rules: TopologyRules, undo_log: UndoLog, short_hostnames: bool = True) -> None:
        self.rules = rules
        self._undo_log = undo_log
        #: Assignments are written with common prefixes of host names.
        self._short_hostnames = short_hostnames
        self.trees: dict[str, FlavorTree] = {}
        self._flavors: dict[str, kueue.ResourceFlavor] = {}
        self._topologies: dict[str, kueue.Topology] = {}
        self.nodes: dict[str, Node] = {}
        self._facts: dict[str, NodeFacts] = {}
        #: Pods that run outside workloads, what each uses of its node, and what that comes to by node.
        self._uses: dict[str, tuple[str, Amounts]] = {}
        self.pods: dict[str, Pod] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._usages: dict[tuple[str, ...], LeafUsage] = {}
        #: Grows with every change of what is free, and with every change of the nodes.
        self._version = 0
        self._nodes_version = 0
        #: Grows with every change of the flavors that have a topology.
        self._trees_version = 0

    @property
    def flavors(self) -> Collection[str]:
        """Flavors with a topology that exists."""
        return self.trees.keys()

    # --- objects ----------------------------------------------------------------------------------------

    def set_node(self, name: str, node: Node | None) -> bool:
        """Add, update or remove (None) a node; returns whether that changed any tree."""
        before = self.nodes.get(name)
        self._undo_log.record_undo(self.set_node, name, before)
        if node is None:
            self.nodes.pop(name, None)
            self._facts.pop(name, None)
        else:
            self.nodes[name] = node
            facts = node_facts(node)
            if self._facts.get(name) == facts:
                return False
            self._facts[name] = facts
        changed = False
        for tree in self.trees.values():
            if node is None:
                changed |= tree.drop(name, self._used.get(name, {}), self._usages)
            else:
                changed |= tree.put(self._facts[name], self._used.get(name, {}), self._usages)
        if changed:
            self._nodes_changed()
        return changed

    def set_pod(self, key: str, pod: Pod | None) -> bool:
        """Add, update or remove (None) a pod; returns whether a node of a tree may have more room."""
        new = self._outside_use(pod) if pod is not None else None
        old = self._uses.get(key)
        if new is not None:
            self._undo_log.record_undo(self.set_pod, key, self.pods.get(key))
            assert pod is not None
            self.pods[key] = pod
        elif key in self.pods:
            self._undo_log.record_undo(self.set_pod, key, self.pods.pop(key))
        if old == new:
            return False
        self._change_use(key, old, new)
        return old is not None and any(tree.has_node(old[0]) for tree in self.trees.values())

    def _outside_use(self, pod: Pod) -> tuple[str, Amounts] | None:
        """The node of a pod that runs outside workloads, and what it uses; None if it uses nothing (7.3)."""
        node = pod.spec.node_name
        if not node or pod.status.phase in ("Succeeded", "Failed"):
            return None
        if any(name in pod.metadata.annotations for name in _ANNOTATIONS):
            return None
        return node, self._amounts(pod_requests(pod.spec), host_port_amounts(pod.spec))

    def _amounts(self, requests: Mapping[str, int], host_ports: Mapping[str, int]) -> Amounts:
        """What one pod takes of a node, its host ports included where these count."""
        more = host_ports if self.rules.scheduler_filters else {}
        return amounts_of([*requests.items(), *more.items()])

    def _change_use(self, key: str, old: tuple[str, Amounts] | None, new: tuple[str, Amounts] | None) -> None:
        self._uses.pop(key, None)
        for use, sign in ((old, -1), (new, 1)):
            if use is None:
                continue
            node, amounts = use
            used = self._used.setdefault(node, {})
            add_usage(used, amounts, sign)
            if not used:
                del self._used[node]
            for tree in self.trees.values():
                tree.use(node, amounts, sign)
        if new is not None:
            self._uses[key] = new
        self._nodes_changed()

    def _nodes_changed(self) -> None:
        self._version += 1
        self._nodes_version += 1

    def set_flavor(self, name: str, flavor: kueue.ResourceFlavor | None) -> bool:
        """Add, update or remove (None) a flavor; returns whether its tree was added, changed or removed."""
        self._undo_log.record_undo(self.set_flavor, name, self._flavors.get(name))
        if flavor is None:
            self._flavors.pop(name, None)
        else:
            self._flavors[name] = flavor
        return self._configure(name)

    def set_topology(self, name: str, topology: kueue.Topology | None) -> bool:
        """Add, update or remove (None) a topology; returns whether that changed any tree."""
        self._undo_log.record_undo(self.set_topology, name, self._topologies.get(name))
        if topology is None:
            self._topologies.pop(name, None)
        else:
            self._topologies[name] = topology
        concerned = [key for key, flavor in self._flavors.items() if flavor.spec.topology_name == name]
        changed = [self._configure(key) for key in concerned]
        return any(changed)

    def _configure(self, name: str) -> bool:
        flavor = self._flavors.get(name)
        topology = self._topologies.get(flavor.spec.topology_name or "") if flavor is not None else None
        old = self.trees.get(name)
        new: FlavorTree | None = None
        if flavor is not None and topology is not None:
            new = FlavorTree(
                name,
                topology.metadata.name,
                [level.node_label for level in topology.spec.levels],
                flavor.spec.node_labels,
                flavor.spec.tolerations,
                self.rules.shared_hosts,
                self.rules.scheduler_filters,
            )
            if old is not None and old.same_terms(new):
                return False
        if old is not None:
            old.clear(self._usages)
            del self.trees[name]
        if new is not None:
            for node, facts in self._facts.items():
                new.put(facts, self._used.get(node, {}), self._usages)
            self.trees[name] = new
            self.trees = dict(sorted(self.trees.items()))
        self._trees_version += 1
        self._nodes_changed()
        return old is not None or new is not None

    # --- requests and demands ---------------------------------------------------------------------------

    def request_of(self, workload: kueue.Workload, scheduling_class: Any) -> NodeRequest:
        found: NodeRequest | None = scheduling_class.node_request
        if found is None:
            found = NodeRequest(tuple([self._needs(pods) for pods in scheduling_class.pod_sets]))
            scheduling_class.node_request = found
        return found

    def _needs(self, pods: PodSetClass) -> PodSetNeeds:
        return PodSetNeeds(
            pods.name,
            self._amounts(pods.node_requests, pods.host_ports),
            PodFilter(pods.tolerations, pods.node_selector, pods.affinity),
            level_request(pods.topology, self.rules),
            pods.wants_topology,
            pods.group or "",
        )

    def demand(self, request: NodeRequest, pod_sets: Sequence[AssignedPodSet]) -> NodeDemand | None:
        key = (
            self._trees_version,
            *[(each.pods, *each.flavors.values(), each.implied, each.delayed) for each in pod_sets],
        )
        known = request.demands
        if key not in known:
            if len(known) >= _DEMANDS_MAX:
                known.clear()
            known[key] = demand_of(request.pod_sets, pod_sets, self.trees)
        return known[key]

    def continuing(self, demand: NodeDemand, held: NodeReservation) -> NodeDemand:
        if not self.rules.elastic:
            return demand
        problem = demand.problem or problem_of(demand.units)
        return NodeDemand(demand.units, problem, demand.delayed, held)

    def fits(self, demand: NodeDemand) -> bool:
        return not isinstance(self._result(demand), Failure | str)

    def could_fit(self, demand: NodeDemand) -> bool:
        return not isinstance(self._result_if_empty(demand), str)

    def why_impossible(self, demand: NodeDemand) -> ImpossibleReason:
        return "NoMatchingFlavor" if demand.problem else self.impossible

    def keep(self, demand: NodeDemand) -> NodeReservation | None:
        found = self._result_if_empty(demand)
        return None if isinstance(found, str) else found

    def place(self, demand: NodeDemand) -> NodeReservation | None:
        found = self._result(demand)
        return None if isinstance(found, Failure | str) else found

    def explain(self, demand: NodeDemand) -> str:
        found = self._result(demand)
        if isinstance(found, Failure):
            return failure_text(found)
        if isinstance(found, str):
            return found
        impossible = self._result_if_empty(demand)
        return impossible if isinstance(impossible, str) else ""

    def frees(self, reservation: NodeReservation, demand: NodeDemand) -> bool:
        flavors = {unit.flavor for unit in demand.units}
        return any(placed.flavor in flavors for placed in reservation)

    # --- placing ----------------------------------------------------------------------------------------

    def _result(self, demand: NodeDemand) -> NodeReservation | Failure | str:
        """The placement as things are, or why there is none."""
        if demand.cached_at != self._version:
            demand.cached = self._place(demand, empty=False)
            demand.cached_at = self._version
        found: NodeReservation | Failure | str = demand.cached
        return found

    def _result_if_empty(self, demand: NodeDemand) -> NodeReservation | str:
        """The placement if no workload used anything, or why there is none."""
        if demand.cached_if_empty_at != self._nodes_version:
            demand.cached_if_empty = self._place(demand, empty=True)
            demand.cached_if_empty_at = self._nodes_version
        found: NodeReservation | str = demand.cached_if_empty
        return found

    def _place(self, demand: NodeDemand, empty: bool) -> NodeReservation | Failure | str:
        """Place the units one after another, each beside those before; leaves the usage as it was."""
        if demand.problem:
            return demand.problem
        assumed: list[Use] = []
        found: list[PlacedPodSet] = []
        failure: Failure | str = ""
        for unit in demand.units:
            tree = self.trees.get(unit.flavor)
            if tree is None:
                failure = f"the topology of flavor {unit.flavor} is not known"
                break
            more = self._place_beside(tree, unit, demand, empty, assumed)
            if isinstance(more, Failure | str):
                failure = more
                break
            found += more
        if isinstance(failure, Failure) and (empty or assumed):
            failure = failure_text(failure)
        drop_assumed(assumed)
        return failure or (*found, *demand.delayed)

    def _place_beside(
        self, tree: FlavorTree, unit: Unit, demand: NodeDemand, empty: bool, assumed: list[Use]
    ) -> list[PlacedPodSet] | Failure | str:
        """Place a unit beside what is assumed, and assume what it uses."""
        kept = continued(unit, demand.held, tree) if demand.held else None
        if demand.held:
            self._assume_held(unit, demand.held, kept, empty, assumed)
        leader = kept.leader if kept is not None else None
        if kept is not None:
            unit = unit._replace(pods=kept.missing, leader=None)
            if not kept.missing:
                return [kept.workers, *([leader] if leader is not None else [])]
        placed = self._place_unit(tree, unit, empty)
        if not isinstance(placed, Placed):
            return placed
        found = placed_pod_sets(tree, unit, placed)
        if unit.workers is not demand.units[-1].workers:
            assume(used_by(unit, placed), assumed)
        if kept is not None:
            found = [merged(kept.workers, found[0], tree), *([leader] if leader is not None else [])]
        return found

    def _assume_held(
        self,
        unit: Unit,
        held: NodeReservation,
        kept: Continued | None,
        empty: bool,
        assumed: list[Use],
    ) -> None:
        """Count what a unit keeps of the slice it replaces, and no more; that slice is counted already."""
        names = {unit.workers.name, unit.leader.name if unit.leader is not None else ""}
        changes = [(each, -1) for each in held if each.name in names and not empty]
        changes += [(each, 1) for each in kept[:2] if each is not None] if kept is not None else []
        for placed, sign in changes:
            for values, pods in placed.domains:
                usage = self._usages.get(self._usage_key(placed, values))
                if usage is not None:
                    assume([(usage, placed.amounts, sign * pods)], assumed)

    def _place_unit(
        self, tree: FlavorTree, unit: Unit, empty: bool, loss: Loss | None = None
    ) -> Placed | Failure | str:
        found = layout(unit.workers.level, tree.levels, self.rules)
        if isinstance(found, str):
            return f'topology "{tree.topology}" of flavor {tree.flavor}: {found}'
        if unit.pods < found.slice_size:
            return f"{unit.pods} pods are fewer than one slice of {found.slice_size} pods"
        spec = CountSpec(
            unit.workers.amounts,
            unit.leader.amounts if unit.leader is not None else (),
            unit.workers.filter.key,
            found.slice_level,
            found.slice_size,
            found.units,
            empty,
        )
        counts = counts_of(tree, spec, unit.workers.filter)
        if loss is not None:
            counts = counts.without(loss.host, tree.domain(loss.region))
        placed = place_unit(counts, found, unit.pods, self.rules.by_affinity)
        if isinstance(placed, Placed):
            return placed
        return Failure(unit.workers.name, counts, found, placed)

    # --- workloads that hold quota already --------------------------------------------------------------

    def place_delayed(
        self, workload: kueue.Workload, request: NodeRequest, old: NodeReservation
    ) -> NodeReservation | str:
        """Domains for the pod sets of an admission that were to be placed after the admission checks (13).

        `old` is what the workload reserves. Returns what it is to reserve then, or why there is no place.
        """
        admission = workload.status.admission
        assert admission is not None
        given = {each.name: each for each in admission.pod_set_assignments}
        needs: list[PodSetNeeds] = []
        assigned: list[AssignedPodSet] = []
        for each in request.pod_sets:
            known = given.get(each.name)
            changed = self._updated(each, workload)
            if changed is None:
                return f'podset "{each.name}": the updates of admission checks contradict each other'
            needs.append(changed)
            pending = known is not None and known.delayed_topology_request == "Pending"
            count = known.count or 0 if known is not None and pending else 0
            assigned.append(AssignedPodSet(each.name, count, known.flavors if known is not None else {}))
        demand = demand_of(needs, assigned, self.trees)
        if demand is None:
            return "no flavor with a topology is assigned"
        found = self._place(demand, empty=False)
        if isinstance(found, Failure):
            return failure_text(found)
        return found if isinstance(found, str) else (*[each for each in old if each.levels], *found)

    def _updated(self, needs: PodSetNeeds, workload: kueue.Workload) -> PodSetNeeds | None:
        """The needs of a pod set with what admission checks add to its pods; None if they disagree."""
        found = needs.filter
        for check in workload.status.admission_checks:
            for update in check.pod_set_updates if check.state == "Ready" else ():
                if update.name == needs.name:
                    updated = found.updated(update.tolerations, update.node_selector)
                    if updated is None:
                        return None
                    found = updated
        return needs._replace(filter=found)

    def replace_host(
        self, workload: kueue.Workload, request: NodeRequest, old: NodeReservation, host: str
    ) -> NodeReservation | str:
        """What a workload is to reserve in place of a failed host, or why it cannot (15.5).

        No pod goes to that host.
        """
        by_name = {each.name: each for each in request.pod_sets}
        result = {each.name: each for each in old}
        assumed: list[Use] = []
        failure: Failure | str = ""
        for members in lost_together(old, by_name, host):
            placed = members[0]
            tree, needs = self.trees.get(placed.flavor), by_name.get(placed.name)
            updated = self._updated(needs, workload) if needs is not None else None
            if tree is None or updated is None:
                failure = f"the topology of flavor {placed.flavor} is not known"
                break
            group = [
                each
                for each in result.values()
                if updated.group and each not in members and by_name[each.name].group == updated.group
            ]
            loss = loss_of(placed, updated, host, tree, group)
            leader = by_name[members[1].name] if len(members) > 1 else None
            found = loss if isinstance(loss, str) else self._place_lost(tree, updated, loss, leader)
            if isinstance(found, Failure | str):
                failure = found
                break
            assert not isinstance(loss, str)
            unit, new = found
            for more in placed_pod_sets(tree, unit, new):
                left = loss.pod_set if more.name == placed.name else more._replace(domains=())
                result[more.name] = merged(left, more, tree)
            assume(used_by(unit, new), assumed)
        if isinstance(failure, Failure):
            failure = failure_text(failure)
        drop_assumed(assumed)
        return failure or tuple(result.values())

    def _place_lost(
        self,
        tree: FlavorTree,
        needs: PodSetNeeds,
        loss: Loss,
        leader: PodSetNeeds | None,
    ) -> tuple[Unit, Placed] | Failure | str:
        unit = Unit(tree.flavor, needs._replace(level=loss.level), loss.pods, leader)
        placed = self._place_unit(tree, unit, False, loss)
        return (unit, placed) if isinstance(placed, Placed) else placed

    # --- reservations -----------------------------------------------------------------------------------

    def reserve(self, reservation: NodeReservation) -> None:
        self._count(reservation, 1)

    def release(self, reservation: NodeReservation) -> None:
        self._count(reservation, -1)

    def _count(self, reservation: NodeReservation, sign: int) -> None:
        usages = self._usages
        for placed in reservation:
            for values, pods in placed.domains:
                key = self._usage_key(placed, values)
                usage = usages.get(key)
                if usage is None:
                    usage = usages[key] = LeafUsage()
                change(usage, usage.amounts, placed.amounts, sign * pods)
                if usage.idle:
                    del usages[key]
        self._version += 1

    def _usage_key(self, placed: PlacedPodSet, values: tuple[str, ...]) -> tuple[str, ...]:
        return usage_key(placed.flavor, values, self.rules.shared_hosts and placed.levels[-1] == HOSTNAME)

    def available(self, reservation: NodeReservation) -> bool:
        total: dict[tuple[str, ...], dict[str, int]] = {}
        leaves: dict[tuple[str, tuple[str, ...]], Domain] = {}
        for placed in reservation:
            tree = self.trees.get(placed.flavor)
            for values, pods in placed.domains:
                leaf = tree.leaf(values) if tree is not None else None
                if leaf is None:
                    return False
                key = self._usage_key(placed, values)
                add_usage(total.setdefault(key, {}), placed.amounts, pods)
                leaves[placed.flavor, key] = leaf
        for (_, key), leaf in leaves.items():
            assert leaf.usage is not None
            used = leaf.usage.amounts
            for resource, amount in total[key].items():
                free = leaf.tree.unreported(resource) + leaf.capacity.get(resource, 0)
                if amount > free - used.get(resource, 0):
                    return False
        return True

    def write(self, admission: kueue.Admission, reservation: NodeReservation) -> kueue.Admission:
        return with_assignments(admission, reservation, self._short_hostnames)

    def read(self, request: NodeRequest, admission: kueue.Admission) -> NodeReservation | None:
        return assigned_domains(request.pod_sets, admission, self.trees) or None

    def encode(self, reservation: NodeReservation) -> list[Any]:
        return [
            [
                each.name,
                each.flavor,
                list(each.levels),
                [[list(v), n] for v, n in each.domains],
                list(each.amounts),
            ]
            for each in reservation
        ]

    def decode(self, data: Any) -> NodeReservation:
        return tuple(
            [
                PlacedPodSet(
                    name,
                    flavor,
                    tuple(levels),
                    tuple([(tuple(values), pods) for values, pods in domains]),
                    tuple([(resource, amount) for resource, amount in amounts]),
                )
                for name, flavor, levels, domains, amounts in data
            ]
        )

    def problems(self, reservations: Iterable[NodeReservation]) -> Iterable[str]:
        used: dict[tuple[str, ...], dict[str, int]] = {}
        for reservation in reservations:
            for placed in reservation:
                for values, pods in placed.domains:
                    add_usage(used.setdefault(self._usage_key(placed, values), {}), placed.amounts, pods)
        for key in sorted(used.keys() | self._usages.keys()):
            usage = self._usages.get(key)
            counted = usage.amounts if usage is not None else {}
            if counted != used.get(key, {}):
                yield f"of node {key} {counted} is counted, its workloads use {used.get(key, {})}"
            if usage is not None and usage.assumed:
                yield f"of node {key} {usage.assumed} is still assumed"
        for tree in self.trees.values():
            yield from tree.problems(self._facts, self._used)
