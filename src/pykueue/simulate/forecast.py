# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""When a pending workload will start: the present state simulated forward many times.

Each future differs in what is not known: how long running and pending workloads run, and what arrives.
The decisions are those of the engine. The answer is the interval from the 10th to the 90th percentile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pykueue.api import kueue
from pykueue.api.kueue.names import ADMITTED, FINISHED
from pykueue.api.meta import format_time
from pykueue.engine import Admit, Options
from pykueue.engine.events import Event
from pykueue.questions.answers import Answer
from pykueue.questions.used import held_between
from pykueue.simulate.journal import Journal
from pykueue.simulate.measures import Outcome
from pykueue.simulate.run_times import RunTimes
from pykueue.simulate.scenario.jobs import Job
from pykueue.simulate.simulation import Plan, Present, Simulation

#: Futures simulated where nothing else is asked for.
FUTURES: Final = 40
#: Seconds into the future after which a workload counts as not started.
HORIZON: Final = 30 * 24 * 3600.0
#: Seconds of the past whose arrivals are taken for those to come.
PAST: Final = 24 * 3600.0
#: Seconds of it at least: a few workloads of the last seconds are no rate.
PAST_MIN: Final = 3600.0
#: Workloads named as those whose end lets it start.
NAMED: Final = 3


@dataclass(slots=True)
class State:
    """A cluster at a moment."""

    options: Options
    objects: list[Event]
    """Everything that decisions depend on, but Workloads."""
    workloads: Sequence[kueue.Workload]
    """Finished ones included."""
    now: float
    """Seconds since 1970."""
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Trigger(Answer, kw_only=True):
    """A workload whose end let the one in question start."""

    workload: str
    share: float
    """Of the futures in which it started."""


class When(Answer, kw_only=True):
    """When a pending workload starts."""

    workload: str
    now: str
    earliest: str
    """10th percentile of the starts; empty where it does not start within the horizon in so many futures."""
    median: str
    latest: str
    """90th percentile."""
    futures: int
    started: int
    """Futures in which it started within the horizon."""
    ahead: float
    """Workloads that are admitted before it, on average."""
    triggers: list[Trigger] = []
    known_run_times: int
    """Finished workloads that run times were learnt from."""
    arrivals_per_hour: float
    """Of workloads like those of the last hours, which were assumed to go on."""
    unread: list[str] = []
    notes: list[str] = []


def when(state: State, key: str, futures: int = FUTURES, seed: int = 0, arrivals: bool = True) -> When:
    """When the pending workload `namespace/name` starts; with `arrivals`, others like the latest keep coming.

    Raises KeyError where there is no such workload, and ValueError for one that is not pending.
    """
    target = {each.metadata.key: each for each in state.workloads}[key]
    if target.condition_is(FINISHED) or target.condition_is(ADMITTED):
        raise ValueError(f"Workload {key} is {'finished' if target.condition_is(FINISHED) else 'admitted'}")
    known = _Known(state)
    found = [_Future(known, key, Random(f"{seed} {number}"), arrivals) for number in range(futures)]
    starts = sorted(future.start for future in found if future.start is not None)
    triggers = Counter(trigger for future in found for trigger in future.triggers)
    return When(
        workload=key,
        now=format_time(int(state.now)),
        earliest=_time(state, starts, futures, 0.1),
        median=_time(state, starts, futures, 0.5),
        latest=_time(state, starts, futures, 0.9),
        futures=futures,
        started=len(starts),
        ahead=sum(future.ahead for future in found) / futures,
        triggers=[
            Trigger(workload=name, share=count / len(starts)) for name, count in triggers.most_common(NAMED)
        ],
        known_run_times=known.times.count,
        arrivals_per_hour=known.rate * 3600 if arrivals else 0.0,
        unread=state.unread,
        notes=state.notes,
    )


def _time(state: State, starts: Sequence[float], futures: int, share: float) -> str:
    """The time by which it has started in that share of all futures.

    Between two starts the quantile is interpolated at position share x (futures + 1): all gaps between the
    futures are equally likely, and that share of them is below it.
    """
    position = min(max(share * (futures + 1), 1.0), float(futures))
    below = math.floor(position)
    above = math.ceil(position)
    if above > len(starts):
        return ""
    first, second = starts[below - 1], starts[above - 1]
    return format_time(int(state.now + first + (second - first) * (position - below)))


class _Known:
    """What the present and the past tell of the future."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.times = RunTimes(state.workloads)
        created = [(each.metadata.created or 0.0, each) for each in state.workloads]
        self._recent = [each for at, each in created if at > state.now - PAST]
        oldest = min((at for at, _ in created if at > state.now - PAST), default=state.now)
        #: Workloads that were created each second, of late.
        self.rate = len(self._recent) / max(state.now - oldest, PAST_MIN) if len(self._recent) > 1 else 0.0

        self._unfinished = [
            (each, (each.metadata.created or state.now) - state.now, _started(each, state.now))
            for each in state.workloads
            if not each.condition_is(FINISHED)
        ]

    def present(self, random: Random) -> list[Present]:
        """The workloads that are not finished, each with a run time."""
        found = []
        for workload, created, started in self._unfinished:
            run_time = self.times.draw(workload, random, -(started or 0.0))
            found.append(Present(workload, _job(workload, created, run_time), started))
        return found

    def arrivals(self, random: Random) -> Iterator[Job]:
        """Workloads like those that were created of late, at the same rate."""
        at, number = 0.0, 0
        while self.rate:
            at += random.expovariate(self.rate)
            like = random.choice(self._recent)
            number += 1
            yield _job(like, at, self.times.draw(like, random), f"future-{number}")


def _started(workload: kueue.Workload, now: float) -> float | None:
    """When a workload was admitted, in seconds from now; None where it is not."""
    held = held_between(workload, now)
    return None if held is None else min(0.0, held[0] - now)


def _job(workload: kueue.Workload, at: float, run_time: float, name: str = "") -> Job:
    metadata = workload.metadata
    return Job(at, metadata.namespace, name or metadata.name, metadata.namespace, workload.spec, run_time)


class _Future:
    """One future: when the workload starts in it, and what let it."""

    def __init__(self, known: _Known, key: str, random: Random, arrivals: bool) -> None:
        self.ahead = 0
        self.triggers: list[str] = []
        state, journal = known.state, _Watch(key)
        plan = Plan(
            options=state.options,
            objects=state.objects,
            jobs=known.arrivals(random) if arrivals else iter(()),
            start=state.now,
            present=known.present(random),
            watched=frozenset({key}),
            horizon=HORIZON,
        )
        outcome: Outcome = Simulation(plan, journal).run()
        self.start = outcome.first_admissions.get(key)
        if self.start is not None:
            self.ahead = journal.ahead
            self.triggers = journal.ended


class _Watch(Journal):
    """Notes what happens before a workload starts."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self._at = -1.0
        #: Workloads whose end is at the present moment.
        self.ended: list[str] = []
        self.ahead = 0
        self._over = False

    def created(self, at: float, key: str, job_class: str) -> None:
        pass

    def admitted(self, at: float, decision: Admit) -> None:
        if self._over:
            return
        self._over = decision.key == self._key
        if self._over:
            if at != self._at:
                self.ended = []
        else:
            self.ahead += 1

    def over(self, at: float, key: str, how: str) -> None:
        if not self._over:
            if at != self._at:
                self.ended, self._at = [], at
            self.ended.append(key)
