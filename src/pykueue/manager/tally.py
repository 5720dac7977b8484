"""Counting what queues hold, one Workload event at a time.

Each Workload counts in its LocalQueue and, while it holds quota, in the ClusterQueue that gave it. Nothing is
ever counted again from scratch: a change takes back what the Workload counted before and adds what it counts
now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykueue.api.quantity import parse
from pykueue.engine.quota import to_quantity, units
from pykueue.jobs.objects import Object, get

from .workloads import reading

Key = tuple[str, str]
#: Amounts by flavor and resource, in the units quota is counted in.
Amounts = Counter[tuple[str, str]]


@dataclass
class Totals:
    """What one queue holds."""

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reservation: Amounts = field(default_factory=Counter)
    usage: Amounts = field(default_factory=Counter)

    def add(self, share: Share, sign: int) -> None:
        """Count a Workload (sign 1) or stop counting it (sign -1)."""
        self.pending += sign * share.pending
        self.reserving += sign * share.reserving
        self.admitted += sign * share.admitted
        for pair, amount in share.amounts.items():
            _add(self.reservation, pair, sign * amount)
            if share.admitted:
                _add(self.usage, pair, sign * amount)


def _add(amounts: Amounts, pair: tuple[str, str], amount: int) -> None:
    amounts[pair] += amount
    if not amounts[pair]:
        del amounts[pair]


class Share(NamedTuple):
    """What one Workload adds to its queues."""

    local_queue: Key
    cluster_queue: str
    pending: bool
    reserving: bool
    admitted: bool
    amounts: Mapping[tuple[str, str], int]


class Tally:
    """The totals of every queue."""

    def __init__(self) -> None:
        self._shares: dict[Key, Share] = {}
        self._local: dict[Key, Totals] = {}
        self._cluster: dict[str, Totals] = {}

    def local(self, queue: Key) -> Totals:
        """Totals of a LocalQueue."""
        return self._local.get(queue) or Totals()

    def cluster(self, queue: str) -> Totals:
        """Totals of a ClusterQueue; what is pending is counted in its LocalQueues only."""
        return self._cluster.get(queue) or Totals()

    def holds(self, cluster_queue: str) -> bool:
        """Whether any Workload holds quota of the ClusterQueue."""
        return self.cluster(cluster_queue).reserving > 0

    def see(self, key: Key, workload: Mapping[str, Any] | None) -> Iterator[Share]:
        """A Workload is like this now, or gone; yields the shares that changed, before and after."""
        old = self._shares.get(key)
        new = None if workload is None else share_of(workload)
        if old == new:
            return
        if old is not None:
            self._count(old, -1)
            yield old
        if new is not None:
            self._shares[key] = new
            self._count(new, 1)
            yield new
        else:
            self._shares.pop(key, None)

    def _count(self, share: Share, sign: int) -> None:
        local = self._local.setdefault(share.local_queue, Totals())
        local.add(share, sign)
        if local == Totals():
            del self._local[share.local_queue]
        if share.cluster_queue:
            cluster = self._cluster.setdefault(share.cluster_queue, Totals())
            cluster.add(share, sign)
            if cluster == Totals():
                del self._cluster[share.cluster_queue]


def share_of(workload: Mapping[str, Any]) -> Share:
    """What a Workload adds to its queues as it is."""
    namespace, _ = reading.key(workload)
    local_queue = (namespace, str(get(workload, "spec", "queueName") or ""))
    if reading.is_finished(workload):
        return Share(local_queue, "", False, False, False, {})
    if reading.has_quota(workload):
        queue = reading.cluster_queue(workload)
        return Share(local_queue, queue, False, True, reading.is_admitted(workload), _amounts(workload))
    queued = (
        reading.is_active(workload) and not reading.is_gated(workload) and not reading.is_on_hold(workload)
    )
    return Share(local_queue, "", queued, False, False, {})


def _amounts(workload: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Reserved amounts, less what its finished pods gave back (reference/kueue-semantics.md 2.7)."""
    counts = {str(p.get("name")): int(p.get("count", 1)) for p in get(workload, "spec", "podSets") or ()}
    reclaimable = {
        str(entry.get("name")): int(entry.get("count") or 0)
        for entry in get(workload, "status", "reclaimablePods") or ()
    }
    amounts: Amounts = Counter()
    for assignment in get(workload, "status", "admission", "podSetAssignments") or ():
        name = str(assignment.get("name"))
        admitted = int(assignment.get("count", counts.get(name, 1)))
        wanted = counts.get(name, admitted)
        left = wanted - min(reclaimable.get(name, 0), wanted)
        flavors = assignment.get("flavors") or {}
        for resource, quantity in (assignment.get("resourceUsage") or {}).items():
            if resource not in flavors:
                continue
            amount = units(resource, parse(quantity))
            if left < admitted and admitted > 0:
                amount = amount // admitted * left
            amounts[flavors[resource], resource] += amount
    return dict(amounts)


def flavor_usage(
    amounts: Amounts,
    covered: list[tuple[str, list[str]]],
    nominal: Mapping[tuple[str, str], int] | None = None,
) -> list[Object]:
    """`status.flavorsReservation` or `flavorsUsage`: every flavor and resource of the queue, unused ones too.

    With `nominal` quotas, what is used beyond them is shown as borrowed.
    """
    result = []
    for flavor, resources in covered:
        entries = []
        for resource in resources:
            total = amounts.get((flavor, resource), 0)
            entry: Object = {"name": resource, "total": str(to_quantity(resource, total))}
            if nominal is not None:
                borrowed = max(0, total - nominal.get((flavor, resource), 0))
                entry["borrowed"] = str(to_quantity(resource, borrowed))
            entries.append(entry)
        result.append({"name": flavor, "resources": entries})
    return result


def covered_pairs(cluster_queue: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The flavors of a ClusterQueue with the resources each covers, in the order of its spec."""
    return [
        (str(flavor.get("name")), [str(r.get("name")) for r in flavor.get("resources") or ()])
        for group in get(cluster_queue, "spec", "resourceGroups") or ()
        for flavor in group.get("flavors") or ()
    ]


def nominal_quotas(cluster_queue: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Nominal quota by flavor and resource, in the units quota is counted in."""
    return {
        (str(flavor.get("name")), str(r.get("name"))): units(
            str(r.get("name")), parse(r.get("nominalQuota", 0))
        )
        for group in get(cluster_queue, "spec", "resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for r in flavor.get("resources") or ()
    }
