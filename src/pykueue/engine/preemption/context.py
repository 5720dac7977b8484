"""What the searches of one cycle share: who may be preempted, in order, and how large shares are.

While heads are nominated the tree stays as it is, and a search uses what others have found out. Then the
entries are processed one by one, and each changes what a few queues use or run. `changed` notes such a queue;
what is known is brought up to date when it is asked for again, at the cost of the changed queues and the
cohorts above them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from pykueue.engine.fair_sharing.shares import Share
from pykueue.engine.queues.cluster_queue import Candidate, ClusterQueue
from pykueue.engine.quota.tree import Cohort, Node, Tree
from pykueue.engine.workload import WorkloadInfo

if TYPE_CHECKING:
    from pykueue.engine.policies import EvaluationContext

#: Evicted and running candidates of a queue without any.
_NONE: Final[tuple[list[Candidate], list[Candidate]]] = ([], [])
#: So many new values are sorted in rather than inserted one by one.
_MANY: Final = 16


class PreemptionContext:
    """What the searches of one cycle share."""

    __slots__ = (
        "_changes",
        "_over",
        "_pools",
        "_queue_candidates",
        "evaluation",
        "fields",
        "gone",
        "richest",
        "shares",
    )

    def __init__(self, evaluation: EvaluationContext | None = None) -> None:
        #: Time and policy hooks; None where there are no hooks to ask.
        self.evaluation = evaluation
        #: Workloads that are no candidates any more.
        self.gone: set[WorkloadInfo] = set()
        #: Filled by the search under fair sharing: shares by node, for each cohort its children by share, and
        #: the candidates in their order by what decides who may be preempted.
        self.shares: dict[Node, Share] = {}
        self.richest: dict[Cohort, Ranking] = {}
        self.fields: dict[tuple[Tree, frozenset[int], int | None], Any] = {}
        self._queue_candidates: dict[ClusterQueue, dict[frozenset[int], list[Candidate]]] = {}
        self._pools: dict[tuple[Cohort, frozenset[int]], CandidatePool] = {}
        self._over: dict[tuple[Tree, frozenset[int]], list[ClusterQueue]] = {}
        #: The queues that changed, in order.
        self._changes: list[ClusterQueue] = []

    def changed(self, queue: ClusterQueue) -> None:
        """A queue uses more or less than before, or others of its workloads may be preempted."""
        self._changes.append(queue)
        self._over.clear()
        self._queue_candidates.pop(queue, None)
        if self.shares:
            node: Node = queue
            self.shares.pop(queue, None)
            for cohort in queue.ancestors():
                self.shares.pop(cohort, None)
                ranking = self.richest.get(cohort)
                if ranking is not None:
                    ranking.forget(node)
                node = cohort

    @property
    def version(self) -> int:
        """What is known now; `changed_since` says what changed after it."""
        return len(self._changes)

    def changed_since(self, version: int) -> Iterable[ClusterQueue]:
        """The queues that changed since then."""
        return dict.fromkeys(self._changes[version:])

    def pool(self, cohort: Cohort, needed: frozenset[int]) -> CandidatePool:
        """The borrowers below a cohort."""
        key = (cohort, needed)
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = CandidatePool(cohort, needed, self.gone)
        elif found.version < self.version:
            for queue in self.changed_since(found.version):
                found.update(queue)
        found.version = self.version
        return found

    def queue_candidates(self, queue: ClusterQueue, needed: frozenset[int]) -> list[Candidate]:
        """Workloads of a queue that hold one of the FlavorResources, evicted ones first."""
        known = self._queue_candidates.setdefault(queue, {})
        found = known.get(needed)
        if found is None:
            gone = self.gone
            found = known[needed] = [
                candidate
                for candidate in queue.candidate_order
                if not needed.isdisjoint(candidate.info.flavor_resources) and candidate.info not in gone
            ]
            if queue.evicted:
                found.sort(key=lambda candidate: not candidate.info.evicted)
        return found

    def over_nominal(self, tree: Tree, needed: frozenset[int]) -> list[ClusterQueue]:
        """Active queues of a tree that use more than their quota of any of the FlavorResources."""
        key = (tree, needed)
        found = self._over.get(key)
        if found is None:
            found = self._over[key] = [queue for queue in tree.queues if is_over_nominal(queue, needed)]
        return found


class Ranking:
    """The children of a cohort by a value, which is asked for when it is not known."""

    __slots__ = ("_entries", "_number", "_order", "unknown")

    def __init__(self, nodes: Iterable[Node]) -> None:
        #: Nodes whose value is to be asked for.
        self.unknown: dict[Node, None] = dict.fromkeys(nodes)
        #: (value, number, node), the lowest first; the number keeps nodes from being compared.
        self._order: list[tuple[Any, int, Node]] = []
        self._entries: dict[Node, tuple[Any, int, Node]] = {}
        self._number = 0

    def forget(self, node: Node) -> None:
        """The value of a node may have changed."""
        self.drop(node)
        self.unknown[node] = None

    def drop(self, node: Node) -> None:
        """A node has no place here any more."""
        entry = self._entries.pop(node, None)
        if entry is not None:
            del self._order[bisect_left(self._order, entry)]
        self.unknown.pop(node, None)

    def highest(self, value: Callable[[Node], Any]) -> list[tuple[Any, int, Node]]:
        """The two nodes with the highest values; `value` gives None for a node that does not count."""
        order, many = self._order, len(self.unknown) >= _MANY
        for node in self.unknown:
            found = value(node)
            if found is not None:
                self._number += 1
                entry = self._entries[node] = (found, self._number, node)
                if many:
                    order.append(entry)
                else:
                    insort(order, entry)
        if many:
            order.sort()
        self.unknown.clear()
        return order[-2:]

    def value_of(self, node: Node) -> Any:
        """The value of a node that counts, once `highest` was called."""
        return self._entries[node][0]


class CandidatePool:
    """Borrowers below a cohort, and what they run: candidates for all queues of the cohort (8.3)."""

    __slots__ = (
        "_borrowing",
        "_cohort",
        "_gone",
        "_members",
        "_needed",
        "evicted",
        "running",
        "subtree_of",
        "version",
    )

    def __init__(self, cohort: Cohort, needed: frozenset[int], gone: Collection[WorkloadInfo]) -> None:
        self._cohort = cohort
        self._needed = needed
        self._gone = gone
        #: What it was brought up to date with.
        self.version = 0
        #: The child of the cohort that a queue is, or is below.
        self.subtree_of: dict[ClusterQueue, Node] = {}
        #: Cohorts below that borrow, as do all cohorts between.
        self._borrowing: set[Cohort] = set()
        #: By queue: its evicted and its running candidates.
        self._members: dict[ClusterQueue, tuple[list[Candidate], list[Candidate]]] = {}
        self.evicted: list[Candidate] = []
        self.running: list[Candidate] = []
        for child in cohort.children.values():
            self._enter(child, child)
        for queue in cohort.queues.values():
            self._enter_queue(queue, queue)
        for evicted, running in self._members.values():
            self.evicted += evicted
            self.running += running
        # Candidates of one queue are in order already, which makes this sort a merge.
        self.evicted.sort()
        self.running.sort()

    def _enter(self, cohort: Cohort, child: Node) -> None:
        """Enters the borrowers below a cohort, which is `child` or below it."""
        if within_nominal(cohort, self._needed):
            return
        self._borrowing.add(cohort)
        for below in cohort.children.values():
            self._enter(below, child)
        for queue in cohort.queues.values():
            self._enter_queue(queue, child)

    def _enter_queue(self, queue: ClusterQueue, child: Node) -> None:
        if not is_over_nominal(queue, self._needed):
            return
        self.subtree_of[queue] = child
        needed, gone = self._needed, self._gone
        evicted: list[Candidate] = []
        running: list[Candidate] = []
        for candidate in queue.candidate_order:
            info = candidate.info
            if not needed.isdisjoint(info.flavor_resources) and info not in gone:
                (evicted if info.evicted else running).append(candidate)
        if evicted or running:
            self._members[queue] = evicted, running

    def update(self, queue: ClusterQueue) -> None:
        """What a queue uses or runs has changed."""
        path: list[Cohort] = []
        for cohort in queue.ancestors():
            if cohort is self._cohort:
                break
            path.append(cohort)
        else:
            return  # it is not below the cohort
        child: Node = path[-1] if path else queue
        for cohort in reversed(path):
            borrows = not within_nominal(cohort, self._needed)
            if borrows != (cohort in self._borrowing):
                queues = self._leave(cohort)
                self._enter(cohort, child)
                self._insert(queues)
                return
            if not borrows:
                return
        self._leave_queue(queue)
        self._enter_queue(queue, child)
        self._insert([queue])

    def _leave(self, cohort: Cohort) -> list[ClusterQueue]:
        """Takes out what is below a cohort; returns the queues there."""
        self._borrowing.discard(cohort)
        queues = list(cohort.queues.values())
        for queue in queues:
            self._leave_queue(queue)
        for child in cohort.children.values():
            queues += self._leave(child)
        return queues

    def _leave_queue(self, queue: ClusterQueue) -> None:
        if self.subtree_of.pop(queue, None) is not None:
            for line, members in zip(self._lines, self._members.pop(queue, _NONE), strict=True):
                for candidate in members:
                    del line[bisect_left(line, candidate)]

    def _insert(self, queues: list[ClusterQueue]) -> None:
        for queue in queues:
            for line, members in zip(self._lines, self._members.get(queue, _NONE), strict=True):
                for candidate in members:
                    insort(line, candidate)

    @property
    def _lines(self) -> tuple[list[Candidate], list[Candidate]]:
        return self.evicted, self.running


def _queues_below(cohort: Cohort) -> Iterable[ClusterQueue]:
    yield from cohort.queues.values()
    for child in cohort.children.values():
        yield from _queues_below(child)


def within_nominal(node: Node, flavor_resources: Iterable[int]) -> bool:
    """Whether a node uses no more than its own quota of every FlavorResource."""
    flavor_usages = node.flavor_usages
    for flavor_resource in flavor_resources:
        flavor_usage = flavor_usages.get(flavor_resource)
        if flavor_usage is not None and flavor_usage.usage > flavor_usage.subtree:
            return False
    return True


def is_over_nominal(queue: ClusterQueue, needed: Iterable[int]) -> bool:
    """Whether a queue is active and uses more than its quota of any of the FlavorResources."""
    return not queue.inactive and not within_nominal(queue, needed)
