"""The quota tree: cohorts hold cohorts and ClusterQueues, and the cells of every node are linked to the
parent's.

Events only note which nodes changed; `Forest.settle` rebuilds the trees these nodes are in, once for any
number of events. Between two rebuilds only usage moves, along the cells. Source: reference/kueue-
semantics.md 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pykueue.api import kueue
from pykueue.engine.journal import Journal
from pykueue.engine.names import Pairs
from pykueue.engine.quota import Cell, quota_units

if TYPE_CHECKING:
    from pykueue.engine.cluster_queue import ClusterQueue


def fair_weight(fair_sharing: kueue.FairSharing | None) -> float:
    """Weight of a participant, 1 if not said."""
    return 1.0 if fair_sharing is None else float(fair_sharing.weight)


class Node:
    """A ClusterQueue or a cohort."""

    __slots__ = ("cells", "height", "lendable", "name", "parent", "path", "tree", "weight")

    is_queue = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.parent: Cohort | None = None
        self.tree: Tree = Tree(self)
        #: By pair.
        self.cells: dict[int, Cell] = {}
        #: 1 for a cohort of queues, one more than its highest child otherwise; 0 for a queue.
        self.height = 0
        #: Weight under fair sharing.
        self.weight = 1.0
        #: Per resource, the most that could ever be used at this node (sum of potentials over flavors).
        self.lendable: dict[str, int] = {}
        #: Names from the root down to this node.
        self.path: tuple[str, ...] = (name,)

    def rebuilt(self) -> None:
        """Called when the node got new cells."""

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
    """Everything below one root, which shares its quota and nothing else's."""

    __slots__ = ("cyclic", "queues", "root")

    def __init__(self, root: Node, cyclic: bool = False) -> None:
        self.root = root
        #: The parent links run in a circle: nothing can be decided here.
        self.cyclic = cyclic
        #: All ClusterQueues, by name.
        self.queues: list[ClusterQueue] = []


class Forest:
    """All cohorts, and the trees they and the ClusterQueues form."""

    def __init__(self, pairs: Pairs, journal: Journal) -> None:
        self.pairs = pairs
        self.journal = journal
        self.cohorts: dict[str, Cohort] = {}
        #: Nodes whose tree must be rebuilt, in the order they changed.
        self.dirty: dict[Node, None] = {}

    def cohort(self, name: str) -> Cohort:
        """The cohort of that name, made implicitly if it has no object."""
        found = self.cohorts.get(name)
        if found is None:
            found = Cohort(name)
            self.journal.put(self.cohorts, name, found)
            self.touch(found)
        return found

    def set_cohort(self, name: str, obj: kueue.Cohort | None) -> None:
        """A Cohort object appeared, changed or (None) went: then the cohort is implicit while it has
        members."""
        if obj is None and name not in self.cohorts:
            return
        node = self.cohort(name)
        self.journal.set(node, "obj", obj)
        self.journal.set(node, "weight", fair_weight(obj.spec.fair_sharing if obj is not None else None))
        self.link(node, (obj.spec.parent_name or "") if obj is not None else "")
        self.touch(node)
        self._drop_if_unused(node)

    def link(self, node: Node, parent_name: str) -> None:
        """Hangs a node under the cohort of that name; the empty name makes it a root."""
        old = node.parent
        if (old.name if old is not None else "") == parent_name:
            return
        members = "queues" if node.is_queue else "children"
        if old is not None:
            self.journal.drop(getattr(old, members), node.name)
            self.touch(old)
        new = self.cohort(parent_name) if parent_name else None
        self.journal.set(node, "parent", new)
        if new is not None:
            self.journal.put(getattr(new, members), node.name, node)
        self.touch(node)
        if old is not None:
            self._drop_if_unused(old)

    def touch(self, node: Node) -> None:
        """The quota or the place of the node changed."""
        self.journal.put(self.dirty, node, None)

    def _drop_if_unused(self, node: Cohort) -> None:
        if node.obj is None and not node.children and not node.queues:
            parent = node.parent
            self.journal.drop(self.cohorts, node.name)
            self.journal.drop(self.dirty, node)
            if parent is not None:
                self.journal.drop(parent.children, node.name)
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
            self.journal.drop(self.dirty, node)
        for node in dirty:
            if node in seen:
                continue
            root = self._root(node)
            if root is not None:
                rebuilt.append(self._build(root, seen))
            else:
                rebuilt.extend(self._disable(node, seen))
        return rebuilt

    def _root(self, node: Node) -> Node | None:
        """The root above a node; None if the parent links run in a circle."""
        chain = {node}
        while node.parent is not None:
            node = node.parent
            if node in chain:
                return None
            chain.add(node)
        return node

    def _disable(self, node: Node, seen: set[Node]) -> list[Tree]:
        """Gives every queue that hangs on the circle above the node a tree of its own, without quota."""
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
                cells = {number: self._cell(queue, number) for number in queue.held_pairs()}
                for number, cell in cells.items():
                    cell.usage = queue.held_amount(number)
                self._adopt(queue, tree, (cohort.name, queue.name), cells)
                trees.append(tree)
        return trees

    def _build(self, root: Node, seen: set[Node]) -> Tree:
        tree = Tree(root)
        self._fill(root, tree, (), seen)
        self._reach(root, {})
        tree.queues.sort(key=lambda queue: queue.name)
        return tree

    def _fill(self, node: Node, tree: Tree, above: tuple[str, ...], seen: set[Node]) -> dict[int, Cell]:
        """Gives a node and all below it new cells, children first, and counts their usage upwards."""
        seen.add(node)
        path = (*above, node.name)
        cells: dict[int, Cell] = {}
        height = 0
        if isinstance(node, Cohort):
            below: list[Node] = [node.children[name] for name in sorted(node.children)]
            below += [node.queues[name] for name in sorted(node.queues)]
            for child in below:
                for number, part in self._fill(child, tree, path, seen).items():
                    cell = cells.get(number)
                    if cell is None:
                        cell = cells[number] = self._cell(node, number)
                    part.parent = cell
                    cell.subtree += part.subtree - part.local
                    cell.withheld += part.local
                    cell.usage += max(0, part.usage - part.local)
                height = max(height, child.height + 1)
            groups = node.obj.spec.resource_groups if node.obj is not None else []
            self._quotas(node, cells, groups)
        else:
            queue: ClusterQueue = node  # type: ignore[assignment]
            tree.queues.append(queue)
            self._quotas(node, cells, queue.resource_groups(), *queue.quota_percents())
            for number in queue.held_pairs():
                if number not in cells:
                    cells[number] = self._cell(node, number)
                cells[number].usage = queue.held_amount(number)
        for cell in cells.values():
            cell.finish()
        self.journal.set(node, "height", height)
        self._adopt(node, tree, path, cells)
        return cells

    def _cell(self, node: Node, pair: int) -> Cell:
        return Cell(node, pair, self.pairs.resource(pair))

    def _quotas(
        self,
        node: Node,
        cells: dict[int, Cell],
        groups: Iterable[kueue.ResourceGroup],
        borrowing_percent: int | None = None,
        lendable_percent: int | None = None,
    ) -> None:
        for group in groups:
            for flavor in group.flavors:
                for quota in flavor.resources:
                    number = self.pairs.number(flavor.name, quota.name)
                    cell = cells.get(number)
                    if cell is None:
                        cell = cells[number] = self._cell(node, number)
                    nominal = cell.nominal = quota_units(quota.name, quota.nominal_quota)
                    cell.subtree += nominal
                    if node.parent is None:
                        continue  # limits mean nothing without somebody to borrow from (3.1)
                    if quota.borrowing_limit is not None:
                        cell.borrowing_limit = quota_units(quota.name, quota.borrowing_limit)
                    elif borrowing_percent is not None:
                        cell.borrowing_limit = nominal * borrowing_percent // 100
                    if quota.lending_limit is not None:
                        cell.lending_limit = quota_units(quota.name, quota.lending_limit)
                    elif lendable_percent is not None:
                        cell.lending_limit = nominal * lendable_percent // 100

    def _reach(self, node: Node, above: dict[int, int]) -> None:
        """Derives the potentials of a node and everything below, and what fair shares are measured against.

        A pair that only the root knows can be used through a node that does not name it.
        """
        potentials = dict(above)
        for number, cell in node.cells.items():
            cell.reach()
            potentials[number] = cell.potential
        if not isinstance(node, Cohort):
            return
        lendable: dict[str, int] = {}
        for number, potential in potentials.items():
            resource = self.pairs.resource(number)
            lendable[resource] = lendable.get(resource, 0) + potential
        self.journal.set(node, "lendable", lendable)
        for child in (*node.children.values(), *node.queues.values()):
            self._reach(child, potentials)

    def _adopt(self, node: Node, tree: Tree, path: tuple[str, ...], cells: dict[int, Cell]) -> None:
        self.journal.set(node, "tree", tree)
        self.journal.set(node, "path", path)
        self.journal.set(node, "cells", cells)
        node.rebuilt()
