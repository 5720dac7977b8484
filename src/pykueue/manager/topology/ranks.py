"""Which gated pod goes to which domain of its Workload's topology assignment.

Where the pods of a pod set are numbered, neighbours in number go to the same domain or to one next to it;
else the domains are filled in their order. Source: docs/reference/topology-aware-scheduling.md 14.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pykueue.api.kueue import Admission, PodSet, PodSetAssignment, PodSetTopologyRequest, TopologyAssignment
from pykueue.api.kueue.names import FLAVOR_LABEL, POD_INDEX_OFFSET_ANNOTATION
from pykueue.api.objects import Object, annotations_of, labels_of, section
from pykueue.api.topologies import expand
from pykueue.api.validation.syntax import integer
from pykueue.manager.nodes.outlines import is_topology_gated

#: The values of a domain, one per level of the assignment.
Values = tuple[str, ...]


class Placement(NamedTuple):
    """A pod that is to be ungated, and the node labels of its domain."""

    pod: Object
    node_labels: Mapping[str, str]
    flavor: str = ""
    """That it gets instead, where its pod set is split over flavors."""


class _Span(NamedTuple):
    """The ranks of a pod set: those of its group begin with the leader."""

    offset: int
    #: The first index that no pod of the group has.
    end: int


def placements(
    pod_set: PodSet, given: PodSetAssignment, span: tuple[int, int], pods: Sequence[Object]
) -> list[Placement]:
    """The gated pods of a pod set that have a domain; `pods` are all that have not terminated, in order.

    `span` is the offset of the pod set's indexes and the first index beyond them, from `spans`.
    """
    assignment = given.topology_assignment
    if assignment is None or not pods:
        return []
    domains = [values for values, count in expand(assignment) for _ in range(count)]
    count = pod_set.count if given.count is None else given.count
    more = integer(annotations_of(pods[0]).get(POD_INDEX_OFFSET_ANNOTATION, "")) or 0
    request = pod_set.topology_request
    chosen: list[tuple[Object, Values]] | None = None
    if request is not None and request.pod_index_label:
        ranks = _Span(span[0] + more, span[1] + more)
        chosen = _by_rank(request, count, ranks, pods, assignment.levels, domains)
    if chosen is None:
        chosen = _in_order(assignment, pods)
    gated = [(pod, values) for pod, values in chosen if is_topology_gated(pod)]
    if assignment.levels == [FLAVOR_LABEL]:
        return [Placement(pod, {}, flavor) for pod, (flavor,) in gated]
    return [Placement(pod, dict(zip(assignment.levels, values, strict=True))) for pod, values in gated]


def spans(pod_sets: Sequence[PodSet], admission: Admission) -> dict[str, tuple[int, int]]:
    """By pod set the offset of its pods' indexes, and the first index beyond them.

    The indexes of a leader and its workers continue one another; all others begin with 0.
    """
    counts = {given.name: given.count for given in admission.pod_set_assignments}
    sizes = {each.name: each.count if (n := counts.get(each.name)) is None else n for each in pod_sets}
    groups: dict[str, list[str]] = {}
    for number, each in enumerate(pod_sets):
        request: PodSetTopologyRequest | None = each.topology_request
        group = request.pod_set_group_name if request is not None else None
        groups.setdefault(group or f"/{number}", []).append(each.name)
    found: dict[str, tuple[int, int]] = {}
    for members in groups.values():
        offset = 0
        for name in sorted(members, key=lambda name: sizes[name]):
            found[name] = (offset, offset + sizes[name])
            offset += sizes[name]
    return found


def _by_rank(
    request: PodSetTopologyRequest,
    count: int,
    span: _Span,
    pods: Sequence[Object],
    levels: Sequence[str],
    domains: Sequence[Values],
) -> list[tuple[Object, Values]] | None:
    """All pods with the domain of their rank; None where the pods cannot be ranked."""
    chosen: dict[int, tuple[Object, Values]] = {}
    for pod in pods:
        rank = _rank(request, count, span, labels_of(pod))
        if rank is None or rank in chosen or not 0 <= rank < min(count, len(domains)):
            return None
        if not is_topology_gated(pod) and _values(levels, pod) != domains[rank]:
            return None  # it runs somewhere else
        chosen[rank] = (pod, domains[rank])
    return list(chosen.values())


def _rank(request: PodSetTopologyRequest, count: int, span: _Span, labels: Mapping[str, str]) -> int | None:
    """The rank that the labels of a pod give it; None where they give none."""
    index = _index(labels, request.pod_index_label, span.end)
    if index is None:
        return None
    if not request.sub_group_index_label:
        return index - span.offset
    if not request.sub_group_count:
        return None
    of_one = count // request.sub_group_count
    number = _index(labels, request.sub_group_index_label, request.sub_group_count)
    if number is None or index >= of_one:
        return None
    return index + number * of_one - span.offset


def _index(labels: Mapping[str, str], label: str | None, end: int) -> int | None:
    value = integer(labels.get(label or "", ""))
    return value if value is not None and 0 <= value < end else None


def _in_order(assignment: TopologyAssignment, pods: Sequence[Object]) -> list[tuple[Object, Values]]:
    """The gated pods with the domains that have room for more pods, in their order."""
    levels = assignment.levels
    there = Counter(_values(levels, pod) for pod in pods if not is_topology_gated(pod))
    gated = filter(is_topology_gated, pods)
    chosen: list[tuple[Object, Values]] = []
    for values, count in expand(assignment):
        free = max(0, count - there[values])
        chosen += [(pod, values) for pod in islice(gated, free)]
    return chosen


def _values(levels: Sequence[str], pod: Mapping[str, Any]) -> Values:
    """The domain that an ungated pod is pinned to, or its flavor."""
    selector = labels_of(pod) if levels == [FLAVOR_LABEL] else section(pod, "spec", "nodeSelector")
    return tuple([str(selector.get(level, "")) for level in levels])
