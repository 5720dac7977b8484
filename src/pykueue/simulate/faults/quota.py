"""Available quota computed from the objects alone, by the definitions and independently of the engine.

Source: docs/reference/kueue-semantics.md 2.7, 3.1 and 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pykueue.api import conditions, hybrid, quantity
from pykueue.api.objects import Key, Object, get
from pykueue.jobs.slices import replaced_key
from pykueue.manager.indexes import job_uid

#: Flavor and resource.
Pair = tuple[str, str]


@dataclass
class _Node:
    nominal: dict[Pair, int] = field(default_factory=dict)
    borrowing: dict[Pair, int] = field(default_factory=dict)
    lending: dict[Pair, int] = field(default_factory=dict)
    used: dict[Pair, int] = field(default_factory=dict)
    parent: str = ""


def holds_quota(workload: Mapping[str, Any]) -> bool:
    """Whether quota is reserved for it and it has not finished."""
    return conditions.has_quota(workload) and not conditions.is_finished(workload)


def taken_over(workloads: Iterable[Object]) -> set[tuple[str, Key | None]]:
    """UID of the job and key of every slice whose quota another slice of that job holds."""
    return {(job_uid(one), replaced_key(one)) for one in workloads if holds_quota(one)}


def usage(workload: Mapping[str, Any]) -> dict[Pair, int]:
    """What a Workload with a reservation uses, in thousandths."""
    counts = {str(p.get("name")): int(p.get("count", 1)) for p in get(workload, "spec", "podSets") or ()}
    for name, count in conditions.reclaimable_counts(workload).items():
        counts[name] -= min(counts[name], count)
    found: dict[Pair, int] = {}
    for assigned in get(workload, "status", "admission", "podSetAssignments") or ():
        name = str(assigned.get("name"))
        admitted = int(assigned.get("count", counts[name]))
        for resource, amount in (assigned.get("resourceUsage") or {}).items():
            flavor = (assigned.get("flavors") or {}).get(resource)
            if flavor is None:
                continue
            total = quantity.parse(amount).milli()
            for part, pods in _parts(assigned, str(flavor), admitted):
                share = total // admitted * min(pods, counts[name]) if admitted else total
                pair = (part, str(resource))
                found[pair] = found.get(pair, 0) + share
    return found


def _parts(assigned: Mapping[str, Any], flavor: str, admitted: int) -> list[tuple[str, int]]:
    """The pods of each flavor that a resource is counted for."""
    split = hybrid.parts_in(assigned)
    if split and split[0].flavor == flavor:
        return [(part.flavor, part.pods) for part in split]
    return [(flavor, admitted)]


def _quotas(obj: Mapping[str, Any]) -> _Node:
    node = _Node()
    for group in get(obj, "spec", "resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                pair = (str(flavor["name"]), str(resource["name"]))
                node.nominal[pair] = quantity.parse(resource["nominalQuota"]).milli()
                for name, limits in (("borrowingLimit", node.borrowing), ("lendingLimit", node.lending)):
                    if resource.get(name) is not None:
                        limits[pair] = quantity.parse(resource[name]).milli()
    return node


def nominal(queue: Mapping[str, Any]) -> dict[Pair, int]:
    """The nominal quotas of a ClusterQueue or Cohort, in thousandths."""
    return _quotas(queue).nominal


class Books:
    """The tree of ClusterQueues and Cohorts with what Workloads use of it."""

    def __init__(
        self, cluster_queues: Iterable[Object], cohorts: Iterable[Object], workloads: Iterable[Object]
    ) -> None:
        self._nodes: dict[tuple[str, str], _Node] = {}
        for kind, objects, parent in (("cq", cluster_queues, "cohortName"), ("co", cohorts, "parentName")):
            for obj in objects:
                node = self._nodes[kind, obj["metadata"]["name"]] = _quotas(obj)
                node.parent = str(get(obj, "spec", parent) or "")
        for node in list(self._nodes.values()):
            if node.parent:
                self._nodes.setdefault(("co", node.parent), _Node())
        for workload in workloads:
            queue = self._nodes.get(("cq", conditions.cluster_queue(workload)))
            if queue is not None and holds_quota(workload):
                for pair, amount in usage(workload).items():
                    queue.used[pair] = queue.used.get(pair, 0) + amount

    def _children(self, key: tuple[str, str]) -> list[tuple[str, str]]:
        kind, name = key
        return [child for child, node in self._nodes.items() if kind == "co" and node.parent == name]

    def _subtree(self, key: tuple[str, str], pair: Pair) -> int:
        own = self._nodes[key].nominal.get(pair, 0)
        return own + sum(self._subtree(c, pair) - self._local(c, pair) for c in self._children(key))

    def _local(self, key: tuple[str, str], pair: Pair) -> int:
        limit = self._nodes[key].lending.get(pair)
        return 0 if limit is None else max(0, self._subtree(key, pair) - limit)

    def _used(self, key: tuple[str, str], pair: Pair) -> int:
        if key[0] == "cq":
            return self._nodes[key].used.get(pair, 0)
        return sum(max(0, self._used(c, pair) - self._local(c, pair)) for c in self._children(key))

    def _available(self, key: tuple[str, str], pair: Pair) -> int:
        node, quota, used = self._nodes[key], self._subtree(key, pair), self._used(key, pair)
        if not node.parent:
            return quota - used
        local = self._local(key, pair)
        above = self._available(("co", node.parent), pair)
        if pair in node.borrowing:
            above = min(above, quota - local - max(0, used - local) + node.borrowing[pair])
        return max(0, local - used) + above

    def available(self, cluster_queue: str, pair: Pair) -> int:
        """What a Workload of this ClusterQueue could get, in thousandths; negative where it is overdrawn."""
        key = ("cq", cluster_queue)
        if key not in self._nodes or pair not in self._nodes[key].nominal:
            return 0
        return self._available(key, pair)
