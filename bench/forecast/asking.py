"""Questions about a simulated cluster, whose true answers are those of the same simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from random import Random
from statistics import median
from typing import Any

from pykueue.api import kueue
from pykueue.api.kueue.names import QUOTA_RESERVED
from pykueue.api.meta import parse_time
from pykueue.engine import Admit, lifecycle
from pykueue.questions.used import held_between
from pykueue.simulate.forecast import When, when
from pykueue.simulate.futures import Past, State
from pykueue.simulate.journal import Journal
from pykueue.simulate.plan import Plan
from pykueue.simulate.run_times import RunTimes, family
from pykueue.simulate.scenario.laws import draw_of
from pykueue.simulate.scenario.types import JobClass
from pykueue.simulate.simulation import Simulation

HOUR = 3600.0
DAY = 24 * HOUR
#: Seconds of the past in which the usual estimate counts starts.
_RATE_OF = 3 * HOUR
#: Draws of a law until one is longer than a job has run already.
_TRIES = 10_000


class _Starts(Journal):
    """When workloads were admitted first, in seconds from the start."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}

    def admitted(self, at: float, decision: Admit) -> None:
        self.first.setdefault(decision.key, at)


class Cluster(Simulation):
    """A simulated cluster that keeps its finished Workloads, as a real one does, and what it showed."""

    def __init__(self, plan: Plan, starts: _Starts, looks: Iterable[float]) -> None:
        super().__init__(plan, starts)
        self._done: list[kueue.Workload] = []
        #: Time in seconds from the start, present Workloads, and how many had finished then.
        self.seen: list[tuple[float, list[kueue.Workload], int]] = []
        for at in looks:
            self._later(at, self._look)

    @property
    def finished(self) -> list[kueue.Workload]:
        """All that have finished by the end."""
        return self._done

    def shown(self, present: list[kueue.Workload], done: int) -> list[kueue.Workload]:
        """The Workloads of a look, finished ones included."""
        return [*present, *self._done[:done]]

    def _look(self, now: float) -> None:
        self.seen.append((now, list(self.driver.workloads.values()), len(self._done)))

    def _over(self, key: str, attempt: int, how: str, now: float) -> None:
        before = self.driver.workloads.get(key)
        super()._over(key, attempt, how, now)
        if before is not None and key not in self.driver.workloads:
            self._done.append(lifecycle.finished(before, "Succeeded", self.driver.now))


@dataclass
class Answered:
    """One question."""

    below: bool
    """It started before the interval."""
    above: bool
    """It started after the interval."""
    error: float
    """Seconds between the median of the answer and the true start."""
    usual_error: float
    """The same of the usual estimate: the position divided by the rate of starts in the last three hours."""
    waited: float
    """Seconds until it started in truth."""

    @property
    def inside(self) -> bool:
        return not (self.below or self.above)


class Known(RunTimes):
    """The laws of the run times themselves, instead of what finished workloads tell of them."""

    def __init__(self, classes: Iterable[JobClass]) -> None:
        super().__init__(())
        self._laws = {each.name: each.run_time for each in classes}

    def draw(
        self, workload: kueue.Workload, random: Random, elapsed: float = 0.0, like: float | None = None
    ) -> float:
        draw = draw_of(self._laws[family(workload)], random)
        # Times are seen in whole seconds: a job of fixed length can seem to run longer by one.
        return next((seconds for _ in range(_TRIES) if (seconds := draw()) > elapsed), elapsed + 1)


def answered(
    plan: Plan, looks: Iterable[float], futures: int, known: RunTimes | None = None, foreseen: bool = False
) -> Iterator[Answered]:
    """At each of the times, the question about the workload in the middle of those that are pending.

    With `known`, run times are drawn from their laws. With `foreseen` they are learnt from all workloads that
    ever finish in the simulation, those of the future included: what stands for their laws in a trace.
    """
    starts = _Starts()
    cluster = Cluster(plan, starts, looks)
    cluster.run()
    if foreseen:
        known = RunTimes(cluster.finished)
    for at, present, done in cluster.seen:
        pending = [each for each in present if not each.condition_is(QUOTA_RESERVED)]
        if not pending:
            continue
        ahead = len(pending) // 2
        chosen = pending[ahead].metadata.key
        truth = starts.first.get(chosen)
        if truth is None:
            continue
        now = plan.start + at
        state = State(plan.options, plan.objects, cluster.shown(present, done), now)
        past = Past(state)
        if known is not None:
            past.times = known
        answer = when(state, chosen, futures, past=past)
        yield _judged(state, answer, ahead, plan.start + truth)


def _judged(state: State, answer: When, ahead: int, start: float) -> Answered:
    now = state.now
    begun = [held[0] for each in state.workloads if (held := held_between(each, now))]
    rate = sum(at > now - _RATE_OF for at in begun) / _RATE_OF
    usual = now + (ahead + 1) / rate if rate else now + DAY
    middle = parse_time(answer.median) if answer.median else now + DAY
    latest = parse_time(answer.latest) if answer.latest else float("inf")
    earliest = parse_time(answer.earliest) if answer.earliest else float("inf")
    return Answered(
        # An answer is given in whole seconds.
        below=start < earliest - 1,
        above=start > latest + 1,
        error=abs(middle - start),
        usual_error=abs(usual - start),
        waited=start - now,
    )


def figures(by_seed: list[list[Answered]]) -> dict[str, Any]:
    """What many answers have in common. Those of one seed are about the same backlog, and err together."""
    found = [each for answers in by_seed for each in answers]
    count = len(found)
    if not count:
        return {"questions": 0}
    inside = sum(each.inside for each in found) / count
    figures: dict[str, Any] = {}
    if len(by_seed) > 1:
        # Of the ratio of two sums over seeds.
        rest = [sum(each.inside for each in answers) - inside * len(answers) for answers in by_seed]
        seeds = len(by_seed)
        figures["inside_error"] = sqrt(seeds / (seeds - 1) * sum(each**2 for each in rest)) / count
    return figures | {
        "questions": count,
        "inside": inside,
        "below": sum(each.below for each in found) / count,
        "above": sum(each.above for each in found) / count,
        "error_seconds": median(each.error for each in found),
        "usual_error_seconds": median(each.usual_error for each in found),
        "waited_seconds": median(each.waited for each in found),
    }
