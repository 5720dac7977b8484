"""The nodes and what runs on them, kept up to date pod by pod.

A log of changed nodes lets caches with an entry for every node refresh only the changed ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.quantity import QuantityError
from pykueue.embedded.kinds.podspec import Amounts, amounts_of
from pykueue.embedded.podscheduler.budgets import Budgets
from pykueue.embedded.podscheduler.devices import DeviceBooks
from pykueue.embedded.podscheduler.podinfo import PodInfo, Port
from pykueue.embedded.podscheduler.terms import HOSTNAME, PodTerm, Relations, Taint, taints

Labels = Mapping[str, str]

#: Pods of a term per node.
NodeCounts = dict[str, int]
#: Which pods are counted: those that all terms mean, and whether only living ones.
_Question = tuple[tuple[PodTerm, ...], bool]
#: The values of some labels of a node; None for one that it lacks.
LabelValues = tuple[str | None, ...]
#: Counts that are kept up to date, and combinations of labels whose values are.
REMEMBERED_COUNTS, REMEMBERED_COLUMNS = 256, 64
#: Neighbouring nodes of which it is kept how many have the same values.
REMEMBERED_PARTS = 64
_NOTHING: dict[_Question, NodeCounts] = {}


#: Which combinations some nodes have, in order, and how many of them have each.
Part = tuple[list[int], dict[int, int]]


class Column:
    """The values of some labels on all nodes."""

    def __init__(self, combinations: list[LabelValues], of_nodes: list[int]) -> None:
        #: Each combination once.
        self.combinations = combinations
        #: Which of them each node has, in the order of `Cluster.nodes`.
        self._of_nodes = of_nodes
        self._parts: dict[tuple[int, int], Part] = {}

    def part(self, first: int, last: int) -> Part:
        """Of the nodes from `first` to before `last`, kept: most cycles look at the same few parts."""
        found = self._parts.get((first, last))
        if found is None:
            if len(self._parts) >= REMEMBERED_PARTS:
                self._parts.clear()
            alike = self._of_nodes[first:last]
            found = self._parts[first, last] = alike, Counter(alike)
        return found

    def selected(self, indexes: list[int]) -> Part:
        """Of some nodes by their indexes."""
        alike = list(map(self._of_nodes.__getitem__, indexes))
        return alike, Counter(alike)


class NodeInfo:
    """One node: what it can give, and what is taken."""

    __slots__ = (
        "allocatable",
        "backed",
        "index",
        "labels",
        "name",
        "pods",
        "ports",
        "present",
        "scored_cpu",
        "scored_memory",
        "taints",
        "unschedulable",
        "used",
    )

    def __init__(self, name: str, backed: Mapping[str, str]) -> None:
        self.name = name
        #: Extended resources that devices stand for where the node has none of them itself.
        self.backed = backed
        #: Place in `Cluster.nodes`, -1 while the Node object is not there.
        self.index = -1
        self.present = False
        self.labels: Labels = {}
        self.taints: tuple[Taint, ...] = ()
        self.unschedulable = False
        self.allocatable: Amounts = {}
        self.used: Amounts = {}
        #: Use for scoring, where containers without requests count too.
        self.scored_cpu = 0
        self.scored_memory = 0
        self.pods: dict[str, PodInfo] = {}
        self.ports: Counter[Port] = Counter()

    def describe(self, manifest: Object) -> bool:
        """Take over what the Node object says; whether any of it matters to scheduling and is new."""
        metadata, spec, status = (
            manifest["metadata"],
            manifest.get("spec") or {},
            manifest.get("status") or {},
        )
        before = (self.labels, self.taints, self.unschedulable, self.allocatable)
        self.labels = metadata.get("labels") or {}
        self.taints = taints(spec.get("taints") or ())
        self.unschedulable = bool(spec.get("unschedulable"))
        try:
            self.allocatable = amounts_of(status.get("allocatable") or status.get("capacity"))
        except QuantityError:
            self.allocatable = {}
        return before != (self.labels, self.taints, self.unschedulable, self.allocatable)


class Cluster:
    """All nodes and all pods that use them."""

    def __init__(self) -> None:
        self.devices = DeviceBooks()
        #: The nodes whose Node object is there, in order of arrival.
        self.nodes: list[NodeInfo] = []
        #: Changes whenever `nodes` gets another order, and indexes mean something else.
        self.layout = 0
        #: Labels of the namespaces, by name.
        self.namespaces: dict[str, Labels] = {}
        #: Pods with a node, by uid.
        self.pods: dict[str, PodInfo] = {}
        #: How many pods with a node there are of each priority.
        self.priorities: Counter[int] = Counter()
        #: Pods that hold each required anti-affinity term, per node.
        self.repelling: dict[PodTerm, NodeCounts] = {}
        #: Pods that hold each weighted term, per node; a required affinity counts with weight 1.
        self.attracting: dict[tuple[int, PodTerm], NodeCounts] = {}
        self.budgets = Budgets()
        self._infos: dict[str, NodeInfo] = {}
        self._counts: dict[_Question, NodeCounts] = {}
        #: The same by a label that the pods meant must have; None for questions without one.
        self._counts_by_label: dict[tuple[str, str] | None, dict[_Question, NodeCounts]] = {}
        #: Pods with a node by each of their labels.
        self._by_label: dict[tuple[str, str], dict[str, PodInfo]] = {}
        #: The values of some labels on all nodes.
        self._columns: dict[tuple[str, ...], Column] = {}
        self._log: list[int] = []
        self._log_start = 0
        #: Nodes with PreferNoSchedule taints.
        self.soft_tainted: set[str] = set()

    # Nodes

    def node(self, name: str) -> NodeInfo | None:
        """The node, if its Node object is there."""
        info = self._infos.get(name)
        return info if info is not None and info.present else None

    def indexes(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """The places in `nodes` of those of the named nodes that are there, and their names."""
        infos = self._infos
        return [
            (info.index, name) for name in names if (info := infos.get(name)) is not None and info.present
        ]

    def set_node(self, manifest: Object) -> bool:
        """A Node object appeared or changed; whether that matters to scheduling."""
        name = manifest["metadata"]["name"]
        info = self._info(name)
        news = info.describe(manifest)
        if any(taint.effect == "PreferNoSchedule" for taint in info.taints):
            self.soft_tainted.add(name)
        else:
            self.soft_tainted.discard(name)
        if not info.present:
            info.present = True
            info.index = len(self.nodes)
            self.nodes.append(info)
            self.layout += 1
            self._columns.clear()
            return True
        if news:
            self._columns.clear()
            self._log_change(info)
        return news

    def remove_node(self, name: str) -> None:
        """A Node object went; pods that name it stay known."""
        info = self._infos.get(name)
        if info is None or not info.present:
            return
        info.present = False
        self.soft_tainted.discard(name)
        self.nodes.remove(info)
        for index, other in enumerate(self.nodes):
            other.index = index
        info.index = -1
        self.layout += 1
        self._columns.clear()
        if not info.pods:
            del self._infos[name]

    def set_device_class(self, name: str, manifest: Object | None) -> None:
        """A DeviceClass appeared, changed or went."""
        if self.devices.set_class(name, manifest):
            for info in self.nodes:
                self._log_change(info)

    def column(self, keys: tuple[str, ...]) -> Column:
        """The values of these labels on each node.

        The value of the label with the node's own name is left out ("" where there is one), so that few
        combinations are shared by many nodes.
        """
        found = self._columns.get(keys)
        if found is None:
            if len(self._columns) >= REMEMBERED_COLUMNS:
                self._columns.clear()
            numbers: dict[LabelValues, int] = {}
            of_nodes = []
            for node in self.nodes:
                values = tuple(
                    "" if key == HOSTNAME and key in node.labels else node.labels.get(key) for key in keys
                )
                of_nodes.append(numbers.setdefault(values, len(numbers)))
            found = self._columns[keys] = Column(list(numbers), of_nodes)
        return found

    def _info(self, name: str) -> NodeInfo:
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = NodeInfo(name, self.devices.backed)
        return info

    # Pods

    def add_pod(self, pod: PodInfo) -> bool:
        """Add a pod to `pod.node`; returns whether it has an anti-affinity term that no other pod has."""
        self.pods[pod.uid] = pod
        for label in pod.labels.items():
            self._by_label.setdefault(label, {})[pod.uid] = pod
        self.priorities[pod.priority] += 1
        info = self._info(pod.node)
        info.pods[pod.uid] = pod
        self._use(info, pod, 1)
        if self.devices.concern(pod):
            self.devices.assume(pod, info)
        return self._relate(pod, 1)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """The pod's place is free again."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return None
        for label in pod.labels.items():
            alike = self._by_label[label]
            del alike[uid]
            if not alike:
                del self._by_label[label]
        self.priorities[pod.priority] -= 1
        if not self.priorities[pod.priority]:
            del self.priorities[pod.priority]
        info = self._infos[pod.node]
        del info.pods[uid]
        self._use(info, pod, -1)
        self.devices.forget(uid)
        self._relate(pod, -1)
        if not info.pods and not info.present:
            del self._infos[pod.node]
        return pod

    def _use(self, info: NodeInfo, pod: PodInfo, sign: int) -> None:
        used, shape = info.used, pod.shape
        for name, value in shape.requests:
            used[name] = used.get(name, 0) + sign * value
        info.scored_cpu += sign * shape.scored_cpu
        info.scored_memory += sign * shape.scored_memory
        for port in shape.ports:
            info.ports[port] += sign
            if not info.ports[port]:
                del info.ports[port]
        if info.present:
            self._log_change(info)

    def _relate(self, pod: PodInfo, sign: int) -> bool:
        new_term = False
        if self._counts:
            for label in (None, *pod.labels.items()):
                for (terms, living), counts in self._counts_by_label.get(label, _NOTHING).items():
                    if not (living and pod.terminating) and self.selected(terms, pod):
                        _count(counts, pod.node, sign)
        if pod.related is None:
            return False
        for term in pod.relations.anti_affinity:
            new_term = new_term or term not in self.repelling
            _count_in(self.repelling, term, pod.node, sign)
        for weighted in _weighted(pod.relations):
            _count_in(self.attracting, weighted, pod.node, sign)
        return new_term

    def selected(self, terms: tuple[PodTerm, ...], pod: PodInfo) -> bool:
        """Whether all terms mean this pod."""
        return all(term.selects(pod.namespace, pod.labels, self.namespaces) for term in terms)

    def counts(self, *terms: PodTerm, living: bool = False) -> NodeCounts:
        """How many pods all terms mean, per node; `living` leaves out those that are terminating.

        Kept up to date from the first question on; the topology keys of the terms play no part.
        """
        key = (terms, living)
        found = self._counts.pop(key, None)
        if found is None:
            found = {}
            label = _demanded(terms)
            meant = self.pods if label is None else self._by_label.get(label, {})
            for pod in meant.values():
                if not (living and pod.terminating) and self.selected(terms, pod):
                    _count(found, pod.node, 1)
            if len(self._counts) >= REMEMBERED_COUNTS:
                self._forget_counts(next(iter(self._counts)))
            self._counts_by_label.setdefault(label, {})[key] = found
        self._counts[key] = found
        return found

    def _forget_counts(self, key: _Question) -> None:
        del self._counts[key]
        label = _demanded(key[0])
        alike = self._counts_by_label[label]
        del alike[key]
        if not alike:
            del self._counts_by_label[label]

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """A namespace's labels changed, or it went (None)."""
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        # The pods that terms match may have changed: count again on the next query.
        self._counts.clear()
        self._counts_by_label.clear()

    def domains(self, counts: NodeCounts, topology_key: str) -> dict[str, int]:
        """Counts per node summed up over the domains of a topology key; nodes without it do not count."""
        found: dict[str, int] = {}
        for name, count in counts.items():
            info = self._infos.get(name)
            value = info.labels.get(topology_key) if info is not None and info.present else None
            if value is not None:
                found[value] = found.get(value, 0) + count
        return found

    # Changes

    def _log_change(self, info: NodeInfo) -> None:
        if len(self._log) > 4096:
            drop = len(self._log) // 2
            del self._log[:drop]
            self._log_start += drop
        self._log.append(info.index)

    @property
    def position(self) -> int:
        """Where the log of changes ends now."""
        return self._log_start + len(self._log)

    def changes(self, position: int) -> Iterable[int] | None:
        """Indexes of the nodes changed since `position`; None when the log does not go back that far."""
        if position < self._log_start:
            return None
        return self._log[position - self._log_start :]


def _demanded(terms: tuple[PodTerm, ...]) -> tuple[str, str] | None:
    """A label that every pod the terms mean has."""
    for term in terms:
        for rule in term.selector.requirements if term.selector is not None else ():
            if rule.operator == "In" and len(rule.values) == 1:
                return rule.key, rule.values[0]
    return None


def _count(counts: NodeCounts, node: str, sign: int) -> None:
    value = counts.get(node, 0) + sign
    if value:
        counts[node] = value
    else:
        del counts[node]


def _count_in(terms: dict[Any, NodeCounts], key: Any, node: str, sign: int) -> None:
    counts = terms.setdefault(key, {})
    _count(counts, node, sign)
    if not counts:
        del terms[key]


def _weighted(held: Relations) -> Iterator[tuple[int, PodTerm]]:
    yield from held.preferred
    for term in held.affinity:
        yield 1, term
