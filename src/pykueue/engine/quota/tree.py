"""The quota tree: cohorts hold cohorts and ClusterQueues, and the usages of every node are linked to the
parent's.

Events only note which nodes changed; `Forest.settle` rebuilds the trees these nodes are in, once for any
number of events. Between two rebuilds only usage changes.
Source of the rules: docs/reference/kueue-semantics.md 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pykueue.api import kueue
from pykueue.api.cohorts import find_cycle
from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.quota.usage import UNLIMITED, FlavorUsage, quota_units
from pykueue.engine.undo_log import UndoLog

if TYPE_CHECKING:
    from pykueue.engine.queues.cluster_queue import ClusterQueue


def fair_weight(fair_sharing: kueue.FairSharing | None) -> float:
    """Weight of a participant, 1 if not set."""
    return 1.0 if fair_sharing is None else float(fair_sharing.weight)


class Node:
    """A ClusterQueue or a cohort."""

    __slots__ = ("flavor_usages", "height", "lendable", "name", "parent", "path", "tree", "weight")

    is_queue = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.parent: Cohort | None = None
        self.tree: Tree = Tree(self)
        #: By pair.
        self.flavor_usages: dict[int, FlavorUsage] = {}
        #: 1 for a cohort of queues, one more than its highest child otherwise; 0 for a queue.
        self.height = 0
        #: Weight under fair sharing.
        self.weight = 1.0
        #: Per resource, the most that could ever be used at this node (sum of potentials over flavors).
        self.lendable: dict[str, int] = {}
        #: Names from the root down to this node.
        self.path: tuple[str, ...] = (name,)

    def rebuilt(self) -> None:
        """Called when the node got new usages."""

    def ancestors(self) -> Iterator[Cohort]:
        """The cohorts above, nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


class Cohort(Node):
    """An inner node; without an object of its own it is implicit: no quota, weight 1."""

    __slots__ = ("children", "obj", "queues")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.obj: kueue.Cohort | None = None
        self.children: dict[str, Cohort] = {}
        self.queues: dict[str, ClusterQueue] = {}


class Tree:
    """Everything below one root: quota is shared within a tree and never between trees."""

    __slots__ = ("cyclic", "preemptions", "queues", "reserved", "root")

    def __init__(self, root: Node, cyclic: bool = False) -> None:
        self.root = root
        #: The parent links form a cycle: nothing can be decided here.
        self.cyclic = cyclic
        #: All ClusterQueues, by name.
        self.queues: list[ClusterQueue] = []
        #: How often each workload preempted others since something else than preemption changed the tree.
        self.preemptions: dict[str, int] = {}
        #: The reservations of pending workloads as they were computed last (backfill).
        self.reserved: Any = None


class Forest:
    """All cohorts, and the trees they and the ClusterQueues form."""

    def __init__(self, flavor_resources: FlavorResources, undo_log: UndoLog) -> None:
        self.flavor_resources = flavor_resources
        self.undo_log = undo_log
        self.cohorts: dict[str, Cohort] = {}
        #: Nodes whose tree must be rebuilt, in the order they changed.
        self.dirty: dict[Node, None] = {}

    def cohort(self, name: str) -> Cohort:
        """The cohort of that name, made implicitly if it has no object."""
        found = self.cohorts.get(name)
        if found is None:
            found = Cohort(name)
            self.undo_log.put(self.cohorts, name, found)
            self.touch(found)
        return found

    def cycle_above(self, node: Node) -> tuple[str, ...]:
        """The cohorts above a node whose parent links form a cycle, by name; empty where there is none."""

        def parent(name: str) -> str:
            above = self.cohorts[name].parent
            return above.name if above is not None else ""

        first = node if isinstance(node, Cohort) else node.parent
        return find_cycle(first.name, parent) if first is not None else ()

    def set_cohort(self, name: str, obj: kueue.Cohort | None) -> None:
        """A Cohort object appeared, changed or (None) went: then the cohort is implicit while it has
        members."""
        if obj is None and name not in self.cohorts:
            return
        node = self.cohort(name)
        self.undo_log.set(node, "obj", obj)
        self.undo_log.set(node, "weight", fair_weight(obj.spec.fair_sharing if obj is not None else None))
        self.link(node, (obj.spec.parent_name or "") if obj is not None else "")
        self.touch(node)
        self._drop_if_unused(node)

    def link(self, node: Node, parent_name: str) -> None:
        """Moves a node below the cohort of that name; the empty name makes it a root."""
        old = node.parent
        if (old.name if old is not None else "") == parent_name:
            return
        members = "queues" if node.is_queue else "children"
        if old is not None:
            self.undo_log.drop(getattr(old, members), node.name)
            self.touch(old)
        new = self.cohort(parent_name) if parent_name else None
        self.undo_log.set(node, "parent", new)
        if new is not None:
            self.undo_log.put(getattr(new, members), node.name, node)
        self.touch(node)
        if old is not None:
            self._drop_if_unused(old)

    def touch(self, node: Node) -> None:
        """The quota or the place of the node changed."""
        self.undo_log.put(self.dirty, node, None)

    def _drop_if_unused(self, node: Cohort) -> None:
        if node.obj is None and not node.children and not node.queues:
            parent = node.parent
            self.undo_log.drop(self.cohorts, node.name)
            self.undo_log.drop(self.dirty, node)
            if parent is not None:
                self.undo_log.drop(parent.children, node.name)
                self.touch(parent)
                self._drop_if_unused(parent)

    def settle(self) -> list[Tree]:
        """Rebuilds every tree with a changed node; returns the new trees."""
        if not self.dirty:
            return []
        rebuilt: list[Tree] = []
        seen: set[Node] = set()
        dirty = list(self.dirty)
        for node in dirty:
            self.undo_log.drop(self.dirty, node)
        for node in dirty:
            if node in seen:
                continue
            root = self._root(node)
            if root is not None and len(dirty) == 1 and self._requote(node, root):
                rebuilt.append(root.tree)
            elif root is not None:
                rebuilt.append(self._build(root, seen))
            else:
                rebuilt.extend(self._disable(node, seen))
        return rebuilt

    def _root(self, node: Node) -> Node | None:
        """The root above a node; None if the parent links form a cycle."""
        chain = {node}
        while node.parent is not None:
            node = node.parent
            if node in chain:
                return None
            chain.add(node)
        return node

    def _disable(self, node: Node, seen: set[Node]) -> list[Tree]:
        """Gives every queue below the cycle above the node a separate tree, without quota."""
        chain: set[Node] = set()
        while node not in chain:
            chain.add(node)
            assert node.parent is not None
            node = node.parent
        trees = []
        stack: list[Cohort] = [node] if isinstance(node, Cohort) else []
        while stack:
            cohort = stack.pop()
            if cohort in seen:
                continue
            seen.add(cohort)
            stack.extend(cohort.children.values())
            self._adopt(cohort, Tree(cohort, cyclic=True), (cohort.name,), {})
            for _, queue in sorted(cohort.queues.items()):
                seen.add(queue)
                tree = Tree(queue, cyclic=True)
                tree.queues.append(queue)
                flavor_usages = {
                    flavor_resource: self._flavor_usage(queue, flavor_resource)
                    for flavor_resource in queue.reserved_flavor_resources()
                }
                for flavor_resource, flavor_usage in flavor_usages.items():
                    flavor_usage.usage = queue.reserved_amount(flavor_resource)
                self._adopt(queue, tree, (cohort.name, queue.name), flavor_usages)
                trees.append(tree)
        return trees

    def _build(self, root: Node, seen: set[Node]) -> Tree:
        tree = Tree(root)
        self._fill(root, tree, (), seen)
        self._reach(root, {})
        tree.queues.sort(key=lambda queue: queue.name)
        return tree

    def _requote(self, node: Node, root: Node) -> bool:
        """Gives a ClusterQueue other amounts of what it has quota for; False if more than that changed.

        The tree and its usages stay: only what the amounts change is counted again, up to the root.
        """
        tree = root.tree
        if not node.is_queue or node.tree is not tree or tree.root is not root or tree.cyclic:
            return False
        if node.path != (*(above.name for above in reversed(list(node.ancestors()))), node.name):
            return False
        after = self._own_usages(node)
        if after.keys() != node.flavor_usages.keys():
            return False
        if any(part.subtree >= UNLIMITED or part.usage >= UNLIMITED for part in after.values()):
            return False  # sums that are capped cannot be corrected by a difference
        for above in node.ancestors():
            if any(above.flavor_usages[each].subtree >= UNLIMITED for each in after):
                return False
        put = self.undo_log.set
        for flavor_resource, part in after.items():
            at: FlavorUsage | None = node.flavor_usages[flavor_resource]
            new = part.nominal, part.borrowing_limit, part.lending_limit
            if at is None or new == (at.nominal, at.borrowing_limit, at.lending_limit):
                continue
            for name, value in zip(("nominal", "borrowing_limit", "lending_limit"), new, strict=True):
                put(at, name, value)
            subtree, withheld, usage = part.subtree - at.subtree, 0, 0
            while at is not None:
                before = at.subtree - at.local, at.local, max(0, at.usage - at.local)
                for name in ("subtree", "local", "cap", "withheld", "usage"):
                    put(at, name, getattr(at, name))
                at.subtree += subtree
                at.withheld += withheld
                at.usage += usage
                at.finish()
                if at.subtree >= UNLIMITED:
                    return False
                subtree = at.subtree - at.local - before[0]
                withheld = at.local - before[1]
                usage = max(0, at.usage - at.local) - before[2]
                at = at.parent
        self._reach(root, {})
        # What was found out about its flavors is void, as after a rebuild: another mapping says so.
        put(node, "flavor_usages", dict(node.flavor_usages))
        put(tree, "preemptions", {})
        put(tree, "reserved", None)
        for queue in tree.queues:
            queue.rebuilt()
        return True

    def _own_usages(self, node: Node) -> dict[int, FlavorUsage]:
        """New usages of a ClusterQueue."""
        queue: ClusterQueue = node  # type: ignore[assignment]
        flavor_usages: dict[int, FlavorUsage] = {}
        self._quotas(node, flavor_usages, queue.resource_groups(), *queue.quota_percents())
        for flavor_resource in queue.reserved_flavor_resources():
            if flavor_resource not in flavor_usages:
                flavor_usages[flavor_resource] = self._flavor_usage(node, flavor_resource)
            flavor_usages[flavor_resource].usage = queue.reserved_amount(flavor_resource)
        for flavor_usage in flavor_usages.values():
            flavor_usage.finish()
        return flavor_usages

    def _fill(
        self, node: Node, tree: Tree, above: tuple[str, ...], seen: set[Node]
    ) -> dict[int, FlavorUsage]:
        """Gives a node and all below it new usages, children first, and counts their usage upwards."""
        seen.add(node)
        path = (*above, node.name)
        flavor_usages: dict[int, FlavorUsage] = {}
        height = 0
        if isinstance(node, Cohort):
            below: list[Node] = [node.children[name] for name in sorted(node.children)]
            below += [node.queues[name] for name in sorted(node.queues)]
            for child in below:
                for flavor_resource, part in self._fill(child, tree, path, seen).items():
                    flavor_usage = flavor_usages.get(flavor_resource)
                    if flavor_usage is None:
                        flavor_usage = flavor_usages[flavor_resource] = self._flavor_usage(
                            node, flavor_resource
                        )
                    part.parent = flavor_usage
                    flavor_usage.subtree += part.subtree - part.local
                    flavor_usage.withheld += part.local
                    flavor_usage.usage += max(0, part.usage - part.local)
                height = max(height, child.height + 1)
            groups = node.obj.spec.resource_groups if node.obj is not None else []
            self._quotas(node, flavor_usages, groups)
        else:
            tree.queues.append(node)  # type: ignore[arg-type]
            flavor_usages = self._own_usages(node)
        if isinstance(node, Cohort):
            for flavor_usage in flavor_usages.values():
                flavor_usage.finish()
        self.undo_log.set(node, "height", height)
        self._adopt(node, tree, path, flavor_usages)
        return flavor_usages

    def _flavor_usage(self, node: Node, flavor_resource: int) -> FlavorUsage:
        return FlavorUsage(node, flavor_resource, self.flavor_resources.resource(flavor_resource))

    def _quotas(
        self,
        node: Node,
        flavor_usages: dict[int, FlavorUsage],
        groups: Iterable[kueue.ResourceGroup],
        borrowing_percent: int | None = None,
        lendable_percent: int | None = None,
    ) -> None:
        for group in groups:
            for flavor in group.flavors:
                for quota in flavor.resources:
                    flavor_resource = self.flavor_resources.index_of(flavor.name, quota.name)
                    flavor_usage = flavor_usages.get(flavor_resource)
                    if flavor_usage is None:
                        flavor_usage = flavor_usages[flavor_resource] = self._flavor_usage(
                            node, flavor_resource
                        )
                    nominal = flavor_usage.nominal = quota_units(quota.name, quota.nominal_quota)
                    flavor_usage.subtree += nominal
                    if node.parent is None:
                        continue  # without a parent there is nothing to borrow: limits have no effect (3.1)
                    if quota.borrowing_limit is not None:
                        flavor_usage.borrowing_limit = quota_units(quota.name, quota.borrowing_limit)
                    elif borrowing_percent is not None:
                        flavor_usage.borrowing_limit = nominal * borrowing_percent // 100
                    if quota.lending_limit is not None:
                        flavor_usage.lending_limit = quota_units(quota.name, quota.lending_limit)
                    elif lendable_percent is not None:
                        flavor_usage.lending_limit = nominal * lendable_percent // 100

    def _reach(self, node: Node, above: dict[int, int]) -> None:
        """Derives the potentials of a node and everything below, and what fair shares are measured against.

        A pair that only the root knows can be used through a node that does not name it.
        """
        potentials = dict(above)
        for flavor_resource, flavor_usage in node.flavor_usages.items():
            potential = flavor_usage.reach()
            if potential != flavor_usage.potential:
                self.undo_log.set(flavor_usage, "potential", potential)
            potentials[flavor_resource] = flavor_usage.potential
        if not isinstance(node, Cohort):
            return
        lendable: dict[str, int] = {}
        for flavor_resource, potential in potentials.items():
            resource = self.flavor_resources.resource(flavor_resource)
            lendable[resource] = lendable.get(resource, 0) + potential
        if lendable != node.lendable:
            self.undo_log.set(node, "lendable", lendable)
        for child in (*node.children.values(), *node.queues.values()):
            self._reach(child, potentials)

    def _adopt(
        self, node: Node, tree: Tree, path: tuple[str, ...], flavor_usages: dict[int, FlavorUsage]
    ) -> None:
        self.undo_log.set(node, "tree", tree)
        self.undo_log.set(node, "path", path)
        self.undo_log.set(node, "flavor_usages", flavor_usages)
        node.rebuilt()


def tree_order(tree: Tree) -> tuple[str, bool]:
    """Sorting key: the order in which trees are cycled."""
    return tree.root.name, tree.root.is_queue
