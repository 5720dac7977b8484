"""What the pods already placed mean for a pod: affinity, anti-affinity, spreading.

Rules and formulas: docs/reference/cluster-workloads.md, 4.7, and the Kubernetes documentation of inter-pod
affinity and of topology spread constraints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from typing import NamedTuple

from pykueue.embedded.podscheduler.cluster import Cluster, NodeCounts, NodeInfo
from pykueue.embedded.podscheduler.filters import MAX_SCORE, Refusal
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.embedded.podscheduler.terms import HOSTNAME, PodTerm, Spread

SPREAD = Refusal(("node(s) didn't match pod topology spread constraints",), False)
SPREAD_LABEL = Refusal(
    ("node(s) didn't match pod topology spread constraints (missing required label)",), True
)
AFFINITY = Refusal(("node(s) didn't match pod affinity rules",), True)
ANTI_AFFINITY = Refusal(("node(s) didn't match pod anti-affinity rules",), False)
REPELLED = Refusal(("node(s) didn't satisfy existing pods anti-affinity rules",), False)

SPREAD_WEIGHT = 2
INTER_POD_WEIGHT = 2


def repelling(cluster: Cluster, pod: PodInfo) -> tuple[PodTerm, ...]:
    """The anti-affinity terms of placed pods that mean this pod."""
    return tuple(
        term for term in cluster.repelling if term.selects(pod.namespace, pod.labels, cluster.namespaces)
    )


class _Skew(NamedTuple):
    """A hard spread constraint, counted out."""

    topology_key: str
    #: Pods per domain above which another one may not be added.
    ceiling: int
    counts: dict[str, int]


class RelationCheck:
    """The demands between one pod and all others, as they are now."""

    def __init__(self, cluster: Cluster, pod: PodInfo, repelled_by: Iterable[PodTerm]) -> None:
        relations = pod.relations
        self._repelled = [
            (term.topology_key, set(cluster.domains(cluster.repelling[term], term.topology_key)))
            for term in repelled_by
        ]
        self._avoided = [
            (term.topology_key, set(cluster.domains(cluster.counts(term), term.topology_key)))
            for term in relations.anti_affinity
        ]
        self._sought: list[tuple[str, set[str] | None]] = []
        if relations.affinity:
            counts = cluster.counts(*relations.affinity)
            domains = [set(cluster.domains(counts, term.topology_key)) for term in relations.affinity]
            if not any(domains) and cluster.selected(relations.affinity, pod):
                # The first of a group that wants to be together may start it anywhere.
                self._sought = [(term.topology_key, None) for term in relations.affinity]
            else:
                self._sought = [
                    (term.topology_key, found)
                    for term, found in zip(relations.affinity, domains, strict=True)
                ]
        self._skews = [self._skew(cluster, pod, one) for one in relations.hard_spread]

    @staticmethod
    def _skew(cluster: Cluster, pod: PodInfo, spread: Spread) -> _Skew:
        counts = cluster.counts(spread.term, living=True)
        keys = [one.term.topology_key for one in pod.relations.hard_spread]
        domains: dict[str, int] = {}
        for node in cluster.nodes:
            if _eligible(pod, node, spread, keys):
                value = node.labels[spread.term.topology_key]
                domains[value] = domains.get(value, 0) + counts.get(node.name, 0)
        least = min(domains.values()) if len(domains) >= spread.min_domains and domains else 0
        itself = cluster.selected((spread.term,), pod)
        return _Skew(spread.term.topology_key, spread.max_skew + least - itself, domains)

    def refusal(self, node: NodeInfo) -> Refusal | None:
        """The first demand that keeps the pod off the node."""
        labels = node.labels
        for key, ceiling, counts in self._skews:
            value = labels.get(key)
            if value is None:
                return SPREAD_LABEL
            if counts.get(value, 0) > ceiling:
                return SPREAD
        for key, allowed in self._sought:
            value = labels.get(key)
            if value is None or (allowed is not None and value not in allowed):
                return AFFINITY
        for key, taken in self._avoided:
            if labels.get(key) in taken:
                return ANTI_AFFINITY
        for key, taken in self._repelled:
            if labels.get(key) in taken:
                return REPELLED
        return None


def _eligible(pod: PodInfo, node: NodeInfo, spread: Spread, keys: Iterable[str]) -> bool:
    """Whether a node's domain is counted in a spread constraint."""
    if any(key not in node.labels for key in keys):
        return False
    shape = pod.shape
    if (
        spread.honor_affinity
        and shape.choice is not None
        and not shape.choice.matches(node.labels, node.name)
    ):
        return False
    return not spread.honor_taints or all(
        taint.effect == "PreferNoSchedule" or shape.tolerates(taint) for taint in node.taints
    )


def _all_eligible(pod: PodInfo, spread: Spread, keys: Sequence[str]) -> bool:
    """Whether every node with the constraint's label is counted, whatever its taints and other labels."""
    return (
        not spread.honor_taints
        and not (spread.honor_affinity and pod.shape.choice is not None)
        and all(key == spread.term.topology_key for key in keys)
    )


def company_scores(cluster: Cluster, pod: PodInfo, nodes: list[NodeInfo]) -> list[int] | None:
    """Weighted scores for wished-for and unwanted company; None when no node differs from another."""
    weights: dict[str, dict[str, int]] = {}

    def add(term: PodTerm, weight: int, counts: dict[str, int]) -> None:
        into = weights.setdefault(term.topology_key, {})
        for value, count in cluster.domains(counts, term.topology_key).items():
            into[value] = into.get(value, 0) + weight * count

    for weight, term in pod.relations.preferred:
        add(term, weight, cluster.counts(term))
    for (weight, term), counts in cluster.attracting.items():
        if term.selects(pod.namespace, pod.labels, cluster.namespaces):
            add(term, weight, counts)
    if not weights:
        return None
    raw = [
        sum(values.get(node.labels[key], 0) for key, values in weights.items() if key in node.labels)
        for node in nodes
    ]
    low, high = min(raw, default=0), max(raw, default=0)
    if low == high:
        return None
    return [INTER_POD_WEIGHT * (MAX_SCORE * (one - low) // (high - low)) for one in raw]


def spread_scores(
    cluster: Cluster, pod: PodInfo, spreads: tuple[Spread, ...], indexes: list[int], *, by_default: bool
) -> list[int] | None:
    """Weighted scores for few pods of the same kind per domain; None when no node differs from another.

    `indexes` are those of the nodes in `cluster.nodes`. `by_default` spreads of the system do without nodes'
    labels; a pod's own ones give nodes that lack a label nothing. Nodes with the same values of the labels
    and without such a pod have the same score, which is computed once.
    """
    if not spreads:
        return None
    keys = tuple(one.term.topology_key for one in spreads)
    column = cluster.column(keys)
    combinations = column.combinations
    first, last = indexes[0], indexes[-1] + 1
    in_one_piece = last - first == len(indexes)
    alike, number = column.part(first, last) if in_one_piece else column.selected(indexes)
    kinds = number.keys()
    counted = [by_default or None not in values for values in combinations]
    all_counted = all(counted[kind] for kind in kinds)
    rules: list[tuple[bool, dict[str, int], float, int]] = []
    occupied: set[str] = set()
    for place, spread in enumerate(spreads):
        counts = cluster.counts(spread.term, living=True)
        by_node = spread.term.topology_key == HOSTNAME
        if by_node:
            occupied.update(counts)
            size = sum([number[kind] for kind in kinds if counted[kind]])
        else:
            counts = _by_domain(cluster, pod, spread, counts, () if by_default else keys)
            size = len({combinations[kind][place] for kind in kinds} - {None})
        rules.append((by_node, counts, log(size + 2), spread.max_skew - 1))

    def crowding(kind: int, name: str) -> int:
        total = 0.0
        if counted[kind]:
            values = combinations[kind]
            for place in range(len(rules)):
                value = values[place]
                if value is not None:
                    by_node, counts, weight, free = rules[place]
                    total = total + counts.get(name if by_node else value, 0) * weight + free
        return round(total)

    without_pods = {kind: crowding(kind, "") for kind in kinds}
    #: The nodes with such pods, by their place among `indexes`.
    taken: dict[int, int] = {}
    if occupied:
        places = None if in_one_piece else {index: place for place, index in enumerate(indexes)}
        for index, name in cluster.indexes(occupied):
            place = index - first if places is None else places.get(index, -1)
            if 0 <= place < len(alike):
                taken[place] = crowding(alike[place], name)
    taken_of = Counter(map(alike.__getitem__, taken))
    seen = {without_pods[kind] for kind in kinds if counted[kind] and number[kind] > taken_of[kind]}
    seen.update(value for place, value in taken.items() if counted[alike[place]])
    low, high = min(seen, default=0), max(seen, default=0)
    if low == high and all_counted:
        return None
    points = {
        one: SPREAD_WEIGHT * (MAX_SCORE * (high + low - one) // high if high else MAX_SCORE) for one in seen
    }
    of_kind = [0] * len(combinations)
    for kind in kinds:
        if counted[kind]:
            of_kind[kind] = points.get(without_pods[kind], 0)
    scores = [of_kind[kind] for kind in alike]
    for place, value in taken.items():
        scores[place] = points[value] if counted[alike[place]] else 0
    return scores


def _by_domain(
    cluster: Cluster, pod: PodInfo, spread: Spread, counts: NodeCounts, keys: Sequence[str]
) -> dict[str, int]:
    """Pods per domain of a spread constraint, where a node must have all of `keys` to be counted."""
    key = spread.term.topology_key
    if _all_eligible(pod, spread, keys):
        return cluster.domains(counts, key)
    domains: dict[str, int] = {}
    for name, count in counts.items():
        node = cluster.node(name)
        if node is not None and key in node.labels and _eligible(pod, node, spread, keys):
            value = node.labels[key]
            domains[value] = domains.get(value, 0) + count
    return domains
