"""What the status of a PreemptionPolicy says of preemptions: the latest, and totals by pair of queues.

A preemption is named by the Workload and the time of its condition Preempted: adding it again changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.preemption_policies import RECENT_MAX, TOTALS_MAX

#: The largest number that a status holds.
_INT64_MAX = 2**63 - 1


def with_preemptions(status: Mapping[str, Any], found: Iterable[Object]) -> Object:
    """The status with some preemptions added, as entries of `status.recent` have them."""
    recent = list(status.get("recent") or ())
    known = {_name(each) for each in recent}
    # What is older than all of a full list was in it once.
    oldest = recent[-1]["time"] if len(recent) >= RECENT_MAX else ""
    new = [each for each in found if _name(each) not in known and each["time"] >= oldest]
    if not new:
        return dict(status)
    totals = {_pair(each): dict(each) for each in status.get("totals") or ()}
    for each in new:
        total = totals.setdefault(
            _pair(each),
            {
                "preemptorClusterQueue": each["preemptorClusterQueue"],
                "clusterQueue": each["clusterQueue"],
                "count": 0,
                "lostResourceSeconds": {},
            },
        )
        total["count"] = total.get("count", 0) + 1
        lost = dict(total.get("lostResourceSeconds") or {})
        for resource, amount in (each.get("lostResourceSeconds") or {}).items():
            lost[resource] = min(lost.get(resource, 0) + amount, _INT64_MAX)
        total["lostResourceSeconds"] = lost
    recent = sorted((*recent, *new), key=lambda each: (each["time"], _name(each)), reverse=True)
    by_count = sorted(totals.values(), key=lambda each: (-each["count"], _pair(each)))
    return {**status, "recent": recent[:RECENT_MAX], "totals": by_count[:TOTALS_MAX]}


def _name(preemption: Mapping[str, Any]) -> tuple[str, str]:
    return preemption["workload"], preemption["time"]


def _pair(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["preemptorClusterQueue"], entry["clusterQueue"]
