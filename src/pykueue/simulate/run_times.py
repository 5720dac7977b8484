"""Run times learnt from the finished Workloads of a cluster.

Source of the rules: docs/reference/simulation.md 6: a workload is like the finished ones of its queue, kind
and size; with fewer than `ENOUGH` of those, like those of a wider group. Given that it has run for some time,
only those that ran longer count.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from random import Random
from typing import Final

from pykueue.api import kueue
from pykueue.api.kueue.names import FINISHED
from pykueue.questions.used import held_between

#: Finished workloads that make a group worth asking.
ENOUGH: Final = 20
#: Of those, as many must have run for longer than the workload already has.
ENOUGH_LONGER: Final = 5
#: Newest finished workloads kept of each group.
KEPT: Final = 500
#: Mean run time in seconds that is assumed where nothing is known.
UNKNOWN: Final = 3600.0


def _held(workload: kueue.Workload) -> tuple[float, float] | None:
    """When a finished workload was last admitted, and when it ended; None where that is not known."""
    held = held_between(workload, math.nan) if workload.condition_is(FINISHED) else None
    return held if held is not None and held[0] <= held[1] else None


def groups(workload: kueue.Workload) -> Iterator[Hashable]:
    """The groups a workload belongs to, the narrowest first."""
    metadata, spec = workload.metadata, workload.spec
    pods = sum(each.count for each in spec.pod_sets)
    size = pods.bit_length()
    owner = next((each.kind for each in metadata.owner_references if each.controller), "")
    queue = (metadata.namespace, spec.queue_name)
    yield (*queue, owner, size, spec.priority or 0)
    yield (*queue, owner, size)
    yield (*queue, size)
    yield queue
    yield size
    yield ()


class RunTimes:
    """What is known of run times."""

    def __init__(self, finished: Iterable[kueue.Workload]) -> None:
        """`finished` may hold others too; they are left out."""
        known: defaultdict[Hashable, list[float]] = defaultdict(list)
        ended = [(held, workload) for workload in finished if (held := _held(workload)) is not None]
        ended.sort(key=lambda each: each[0][1], reverse=True)
        for (since, until), workload in ended:
            for group in groups(workload):
                if len(known[group]) < KEPT:
                    known[group].append(until - since)
        self._known = {group: sorted(values) for group, values in known.items()}

    @property
    def count(self) -> int:
        """Finished workloads that are known, at most `KEPT`."""
        return len(self._known.get((), ()))

    def draw(self, workload: kueue.Workload, random: Random, elapsed: float = 0.0) -> float:
        """Seconds that a workload runs altogether, given that it has run for `elapsed` seconds."""
        limit = workload.spec.maximum_execution_time_seconds
        seconds = self._drawn(workload, random, elapsed)
        return seconds if limit is None else min(seconds, max(float(limit), elapsed))

    def _drawn(self, workload: kueue.Workload, random: Random, elapsed: float) -> float:
        for group in groups(workload):
            values = self._known.get(group, ())
            longer = len(values) - bisect_right(values, elapsed)
            if len(values) >= ENOUGH and longer >= ENOUGH_LONGER:
                return values[len(values) - 1 - random.randrange(longer)]
        values = self._known.get((), ())
        if values and values[-1] > elapsed:
            longer = len(values) - bisect_right(values, elapsed)
            return values[len(values) - 1 - random.randrange(longer)]
        limit = workload.spec.maximum_execution_time_seconds
        if limit is not None and limit > elapsed:
            return random.uniform(elapsed, limit)
        # Nothing is known: as if the end were as likely at any time, at the rate seen so far.
        mean = sum(values) / len(values) if values else UNKNOWN
        return elapsed + random.expovariate(1 / max(mean, elapsed))
