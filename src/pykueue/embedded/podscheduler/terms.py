"""What pods say about nodes and about each other, compiled from manifests once and asked often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pykueue.api.objects import Object
from pykueue.api.selectors import Requirement, Selector

Labels = Mapping[str, str]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def label_selector(selector: Object | None) -> Selector | None:
    """A LabelSelector object compiled; None, which selects nothing, stays None."""
    if selector is None:
        return None
    rules = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    rules += _requirements(selector.get("matchExpressions") or ())
    return Selector(rules)


def _requirements(rules: Iterable[Object]) -> list[Requirement]:
    return [Requirement(rule["key"], rule["operator"], tuple(rule.get("values") or ())) for rule in rules]


class Taint(NamedTuple):
    """Keeps pods that do not tolerate it away."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """Lets a pod onto nodes with a matching taint; empty key or effect match every one."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether it tolerates the taint; an empty key or effect matches all."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or self.value == taint.value


def taints(items: Iterable[Object]) -> tuple[Taint, ...]:
    """The taints of a node manifest."""
    return tuple(
        Taint(one.get("key") or "", one.get("value") or "", one.get("effect") or "") for one in items
    )


def tolerations(items: Iterable[Object]) -> tuple[Toleration, ...]:
    """The tolerations of a pod manifest."""
    return tuple(
        Toleration(*(one.get(field) or "" for field in ("key", "operator", "value", "effect")))
        for one in items
    )


class NodeTerm(NamedTuple):
    """One node selector term: all its rules must hold; a term without rules never does."""

    labels: Selector
    names: Selector

    def matches(self, labels: Labels, name: str) -> bool:
        """Whether a node with these labels and this name meets the term. An empty term matches no node."""
        if not self.labels.requirements and not self.names.requirements:
            return False
        return self.labels.matches(labels) and self.names.matches({"metadata.name": name})


def _node_term(term: Object) -> NodeTerm:
    return NodeTerm(
        Selector(_requirements(term.get("matchExpressions") or ())),
        Selector(_requirements(term.get("matchFields") or ())),
    )


class NodeChoice(NamedTuple):
    """The nodes a pod may use: its nodeSelector, and any one of its required affinity terms."""

    labels: tuple[tuple[str, str], ...]
    #: None when there is no required affinity; an empty tuple chooses nothing.
    terms: tuple[NodeTerm, ...] | None

    def matches(self, labels: Labels, name: str) -> bool:
        """Whether a node of this name with these labels meets the node selector and the required affinity."""
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        return self.terms is None or any(term.matches(labels, name) for term in self.terms)


def node_choice(spec: Object) -> NodeChoice | None:
    """What a pod spec demands of its node's labels and name; None when nothing."""
    labels = tuple((spec.get("nodeSelector") or {}).items())
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if not labels and required is None:
        return None
    terms = None
    if required is not None:
        terms = node_terms(required)
    return NodeChoice(labels, terms)


def node_terms(selector: Mapping[str, Any]) -> tuple[NodeTerm, ...]:
    """The terms of a node selector, of which one must hold."""
    return tuple(_node_term(term) for term in selector.get("nodeSelectorTerms") or ())


def preferred_nodes(spec: Object) -> tuple[tuple[int, NodeTerm], ...]:
    """Weighted preferences for nodes."""
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return tuple(
        (one["weight"], _node_term(one.get("preference") or {})) for one in node.get(_PREFERRED) or ()
    )


class PodTerm(NamedTuple):
    """Pods of some namespaces, seen per domain of a topology key."""

    topology_key: str
    selector: Selector | None
    namespaces: frozenset[str]
    #: Further namespaces by their labels; an empty selector means all of them.
    namespace_selector: Selector | None

    def selects(self, namespace: str, labels: Labels, namespace_labels: Mapping[str, Labels]) -> bool:
        """Whether a pod of `namespace` with `labels` is meant."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return chosen is not None and chosen.matches(namespace_labels.get(namespace) or {})


def _pod_term(term: Object, namespace: str, labels: Labels) -> PodTerm:
    selector = label_selector(term.get("labelSelector"))
    if selector is not None:
        extra = [
            *_own(term.get("matchLabelKeys"), labels, "In"),
            *_own(term.get("mismatchLabelKeys"), labels, "NotIn"),
        ]
        if extra:
            selector = Selector((*selector.requirements, *extra))
    namespaces = frozenset(term.get("namespaces") or ())
    namespace_selector = label_selector(term.get("namespaceSelector"))
    if not namespaces and namespace_selector is None:
        namespaces = frozenset((namespace,))
    return PodTerm(term.get("topologyKey") or "", selector, namespaces, namespace_selector)


def _own(keys: Iterable[str] | None, labels: Labels, operator: str) -> list[Requirement]:
    return [Requirement(key, operator, (labels[key],)) for key in keys or () if key in labels]


class Spread(NamedTuple):
    """A preferred or required spread: pods are spread over the domains of a topology key."""

    term: PodTerm
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


class Relations(NamedTuple):
    """What a pod says about other pods."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    #: Positive weights attract, negative ones repel.
    preferred: tuple[tuple[int, PodTerm], ...] = ()
    hard_spread: tuple[Spread, ...] = ()
    soft_spread: tuple[Spread, ...] = ()

    @property
    def demands(self) -> bool:
        """Whether any of it can keep the pod from a node."""
        return bool(self.affinity or self.anti_affinity or self.hard_spread)

    @property
    def helped_by_arrivals(self) -> bool:
        """Whether a pod that is placed somewhere can open a node to this one."""
        return bool(self.affinity or self.hard_spread)

    @property
    def helped_by_departures(self) -> bool:
        """Whether a pod that goes can open other nodes than its own to this one."""
        return bool(self.anti_affinity or self.hard_spread)


NO_RELATIONS = Relations()


def relations(spec: Object, namespace: str, labels: Labels) -> Relations:
    """What a pod spec in `namespace`, of a pod with `labels`, says about other pods."""
    affinity = spec.get("affinity") or {}
    attract, repel = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    preferred = [
        (sign * one["weight"], _pod_term(one["podAffinityTerm"], namespace, labels))
        for sign, part in ((1, attract), (-1, repel))
        for one in part.get(_PREFERRED) or ()
    ]
    spreads: dict[str, list[Spread]] = {"DoNotSchedule": [], "ScheduleAnyway": []}
    for one in spec.get("topologySpreadConstraints") or ():
        spreads[one["whenUnsatisfiable"]].append(_spread(one, namespace, labels))
    return Relations(
        tuple(_pod_term(one, namespace, labels) for one in attract.get(_REQUIRED) or ()),
        tuple(_pod_term(one, namespace, labels) for one in repel.get(_REQUIRED) or ()),
        tuple(preferred),
        tuple(spreads["DoNotSchedule"]),
        tuple(spreads["ScheduleAnyway"]),
    )


def _spread(constraint: Object, namespace: str, labels: Labels) -> Spread:
    term = _pod_term({**constraint, "namespaces": [namespace]}, namespace, labels)
    return Spread(
        term,
        constraint["maxSkew"],
        constraint.get("minDomains") or 1,
        constraint.get("nodeAffinityPolicy") != "Ignore",
        constraint.get("nodeTaintsPolicy") == "Honor",
    )


def default_spread(selector: Selector, namespace: str) -> tuple[Spread, ...]:
    """How the pods of one service are spread when they do not say (docs/reference/cluster-workloads.md,
    4.7)."""
    return tuple(
        Spread(PodTerm(key, selector, frozenset((namespace,)), None), skew, 1, True, False)
        for key, skew in ((HOSTNAME, 3), (ZONE, 5))
    )
