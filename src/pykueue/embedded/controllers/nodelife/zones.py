"""How fast failed nodes may lose their pods.

A node that fails alone loses them soon. When many fail at once it is likelier that the network or the control
plane is at fault than that all those machines died, and evicting would make it worse: so there is a pace per
zone, slower or none at all where most nodes of a zone fail, and none when every node of the cluster does
(the Kubernetes documentation, "Rate limits on eviction"). Times are seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

#: Nodes per second that lose their pods, in a zone that is well, and in a large one that is not.
EVICTION_RATE = 0.1
SECONDARY_EVICTION_RATE = 0.01
#: A zone is unwell when at least this part of its nodes, and more than this number, have failed.
UNHEALTHY_PART = 0.55
UNHEALTHY_COUNT = 2
#: Unwell zones of up to this many nodes lose no pods at all.
SMALL_ZONE = 50


class _Member(NamedTuple):
    zone: Hashable
    #: None while nothing is known of it.
    ready: bool | None


class Zones:
    """The nodes' health by zone, and whose turn it is."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Member] = {}
        #: The nodes that are not ready.
        self.failed: dict[str, None] = {}
        #: How many nodes are ready and how many are not, by zone.
        self._ready: Counter[Hashable] = Counter()
        self._failed: Counter[Hashable] = Counter()
        #: When the next node of a zone may lose its pods.
        self._next: dict[Hashable, float] = {}

    def put(self, name: str, zone: Hashable, ready: bool | None) -> bool:
        """Take in a node's health; whether it changes the pace of any zone."""
        member = _Member(zone, ready)
        known = self._nodes.get(name)
        if known == member:
            return False
        before = self._paces(zone)
        if known is not None:
            self._take_out(name, known)
        self._nodes[name] = member
        if ready:
            self._ready[zone] += 1
        elif ready is not None:
            self._failed[zone] += 1
            self.failed[name] = None
        return before != self._paces(zone)

    def remove(self, name: str) -> bool:
        """Forget a node; whether that changes the pace of any zone."""
        member = self._nodes.pop(name, None)
        if member is None:
            return False
        before = self._paces(member.zone)
        self._take_out(name, member)
        return before != self._paces(member.zone)

    def _take_out(self, name: str, member: _Member) -> None:
        if member.ready:
            self._ready[member.zone] -= 1
        elif member.ready is not None:
            self._failed[member.zone] -= 1
            del self.failed[name]

    def _paces(self, zone: Hashable) -> tuple[bool, float]:
        return self.all_failed, self.rate(zone)

    @property
    def all_failed(self) -> bool:
        """Whether no node of the cluster is ready: nothing is evicted then."""
        return bool(self.failed) and not any(self._ready.values())

    def rate(self, zone: Hashable) -> float:
        """Nodes of the zone that may lose their pods per second."""
        ready, failed = self._ready[zone], self._failed[zone]
        if self.all_failed:
            return 0.0
        if not ready or failed <= UNHEALTHY_COUNT or failed / (ready + failed) < UNHEALTHY_PART:
            return EVICTION_RATE
        return SECONDARY_EVICTION_RATE if ready + failed > SMALL_ZONE else 0.0

    def turn(self, zone: Hashable, now: float) -> float | None:
        """0 when a node of the zone may lose its pods now, which counts as done; else how long to wait.

        None when there is no telling before the health of some node changes.
        """
        rate = self.rate(zone)
        if not rate:
            return None
        wait = self._next.get(zone, now) - now
        if wait > 0:
            return wait
        self._next[zone] = now + 1 / rate
        return 0.0
