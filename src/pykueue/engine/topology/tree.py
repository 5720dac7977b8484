"""The nodes of one flavor as a tree of domains, and what is used of them.

A `FlavorTree` follows the events of nodes, pods and workloads one by one; it is never built again while its
levels stay. Views that count pods per domain learn from `changes` which domains to count again.
Source of the rules: docs/reference/topology-aware-scheduling.md 2.3 and 7.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from pykueue.api.core import Toleration
from pykueue.api.topologies import HOSTNAME
from pykueue.engine.flavors.host_ports import ROOM, UNLIMITED, is_host_port
from pykueue.engine.topology.nodes import Amounts, NodeFacts

_BY_VALUES: Final = attrgetter("values")


class LeafUsage:
    """What is used of a leaf; leaves of several flavors that are the same node share one usage."""

    __slots__ = ("amounts", "assumed", "leaves")

    def __init__(self) -> None:
        #: By workloads that hold quota.
        self.amounts: dict[str, int] = {}
        #: By pod sets of the workload that is being placed.
        self.assumed: dict[str, int] = {}
        self.leaves: list[Domain] = []

    @property
    def idle(self) -> bool:
        """Whether nothing refers to it."""
        return not (self.amounts or self.assumed or self.leaves)


class Domain:
    """A domain of one level: the nodes that share the label values of this and all levels above."""

    __slots__ = (
        "attached",
        "capacity",
        "children",
        "level",
        "nodes",
        "nodes_version",
        "parent",
        "slot",
        "tree",
        "usage",
        "values",
    )

    def __init__(self, tree: FlavorTree, values: tuple[str, ...], parent: Domain | None, slot: int) -> None:
        self.tree = tree
        self.values = values
        self.level = len(values) - 1
        self.parent = parent
        #: In the order of their values.
        self.children: list[Domain] = []
        #: Its position in lists of numbers about the domains of the tree.
        self.slot = slot
        self.attached = True
        #: Of a leaf: its nodes, what they have beside what other pods use, and what workloads use.
        self.nodes: dict[str, NodeFacts] = {}
        #: Unlike that of any other set of nodes of a leaf in its tree.
        self.nodes_version = 0
        self.capacity: dict[str, int] = {}
        self.usage: LeafUsage | None = None

    def path(self) -> list[Domain]:
        """The domains that this one is in, widest first, and itself."""
        found, at = [self], self.parent
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1]

    def __repr__(self) -> str:
        return f"<Domain {'/'.join(self.values)}>"


class FlavorTree:
    """The domains of one flavor."""

    def __init__(
        self,
        flavor: str,
        topology: str,
        levels: Sequence[str],
        labels: Mapping[str, str],
        tolerations: Sequence[Toleration] = (),
        by_host: bool = True,
        scheduler_filters: bool = False,
    ) -> None:
        self.flavor = flavor
        self.topology = topology
        #: Node labels, widest first.
        self.levels = tuple(levels)
        self.labels = dict(labels)
        self.tolerations = tuple(tolerations)
        #: Leaves are single hosts, so that taints, selectors and affinity can be evaluated.
        self.hostnames = self.levels[-1] == HOSTNAME
        #: Nodes that are not usable are in the tree; their taints keep pods off.
        self._unusable_hosts = scheduler_filters and self.hostnames
        #: What workloads use counts for all flavors with that host (gate TASHandleOverlappingFlavors).
        self._shared = by_host and self.hostnames
        #: Domains by level, in the order of their values.
        self.by_level: list[list[Domain]] = [[] for _ in self.levels]
        self._domains: dict[tuple[str, ...], Domain] = {}
        #: The leaf of each node, by its name, and the leaf of each host, by the value of its label.
        self._leaf_of: dict[str, Domain] = {}
        self._leaf_by_host: dict[str, Domain] = {}
        #: One more than the largest slot of a domain.
        self.slots = 0
        self._free_slots: list[int] = []
        self._nodes_version = 0
        #: Domains whose numbers changed, in order; `forgotten` earlier entries are gone.
        self.changes: list[Domain] = []
        self.forgotten = 0
        #: Numbers about the domains, see `counts`.
        self.views: dict[Any, Any] = {}

    def level_index(self, label: str | None) -> int:
        """The position of a level; -1 if the topology has no such level."""
        return self.levels.index(label) if label in self.levels else -1

    def unreported(self, resource: str) -> int:
        """What every leaf has of a resource that nodes do not report: host ports; 0 of all others."""
        if not is_host_port(resource):
            return 0
        return ROOM if self.hostnames else UNLIMITED

    def usage_key(self, values: Sequence[str]) -> tuple[str, ...]:
        """The name of the usage of a leaf."""
        return usage_key(self.flavor, values[-1:] if self.hostnames else values, self._shared)

    def leaf(self, values: Sequence[str]) -> Domain | None:
        """The leaf with these values; of hosts only the last value counts."""
        if not self.hostnames:
            return self._domains.get(tuple(values))
        return self._leaf_by_host.get(values[-1])

    def leaves_of_host(self, host: str) -> list[Domain]:
        """The leaves with that host name: several, if nodes of different racks share it."""
        leaf = self._leaf_by_host.get(host)
        if leaf is None or leaf.usage is None:
            return []
        return [each for each in leaf.usage.leaves if each.tree is self]

    def domain(self, values: tuple[str, ...]) -> Domain | None:
        """The domain with these values of its level and all levels above."""
        return self._domains.get(values)

    # --- nodes ------------------------------------------------------------------------------------------

    def place_of(self, node: NodeFacts) -> tuple[str, ...] | None:
        """The values of the leaf that a node belongs to; None if it is not in the tree."""
        labels = node.labels
        if not (node.usable or self._unusable_hosts) or any(
            labels.get(key) != value for key, value in self.labels.items()
        ):
            return None
        if any(level not in labels for level in self.levels):
            return None
        return tuple([labels[level] for level in self.levels])

    def put(self, node: NodeFacts, used: Mapping[str, int], usages: dict[tuple[str, ...], LeafUsage]) -> bool:
        """Add or update a node; returns whether that changed the tree.

        `used` is what pods that are not placed use of the node. `usages` are what workloads use, by the name
        of the leaf.
        """
        before = self._leaf_of.get(node.name)
        values = self.place_of(node)
        if before is not None and before.nodes[node.name] == node and before.values == values:
            return False
        self.drop(node.name, used, usages)
        if values is None:
            return before is not None
        leaf = self._domains.get(values)
        if leaf is None:
            leaf = self._make(values)
            key = self.usage_key(values)
            usage = usages.get(key)
            if usage is None:
                usage = usages[key] = LeafUsage()
            usage.leaves.append(leaf)
            leaf.usage = usage
            if self.hostnames:
                self._leaf_by_host[values[-1]] = leaf
        self._leaf_of[node.name] = leaf
        leaf.nodes[node.name] = node
        self._count_nodes(leaf)
        _add(leaf.capacity, node.allocatable.items(), 1)
        _add(leaf.capacity, used.items(), -1)
        self.touch(leaf)
        return True

    def drop(self, name: str, used: Mapping[str, int], usages: dict[tuple[str, ...], LeafUsage]) -> bool:
        """Remove a node; returns whether that changed the tree."""
        leaf = self._leaf_of.pop(name, None)
        if leaf is None:
            return False
        node = leaf.nodes.pop(name)
        self._count_nodes(leaf)
        _add(leaf.capacity, node.allocatable.items(), -1)
        _add(leaf.capacity, used.items(), 1)
        if leaf.nodes:
            self.touch(leaf)
            return True
        usage = leaf.usage
        assert usage is not None
        usage.leaves.remove(leaf)
        if usage.idle:
            del usages[self.usage_key(leaf.values)]
        if self._leaf_by_host.get(leaf.values[-1]) is leaf:
            others = [each for each in usage.leaves if each.tree is self]
            if others:
                self._leaf_by_host[leaf.values[-1]] = others[0]
            else:
                del self._leaf_by_host[leaf.values[-1]]
        self._remove(leaf)
        return True

    def _count_nodes(self, leaf: Domain) -> None:
        """The nodes of a leaf changed."""
        self._nodes_version += 1
        leaf.nodes_version = self._nodes_version

    def same_terms(self, other: FlavorTree) -> bool:
        """Whether another tree has the same topology, levels, node labels and tolerations."""
        return (self.topology, self.levels, self.labels, self.tolerations) == (
            other.topology,
            other.levels,
            other.labels,
            other.tolerations,
        )

    def has_node(self, name: str) -> bool:
        """Whether a node is in the tree."""
        return name in self._leaf_of

    def problems(
        self, nodes: Mapping[str, NodeFacts], used: Mapping[str, Mapping[str, int]]
    ) -> Iterator[str]:
        """What differs from a tree that is built from the nodes now."""
        capacity: dict[tuple[str, ...], dict[str, int]] = {}
        for name, node in nodes.items():
            values = self.place_of(node)
            if values is not None:
                of_leaf = capacity.setdefault(values, {})
                _add(of_leaf, node.allocatable.items(), 1)
                _add(of_leaf, used.get(name, {}).items(), -1)
        counted = {leaf.values: leaf.capacity for leaf in self.by_level[-1]}
        if counted != capacity:
            yield f"flavor {self.flavor} counts nodes {counted}, there are {capacity}"

    def use(self, name: str, amounts: Iterable[tuple[str, int]], sign: int) -> None:
        """Pods that are not placed use more or less of a node; nothing changes if it is not in the tree."""
        leaf = self._leaf_of.get(name)
        if leaf is not None:
            _add(leaf.capacity, amounts, -sign)
            self.touch(leaf)

    def clear(self, usages: dict[tuple[str, ...], LeafUsage]) -> None:
        """Remove all nodes."""
        for name in list(self._leaf_of):
            self.drop(name, {}, usages)

    # --- domains ----------------------------------------------------------------------------------------

    def touch(self, domain: Domain) -> None:
        """The numbers of a leaf changed, or the children of another domain, or a domain is gone."""
        changes = self.changes
        changes.append(domain)
        if len(changes) > 4 * self.slots + 1000:
            # A view that was not used for so long counts everything again, which costs no more.
            self.forgotten += len(changes)
            changes.clear()

    def _make(self, values: tuple[str, ...]) -> Domain:
        parent: Domain | None = None
        for length in range(1, len(values) + 1):
            part = values[:length]
            domain = self._domains.get(part)
            if domain is None:
                if self._free_slots:
                    slot = self._free_slots.pop()
                else:
                    slot, self.slots = self.slots, self.slots + 1
                domain = self._domains[part] = Domain(self, part, parent, slot)
                insort(self.by_level[length - 1], domain, key=_BY_VALUES)
                if parent is not None:
                    insort(parent.children, domain, key=_BY_VALUES)
                    self.touch(parent)
            parent = domain
        assert parent is not None
        return parent

    def _remove(self, domain: Domain) -> None:
        at: Domain | None = domain
        while at is not None and not at.children and not at.nodes:
            del self._domains[at.values]
            _discard(self.by_level[at.level], at)
            self._free_slots.append(at.slot)
            at.attached = False
            self.touch(at)
            parent = at.parent
            if parent is not None:
                _discard(parent.children, at)
            at = parent
        if at is not None:
            self.touch(at)


def usage_key(flavor: str, values: Sequence[str], shared: bool) -> tuple[str, ...]:
    """The name of the usage of a leaf with these values; of hosts only the host.

    `shared`: all flavors have the usage in common.
    """
    return ("" if shared else flavor, *values)


def _discard(domains: list[Domain], domain: Domain) -> None:
    """Take a domain out of a list in the order of values."""
    del domains[bisect_left(domains, domain.values, key=_BY_VALUES)]


def _add(amounts: dict[str, int], more: Iterable[tuple[str, int]], sign: int) -> None:
    """Add amounts, or subtract them; resources that come to zero are left out."""
    for resource, amount in more:
        total = amounts.get(resource, 0) + sign * amount
        if total:
            amounts[resource] = total
        else:
            amounts.pop(resource, None)


def add_usage(usage: dict[str, int], amounts: Amounts, pods: int) -> None:
    """Count `pods` more pods with these amounts each; fewer if negative."""
    _add(usage, amounts, pods)
