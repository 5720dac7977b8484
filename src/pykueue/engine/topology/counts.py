"""How many pods and slices of one kind each domain of a tree can hold, kept up to date as the tree changes.

Five numbers per domain, from the leaves up: pods, pods if the leader is there too, slices, slices if the
leader is there too, and whether the leader fits. After a change only the leaves it concerns and the domains
above them are counted again. Source of the rules: docs/reference/topology-aware-scheduling.md 9.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Final, NamedTuple

from pykueue.engine.topology.nodes import PODS, Amounts, PodFilter
from pykueue.engine.topology.tree import Domain, FlavorTree

#: More pods than any leaf holds: of pods that request nothing, on nodes that limit nothing.
UNBOUNDED: Final = 1 << 31
#: Specs whose numbers are kept per tree; the least recently used is dropped first.
_VIEWS_MAX: Final = 64


class CountSpec(NamedTuple):
    """What the numbers depend on besides the tree."""

    amounts: Amounts
    """Of one worker, `pods` included."""
    leader: Amounts
    """Of the leader; empty if there is none."""
    filter_key: str
    slice_level: int
    slice_size: int
    units: tuple[int, ...]
    """By level: domains of this level hold multiples of this many pods; 0 where that does not matter."""
    empty: bool
    """As if no workload used anything, apart from the pod sets that are placed together."""


class Counts:
    """The numbers of one spec, by the slots of the domains."""

    def __init__(
        self,
        tree: FlavorTree,
        spec: CountSpec,
        pod_filter: PodFilter,
        within: Callable[[Domain], bool] | None = None,
    ) -> None:
        self.tree = tree
        self.spec = spec
        self._filter = pod_filter
        #: Only leaves for which this holds.
        self._within = within
        self._set_lists([[] for _ in range(6 if spec.leader else 4)])
        #: How much of the tree's changes is counted in.
        self._seen = -1
        #: By slot of a leaf: its nodes when they were filtered last, why they are excluded, and their score.
        self._filtered: dict[int, tuple[object, str, int]] = {}
        self._requests = tuple([(resource, amount) for resource, amount in spec.amounts if amount > 0])

    def refresh(self) -> Counts:
        """Count what changed since the last time."""
        tree = self.tree
        end = tree.forgotten + len(tree.changes)
        if self._seen == end:
            return self
        for numbers in self._lists:
            numbers.extend([0] * (tree.slots - len(numbers)))
        lowest = len(tree.levels) - 1
        if self._seen < tree.forgotten:
            self._filtered.clear()
            for level in range(lowest, -1, -1):
                count = self._count_leaf if level == lowest else self.count_inner
                for domain in tree.by_level[level]:
                    count(domain)
        else:
            dirty: list[set[Domain]] = [set() for _ in tree.levels]
            for domain in tree.changes[self._seen - tree.forgotten :]:
                if domain.attached:
                    dirty[domain.level].add(domain)
            for level in range(lowest, -1, -1):
                count = self._count_leaf if level == lowest else self.count_inner
                for domain in dirty[level]:
                    count(domain)
                    if domain.parent is not None:
                        dirty[level - 1].add(domain.parent)
        self._seen = end
        return self

    def exclusion(self, leaf: Domain) -> str:
        """Why no pod may run on a leaf, however empty; empty if pods may."""
        if self._within is not None and not self._within(leaf):
            return "topologyDomain"
        tree = self.tree
        if not tree.hostnames:
            return ""
        found = ""
        for node in leaf.nodes.values():
            found = self._filter.excludes(node, tree.tolerations)
            if found:
                break
        return found

    def lacking(self, leaf: Domain) -> str:
        """The resource of which a leaf has too little for one pod."""
        least, name = UNBOUNDED, ""
        for resource, amount in sorted(self._requests):
            count = self._free(leaf, resource) // amount
            if count < least:
                least, name = count, resource
        return name

    def copy(self) -> Counts:
        """A copy: changes of its numbers, by `clear` and `count_inner`, leave these as they are."""
        found = copy(self)
        found._set_lists([list(numbers) for numbers in self._lists])
        return found

    def _set_lists(self, lists: list[list[int]]) -> None:
        self._lists = lists
        #: `leads`: 1 where the leader fits; `scores`: the sum of the weights of preferred node affinity.
        self.pods, self.slices, self.leads, self.scores = lists[:4]
        #: With the leader in the domain; the same lists where there is no leader.
        self.pods_led, self.slices_led = lists[4:] or (self.pods, self.slices)

    def clear(self, slot: int) -> None:
        """Count a domain as holding nothing."""
        for numbers in self._lists:
            numbers[slot] = 0

    # --- counting ---------------------------------------------------------------------------------------

    def _free(self, leaf: Domain, resource: str) -> int:
        usage = leaf.usage
        assert usage is not None
        free = leaf.capacity.get(resource, 0) - usage.assumed.get(resource, 0)
        return free if self.spec.empty else free - usage.amounts.get(resource, 0)

    def _count_leaf(self, leaf: Domain) -> None:
        slot, spec = leaf.slot, self.spec
        nodes = tuple(leaf.nodes.values())
        known = self._filtered.get(slot)
        if known is None or known[0] != nodes:
            score = sum(self._filter.score(node) for node in nodes) if self.tree.hostnames else 0
            known = self._filtered[slot] = nodes, self.exclusion(leaf), score
        if known[1]:
            self.clear(slot)
            return
        usage = leaf.usage
        assert usage is not None
        capacity, assumed = leaf.capacity, usage.assumed
        used: dict[str, int] = {} if spec.empty else usage.amounts
        pods = UNBOUNDED
        for resource, amount in self._requests:
            free = capacity.get(resource, 0) - used.get(resource, 0)
            if assumed:
                free -= assumed.get(resource, 0)
            count = free // amount
            if count < pods:
                pods = count
        if pods < 0:
            pods = 0
        is_slice = leaf.level == spec.slice_level
        self.pods[slot] = pods
        self.slices[slot] = pods // spec.slice_size if is_slice else 0
        self.scores[slot] = known[2]
        if not spec.leader:
            return
        leader = dict(spec.leader)
        led = pods
        leads = all(amount <= self._free(leaf, resource) for resource, amount in spec.leader)
        if leads:
            for resource, amount in self._requests:
                count = (self._free(leaf, resource) - leader.get(resource, 0)) // amount
                led = min(led, count)
            led = max(led, 0)
        self.leads[slot] = int(leads)
        self.pods_led[slot] = led
        self.slices_led[slot] = led // spec.slice_size if is_slice else 0

    def count_inner(self, domain: Domain) -> None:
        """Count a domain by the numbers of its children."""
        slot, spec = domain.slot, self.spec
        slots = [child.slot for child in domain.children]
        unit = spec.units[domain.level + 1]
        pods = self.pods
        rounded = [pods[each] for each in slots]
        if unit > 1:
            rounded = [count - count % unit for count in rounded]
        total = sum(rounded)
        pods[slot] = total
        is_slice = domain.level == spec.slice_level
        above = domain.level < spec.slice_level
        slices = self.slices
        if is_slice:
            slices[slot] = total // spec.slice_size
        else:
            slices[slot] = sum([slices[each] for each in slots]) if above else 0
        scores = self.scores
        scores[slot] = sum([scores[each] for each in slots])
        if spec.leader:
            self._count_led(domain, rounded, unit)

    def _count_led(self, domain: Domain, rounded: list[int], unit: int) -> None:
        slot, spec = domain.slot, self.spec
        led, slices, slices_led, leads = self.pods_led, self.slices, self.slices_led, self.leads
        lost = lost_slices = UNBOUNDED
        for child, count in zip(domain.children, rounded, strict=True):
            at = child.slot
            if not leads[at]:
                continue
            with_leader = led[at] - led[at] % unit if unit > 1 else led[at]
            lost = min(lost, count - with_leader)
            lost_slices = min(lost_slices, slices[at] - slices_led[at])
        possible = lost < UNBOUNDED
        leads[slot] = int(possible)
        led[slot] = self.pods[slot] - lost if possible else 0
        if domain.level == spec.slice_level:
            slices_led[slot] = led[slot] // spec.slice_size
        else:
            slices_led[slot] = slices[slot] - lost_slices if possible else 0


def counts_of(
    tree: FlavorTree, spec: CountSpec, pod_filter: PodFilter, within: Callable[[Domain], bool] | None = None
) -> Counts:
    """The numbers of a spec as they are now. Those within a region are counted for this once."""
    if within is not None:
        return Counts(tree, spec, pod_filter, within).refresh()
    views = tree.views
    found = views.pop(spec, None)
    if found is None:
        found = Counts(tree, spec, pod_filter)
        while len(views) >= _VIEWS_MAX:
            del views[next(iter(views))]
    views[spec] = found
    refreshed: Counts = found.refresh()
    return refreshed


def amounts_of(requests: Iterable[tuple[str, int]]) -> Amounts:
    """What one pod takes of a node, given its requests."""
    amounts = dict(requests)
    amounts[PODS] = amounts.get(PODS, 0) + 1
    return tuple(sorted(amounts.items()))
