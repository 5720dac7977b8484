"""The process that makes forecasts: an `Ask` on its standard input, `Starts` on its standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec

from pykueue.api import decode, decode_as, kueue
from pykueue.api.kueue.names import ADMITTED
from pykueue.api.meta import format_time
from pykueue.engine import Options, Upsert
from pykueue.simulate.futures import Futures, Past, State, Watch, interval
from pykueue.simulate.live.protocol import Ask, Start, Starts

#: Seconds into the future for which starts are forecast.
WINDOW: Final = 24 * 3600.0
#: Futures simulated in any case: fewer give no interval.
FUTURES_MIN: Final = 5


def state_of(ask: Ask) -> State:
    """The state that is sent. Raises DecodeError."""
    objects = [decode(each) for each in (*ask.objects, *([ask.submit] if ask.submit is not None else ()))]
    workloads = [each for each in objects if isinstance(each, kueue.Workload)]
    events = [Upsert(each) for each in objects if not isinstance(each, kueue.Workload)]
    return State(decode_as(Options, ask.options), list(events), workloads, ask.now)


def starts(ask: Ask, clock: Callable[[], float] = monotonic) -> Starts:
    """When the pending workloads start: from as many futures as there is time for."""
    until = clock() + ask.seconds
    state = state_of(ask)
    past = Past(state)
    if ask.submit is None:
        pending = [each.metadata.key for each in state.unfinished() if not each.condition_is(ADMITTED)]
    else:
        pending = [state.workloads[-1].metadata.key]
    every = Futures(state, past)
    found: dict[str, list[float]] = {key: [] for key in pending}
    watch = Watch("", frozenset(pending), WINDOW)
    number = preempted = 0
    while pending and number < ask.futures and (number < FUTURES_MIN or clock() < until):
        future = every.play(number, watch)
        for key, at in future.starts.items():
            found[key].append(at)
        preempted += sum(by in found for by in future.preempted.values())
        number += 1
    result = Starts(
        now=format_time(int(state.now)),
        futures=number,
        hours=WINDOW / 3600,
        preempted=preempted / number if number and ask.submit is not None else 0.0,
        known_run_times=past.times.count,
        arrivals_per_hour=past.rate * 3600,
    )
    for key, times in found.items():
        earliest, median, latest = interval(sorted(times), number, state.now) if number else ("", "", "")
        result.starts[key] = Start(earliest=earliest, median=median, latest=latest, started=len(times))
    return result


if __name__ == "__main__":
    os.nice(19)
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Ask)
    sys.stdout.buffer.write(msgspec.json.encode(starts(asked)))
