"""What holds for every placement, on random trees that change between requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from topology_notation import LEVELS, request_of, spec_of

from pykueue.engine.topology.counts import Counts, CountSpec, counts_of
from pykueue.engine.topology.nodes import NodeFacts, PodFilter
from pykueue.engine.topology.placement import Placed, Placer, Shortage
from pykueue.engine.topology.requests import Layout, TopologyRules, layout, level_request
from pykueue.engine.topology.tree import FlavorTree, LeafUsage, add_usage

#: Neither the load of the machine nor the time a case takes decides anything.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

LABELS = [LEVELS[each] for each in "BRH"]
REQUESTS = [
    "required block",
    "required rack",
    "required H",
    "preferred block",
    "preferred rack",
    "preferred H",
    "unconstrained",
    "slice rack/2",
    "slice H/2",
    "required block slice rack/3",
    "preferred block slice rack/4 H/2",
    "required rack slice rack/6 H/3",
    "preferred rack slice H/2",
]

Nodes = list[tuple[int, int, int, int]]
#: (block, rack, cpu, pods) of each host.
nodes_strategy = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 6), st.integers(0, 7)),
    min_size=1,
    max_size=9,
)


def node(number: int, each: tuple[int, int, int, int]) -> NodeFacts:
    block, rack, cpu, pods = each
    labels = dict(zip(LABELS, (f"b{block}", f"r{rack}", f"h{number}"), strict=True))
    return NodeFacts(f"n{number}", labels, (), True, {"cpu": cpu * 1000, "pods": pods})


class Forest:
    """A tree with its usages."""

    def __init__(self) -> None:
        self.tree = FlavorTree("tas", "topology", LABELS, {})
        self.usages: dict[tuple[str, ...], LeafUsage] = {}

    def put(self, number: int, each: tuple[int, int, int, int]) -> None:
        self.tree.put(node(number, each), {}, self.usages)

    def drop(self, number: int) -> None:
        self.tree.drop(f"n{number}", {}, self.usages)

    def change(self, event: tuple[int, Nodes | None, int], spec: CountSpec) -> None:
        """Pods of the spec come or go on a leaf, and a node changes or goes."""
        number, change, pods = event
        leaves = self.tree.by_level[-1]
        if pods and leaves:
            leaf = leaves[number % len(leaves)]
            assert leaf.usage is not None
            add_usage(leaf.usage.amounts, spec.amounts, pods)
            self.tree.touch(leaf)
        if change is None:
            self.drop(number)
        else:
            self.put(number, change[0])


def layout_of(request: str) -> Layout:
    rules = TopologyRules()
    found = layout(level_request(request_of(request), rules), LABELS, rules)
    assert isinstance(found, Layout)
    return found


def numbers(counts: Counts) -> dict[tuple[str, ...], tuple[int, ...]]:
    return {
        domain.values: (
            counts.pods[domain.slot],
            counts.slices[domain.slot],
            counts.pods_led[domain.slot],
            counts.slices_led[domain.slot],
            counts.leads[domain.slot],
        )
        for level in counts.tree.by_level
        for domain in level
    }


def used_by(placed: Placed, leader: int | None) -> dict[tuple[str, ...], Counter[str]]:
    used: dict[tuple[str, ...], Counter[str]] = {}
    for leaf, pods in placed.workers:
        used.setdefault(leaf.values, Counter()).update({"cpu": 1000 * pods, "pods": pods})
    if placed.leader is not None:
        used.setdefault(placed.leader.values, Counter()).update({"cpu": 1000 * (leader or 0), "pods": 1})
    return used


def per_level(placed: Placed, level: int) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for leaf, pods in placed.workers:
        found[leaf.values[: level + 1]] += pods
    return found


@relaxed
@given(
    nodes_strategy,
    st.sampled_from(REQUESTS),
    st.integers(1, 20),
    st.none() | st.integers(0, 3),
    st.booleans(),
)
def test_a_placement_keeps_to_capacity_levels_and_slices(
    nodes: Nodes, request: str, pods: int, leader: int | None, mixed: bool
) -> None:
    forest = Forest()
    for number, each in enumerate(nodes):
        forest.put(number, each)
    found = layout_of(request)._replace(least_free_first=False) if not mixed else layout_of(request)
    counts = counts_of(forest.tree, spec_of(found, leader), PodFilter())
    placed = Placer(counts, found).place(pods)
    if isinstance(placed, Shortage):
        assert placed.needed == pods // found.slice_size
        return
    capacity = {leaf.values: leaf.capacity for leaf in forest.tree.by_level[-1]}
    for values, amounts in used_by(placed, leader).items():
        assert all(amount <= capacity[values].get(name, 0) for name, amount in amounts.items())
    whole = pods - pods % found.slice_size
    assert sum(count for _, count in placed.workers) == whole
    assert (placed.leader is not None) == (leader is not None)
    if found.required and whole:
        domains = set(per_level(placed, found.level))
        if placed.leader is not None:
            domains.add(placed.leader.values[: found.level + 1])
        assert len(domains) == 1
    for level, size in found.layers:
        assert all(count % size == 0 for count in per_level(placed, level).values())


@relaxed
@given(nodes_strategy, st.sampled_from(REQUESTS), st.integers(1, 20))
def test_what_is_said_to_fit_in_the_best_domain_is_true(nodes: Nodes, request: str, pods: int) -> None:
    forest = Forest()
    for number, each in enumerate(nodes):
        forest.put(number, each)
    found = layout_of(request)
    placed = Placer(counts_of(forest.tree, spec_of(found, None), PodFilter()), found).place(pods)
    if isinstance(placed, Placed):
        return
    hosts = {values: min(cpu, count) for values, (cpu, count) in _hosts(nodes).items()}
    fitting = _slices_below(hosts, found, placed.level, ())
    assert placed.fitting == (max(fitting, default=0) if placed.together else sum(fitting))
    assert placed.fitting < placed.needed


@relaxed
@given(nodes_strategy, st.sampled_from(REQUESTS), st.integers(1, 20), st.booleans())
def test_domains_from_the_index_are_those_that_sorting_all_of_them_gives(
    nodes: Nodes, request: str, pods: int, mixed: bool
) -> None:
    forest = Forest()
    for number, each in enumerate(nodes):
        forest.put(number, each)
    found = layout_of(request)
    if not mixed:
        found = found._replace(least_free_first=False)
    placer = Placer(counts_of(forest.tree, spec_of(found, None), PodFilter()), found)
    slices = pods // found.slice_size
    indexed, ordered = placer._choose(slices), placer._choose_sorted(slices)
    if isinstance(ordered, Shortage) or isinstance(indexed, Shortage):
        assert indexed == ordered
    else:
        holding = [each for each in ordered if placer.counts.slices[each.slot]]
        assert indexed == (holding or ordered[:1])


@relaxed
@given(
    nodes_strategy,
    st.lists(st.tuples(st.integers(0, 8), st.none() | nodes_strategy, st.integers(-3, 3)), max_size=6),
    st.sampled_from(REQUESTS),
    st.integers(1, 20),
    st.booleans(),
)
def test_a_placement_from_indexes_is_that_which_sorting_all_domains_gives(
    nodes: Nodes,
    events: Sequence[tuple[int, Nodes | None, int]],
    request: str,
    pods: int,
    mixed: bool,
) -> None:
    forest = Forest()
    for number, each in enumerate(nodes):
        forest.put(number, each)
    found = layout_of(request)
    if not mixed:
        found = found._replace(least_free_first=False)
    spec = spec_of(found, None)
    for event in (None, *events):
        if event is not None:
            forest.change(event, spec)
        counts = counts_of(forest.tree, spec, PodFilter())
        ordered = Placer(Counts(forest.tree, spec, PodFilter()).refresh(), found)
        ordered._indexed = False
        assert Placer(counts, found).place(pods) == ordered.place(pods)


def _hosts(nodes: Nodes) -> dict[tuple[str, ...], tuple[int, int]]:
    return {
        (f"b{block}", f"r{rack}", f"h{number}"): (cpu, pods)
        for number, (block, rack, cpu, pods) in enumerate(nodes)
    }


def _slices_below(
    hosts: Mapping[tuple[str, ...], int], found: Layout, level: int, prefix: tuple[str, ...]
) -> list[int]:
    """Slices that fit into each domain of a level, from the hosts alone."""
    domains = sorted({values[: level + 1] for values in hosts})
    return [_slices(hosts, found, domain) for domain in domains]


def _slices(hosts: Mapping[tuple[str, ...], int], found: Layout, domain: tuple[str, ...]) -> int:
    sizes = dict(found.layers) or {found.slice_level: 1}

    def pods(at: tuple[str, ...]) -> int:
        if len(at) == len(LABELS):
            return hosts[at]
        children = sorted({values[: len(at) + 1] for values in hosts if values[: len(at)] == at})
        unit = found.units[len(at)] or 1
        return sum(pods(child) // unit * unit for child in children)

    if len(domain) - 1 >= found.slice_level:
        return pods(domain) // sizes[found.slice_level]
    inner = {values[: found.slice_level + 1] for values in hosts if values[: len(domain)] == domain}
    return sum(pods(each) // sizes[found.slice_level] for each in inner)


@relaxed
@given(
    nodes_strategy,
    st.lists(st.tuples(st.integers(0, 8), st.none() | nodes_strategy, st.integers(-3, 3)), max_size=12),
    st.sampled_from(REQUESTS),
    st.none() | st.integers(0, 3),
)
def test_numbers_that_follow_events_are_those_of_a_new_count(
    nodes: Nodes,
    events: Sequence[tuple[int, Nodes | None, int]],
    request: str,
    leader: int | None,
) -> None:
    forest = Forest()
    for number, each in enumerate(nodes):
        forest.put(number, each)
    found = layout_of(request)
    spec = spec_of(found, leader)
    counts_of(forest.tree, spec, PodFilter())
    for event in events:
        forest.change(event, spec)
        followed = numbers(counts_of(forest.tree, spec, PodFilter()))
        assert followed == numbers(Counts(forest.tree, spec, PodFilter()).refresh())


@relaxed
@given(nodes_strategy, st.randoms(use_true_random=False), st.sampled_from(REQUESTS), st.integers(1, 20))
def test_the_order_in_which_nodes_appear_changes_nothing(
    nodes: Nodes, random: object, request: str, pods: int
) -> None:
    results = []
    order = list(enumerate(nodes))
    for _ in range(2):
        forest = Forest()
        for number, each in order:
            forest.put(number, each)
        found = layout_of(request)
        placed = Placer(counts_of(forest.tree, spec_of(found, None), PodFilter()), found).place(pods)
        results.append(
            [(leaf.values, count) for leaf, count in placed.workers] if isinstance(placed, Placed) else placed
        )
        random.shuffle(order)  # type: ignore[attr-defined]
    assert results[0] == results[1]
