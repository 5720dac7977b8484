"""What placement reads from nodes: labels, taints and amounts, and which pods may run on a node.

Source of the rules: docs/reference/topology-aware-scheduling.md 2.3, 7 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pykueue.api.core import Affinity, Node, NodeSelectorTerm, Taint, Toleration
from pykueue.api.selectors import Requirement
from pykueue.engine.quota.usage import units

#: Every pod takes one of these.
PODS: Final = "pods"
#: Effects of taints that keep a pod off a node.
_EXCLUDING: Final = frozenset({"NoSchedule", "NoExecute"})

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"

#: Amounts by resource in quota units, without zeros.
Amounts = tuple[tuple[str, int], ...]


class NodeFacts(NamedTuple):
    """The properties of a node that placement depends on; equal facts mean that nothing changed."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    """Those that keep pods off the node; with those that the node controller adds if it is not usable."""
    usable: bool
    """It is Ready and not cordoned."""
    allocatable: Mapping[str, int]


def node_facts(node: Node) -> NodeFacts:
    """The facts of a node."""
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    taints = [taint for taint in node.spec.taints if taint.effect in _EXCLUDING]
    implied = [] if ready else [Taint(key=_NOT_READY, effect="NoSchedule")]
    if node.spec.unschedulable:
        implied.append(Taint(key=_UNSCHEDULABLE, effect="NoSchedule"))
    known = {taint.key for taint in taints}
    return NodeFacts(
        node.metadata.name,
        node.metadata.labels,
        (*taints, *[taint for taint in implied if taint.key not in known]),
        ready and not node.spec.unschedulable,
        {resource: units(resource, amount) for resource, amount in node.status.allocatable.items()},
    )


class PodFilter:
    """Which nodes the pods of a template may run on; filters with the same `key` choose the same nodes."""

    __slots__ = ("_affinity", "_preferred", "_required", "_selector", "_tolerations", "key")

    def __init__(
        self,
        tolerations: Sequence[Toleration] = (),
        selector: Mapping[str, str] | None = None,
        affinity: Affinity | None = None,
    ) -> None:
        node_affinity = affinity.node_affinity if affinity is not None else None
        required = node_affinity.required if node_affinity is not None else None
        preferred = node_affinity.preferred if node_affinity is not None else []
        self._affinity = affinity
        self._tolerations = tuple(tolerations)
        self._selector = dict(selector or {})
        #: None where any node will do; else one of the terms must match.
        self._required = list(required.node_selector_terms) if required is not None else None
        self._preferred = [(each.weight, each.preference) for each in preferred]
        self.key = repr((self._tolerations, sorted(self._selector.items()), self._required, self._preferred))

    def updated(self, tolerations: Sequence[Toleration], selector: Mapping[str, str]) -> PodFilter | None:
        """The filter with more tolerations and node labels; None if it selects other values of these."""
        for key, value in selector.items():
            if self._selector.get(key, value) != value:
                return None
        return PodFilter((*self._tolerations, *tolerations), self._selector | dict(selector), self._affinity)

    def excludes(self, node: NodeFacts, more: Sequence[Toleration] = ()) -> str:
        """Why no pod may run on the node, as a category of exclusion; empty if pods may.

        `more` are the tolerations of the flavor.
        """
        for taint in node.taints:
            if not any(each.tolerates(taint) for each in (*self._tolerations, *more)):
                value = f"={taint.value}" if taint.value else ""
                return f'taint "{taint.key}{value}:{taint.effect}"'
        labels = node.labels
        for key, value in self._selector.items():
            if labels.get(key) != value:
                return "nodeSelector"
        if self._required is not None and not any(_matches(term, node) for term in self._required):
            return "affinity"
        return ""

    def score(self, node: NodeFacts) -> int:
        """The weights of the preferred terms that the node matches."""
        return sum(weight for weight, term in self._preferred if _matches(term, node))


def _matches(term: NodeSelectorTerm, node: NodeFacts) -> bool:
    """Whether a node matches a term; a term without requirements matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(
        Requirement(each.key, each.operator, tuple(each.values)).matches(node.labels)
        for each in term.match_expressions
    ) and all(
        Requirement(each.key, each.operator, tuple(each.values)).matches(fields) for each in term.match_fields
    )
