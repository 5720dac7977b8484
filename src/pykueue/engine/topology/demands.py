"""What workloads request, demand and reserve of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.hybrid import parts_of
from pykueue.api.topologies import HOSTNAME, Domain, compress, expand
from pykueue.engine.capacity import AssignedPodSet
from pykueue.engine.topology.nodes import Amounts, PodFilter
from pykueue.engine.topology.placement import Placed
from pykueue.engine.topology.requests import LevelRequest
from pykueue.engine.topology.tree import FlavorTree


class PodSetNeeds(NamedTuple):
    """What one pod set requests of nodes."""

    name: str
    amounts: Amounts
    """Of one pod."""
    filter: PodFilter
    level: LevelRequest
    explicit: bool
    """It asks for topology itself, not only by its queue."""
    group: str
    """Of a leader and its workers; empty if it is placed alone."""


class Unit(NamedTuple):
    """Pods that are placed together."""

    flavor: str
    workers: PodSetNeeds
    pods: int
    """Of the workers."""
    leader: PodSetNeeds | None


class PlacedPodSet(NamedTuple):
    """Where the pods of one pod set are."""

    name: str
    flavor: str
    levels: tuple[str, ...]
    """Empty while its domains are still to be chosen."""
    domains: tuple[tuple[tuple[str, ...], int], ...]
    """(values, pods); of hosts only the host."""
    amounts: Amounts
    """Of one pod."""


#: What a workload reserves of nodes.
NodeReservation = tuple[PlacedPodSet, ...]


class NodeDemand:
    """What a request comes to with certain flavors and counts."""

    __slots__ = (
        "cached",
        "cached_at",
        "cached_if_empty",
        "cached_if_empty_at",
        "delayed",
        "held",
        "problem",
        "units",
    )

    def __init__(
        self,
        units: Sequence[Unit],
        problem: str = "",
        delayed: tuple[PlacedPodSet, ...] = (),
        held: NodeReservation = (),
    ) -> None:
        #: In the order in which they are placed (9.1).
        self.units = tuple(sorted(units, key=lambda unit: unit.flavor))
        #: Pod sets whose domains are chosen only after the admission checks.
        self.delayed = delayed
        #: What the workload slice holds that it replaces.
        self.held = held
        #: Why it cannot be placed on any nodes; empty if it may be.
        self.problem = problem
        #: The last placement, or failure, and the version of the capacity that it holds for.
        self.cached: Any = None
        self.cached_at = -1
        #: The same if no workload used anything, and the version of the nodes that it holds for.
        self.cached_if_empty: Any = None
        self.cached_if_empty_at = -1


def demand_of(
    pod_sets: Sequence[PodSetNeeds], assigned: Sequence[AssignedPodSet], trees: Mapping[str, FlavorTree]
) -> NodeDemand | None:
    """The demand of pod sets with these flavors; None if none of the flavors has a topology (6)."""
    groups: dict[str, list[tuple[PodSetNeeds, AssignedPodSet]]] = {}
    delayed: list[PlacedPodSet] = []
    for number, (needs, given) in enumerate(zip(pod_sets, assigned, strict=True)):
        if given.pods:
            groups.setdefault(needs.group or f"/{number}", []).append((needs, given))
    units: list[Unit] = []
    for members in groups.values():
        flavors = sorted(
            {flavor for _, given in members for flavor in given.flavors.values() if flavor in trees}
        )
        if len(flavors) > 1:
            return NodeDemand((), f"more than one flavor with a topology is assigned: {', '.join(flavors)}")
        if flavors and any(not needs.level.mode for needs, _ in members):
            return NodeDemand((), "the topology level is not specified")
        if flavors and any(given.delayed for _, given in members):
            delayed += [PlacedPodSet(needs.name, flavors[0], (), (), needs.amounts) for needs, _ in members]
        elif flavors:
            units.append(_unit(flavors[0], members))
        elif any(given.delayed for _, given in members):
            continue  # a worker cluster has the topology that the flavor names
        elif any(needs.explicit or given.implied for needs, given in members):
            return NodeDemand((), "no flavor with a topology is assigned")
    return NodeDemand(units, delayed=tuple(delayed)) if units or delayed else None


def _unit(flavor: str, members: Sequence[tuple[PodSetNeeds, AssignedPodSet]]) -> Unit:
    """The leader of a group is the second pod set, or the first if the second has more pods."""
    needs, given = members[0]
    if len(members) < 2:
        return Unit(flavor, needs, given.pods, None)
    other, other_given = members[1]
    if other_given.pods > given.pods:
        return Unit(flavor, other, other_given.pods, needs)
    return Unit(flavor, needs, given.pods, other)


def placed_pod_sets(tree: FlavorTree, unit: Unit, placed: Placed) -> list[PlacedPodSet]:
    """What a placed unit reserves."""
    levels = (HOSTNAME,) if tree.hostnames else tree.levels
    width = len(levels)
    found = [
        PlacedPodSet(
            unit.workers.name,
            tree.flavor,
            levels,
            tuple([(leaf.values[-width:], pods) for leaf, pods in placed.workers]),
            unit.workers.amounts,
        )
    ]
    if unit.leader is not None and placed.leader is not None:
        domains = ((placed.leader.values[-width:], 1),)
        found.append(PlacedPodSet(unit.leader.name, tree.flavor, levels, domains, unit.leader.amounts))
    return found


def lost(old: NodeReservation, new: NodeReservation) -> NodeReservation:
    """The part of a reservation that another one of the same workload does not include."""
    kept = {placed.name: dict(placed.domains) for placed in new}
    found = []
    for placed in old:
        of_new = kept.get(placed.name, {})
        domains = [(values, pods - min(pods, of_new.get(values, 0))) for values, pods in placed.domains]
        left = tuple([each for each in domains if each[1]])
        if left:
            found.append(placed._replace(domains=left))
    return tuple(found)


def with_assignments(
    admission: kueue.Admission, reservation: NodeReservation, by_hostname_prefix: bool
) -> kueue.Admission:
    """The admission with the domains of its pod sets."""
    by_name = {each.name: each for each in reservation}
    given = []
    for pods in admission.pod_set_assignments:
        placed = by_name.get(pods.name)
        if placed is not None and not placed.levels:
            pods = replace(pods, delayed_topology_request="Pending")
        elif placed is not None:
            domains = [Domain(values, count) for values, count in placed.domains]
            assignment = compress(placed.levels, domains, by_hostname_prefix)
            pods = replace(pods, topology_assignment=assignment)
        given.append(pods)
    return replace(admission, pod_set_assignments=given)


def assigned_domains(
    pod_sets: Sequence[PodSetNeeds], admission: kueue.Admission, trees: Mapping[str, FlavorTree]
) -> NodeReservation:
    """The domains that an admission assigns."""
    by_name = {needs.name: needs for needs in pod_sets}
    flavors_of_groups: dict[str, set[str]] = {}
    for given in admission.pod_set_assignments:
        if given.name in by_name:
            flavors_of_groups.setdefault(by_name[given.name].group, set()).update(given.flavors.values())
    found: list[PlacedPodSet] = []
    for given in admission.pod_set_assignments:
        assignment = given.topology_assignment
        if assignment is None or given.name not in by_name or parts_of(given):
            continue
        needs = by_name[given.name]
        # A member of a group that requests nothing is assigned no flavor: it is placed with the others.
        flavors = sorted(
            set(given.flavors.values()) or (flavors_of_groups[needs.group] if needs.group else ())
        )
        flavor = next((each for each in flavors if each in trees), flavors[0] if flavors else "")
        levels = tuple(assignment.levels)
        width = 1 if levels[-1] == HOSTNAME else len(levels)
        domains = tuple([(values[-width:], pods) for values, pods in expand(assignment)])
        found.append(PlacedPodSet(given.name, flavor, levels[-width:], domains, needs.amounts))
    return tuple(found)
