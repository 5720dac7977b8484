"""Run times learnt from the finished Workloads of a cluster.

Source of the rules: docs/reference/simulation.md 6: a workload is like the finished ones of its queue, kind
and size; with fewer than `ENOUGH` of those, like those of a wider group. Of these, the ones whose jobs have
the same name but for what tells one run from the next are most alike. Given that it has run for some time,
only those that ran longer count.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from random import Random
from typing import Final

from pykueue.api import kueue
from pykueue.api.kueue.names import FINISHED
from pykueue.api.objects import Object
from pykueue.engine.fitted import ENOUGH, sample_of
from pykueue.questions.used import held_between

#: Of those, as many must have run for longer than the workload already has.
ENOUGH_LONGER: Final = 5
#: Workloads that ended one after the other, and are drawn from together.
BLOCK: Final = 50
#: Newest finished workloads kept of each group.
KEPT: Final = 500
#: Mean run time in seconds that is assumed where nothing is known.
UNKNOWN: Final = 3600.0
#: Seconds that the times of the API are precise to: a run time of 0 may be anything below.
RESOLUTION: Final = 1.0
#: Ends of names that tell one run of a job from the next: numbers and times, what `generateName` appends, and
#: identifiers in hexadecimal digits.
_RUN: Final = re.compile(r"(?<=.)[-._](?:\d[\dtz]*|[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-f]{8,})$")


def _held(workload: kueue.Workload) -> tuple[float, float] | None:
    """When a finished workload was last admitted, and when it ended; None where that is not known."""
    held = held_between(workload, math.nan) if workload.condition_is(FINISHED) else None
    return held if held is not None and held[0] <= held[1] else None


def groups(workload: kueue.Workload) -> Iterator[Hashable]:
    """The groups a workload belongs to, the narrowest first."""
    sample, requests = sample_of(workload), _requests(workload.spec)
    yield sample.queue, sample.owner, requests, family(workload)
    yield sample.queue, sample.owner, requests
    yield from sample.groups()


def family(workload: kueue.Workload) -> str:
    """The name that all runs of its job have in common: `train` for `train-17` and `train-x7k2p`."""
    metadata = workload.metadata
    name = next((each.name for each in metadata.owner_references if each.controller), metadata.name)
    while (end := _RUN.search(name)) is not None:
        name = name[: end.start()]
    return name


def _requests(spec: kueue.WorkloadSpec) -> Hashable:
    """What all pods request: jobs that are submitted again and again request the same to the last byte."""
    return tuple(
        (each.count, *sorted(_amounts(container)))
        for each in spec.pod_sets
        for container in (each.template.get("spec") or {}).get("containers") or ()
    )


def _amounts(container: Object) -> Iterator[tuple[str, str]]:
    for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
        yield resource, str(amount)


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
        #: The newest first.
        self._by_end = dict(known)
        #: Groups of workloads that were asked about, with the workload, by its identity.
        self._groups: dict[int, tuple[kueue.Workload, tuple[Hashable, ...]]] = {}
        self._known = {group: sorted(values) for group, values in known.items()}

    @property
    def count(self) -> int:
        """Finished workloads that are known, at most `KEPT`."""
        return len(self._known.get((), ()))

    def draw(
        self, workload: kueue.Workload, random: Random, elapsed: float = 0.0, like: float | None = None
    ) -> float:
        """Seconds that a workload runs altogether, given that it has run for `elapsed` seconds.

        `like` is a time of the past, from 0 for now to 1 for the oldest that is known: run times are drawn
        from those of then. None draws from all.
        """
        limit = workload.spec.maximum_execution_time_seconds
        seconds = self._drawn(workload, random, elapsed, like)
        return seconds if limit is None else min(seconds, max(float(limit), elapsed))

    def _groups_of(self, workload: kueue.Workload) -> tuple[Hashable, ...]:
        """The groups of a workload whose run times are known."""
        found = self._groups.get(id(workload))
        if found is None:
            known = tuple(each for each in groups(workload) if each in self._known)
            found = self._groups[id(workload)] = workload, known
        return found[1]

    def _drawn(self, workload: kueue.Workload, random: Random, elapsed: float, like: float | None) -> float:
        for group in self._groups_of(workload):
            values = self._known.get(group, ())
            longer = len(values) - bisect_right(values, elapsed)
            if len(values) >= ENOUGH and longer >= ENOUGH_LONGER:
                if like is not None and len(values) > BLOCK:
                    first = int(like * (len(values) - BLOCK + 1))
                    then = [each for each in self._by_end[group][first : first + BLOCK] if each > elapsed]
                    if len(then) >= ENOUGH_LONGER:
                        return random.choice(then)
                return values[len(values) - 1 - random.randrange(longer)]
        values = self._known.get((), ())
        longer = len(values) - bisect_right(values, elapsed)
        # The next of so few is as likely below all of them, or above, as between any two.
        few = len(values) < ENOUGH and random.random() * (longer + 1) < 2
        if longer and not few:
            return values[len(values) - 1 - random.randrange(longer)]
        limit = workload.spec.maximum_execution_time_seconds
        if limit is not None and limit > elapsed:
            return random.uniform(elapsed, limit)
        # Nothing is known: as if the end were as likely at any time, at the rate seen so far.
        mean = sum(values) / len(values) if values else UNKNOWN
        return elapsed + random.expovariate(1 / max(mean, elapsed, RESOLUTION))
