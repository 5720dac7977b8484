"""The present state of a cluster simulated forward, each time with other run times and other arrivals.

What is drawn for a workload depends on the seed, the number of the future and the workload alone: the futures
of a changed state differ from those of the state as it is by nothing but the change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pykueue.api import kueue
from pykueue.api.kueue.names import ADMITTED, FINISHED
from pykueue.api.meta import format_time
from pykueue.engine import Admit, Options, Preempt
from pykueue.engine.events import Event
from pykueue.questions.used import held_between
from pykueue.simulate.journal import Journal
from pykueue.simulate.plan import Plan, Present
from pykueue.simulate.run_times import UNKNOWN, RunTimes
from pykueue.simulate.scenario.jobs import Job
from pykueue.simulate.simulation import Simulation

#: Futures simulated where nothing else is asked for.
FUTURES: Final = 40
#: Seconds into the future after which a workload counts as not started.
HORIZON: Final = 30 * 24 * 3600.0
#: Seconds of the past whose arrivals are taken for those to come.
PAST: Final = 24 * 3600.0
#: Seconds of it at least: a few workloads of the last seconds are no rate.
PAST_MIN: Final = 3600.0


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

    def unfinished(self) -> list[kueue.Workload]:
        """The Workloads that hold quota or are pending."""
        return [each for each in self.workloads if not each.condition_is(FINISHED)]


class Past:
    """What a state tells of run times and arrivals."""

    def __init__(self, state: State) -> None:
        self.times = RunTimes(state.workloads)
        created = [(each.metadata.created or 0.0, each) for each in state.workloads]
        #: Workloads that were created of late.
        self.recent = [each for at, each in created if at > state.now - PAST]
        oldest = min((at for at, _ in created if at > state.now - PAST), default=state.now)
        #: Workloads that were created each second, of late.
        self.rate = len(self.recent) / max(state.now - oldest, PAST_MIN) if len(self.recent) > 1 else 0.0

    def arrivals(self, draw: str) -> Iterator[Job]:
        """Workloads like those that were created of late, at a rate that can have led to as many of them.

        The rate is known no better than their number allows: it differs between futures.
        """
        random, time = Random(f"{draw} arrivals"), time_of(draw)
        at, number = 0.0, 0
        count = len(self.recent)
        rate = self.rate * random.gammavariate(count, 1 / count) if self.rate else 0.0
        while rate:
            at += random.expovariate(rate)
            like = random.choice(self.recent)
            number += 1
            yield _job(like, at, self.times.draw(like, random, like=time), f"future-{number}")


def basis(futures: int, known: int, rate: float) -> str:
    """What an answer rests on, in words: finished workloads that are known, and new ones an hour."""
    arrivals = f"{rate:.1f} new workloads an hour"
    if known:
        return f"from {futures} futures, with the run times of {known} finished workloads and {arrivals}"
    guess = f"of {UNKNOWN / 3600:g} h on average, or up to the declared limit: no finished workload is known"
    return f"from {futures} futures, with guessed run times ({guess}) and {arrivals}"


def time_of(draw: str) -> float:
    """The time of the past whose run times a future has: see `RunTimes.draw`."""
    return Random(f"{draw} time").random()


@dataclass(frozen=True, slots=True)
class Watch:
    """What is asked of a future."""

    target: str = ""
    """Key of the workload whose start is asked for; empty for none."""
    others: frozenset[str] = frozenset()
    """Keys of workloads whose starts are noted as well, as long as the future is simulated."""
    window: float = 0.0
    """Seconds for which the future is simulated at least, unless all of them start before."""


@dataclass(slots=True)
class Future:
    """What happened in one future. Times are seconds from now."""

    starts: Mapping[str, float]
    """First admissions of the workloads that were watched, by key."""
    preempted: dict[str, str]
    """Workloads that were preempted, with the first preemptor of each."""
    ahead: int = 0
    """Workloads that were admitted before the target."""
    triggers: list[str] = field(default_factory=list)
    """Workloads whose end let the target start."""


class Futures:
    """The futures of a state, with what is known of the past."""

    def __init__(self, state: State, past: Past, seed: int = 0, arrivals: bool = True) -> None:
        """`past` may be that of another state: of the one that `state` is a change of."""
        self._state = state
        self._past = past
        self._seed = seed
        self._arrivals = arrivals
        self._unfinished = [
            (each, (each.metadata.created or state.now) - state.now, _started(each, state.now))
            for each in state.unfinished()
        ]

    def play(self, number: int, watch: Watch) -> Future:
        """The future of that number."""
        draw, state = f"{self._seed} {number}", self._state
        journal = _Record(watch.target)
        plan = Plan(
            options=state.options,
            objects=state.objects,
            jobs=self._past.arrivals(draw) if self._arrivals else iter(()),
            start=state.now,
            whole_seconds=True,
            present=self._present(draw),
            watched=watch.others | {watch.target} if watch.target else watch.others,
            required=frozenset({watch.target}) if watch.target else frozenset(),
            window=watch.window,
            horizon=HORIZON if watch.target else watch.window,
        )
        outcome = Simulation(plan, journal).run()
        found = Future(outcome.first_admissions, journal.preemptors)
        if watch.target in found.starts:
            found.ahead, found.triggers = journal.ahead, journal.ended
        return found

    def _present(self, draw: str) -> list[Present]:
        """The workloads that are not finished, each with a run time."""
        found, time = [], time_of(draw)
        for workload, created, started in self._unfinished:
            random = Random(f"{draw} {workload.metadata.key}")
            run_time = self._past.times.draw(workload, random, -(started or 0.0), time)
            found.append(Present(workload, _job(workload, created, run_time), started))
        return found


def check_pending(workload: kueue.Workload) -> None:
    """Raises ValueError for a Workload that is finished or admitted."""
    for condition in (FINISHED, ADMITTED):
        if workload.condition_is(condition):
            raise ValueError(f"Workload {workload.metadata.key} is {condition.lower()}")


def interval(starts: Sequence[float], futures: int, now: float) -> tuple[str, str, str]:
    """10th percentile, median and 90th percentile of sorted starts, as times.

    `starts` are in seconds from now; a time is empty where the workload starts in too few of the futures.
    """

    def time(share: float) -> str:
        seconds = _quantile(starts, futures, share)
        return "" if seconds is None else format_time(int(now + seconds))

    return time(0.1), time(0.5), time(0.9)


def _quantile(starts: Sequence[float], futures: int, share: float) -> float | None:
    """The seconds in which it has started in that share of all futures; None where it has not in so many.

    `starts` are sorted. Between two of them the quantile is interpolated at position share x (futures + 1):
    all gaps between the futures are equally likely, and that share of them is below it.
    """
    position = min(max(share * (futures + 1), 1.0), float(futures))
    below, above = math.floor(position), math.ceil(position)
    if above > len(starts):
        return None
    first, second = starts[below - 1], starts[above - 1]
    return first + (second - first) * (position - below)


def _started(workload: kueue.Workload, now: float) -> float | None:
    """When a workload was admitted, in seconds from now; None where it is not."""
    held = held_between(workload, now)
    return None if held is None else min(0.0, held[0] - now)


def _job(workload: kueue.Workload, at: float, run_time: float, name: str = "") -> Job:
    metadata = workload.metadata
    return Job(at, metadata.namespace, name or metadata.name, metadata.namespace, workload.spec, run_time)


class _Record(Journal):
    """Notes what happens before the target starts, and preemptions until the end."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._at = -1.0
        #: Workloads whose end is at the present moment.
        self.ended: list[str] = []
        self.ahead = 0
        self.preemptors: dict[str, str] = {}
        self._over = False

    def admitted(self, at: float, decision: Admit) -> None:
        if self._over:
            return
        self._over = decision.key == self._target
        if self._over:
            if at != self._at:
                self.ended = []
        else:
            self.ahead += 1

    def preempted(self, at: float, decision: Preempt) -> None:
        self.preemptors.setdefault(decision.key, decision.preemptor)

    def over(self, at: float, key: str, how: str) -> None:
        if not self._over:
            if at != self._at:
                self.ended, self._at = [], at
            self.ended.append(key)
