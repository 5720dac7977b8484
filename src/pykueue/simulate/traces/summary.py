"""What is in a trace: counts and distributions, in one pass and bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykueue.simulate.distribution import Distribution

from .record import Record

#: Hours of a week; the first is that of Monday 0:00 to 1:00.
WEEK: Final = 168
#: Kinds of jobs that are counted apart; the rest count together.
_KINDS_MAX: Final = 2000
_HOUR: Final = 3600.0
#: 1970-01-01 was a Thursday.
_THURSDAY: Final = 3 * 24


class Kind(NamedTuple):
    """Jobs that are alike: they were submitted to one queue and request the same."""

    queue: str
    pods: int
    cpu: float
    """Cores of each pod."""
    memory: float
    """Bytes of each pod."""
    gpus: float
    """Accelerators of each pod."""
    job_class: str


@dataclass(slots=True)
class KindSummary:
    """The jobs of one kind that ran."""

    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    """Run time of all."""
    logarithms: float = 0.0
    """Sum of the logarithms of their run times, at least a second each."""
    squares: float = 0.0
    """Sum of the squares of these logarithms."""

    @property
    def median(self) -> float:
        """Of the log-normal law that fits, in seconds."""
        return math.exp(self.logarithms / self.count)

    @property
    def sigma(self) -> float:
        """Of the log-normal law that fits."""
        mean = self.logarithms / self.count
        return math.sqrt(max(0.0, self.squares / self.count - mean * mean))


@dataclass
class Summary:
    """A trace."""

    jobs: int = 0
    ran: int = 0
    """Jobs with a run time; the figures below are theirs, but users and arrivals."""
    failed: int = 0
    first: float = math.inf
    """First submission, in seconds since 1970."""
    last: float = -math.inf
    week: list[int] = field(default_factory=lambda: [0] * WEEK)
    """Submissions by hour of the week, in UTC."""
    users: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    gpus: Counter[int] = field(default_factory=Counter)
    """Jobs by the accelerators that they request together, rounded up."""
    pods: Counter[int] = field(default_factory=Counter)
    run_time: Distribution = field(default_factory=Distribution)
    wait: Distribution = field(default_factory=Distribution)
    """Recorded waits."""
    gpu_seconds: float = 0.0
    core_seconds: float = 0.0
    kinds: dict[Kind, KindSummary] = field(default_factory=dict)
    merged: int = 0
    """Jobs that are in no kind, as there are too many."""

    @property
    def hours(self) -> float:
        """From the first to the last submission."""
        return (self.last - self.first) / _HOUR if self.jobs else 0.0

    def add(self, record: Record) -> None:
        """Counts one job."""
        self.jobs += 1
        self.first, self.last = (
            min(self.first, record.submitted),
            max(self.last, record.submitted),
        )
        self.week[int(record.submitted // _HOUR + _THURSDAY) % WEEK] += 1
        self.users[record.user] += 1
        if record.waited is not None:
            self.wait.add(record.waited)
        if record.run_time is None:
            return
        self.ran += 1
        self.failed += record.failed
        self.queues[record.queue] += 1
        self.classes[record.job_class] += 1
        self.gpus[math.ceil(record.gpus * record.pods)] += 1
        self.pods[record.pods] += 1
        self.run_time.add(record.run_time)
        self.gpu_seconds += record.gpus * record.pods * record.run_time
        self.core_seconds += record.cpu * record.pods * record.run_time
        self._count_kind(record, record.run_time)

    def _count_kind(self, record: Record, run_time: float) -> None:
        kind = Kind(
            record.queue,
            record.pods,
            record.cpu,
            record.memory,
            record.gpus,
            record.job_class,
        )
        found = self.kinds.get(kind)
        if found is None:
            if len(self.kinds) >= _KINDS_MAX:
                self.merged += 1
                return
            found = self.kinds[kind] = KindSummary()
        logarithm = math.log(max(1.0, run_time))
        found.count += 1
        found.failed += record.failed
        found.seconds += run_time
        found.logarithms += logarithm
        found.squares += logarithm * logarithm


def summarized(records: Iterable[Record]) -> Summary:
    """The summary of a trace; what its reader raises is passed on."""
    summary = Summary()
    for record in records:
        summary.add(record)
    return summary
