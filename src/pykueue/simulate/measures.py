"""What a simulation counts: lives by queue and class, usage by queue and flavor, preemptions by pair."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from pykueue.simulate.distribution import Distribution
from pykueue.simulate.timeline import Entry

if TYPE_CHECKING:
    from pykueue.questions.share import Entitlement

#: Intervals of a series beyond which two become one: the memory of a run does not depend on its length.
INTERVALS_MAX = 1024

#: The shortest run time that a bounded slowdown divides by, in seconds.
SLOWDOWN_BOUND = 10.0


class Group(NamedTuple):
    """Workloads that are counted together."""

    cluster_queue: str
    job_class: str
    size: str = ""
    """What they request together, as a range; empty where sizes are not told apart."""


class ShareKey(NamedTuple):
    """What a queue is entitled to under weighted fair sharing."""

    cluster_queue: str
    resource: str


class UsageKey(NamedTuple):
    """What is used."""

    cluster_queue: str
    flavor: str
    resource: str


class Pair(NamedTuple):
    """ClusterQueues of a preemptor and of the workload it preempted, and the reason."""

    preemptor: str
    preempted: str
    reason: str


@dataclass(slots=True)
class Lives:
    """The workloads of one group."""

    created: int = 0
    admissions: int = 0
    finished: int = 0
    failed: int = 0
    stopped: int = 0
    """Ran as long as they may at most."""
    evictions: Counter[str] = field(default_factory=Counter)
    """By reason; preemptions are among them."""
    node_losses: int = 0
    """Times that a workload stopped because nodes of its failed or were drained."""
    wait: Distribution = field(default_factory=Distribution)
    """Seconds from creation to the first admission."""
    pending: Distribution = field(default_factory=Distribution)
    """Seconds without quota over the whole life, of workloads that are over."""
    turnaround: Distribution = field(default_factory=Distribution)
    """Seconds from creation to the end."""
    slowdown: Distribution = field(default_factory=Distribution)
    """Turnaround by run time, at least 1; run times below `SLOWDOWN_BOUND` count as that."""
    lost: Counter[str] = field(default_factory=Counter)
    """Resource-seconds by resource that evictions and lost nodes threw away: since the last checkpoint."""


@dataclass(slots=True)
class Usage:
    """An amount over time: its integral, and that of each interval."""

    width: float
    """Seconds of an interval; it doubles with the length of the run, see `INTERVALS_MAX`."""
    value: float = 0.0
    since: float = 0.0
    """Seconds from the start."""
    area: float = 0.0
    peak: float = 0.0
    intervals: list[float] = field(default_factory=list)
    """Unit-seconds of each interval."""

    def change(self, by: float, now: float) -> None:
        """From `now` on it is higher by that much."""
        self.until(now)
        self.value += by
        if self.value > self.peak:
            self.peak = self.value

    def until(self, now: float) -> None:
        """Counts what was used until `now`."""
        if now <= self.since:
            return
        if self.value:
            self.area += self.value * (now - self.since)
            self._spread(self.since, now)
        self.since = now

    def halve(self) -> None:
        """Makes one interval of every two."""
        self.width *= 2
        pairs = zip_longest(self.intervals[::2], self.intervals[1::2], fillvalue=0.0)
        self.intervals = [first + second for first, second in pairs]

    def _spread(self, begin: float, end: float) -> None:
        while end // self.width >= INTERVALS_MAX:
            self.halve()
        width, intervals = self.width, self.intervals
        index, last = int(begin // width), int(end // width)
        if index == last < len(intervals) and end <= (index + 1) * width:  # nearly always
            intervals[index] += self.value * (end - begin)
            return
        while len(intervals) <= last:
            intervals.append(0.0)
        while begin < end:
            index = int(begin // width)
            part = min(end, (index + 1) * width)
            if part <= begin:  # a rounding of the division
                index, part = index + 1, min(end, (index + 2) * width)
            intervals[min(index, last)] += self.value * (part - begin)
            begin = part


@dataclass(slots=True)
class Lost:
    """What preemptions of one pair of queues cost."""

    count: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """Resource-seconds by resource."""


@dataclass(slots=True)
class Share:
    """What a queue was entitled to and had, in unit-seconds, as sampled at regular times."""

    entitled: float = 0.0
    received: float = 0.0
    deficit: float = 0.0
    """Of what it was entitled to and had not."""

    def add(self, resource: str, now: Entitlement, seconds: float) -> None:
        """Counts what holds now, in quota units, for some seconds."""
        per = seconds / (1000 if resource == "cpu" else 1)
        self.entitled += now.entitled * per
        self.received += now.received * per
        self.deficit += max(0, now.entitled - now.received) * per


class BudgetKey(NamedTuple):
    """One resource of one ledger of a Budget."""

    budget: str
    value: str
    """Of the label that the Budget selects by; empty for none."""
    resource: str


@dataclass(slots=True)
class BudgetUse:
    """What was used of a Budget."""

    used: float = 0.0
    """Resource-hours, in all windows of the run."""
    limit: float = 0.0
    """Resource-hours that the last window allowed."""
    highest: float = 0.0
    """The largest part of a window that was used."""
    actions: list[tuple[float, str]] = field(default_factory=list)
    """Actions in force, each from a time on, in seconds from the start; empty: none."""


@dataclass(slots=True)
class Outcome:
    """What one run of one variant gave."""

    variant: str
    seed: int
    lives: dict[Group, Lives] = field(default_factory=dict)
    usage: dict[UsageKey, Usage] = field(default_factory=dict)
    quota: dict[UsageKey, Usage] = field(default_factory=dict)
    """Nominal quota over time."""
    preemptions: dict[Pair, Lost] = field(default_factory=dict)
    budgets: dict[BudgetKey, BudgetUse] = field(default_factory=dict)
    first_admissions: dict[str, float] = field(default_factory=dict)
    """Of watched workloads: seconds from the start."""
    shares: dict[ShareKey, Share] = field(default_factory=dict)
    """Only of runs in detail."""
    timeline: list[Entry] = field(default_factory=list)
    """Only of the run in detail with the first seed."""
    timeline_omitted: int = 0
    """Entries that are not in `timeline`."""
    unfinished: int = 0
    """Workloads that were not over at the end."""
    cycles: int = 0
    requests: float = 0.0
    """Of the manager's client, where it has a limit."""
    end: float = 0.0
    """Seconds from the start at which nothing more could happen, or the horizon."""
    makespan: float = math.nan
    """Seconds from the first creation to the last end of a workload; NaN where none came to its end."""
    decisions: str = ""
    """SHA-256 of the decision log; empty without one."""
    ended: str = ""
    """Why the run ended before its time; empty where it did not."""
    wall: float = 0.0
    """Seconds of real time."""
    cpu: float = 0.0
    """Seconds of CPU."""
