"""Replacement of failed nodes: only the lost pods move, and only to where their request allows.

Source of the rules: docs/reference/topology-aware-scheduling.md 15.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pykueue.engine.topology.demands import PlacedPodSet, PodSetNeeds
from pykueue.engine.topology.requests import Layer, LevelRequest
from pykueue.engine.topology.tree import Domain, FlavorTree

#: Values of a domain, from the widest level on; empty for the whole tree.
Region = tuple[str, ...]


class Loss(NamedTuple):
    """What one pod set lost, and where that may go."""

    pod_set: PlacedPodSet
    """With the domains that are left."""
    host: str
    pods: int
    region: Region
    level: LevelRequest
    """What the lost pods request."""


def loss_of(
    placed: PlacedPodSet, needs: PodSetNeeds, host: str, tree: FlavorTree, group: Sequence[PlacedPodSet]
) -> Loss | str:
    """What a pod set lost with a host, or why it cannot be replaced.

    `group` are the pod sets that are placed with it.
    """
    rest = tuple([each for each in placed.domains if each[0][-1] != host])
    pods = sum(count for values, count in placed.domains if values[-1] == host)
    leaves: list[tuple[Domain, int]] = []
    for values, count in rest:
        leaf = tree.leaf(values)
        if leaf is None:
            return f"the assigned domain {'/'.join(values)} does not exist any more"
        leaves.append((leaf, count))
    left = placed._replace(domains=rest)
    level = needs.level
    broken = [layer for layer in level.layers if pods % layer.size]
    whole = [layer for layer in level.layers if pods % layer.size == 0]
    if broken and broken[0] is level.layers[0]:
        region = _broken_slice(leaves, pods, broken[-1], tree)
        return Loss(left, host, pods, region, _with_layers(level, whole[-1:]))
    if level.mode == "required":
        # The group must be in one domain: what is left of any of its pod sets decides.
        known = [leaf for leaf, _ in leaves] or _leaves(group, host, tree)
        at = tree.level_index(level.level)
        if known and at >= 0:
            return Loss(left, host, pods, known[0].values[: at + 1], level)
    return Loss(left, host, pods, (), level)


def _leaves(placed: Iterable[PlacedPodSet], host: str, tree: FlavorTree) -> list[Domain]:
    found = (tree.leaf(values) for each in placed for values, _ in each.domains if values[-1] != host)
    return [leaf for leaf in found if leaf is not None]


def _broken_slice(leaves: Sequence[tuple[Domain, int]], pods: int, layer: Layer, tree: FlavorTree) -> Region:
    """The first domain in which the lost pods complete a slice again; the whole tree if there is none."""
    width = tree.level_index(layer.level) + 1
    left: dict[Region, int] = {}
    for leaf, count in leaves:
        region = leaf.values[:width]
        left[region] = left.get(region, 0) + count
    return next((region for region in sorted(left) if (left[region] + pods) % layer.size == 0), ())


def _with_layers(level: LevelRequest, layers: Sequence[Layer]) -> LevelRequest:
    mode = level.mode
    if mode == "sliced" and not layers:
        mode = "unconstrained"
    return LevelRequest(mode, level.level, tuple(layers))


def merged(left: PlacedPodSet, more: PlacedPodSet, tree: FlavorTree) -> PlacedPodSet:
    """The domains that are left and those of the replacement, in the order of their values."""
    pods: dict[tuple[str, ...], int] = {}
    for values, count in (*left.domains, *more.domains):
        pods[values] = pods.get(values, 0) + count

    def order(values: tuple[str, ...]) -> tuple[str, ...]:
        leaf = tree.leaf(values)
        return leaf.values if leaf is not None else values

    return left._replace(domains=tuple([(values, pods[values]) for values in sorted(pods, key=order)]))


def lost_together(
    placed: Sequence[PlacedPodSet], needs: Mapping[str, PodSetNeeds], host: str
) -> Iterator[list[PlacedPodSet]]:
    """The pod sets that lost pods with a host, one by one in their order.

    Workers and their leader come together, in this order, if they lost everything and must stay together.
    """
    groups: dict[str, list[PlacedPodSet]] = {}
    for number, each in enumerate(placed):
        group = needs[each.name].group if each.name in needs else ""
        groups.setdefault(group or f"/{number}", []).append(each)
    for members in groups.values():
        lost = [each for each in members if any(values[-1] == host for values, _ in each.domains)]
        whole = all(values[-1] == host for each in members for values, _ in each.domains)
        if len(members) > 1 and whole and needs[members[0].name].level.mode == "required":
            yield sorted(members, key=lambda each: -sum(pods for _, pods in each.domains))
        else:
            yield from ([each] for each in lost)
