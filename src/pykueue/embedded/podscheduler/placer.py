"""One scheduling cycle: the best node for a pod, or why there is none and what could be done about it.

Pure: no clock, no requests. Pods of equal shape share what was found out about each node; only nodes that
changed since are looked at again.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from operator import add
from typing import Any, NamedTuple

from pykueue.embedded.podscheduler import preemption
from pykueue.embedded.podscheduler.checks import Check, check_of
from pykueue.embedded.podscheduler.cluster import Cluster, NodeInfo
from pykueue.embedded.podscheduler.filters import Refusal, preference_scores, refusal, score
from pykueue.embedded.podscheduler.podinfo import PodInfo, Shape
from pykueue.embedded.podscheduler.relations import company_scores, repelling, spread_scores
from pykueue.embedded.podscheduler.terms import PodTerm, Spread

#: Up to this many nodes all are looked at, and at least this many that fit are enough.
MIN_SAMPLE = 100
#: The least number of nodes looked at together.
LEAST_BLOCK = 64
#: Shapes of which every node's answer is remembered.
REMEMBERED_SHAPES = 512
NO_NODES = "no nodes available to schedule pods"
_NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
_AWAITS_VICTIMS = "not eligible due to a terminating pod on the nominated node."

_UNKNOWN = -2
_REFUSED = -1


class Placed(NamedTuple):
    """The pod fits, and this node is the best."""

    node: str


class EquivalenceClass(NamedTuple):
    """Pods of which this is equal meet with the same refusals: what helps one may help all."""

    shape: Shape
    related: Any
    priority: int
    preempts: bool
    #: The anti-affinity terms of placed pods that mean these.
    repelled_by: tuple[PodTerm, ...]
    #: Of a group placed as a whole: how many members it lacks, and which kinds of them wait.
    lacking: int = 1
    composition: frozenset[tuple[object, object, int]] = frozenset()


class Unplaced(NamedTuple):
    """No node takes the pod now. With `nominated`, one will when the victims are gone."""

    message: str
    equivalence: EquivalenceClass
    nominated: str = ""
    victims: tuple[PodInfo, ...] = ()


class _View:
    """The answers of all nodes to one shape, as of some position in the log of changes."""

    __slots__ = ("layout", "position", "refusals", "scores")

    def __init__(self) -> None:
        self.layout = -1
        self.position = 0
        self.scores: list[int] = []
        self.refusals: list[Refusal | None] = []

    def catch_up(self, cluster: Cluster) -> None:
        changes: Iterable[int] | None = None
        if self.layout == cluster.layout:
            changes = cluster.changes(self.position)
        if changes is None:
            self.scores = [_UNKNOWN] * len(cluster.nodes)
            self.refusals = [None] * len(cluster.nodes)
            self.layout = cluster.layout
        else:
            for index in changes:
                self.scores[index] = _UNKNOWN
        self.position = cluster.position


def sample_size(nodes: int) -> int:
    """How many nodes that fit are enough to choose from (docs/reference/cluster-workloads.md, 4.7)."""
    if nodes <= MIN_SAMPLE:
        return nodes
    return max(MIN_SAMPLE, nodes * max(5, 50 - nodes // 125) // 100)


class Placer:
    """Chooses nodes; remembers answers, nominations, and where the last search ended."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._views: OrderedDict[Shape, _View] = OrderedDict()
        self._start = 0
        #: Pods that wait for their victims to end, per node, and the node of each.
        self._nominated: dict[str, dict[str, PodInfo]] = {}
        self._promised: dict[str, str] = {}

    # Nominations

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Nominate `node` for the pod; pods of lower priority lose their nomination there."""
        self.forget(pod.uid)
        waiting = self._nominated.setdefault(node, {})
        for uid in [uid for uid, other in waiting.items() if other.priority < pod.priority]:
            del waiting[uid], self._promised[uid]
        waiting[pod.uid] = pod
        self._promised[pod.uid] = node

    def forget(self, uid: str) -> str:
        """The pod no longer waits for a nominated node; the node's name if it did."""
        name = self._promised.pop(uid, "")
        if name:
            waiting = self._nominated[name]
            del waiting[uid]
            if not waiting:
                del self._nominated[name]
        return name

    def promised(self, uid: str) -> str:
        """The node kept for the pod, or ""."""
        return self._promised.get(uid, "")

    # The cycle

    def place(
        self,
        pod: PodInfo,
        default_spread: tuple[Spread, ...] = (),
        *,
        promised: str | None = None,
        preempt: bool = True,
    ) -> Placed | Unplaced:
        """Look for a node. `default_spread` applies to pods that say nothing about spreading.

        `promised` is the node to try first, by default the one kept for the pod. Without `preempt` others
        are not pushed aside.
        """
        cluster = self._cluster
        repelled_by = repelling(cluster, pod) if cluster.repelling else ()
        equivalence = EquivalenceClass(pod.shape, pod.related, pod.priority, pod.preempts, repelled_by)
        if not cluster.nodes:
            return Unplaced(NO_NODES, equivalence)
        check = check_of(cluster, pod, repelled_by)
        if promised is None:
            promised = self._promised.get(pod.uid, "")
        if promised:
            node = cluster.node(promised)
            if node is not None and self._refusal(pod, node, check) is None:
                return Placed(promised)
        view = self._view(pod.shape)
        feasible = self._search(pod, view, check)
        if feasible:
            return Placed(self._best(pod, view, feasible, default_spread))
        refusals = self._refusals(pod, view, check)
        message = fit_message(refusals)
        if not preempt:
            return Unplaced(message, equivalence)
        outcome = self._preempt(pod, refusals, promised)
        if isinstance(outcome, str):
            awaited = promised if outcome is _AWAITS_VICTIMS else ""
            return Unplaced(f"{message} preemption: {outcome}", equivalence, awaited)
        return Unplaced(message, equivalence, outcome.node, outcome.victims)

    def could_help(self, pod: PodInfo, node: NodeInfo) -> bool:
        """Whether a node that changed may now take the pod, other pods' demands aside."""
        return refusal(pod.shape, node) is None

    def _view(self, shape: Shape) -> _View:
        view = self._views.get(shape)
        if view is None:
            view = self._views[shape] = _View()
            if len(self._views) > REMEMBERED_SHAPES:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(shape)
        view.catch_up(self._cluster)
        return view

    def _search(self, pod: PodInfo, view: _View, check: Check | None) -> list[int]:
        """Indexes of nodes that fit, from where the last search ended, until there are enough."""
        nodes = self._cluster.nodes
        wanted = sample_size(len(nodes))
        start = self._start % len(nodes)
        nominated = self._nominated
        feasible: list[int] = []
        looked_at = 0
        while looked_at < len(nodes) and len(feasible) < wanted:
            first = (start + looked_at) % len(nodes)
            size = max(wanted - len(feasible), LEAST_BLOCK)
            # Not beyond the last node, nor, after it, those that were looked at first.
            last = min(first + size, len(nodes) if first >= start else start)
            fitting = self._fitting(pod.shape, view, first, last)
            if check is not None or nominated:
                fitting = [
                    index
                    for index in fitting
                    if (check is None and nodes[index].name not in nominated)
                    or self._refusal(pod, nodes[index], check) is None
                ]
            if len(fitting) > wanted - len(feasible):
                del fitting[wanted - len(feasible) :]
                last = fitting[-1] + 1
            feasible += fitting
            looked_at += last - first
        self._start = start + looked_at
        return feasible

    def _fitting(self, shape: Shape, view: _View, first: int, last: int) -> list[int]:
        """Indexes of the nodes, from `first` to before `last`, that fit, other pods' demands aside."""
        scores = view.scores[first:last]
        position = -1
        with suppress(ValueError):  # there is none any more
            while True:
                position = scores.index(_UNKNOWN, position + 1)
                index = first + position
                node = self._cluster.nodes[index]
                found = view.refusals[index] = refusal(shape, node)
                scores[position] = view.scores[index] = _REFUSED if found is not None else score(shape, node)
        if _REFUSED in scores:
            return [index for index, value in enumerate(scores, first) if value >= 0]
        return list(range(first, last))

    def _refusals(self, pod: PodInfo, view: _View, check: Check | None) -> list[Refusal]:
        """Every node's reason, after a search that found none that fits."""
        found = [
            self._refusal(pod, node, check) if known is None else known
            for node, known in zip(self._cluster.nodes, view.refusals, strict=True)
        ]
        return [one for one in found if one is not None]

    def _refusal(self, pod: PodInfo, node: NodeInfo, check: Check | None) -> Refusal | None:
        """Why the pod does not fit the node, with what is kept there for nominated pods."""
        found = refusal(pod.shape, node)
        if found is None and check is not None:
            found = check.refusal(node)
        if found is not None:
            return found
        guests = self._guests(pod, node.name)
        if not guests:
            return None
        for guest in guests:
            self._cluster.add_pod(guest)
        try:
            return preemption.full_refusal(self._cluster, pod, node)
        finally:
            for guest in guests:
                self._cluster.remove_pod(guest.uid)

    def _guests(self, pod: PodInfo, node: str) -> list[PodInfo]:
        """The pods that are nominated to the node, and which come before this one."""
        waiting = self._nominated.get(node)
        if not waiting:
            return []
        return [
            placed_at(one, node)
            for one in waiting.values()
            if one.priority >= pod.priority and one.uid != pod.uid
        ]

    def _best(
        self, pod: PodInfo, view: _View, feasible: list[int], default_spread: tuple[Spread, ...]
    ) -> str:
        cluster = self._cluster
        nodes = cluster.nodes
        if len(feasible) == 1:
            return nodes[feasible[0]].name
        first, last = feasible[0], feasible[-1] + 1
        # Most often the nodes that fit are neighbours, and are cut out of the columns in one piece.
        in_one_piece = last - first == len(feasible)
        totals = view.scores[first:last] if in_one_piece else list(map(view.scores.__getitem__, feasible))
        own = pod.relations.soft_spread
        by_default = not own and not pod.relations.hard_spread
        extras = [
            spread_scores(
                cluster, pod, default_spread if by_default else own, feasible, by_default=by_default
            )
        ]
        if cluster.soft_tainted or pod.shape.preferred or pod.relations.preferred or cluster.attracting:
            candidates = nodes[first:last] if in_one_piece else list(map(nodes.__getitem__, feasible))
            extras.append(preference_scores(cluster, pod.shape, candidates))
            if pod.relations.preferred or cluster.attracting:
                extras.append(company_scores(cluster, pod, candidates))
        given = [extra for extra in extras if extra is not None]
        for extra in given[1:]:
            totals = list(map(add, totals, extra))
        chosen = _best_places(totals, given[0] if given else None)
        return nodes[feasible[self._rng.choice(chosen)]].name

    def _preempt(self, pod: PodInfo, refusals: list[Refusal], promised: str) -> preemption.Plan | str:
        if not pod.preempts:
            return _NEVER_PREEMPTS
        node = self._cluster.node(promised) if promised else None
        if node is not None and any(
            other.terminating and other.priority < pod.priority for other in node.pods.values()
        ):
            return _AWAITS_VICTIMS
        plan = preemption.plan(self._cluster, pod, refusals, self._rng, self._guests)
        return plan if isinstance(plan, preemption.Plan) else fit_message(plan)


def _best_places(totals: list[int], more: list[int] | None) -> list[int]:
    """Where the sum of both is greatest."""
    if more is None:
        best = max(totals)
        return [place for place in range(len(totals)) if totals[place] == best]
    # One pass, by index: for most pods this is the longest loop of a cycle.
    best = totals[0] + more[0]
    chosen: list[int] = []
    for place in range(len(totals)):
        total = totals[place] + more[place]
        if total == best:
            chosen.append(place)
        elif total > best:
            best = total
            chosen = [place]
    return chosen


def placed_at(pod: PodInfo, node: str) -> PodInfo:
    """The pod as it will be on the node."""
    return pod.at(node)


def fit_message(refusals: list[Refusal]) -> str:
    """`0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu.`"""
    counts = Counter(reason for one in refusals for reason in one.reasons)
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{len(refusals)} nodes are available: {', '.join(reasons)}."
