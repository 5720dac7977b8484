# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""When a pending workload will start: the present state simulated forward many times.

Each future differs in what is not known: how long running and pending workloads run, and what arrives.
The decisions are those of the engine. The answer is the interval from the 10th to the 90th percentile.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from pykueue.api.meta import format_time
from pykueue.questions.answers import Answer
from pykueue.simulate.futures import FUTURES, Futures, Past, State, Watch, check_pending, interval

#: Workloads named as those whose end lets it start.
NAMED: Final = 3


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


def when(
    state: State,
    key: str,
    futures: int = FUTURES,
    seed: int = 0,
    arrivals: bool = True,
    past: Past | None = None,
) -> When:
    """When the pending workload `namespace/name` starts; with `arrivals`, others like the latest keep coming.

    `past` is what is known of run times and arrivals; without it, what the state tells.

    Raises KeyError where there is no such workload, and ValueError for one that is not pending.
    """
    check_pending({each.metadata.key: each for each in state.workloads}[key])
    past, watch = past or Past(state), Watch(key)
    all = Futures(state, past, seed, arrivals)
    found = [all.play(number, watch) for number in range(futures)]
    starts = sorted(future.starts[key] for future in found if key in future.starts)
    started = len(starts)
    triggers = Counter(trigger for future in found for trigger in future.triggers)

    earliest, median, latest = interval(starts, futures, state.now)
    return When(
        workload=key,
        now=format_time(int(state.now)),
        earliest=earliest,
        median=median,
        latest=latest,
        futures=futures,
        started=started,
        ahead=sum(future.ahead for future in found) / futures,
        triggers=[
            Trigger(workload=name, share=count / started) for name, count in triggers.most_common(NAMED)
        ],
        known_run_times=past.times.count,
        arrivals_per_hour=past.rate * 3600 if arrivals else 0.0,
        unread=state.unread,
        notes=state.notes,
    )
