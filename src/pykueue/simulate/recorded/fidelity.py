# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""How well the simulation of recorded jobs repeats what was recorded, admission by admission.

The simulation gets the arrivals as the engine saw them, and from the recording what decisions do not tell:
how long jobs ran, how long it took until an admission was seen and quota was released, and when scheduling
cycles began. Which workloads are admitted and preempted is decided again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter

from pykueue.api import encode, kueue
from pykueue.api.meta import format_micro_time, format_time
from pykueue.engine import Admit, Preempt, Upsert
from pykueue.questions.answers import Answer
from pykueue.simulate.futures import State
from pykueue.simulate.journal import Journal
from pykueue.simulate.plan import Outside
from pykueue.simulate.recorded.compare import plan_of, roots_of
from pykueue.simulate.recorded.history import Happened, History, canonical
from pykueue.simulate.simulation import Simulation

#: Seconds within which the same thing happens at the same time: times are written in microseconds.
SAME = 1e-3

#: What happens, the key of the workload, and the number of the time that it happens.
Identity = tuple[str, str, int]
Admission = tuple[str, str, int, str]


class Unlike(Answer, kw_only=True):
    """An admission that is not repeated, or in another place of the order."""

    workload: str
    admission: int
    """1: its first one."""
    recorded: str
    """When it was admitted in the recording; empty if it was not."""
    simulated: str
    cause: str
    """The first event that differs in its cohorts, since both were last in the same state."""


class Fidelity(Answer, kw_only=True):
    """The admissions of a recording and of its simulation."""

    start: str
    end: str
    recorded: int
    """Admissions, repeated ones of a workload included."""
    simulated: int
    equal: int
    """The most of them that are in both, with the same assignment, and in the same order."""
    at_once: int
    """Those of the recording that are simulated at the same time, to the millisecond."""
    differences: list[Unlike] = []
    gaps: int = 0

    @property
    def share(self) -> float:
        """Equal admissions among all."""
        return self.equal / max(self.recorded, self.simulated, 1)


@dataclass(frozen=True)
class Event:
    """Something that happens to a workload in one of the runs."""

    at: float
    what: str
    key: str
    number: int
    """1: the first time that this happens to this workload."""
    details: str

    @property
    def identity(self) -> Identity:
        return self.what, self.key, self.number

    @property
    def admission(self) -> Admission:
        """It and what was assigned."""
        return *self.identity, self.details


#: What happens as it was recorded, and as it is simulated; each in order.
Runs = tuple[Sequence[Event], Sequence[Event]]


class _Log(Journal):
    """What happens in a simulation, as it is recorded."""

    def __init__(self, at_once: bool) -> None:
        """`at_once`: quota is released with the preemption."""
        self._at_once = at_once
        self.happened: list[Happened] = []

    def admitted(self, at: float, decision: Admit) -> None:
        self.happened.append(Happened(at, "admitted", decision.key, canonical(encode(decision.admission))))

    def preempted(self, at: float, decision: Preempt) -> None:
        self.happened.append(Happened(at, "preempted", decision.key, decision.preemptor))
        if self._at_once:
            self.released(at, decision.key)

    def evicted(self, at: float, key: str, reason: str) -> None:
        self.happened.append(Happened(at, "evicted", key, reason))

    def released(self, at: float, key: str) -> None:
        self.happened.append(Happened(at, "released", key))

    def over(self, at: float, key: str, how: str) -> None:
        self.happened.append(Happened(at, "over", key))


def fidelity(history: History, state: State, latencies: bool = True) -> Fidelity:
    """A history beside its simulation under the recorded rules, as `state` has them at its start.

    Without `latencies` everything outside of decisions takes no time but the jobs themselves.
    """
    plan = plan_of(history, state, frozenset())
    if not latencies:
        plan = replace(plan, jobs=(replace(job, recorded=None) for job in plan.jobs), outside=Outside())
    log = _Log(at_once=plan.outside.eviction is None)
    Simulation(plan, log).run()
    runs = list(_numbered(history.log)), list(_numbered(log.happened))
    recorded, simulated = admissions = [[each for each in run if each.what == "admitted"] for run in runs]
    equal = _equal(recorded, simulated)
    times = [{each.identity: each.at for each in run} for run in admissions]
    return Fidelity(
        start=format_time(int(history.start)),
        end=format_time(int(history.end)),
        recorded=len(recorded),
        simulated=len(simulated),
        equal=len(equal),
        at_once=sum(abs(at - times[1].get(each, math.inf)) <= SAME for each, at in times[0].items()),
        differences=list(_differences(history, runs, equal, _trees(history, state))),
        gaps=history.gaps,
    )


def _differences(
    history: History, runs: Runs, equal: set[Admission], trees: Mapping[str, str]
) -> Iterator[Unlike]:
    """The admissions of both runs that are not equal, each once, in the order of their times."""
    different = {
        each.identity: (run, each)
        for run in (1, 0)
        for each in runs[run]
        if each.what == "admitted" and each.admission not in equal
    }
    if not different:
        return
    by_tree: defaultdict[str, Runs] = defaultdict(lambda: ([], []))
    times: tuple[dict[Identity, str], dict[Identity, str]] = ({}, {})
    for run in (0, 1):
        for each in runs[run]:
            by_tree[trees.get(each.key, "")][run].append(each)  # type: ignore[attr-defined]
            if each.what == "admitted":
                times[run][each.identity] = format_micro_time(history.start + each.at)
    episodes = {tree: _Episodes(both, history.start) for tree, both in by_tree.items()}
    for identity, (run, each) in sorted(different.items(), key=lambda item: item[1][1].at):
        yield Unlike(
            workload=each.key,
            admission=each.number,
            recorded=times[0].get(identity, ""),
            simulated=times[1].get(identity, ""),
            cause=episodes[trees.get(each.key, "")].cause(run, each),
        )


def _numbered(happened: Sequence[Happened]) -> Iterator[Event]:
    """With how often it happened. An admission that could not be written is none, but is left in the log."""
    counts: Counter[tuple[str, str]] = Counter()
    undone = _undone(happened)
    for index, each in enumerate(happened):
        what = "undone admission" if index in undone else each.what
        counts[what, each.key] += 1
        yield Event(each.at, what, each.key, counts[what, each.key], each.details)


def _undone(happened: Sequence[Happened]) -> set[int]:
    """The places of the admissions that were undone."""
    newest: dict[str, int] = {}
    found = set()
    for index, each in enumerate(happened):
        if each.what == "admitted":
            newest[each.key] = index
        elif each.what == "undone" and each.key in newest:
            found.add(newest.pop(each.key))
    return found


def _equal(recorded: Sequence[Event], simulated: Sequence[Event]) -> set[Admission]:
    """A longest common subsequence. Each admission is in a run once, by its number."""
    places = {each.admission: place for place, each in enumerate(simulated)}
    both = [each.admission for each in recorded if each.admission in places]
    #: By length of a sequence in order: the least place at which it can end, where that is in `both`.
    ends: list[int] = []
    last: list[int] = []
    #: Of each in `both`: the one before it in its sequence, or -1.
    before: list[int] = []
    for index, each in enumerate(both):
        length = bisect_left(ends, places[each])
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [places[each]]
        last[length : length + 1] = [index]
    found = set()
    index = last[-1] if last else -1
    while index >= 0:
        found.add(both[index])
        index = before[index]
    return found


def _trees(history: History, state: State) -> dict[str, str]:
    """The tree of cohorts of each job, by key; empty for jobs whose queue there was not."""
    events = [*state.objects, *(event for _, event in history.changes)]
    roots = roots_of(events)
    queues = {
        event.obj.metadata.key: event.obj.spec.cluster_queue
        for event in events
        if isinstance(event, Upsert) and isinstance(event.obj, kueue.LocalQueue)
    }
    jobs = (*(each.job for each in history.present), *history.jobs)
    return {job.key: roots.get(queues.get(f"{job.namespace}/{job.spec.queue_name}", ""), "") for job in jobs}


#: What happens, in words, and how the workload then stands.
_MEANING = {
    "admitted": ("{key} is admitted", "holds quota"),
    "undone admission": ("{key} is admitted, which then cannot be written", "holds quota"),
    "undone": ("the admission of {key} is undone", ""),
    "preempted": ("{key} is preempted for {details}", "preempted"),
    "evicted": ("{key} is evicted ({details})", ""),
    "released": ("{key} gives back its quota", ""),
    "over": ("{key} comes to its end", "over"),
}


@dataclass
class _Episode:
    """A time in which two runs are in different states."""

    begin: float
    end: float
    cause: str


class _Episodes:
    """What differs between two runs of the workloads of one tree of cohorts."""

    def __init__(self, runs: Runs, start: float) -> None:
        self._start = start
        self._episodes: list[_Episode] = []
        #: When each event happens, by run.
        self._times = [{each.identity: each.at for each in run} for run in runs]
        merged = [(self._moment(run, each), run, each) for run in (0, 1) for each in runs[run]]
        merged.sort(key=itemgetter(0))
        states: tuple[dict[str, str], dict[str, str]] = ({}, {})
        different: set[str] = set()
        for at, moment in groupby(merged, key=itemgetter(0)):
            events = list(moment)
            for _, run, event in events:
                states[run][event.key] = _MEANING[event.what][1]
                if states[0].get(event.key, "") == states[1].get(event.key, ""):
                    different.discard(event.key)
                else:
                    different.add(event.key)
            if not self._is_open and different:
                _, run, event = next(each for each in events if each[2].key in different)
                self._episodes.append(_Episode(at, math.inf, self._text(run, event)))
            elif self._is_open and not different:
                self._episodes[-1].end = at

    @property
    def _is_open(self) -> bool:
        return bool(self._episodes) and self._episodes[-1].end == math.inf

    def _moment(self, run: int, event: Event) -> float:
        """When it happens; what happens in both runs within `SAME` happens at the same time."""
        recorded = self._times[0].get(event.identity)
        return recorded if recorded is not None and abs(recorded - event.at) <= SAME else event.at

    def _text(self, run: int, event: Event) -> str:
        here, there = ("recording", "simulation") if run == 0 else ("simulation", "recording")
        text = _MEANING[event.what][0].format(key=event.key, details=event.details)
        other = self._times[1 - run].get(event.identity)
        when = "not" if other is None else f"at {format_micro_time(self._start + other)}"
        return f"in the {here} {text} at {format_micro_time(self._start + event.at)}, in the {there} {when}"

    def cause(self, run: int, admission: Event) -> str:
        """Why an admission of one of the runs differs."""
        at = self._moment(run, admission)
        place = bisect_right(self._episodes, at, key=attrgetter("begin"))
        if place and at <= self._episodes[place - 1].end:
            return self._episodes[place - 1].cause
        return "the same cycle decides in another order"
