# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""A recording under other rules: what each team would have seen, and the decisions that made the difference.

The recorded jobs are simulated twice, under the rules as they were and under the changed ones. Both have the
same arrivals and run times. How near the first comes to what happened is part of the answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, quantiles
from typing import Final

from pykueue.api import kueue
from pykueue.api.meta import format_time
from pykueue.engine import Admit, Preempt, Upsert
from pykueue.engine.events import Event
from pykueue.questions.answers import Answer
from pykueue.simulate.changes import ChangedState, Identity
from pykueue.simulate.futures import State
from pykueue.simulate.journal import Journal
from pykueue.simulate.plan import Plan
from pykueue.simulate.recorded.history import History
from pykueue.simulate.simulation import Simulation

#: Workloads of a team whose difference is attributed.
NAMED: Final = 3
#: Seconds by which a start has to move to count as moved.
MOVED: Final = 1.0
#: Seconds within which a simulated start counts as the recorded one.
NEAR: Final = 60.0


class Attribution(Answer, kw_only=True):
    """Why one workload starts at another time."""

    workload: str
    before: str
    """When it starts under the recorded rules; empty if it does not."""
    after: str
    """Under the changed ones."""
    decision: str
    """The decision that makes the difference, in words."""


class Team(Answer, kw_only=True):
    """What becomes of the workloads of one LocalQueue. Waits are in seconds, of those that start."""

    queue: str
    """`namespace/name`."""
    workloads: int
    started_before: int
    started_after: int
    wait_mean_before: float
    wait_mean_after: float
    wait_p90_before: float
    wait_p90_after: float
    later: int
    """Workloads that start later under the changed rules, or only under the recorded ones."""
    earlier: int
    preempted_before: int
    """Preemptions of its workloads."""
    preempted_after: int
    attributions: list[Attribution] = []
    """The workloads with the largest differences."""


class Difference(Answer, kw_only=True):
    """A recording under other rules."""

    start: str
    end: str
    changes: list[str]
    workloads: int
    recorded_wait_mean: float | None
    """Of the workloads that arrived in this time and were admitted, as it happened."""
    simulated_wait_mean: float | None
    """Of the same workloads, simulated under the recorded rules."""
    near: float | None
    """Share of them that are simulated to start within a minute of when they did."""
    in_order: float | None
    """The largest share of them that start in the same order."""
    first: str = ""
    """The first decision that differs."""
    teams: list[Team] = []
    gaps: int = 0
    notes: list[str] = []


@dataclass
class _Run(Journal):
    """What happened in one simulation."""

    roots: dict[str, str]
    """Root of the tree of each ClusterQueue."""
    starts: dict[str, float] = field(default_factory=dict)
    """First admissions."""
    holds: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    """Changes of each workload: (time, ClusterQueue that it holds quota of from then on, or empty)."""
    preemptions: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    """(time, preemptor) of each workload."""
    log: list[tuple[float, str]] = field(default_factory=list)
    """Decisions in words."""

    def admitted(self, at: float, decision: Admit) -> None:
        self.starts.setdefault(decision.key, at)
        self.holds[decision.key].append((at, decision.cluster_queue))
        self.log.append((at, f"{decision.key} is admitted"))

    def preempted(self, at: float, decision: Preempt) -> None:
        self.holds[decision.key].append((at, ""))
        self.preemptions[decision.key].append((at, decision.preemptor))
        self.log.append((at, f"{decision.key} is preempted for {decision.preemptor} ({decision.reason})"))

    def evicted(self, at: float, key: str, reason: str) -> None:
        self.holds[key].append((at, ""))

    def over(self, at: float, key: str, how: str) -> None:
        self.holds[key].append((at, ""))

    def holds_at(self, key: str, at: float) -> str:
        """The ClusterQueue that a workload holds quota of right after a time; empty for none."""
        changes = self.holds.get(key, [])
        index = bisect_right(changes, at, key=lambda change: change[0])
        return changes[index - 1][1] if index else ""


def compare(history: History, state: State, changed: ChangedState) -> Difference:
    """A history under the recorded rules, as `state` has them at its start, and under the changed ones.

    Objects that are changed stay as they are changed: what is recorded of them later is left out.
    """
    other = changed.state()
    before = _run(plan_of(history, state, frozenset()), roots_of(state.objects))
    after = _run(plan_of(history, other, frozenset(changed.changed)), roots_of(other.objects))
    recorded, simulated, near, in_order = _fidelity(history, before)
    return Difference(
        start=format_time(int(history.start)),
        end=format_time(int(history.end)),
        changes=changed.texts,
        workloads=len(history.jobs) + len(history.present),
        first=_first(history, before, after),
        teams=list(_teams(history, before, after)),
        gaps=history.gaps,
        recorded_wait_mean=recorded,
        simulated_wait_mean=simulated,
        near=near,
        in_order=in_order,
    )


def plan_of(history: History, state: State, changed: frozenset[Identity]) -> Plan:
    """The recorded jobs under the rules of a state; what is recorded of `changed` objects is left out."""
    return Plan(
        options=state.options,
        objects=state.objects,
        jobs=iter(history.jobs),
        start=history.start,
        present=history.present,
        changes=history.changes_but(changed),
        outside=history.outside(),
        whole_seconds=True,
        horizon=history.end - history.start,
    )


def roots_of(objects: Iterable[Event]) -> dict[str, str]:
    """The root cohort of each ClusterQueue, or its own name."""
    parents: dict[str, str] = {}
    queues: dict[str, str] = {}
    for event in objects:
        match event:
            case Upsert(kueue.Cohort() as cohort):
                parents[cohort.metadata.name] = cohort.spec.parent_name or ""
            case Upsert(kueue.ClusterQueue() as queue):
                queues[queue.metadata.name] = queue.spec.cohort_name or ""
    found = {}
    for name, cohort_name in queues.items():
        root, seen = cohort_name, {cohort_name}
        while (above := parents.get(root)) and above not in seen:
            seen.add(above)
            root = above
        found[name] = f"cohort {root}" if root else f"queue {name}"
    return found


def _run(plan: Plan, roots: dict[str, str]) -> _Run:
    run = _Run(roots)
    Simulation(plan, run).run()
    return run


def _fidelity(history: History, simulated: _Run) -> tuple[float | None, ...]:
    """Mean wait as recorded and as simulated; the shares of starts near the recorded ones and in order."""
    both = [
        (history.starts[job.key], simulated.starts[job.key], job.at)
        for job in history.jobs
        if job.key in history.starts and job.key in simulated.starts
    ]
    if not both:
        return None, None, None, None
    return (
        fmean(start - at for start, _, at in both),
        fmean(start - at for _, start, at in both),
        fmean(abs(start - other) <= NEAR for start, other, _ in both),
        in_order([(start, other) for start, other, _ in both]) / len(both),
    )


def in_order(starts: Sequence[tuple[float, float]]) -> int:
    """The most workloads that start in the same order in two runs, by their starts in both.

    Starts at the same time, or within `MOVED` seconds, have no order.
    """
    ends: list[float] = []  # by length: the smallest last start of so many workloads in order
    for _, other in sorted((round(start / MOVED), round(other / MOVED)) for start, other in starts):
        position = bisect_right(ends, other)
        ends[position : position + 1] = [other]
    return len(ends)


def _first(history: History, before: _Run, after: _Run) -> str:
    for one, other in zip(before.log, after.log, strict=False):
        if one != other:
            at, text = min(one, other)
            rules = "recorded" if (at, text) == one else "changed"
            return f"{format_time(int(history.start + at))}: under the {rules} rules only, {text}"
    longer, rules = (before, "recorded") if len(before.log) > len(after.log) else (after, "changed")
    rest = longer.log[min(len(before.log), len(after.log)) :]
    if not rest:
        return ""
    return f"{format_time(int(history.start + rest[0][0]))}: under the {rules} rules only, {rest[0][1]}"


def _teams(history: History, before: _Run, after: _Run) -> Iterator[Team]:
    jobs: dict[str, dict[str, float]] = defaultdict(dict)
    running = {each.job.key for each in history.present if each.started is not None}
    for job in (*(each.job for each in history.present), *history.jobs):
        jobs[f"{job.namespace}/{job.spec.queue_name}"][job.key] = job.at
    for queue, mine in sorted(jobs.items()):
        pending = {key: at for key, at in mine.items() if key not in running}
        waits = [
            [run.starts[key] - at for key, at in pending.items() if key in run.starts]
            for run in (before, after)
        ]
        moves = {key: _moved(before.starts.get(key), after.starts.get(key)) for key in pending}
        largest = sorted((key for key in moves if moves[key]), key=lambda key: (-abs(moves[key]), key))
        yield Team(
            queue=queue,
            workloads=len(mine),
            started_before=len(waits[0]),
            started_after=len(waits[1]),
            wait_mean_before=_mean(waits[0]),
            wait_mean_after=_mean(waits[1]),
            wait_p90_before=_p90(waits[0]),
            wait_p90_after=_p90(waits[1]),
            later=sum(move > 0 for move in moves.values()),
            earlier=sum(move < 0 for move in moves.values()),
            preempted_before=sum(len(before.preemptions.get(key, ())) for key in mine),
            preempted_after=sum(len(after.preemptions.get(key, ())) for key in mine),
            attributions=[_attribution(history, before, after, key) for key in largest[:NAMED]],
        )


def _moved(before: float | None, after: float | None) -> float:
    """Seconds that a start is later; infinite for one that is only in one of the runs."""
    if before is None or after is None:
        return 0.0 if before is after else float("inf") if after is None else float("-inf")
    return after - before if abs(after - before) > MOVED else 0.0


def _attribution(history: History, before: _Run, after: _Run, key: str) -> Attribution:
    def time(run: _Run) -> str:
        start = run.starts.get(key)
        return "" if start is None else format_time(int(history.start + start))

    later = _moved(before.starts.get(key), after.starts.get(key)) > 0
    # At its earlier start, what holds quota in the run in which it has to wait longer?
    sooner, waits, rules = (before, after, "changed") if later else (after, before, "recorded")
    text = _held_back(history, (sooner, waits), rules, key)
    return Attribution(workload=key, before=time(before), after=time(after), decision=text)


def _held_back(history: History, runs: tuple[_Run, _Run], rules: str, key: str) -> str:
    """The decision by which a workload that starts at a time in the first run does not in the second one.

    It is the oldest admission of a workload of the same cohorts that holds quota at that time only there.
    """
    sooner, waits = runs
    at = sooner.starts[key]
    root = sooner.roots.get(sooner.holds_at(key, at))
    candidates: list[tuple[float, str]] = []
    for other, changes in waits.holds.items():
        queue = waits.holds_at(other, at)
        if queue and waits.roots.get(queue) == root and not sooner.holds_at(other, at):
            candidates.append((max(time for time, held in changes if time <= at and held), other))
    if not candidates:
        return (
            f"no other workload holds quota then that does not otherwise: the {rules} rules do not admit it"
        )
    since, found = min(candidates)
    other_start = sooner.starts.get(found)
    elsewhere = "not" if other_start is None else f"at {format_time(int(history.start + other_start))}"
    return (
        f"under the {rules} rules {found}, admitted at {format_time(int(history.start + since))}"
        f" (otherwise {elsewhere}), holds quota then"
    )


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _p90(values: Sequence[float]) -> float:
    if len(values) < 2:
        return _mean(values)
    return quantiles(values, n=10, method="inclusive")[-1]
