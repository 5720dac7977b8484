"""How many pods and slices of one kind each domain of a tree can hold, kept up to date as the tree changes.

Five numbers per domain, from the leaves up: pods, pods if the leader is there too, slices, slices if the
leader is there too, and whether the leader fits. After a change only the leaves it concerns are counted
again, and the difference is added to the domains above them. Source of the rules:
docs/reference/topology-aware-scheduling.md 9.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Final, NamedTuple

from pykueue.engine.flavors.host_ports import is_host_port
from pykueue.engine.topology.nodes import PODS, Amounts, PodFilter
from pykueue.engine.topology.room_index import RoomIndex
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

    def __init__(self, tree: FlavorTree, spec: CountSpec, pod_filter: PodFilter) -> None:
        self.tree = tree
        self.spec = spec
        self._filter = pod_filter
        #: Only this domain counts, where there is one.
        self._region: Domain | None = None
        self._set_lists([[] for _ in range(6 if spec.leader else 4)])
        #: How much of the tree's changes is counted in.
        self._seen = -1
        #: By slot of a leaf: the version of its nodes that was filtered last, why it is excluded, its score.
        self._filtered: dict[int, tuple[int, str, int]] = {}
        #: Domains in order, by level and by the domain that they are in; only those that were asked for.
        self._indexes: dict[int, RoomIndex] = {}
        self._indexes_within: dict[Domain, RoomIndex] = {}
        #: Why leaves hold no pod, and how many leaves each reason excludes.
        self._reasons: dict[Domain, str] = {}
        self.excluded: Counter[str] = Counter()
        #: (resource, amount of one pod, what leaves have of it that their nodes do not report).
        self._requests = tuple(
            [(name, amount, tree.unreported(name)) for name, amount in sorted(spec.amounts) if amount > 0]
        )

    def refresh(self) -> Counts:
        """Count what changed since the last time."""
        tree = self.tree
        end = tree.forgotten + len(tree.changes)
        if self._seen == end:
            return self
        for numbers in self._lists:
            numbers.extend([0] * (tree.slots - len(numbers)))
        if self._seen < tree.forgotten:
            self._count_all()
        else:
            self._count_changed(tree.changes[self._seen - tree.forgotten :])
        self._seen = end
        return self

    def _count_all(self) -> None:
        self._filtered.clear()
        self._indexes.clear()
        self._indexes_within.clear()
        self._reasons.clear()
        self.excluded.clear()
        by_level = self.tree.by_level
        for leaf in by_level[-1]:
            self._count_leaf(leaf)
        for domains in by_level[-2::-1]:
            for domain in domains:
                self.count_inner(domain)

    def _count_changed(self, changes: Iterable[Domain]) -> None:
        levels = len(self.tree.levels)
        changed: list[set[Domain]] = [set() for _ in range(levels)]
        for domain in changes:
            if domain.attached:
                changed[domain.level].add(domain)
            else:
                self._forget(domain)
        #: What children hold more than before: by domain (pods, slices, score).
        more: dict[Domain, tuple[int, int, int]] = {}
        for level in range(levels - 1, -1, -1):
            above: dict[Domain, tuple[int, int, int]] = {}
            for domain in changed[level].union(more):
                slot, parent = domain.slot, domain.parent
                before = self.pods[slot], self.slices[slot], self.scores[slot]
                if level == levels - 1:
                    self._count_leaf(domain)
                elif domain in changed[level]:
                    self.count_inner(domain)
                else:
                    self._add(domain, more[domain])
                index = self._indexes.get(level)
                if index is not None:
                    index.put(domain, self.slices[slot], self.pods[slot])
                within = self._indexes_within.get(parent) if parent is not None else None
                if within is not None:
                    within.put(domain, self.slices[slot], self.pods[slot])
                if parent is None or parent in changed[level - 1]:
                    continue
                if self.spec.leader:
                    changed[level - 1].add(parent)
                else:
                    after = self.pods[slot], self.slices[slot], self.scores[slot]
                    above[parent] = self._difference(level, before, after, above.get(parent, (0, 0, 0)))
            more = above

    def _difference(
        self,
        level: int,
        before: tuple[int, int, int],
        after: tuple[int, int, int],
        known: tuple[int, int, int],
    ) -> tuple[int, int, int]:
        """What the parent of a domain of a level gains by a change, on top of what is known already."""
        unit = self.spec.units[level]
        pods = after[0] - before[0]
        if unit > 1:
            pods = after[0] // unit * unit - before[0] // unit * unit
        return known[0] + pods, known[1] + after[1] - before[1], known[2] + after[2] - before[2]

    def _add(self, domain: Domain, more: tuple[int, int, int]) -> None:
        """Count what the children of a domain hold more than before."""
        slot, spec = domain.slot, self.spec
        self.pods[slot] += more[0]
        self.scores[slot] += more[2]
        if domain.level == spec.slice_level:
            self.slices[slot] = self.pods[slot] // spec.slice_size
        elif domain.level < spec.slice_level:
            self.slices[slot] += more[1]

    def _forget(self, domain: Domain) -> None:
        """Leave out a domain that is gone."""
        self._indexes_within.pop(domain, None)
        within = self._indexes_within.get(domain.parent) if domain.parent is not None else None
        for index in (self._indexes.get(domain.level), within):
            if index is not None:
                index.drop(domain)
        self._set_reason(domain, "")

    def domains(self, level: int) -> Sequence[Domain]:
        """The domains of a level that count, in the order of their values."""
        region = self._region
        if region is None:
            return self.tree.by_level[level]
        if level < region.level:
            return [each for each in region.path() if each.level == level]
        found = [region]
        for _ in range(level - region.level):
            found = [child for each in found for child in each.children]
        return found

    def without(self, host: str, region: Domain | None) -> Counts:
        """The numbers as if there were only one domain, and one host of it not."""
        tree = self.tree
        found = self.copy()
        found._region = region
        for leaf in tree.leaves_of_host(host):
            found.clear(leaf.slot)
            for domain in leaf.path()[-2::-1]:
                found.count_inner(domain)
        if region is not None:
            path = region.path()
            for domain in path:
                siblings = domain.parent.children if domain.parent is not None else tree.by_level[0]
                for each in siblings:
                    if each is not domain:
                        found.clear(each.slot)
            for domain in path[-2::-1]:
                found.count_inner(domain)
        inside = found.domains(len(tree.levels) - 1)
        reasons = [
            self._reasons[leaf] for leaf in inside if leaf in self._reasons and leaf.values[-1] != host
        ]
        found.excluded = Counter(reasons)
        outside = len(tree.by_level[-1]) - sum(leaf.values[-1] != host for leaf in inside)
        if outside:
            found.excluded["topologyDomain"] = outside
        return found

    def index(self, level: int) -> RoomIndex:
        """The domains of a level in the order of what they hold."""
        found = self._indexes.get(level)
        if found is None:
            found = self._indexes[level] = self._index_of(self.domains(level))
        return found

    def index_within(self, domain: Domain) -> RoomIndex:
        """The domains directly below one in the order of what they hold."""
        found = self._indexes_within.get(domain)
        if found is None:
            found = self._indexes_within[domain] = self._index_of(domain.children)
        return found

    def _index_of(self, domains: Iterable[Domain]) -> RoomIndex:
        slices, pods = self.slices, self.pods
        return RoomIndex((each, slices[each.slot], pods[each.slot]) for each in domains)

    def _exclusion(self, leaf: Domain) -> str:
        """Why no pod may run on a leaf, however empty; empty if pods may."""
        tree = self.tree
        if not tree.hostnames:
            return ""
        found = ""
        for node in leaf.nodes.values():
            found = self._filter.excludes(node, tree.tolerations)
            if found:
                break
        return found

    def _lacking(self, leaf: Domain) -> str:
        """The resource, or the host port, of which a leaf has too little for one pod."""
        least, name = UNBOUNDED, ""
        for resource, amount, _ in self._requests:
            count = self._free(leaf, resource) // amount
            if count < least:
                least, name = count, resource
        return name if is_host_port(name) else f'resource "{name}"'

    def _set_reason(self, leaf: Domain, reason: str) -> None:
        """Why a leaf holds no pod; empty if it does, or is gone."""
        before = self._reasons.get(leaf, "")
        if before == reason:
            return
        if before:
            self.excluded[before] -= 1
            if not self.excluded[before]:
                del self.excluded[before]
        if reason:
            self._reasons[leaf] = reason
            self.excluded[reason] += 1
        else:
            del self._reasons[leaf]

    def copy(self) -> Counts:
        """A copy: changes of its numbers, by `clear` and `count_inner`, leave these as they are."""
        found = copy(self)
        found._indexes = {}
        found._indexes_within = {}
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
        free = self.tree.unreported(resource) + leaf.capacity.get(resource, 0)
        free -= usage.assumed.get(resource, 0)
        return free if self.spec.empty else free - usage.amounts.get(resource, 0)

    def _count_leaf(self, leaf: Domain) -> None:
        slot, spec = leaf.slot, self.spec
        known = self._filtered.get(slot)
        if known is None or known[0] != leaf.nodes_version:
            hosts = leaf.nodes.values() if self.tree.hostnames else ()
            score = sum([self._filter.score(node) for node in hosts])
            known = self._filtered[slot] = leaf.nodes_version, self._exclusion(leaf), score
        if known[1]:
            self.clear(slot)
            self._set_reason(leaf, known[1])
            return
        usage = leaf.usage
        assert usage is not None
        capacity, assumed = leaf.capacity, usage.assumed
        used: dict[str, int] = {} if spec.empty else usage.amounts
        pods = UNBOUNDED
        for resource, amount, unreported in self._requests:
            free = unreported + capacity.get(resource, 0) - used.get(resource, 0)
            if assumed:
                free -= assumed.get(resource, 0)
            count = free // amount
            if count < pods:
                pods = count
        if pods <= 0:
            pods = 0
            self._set_reason(leaf, self._lacking(leaf))
        elif leaf in self._reasons:
            self._set_reason(leaf, "")
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
            for resource, amount, _ in self._requests:
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


def counts_of(tree: FlavorTree, spec: CountSpec, pod_filter: PodFilter) -> Counts:
    """The numbers of a spec as they are now."""
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
