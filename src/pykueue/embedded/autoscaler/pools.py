"""Node pools that scale: nodes that can be added, nodes that are starting, back-offs and stock-outs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from pykueue.embedded.autoscaler.capacity import NewNode, Room
from pykueue.embedded.nodes.durations import parse_duration, parse_span
from pykueue.embedded.nodes.pool import NodePool, Scaling

#: Seconds for which a pool does not grow after one of its nodes could not be started.
BACKOFF = 300.0


@dataclass
class Starting:
    """A node that was requested from the provider. Times are seconds since 1970."""

    node: NewNode
    at: float
    fails: bool


@dataclass
class Pools:
    """The pools that scale; `since` is when they were declared, in seconds since 1970."""

    since: float = 0.0
    pools: list[NodePool] = field(default_factory=list)
    starting: dict[str, Starting] = field(default_factory=dict)
    _backing_off: dict[str, float] = field(default_factory=dict)
    #: How often each node was requested, so that its draws depend on the pools' seed alone.
    _draws: Counter[str] = field(default_factory=Counter)

    def declare(self, pools: Iterable[NodePool], since: float) -> None:
        """Replace the pools, the cheapest first."""
        scaled = [(pool, pool.scaling) for pool in pools if pool.scaling is not None]
        self.pools = [pool for pool, _ in sorted(scaled, key=lambda one: (one[1].price, one[0].name))]
        self.since = since

    def pool_of(self, node: str) -> NodePool | None:
        """The pool that a node of that name belongs to, if it scales."""
        return next((one for one in self.pools if one.number_of(node) is not None), None)

    def rooms(self, existing: set[str], now: float) -> list[Room]:
        """The nodes that can be added to the pools now."""
        found = []
        for pool in self.pools:
            if self.unavailable_until(pool, now) <= now:
                numbers = [
                    number
                    for number in range(pool.limit)
                    if (name := pool.name_of(number)) not in existing and name not in self.starting
                ]
                found.append(Room(pool, numbers))
        return found

    def unavailable_until(self, pool: NodePool, now: float) -> float:
        """When the pool can grow again; `now` or earlier where it can."""
        return max(self._backing_off.get(pool.name, 0.0), self._stock_out_end(pool, now))

    def _stock_out_end(self, pool: NodePool, now: float) -> float:
        ends = (self.since + end for end in _stock_out_ends(pool.scaling, now - self.since))
        return max(ends, default=0.0)

    def next_change(self, now: float) -> float:
        """When a pool can grow again that cannot now, or a node has started; infinite if never."""
        ends = [self.unavailable_until(pool, now) for pool in self.pools]
        due = [one.at for one in self.starting.values()]
        return min((at for at in (*ends, *due) if at > now), default=inf)

    def request(self, nodes: Iterable[NewNode], now: float) -> None:
        """Request nodes from the provider."""
        for node in nodes:
            scaling = node.pool.scaling
            assert scaling is not None
            self._draws[node.name] += 1
            rng = random.Random(f"{node.pool.seed}/{node.name}/{self._draws[node.name]}")
            delay = parse_span(str(scaling.start_up)).draw(rng)
            fails = rng.random() < scaling.failure_rate
            self.starting[node.name] = Starting(node, now + delay, fails)

    def due(self, now: float) -> list[Starting]:
        """Nodes that have started or failed to start, in order of time; they are no longer `starting`."""
        found = sorted(
            (one for one in self.starting.values() if one.at <= now), key=lambda one: (one.at, one.node.name)
        )
        for one in found:
            del self.starting[one.node.name]
            if one.fails:
                self._backing_off[one.node.pool.name] = now + BACKOFF
        return found


def _stock_out_ends(scaling: Scaling | None, time: float) -> Iterator[float]:
    """Ends of the last stock-outs that began by `time`; both in seconds since the declaration."""
    for one in scaling.stock_outs if scaling is not None else ():
        start, duration = parse_duration(str(one.start)), parse_duration(str(one.duration))
        if start > time:
            continue
        every = inf if one.every is None else parse_duration(str(one.every))
        if 0 < every < inf:
            start += (time - start) // every * every
        yield start + duration
