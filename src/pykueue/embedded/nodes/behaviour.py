"""How simulated pods behave: read from annotations, on the pod or, as defaults, on its node.

Each annotation is in the domain `sim.pykueue.io/`:

| annotation | value | meaning |
|---|---|---|
| start-delay | `1s`, `1s-5s` | from the binding to the first container's start |
| run-time | `10s`, `1m-2m`, `forever` | how long each container runs |
| ready-delay | `20s` | from a container's start to its being ready; else a readiness probe's first success |
| stop-delay | `100ms` | from SIGTERM to the exit |
| exit-code | `0`, `1,1,0` | of each run in turn; the last one counts for all further runs |
| failure-rate | `0.1` | the chance that a run fails, with the exit code given or else 1 |
| waits-for-siblings | `20` | the run time counts from when so many pods of its owner run or have succeeded |
| ignores-sigterm | `true` | the grace period is used up, and the exit code is 137 |
| seed | any text | changes every draw; of the node only |

A range is drawn from evenly. Draws depend on the seed, the pod's uid and the run alone, so that they come out
the same after a restart.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.embedded.nodes.annotations import SPAN, TRUTH, BehaviourError, Value, Vocabulary
from pykueue.embedded.nodes.commands import FOREVER, Outcome, understand
from pykueue.embedded.nodes.durations import Span

START_DELAY = Span(1.0, 2.0)
STOP_DELAY = Span(0.1, 0.1)
#: Of containers without a specified run time, unless the pod is to be kept running.
RUN_TIME = Span(10.0, 10.0)
_EXIT_CODES = re.compile(r"[0-9]{1,3}(,[0-9]{1,3})*")


class Behaviour(NamedTuple):
    """What was said, by annotation; None where nothing was."""

    start_delay: Span | None = None
    run_time: Span | None = None
    ready_delay: Span | None = None
    stop_delay: Span | None = None
    exit_code: tuple[int, ...] | None = None
    failure_rate: float | None = None
    waits_for_siblings: int | None = None
    ignores_sigterm: bool | None = None

    def over(self, other: Behaviour) -> Behaviour:
        """This where it says something, `other` elsewhere."""
        return Behaviour._make(its if mine is None else mine for mine, its in zip(self, other, strict=True))


def _exit_code(text: str) -> tuple[int, ...]:
    if _EXIT_CODES.fullmatch(text):
        codes = tuple(int(one) for one in text.split(","))
        if max(codes) <= 255:
            return codes
    raise BehaviourError(f"{text!r} is not an exit code from 0 to 255, or several joined by commas")


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise BehaviourError(f"{text!r} is not a number from 0 to 1")
    return value


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise BehaviourError(f"{text!r} is not a whole number")
    return int(text)


def _number(value: float) -> str:
    return f"{value:g}"


_COUNT = Value(_count, _number)
_RATE = Value(_rate, _number)
_EXITS = Value(_exit_code, lambda codes: ",".join(map(str, codes)))
_VOCABULARY = Vocabulary(
    Behaviour,
    {
        "start_delay": SPAN,
        "run_time": SPAN,
        "ready_delay": SPAN,
        "stop_delay": SPAN,
        "exit_code": _EXITS,
        "failure_rate": _RATE,
        "waits_for_siblings": _COUNT,
        "ignores_sigterm": TRUTH,
    },
)
read, read_fields, as_annotations = _VOCABULARY.read, _VOCABULARY.read_fields, _VOCABULARY.as_annotations


class Program:
    """What the containers of one pod do: what the pod says, else its command, else its node's defaults."""

    __slots__ = ("_defaults", "_own", "_seed", "ignores_sigterm", "ready_delay", "start_delay", "waits_for")

    def __init__(self, own: Behaviour, defaults: Behaviour, seed: str, uid: str) -> None:
        self._own = own
        self._defaults = defaults
        self._seed = f"{seed}/{uid}"
        specified = own.over(defaults)
        self.start_delay = self._draw("start", specified.start_delay or START_DELAY)
        #: None when nothing was said, and probes may say something.
        self.ready_delay = (
            None if specified.ready_delay is None else self._draw("ready", specified.ready_delay)
        )
        self.ignores_sigterm = bool(specified.ignores_sigterm)
        self.waits_for = specified.waits_for_siblings or 0

    def run(self, container: Object, restarts: int, *, keep_running: bool = False) -> Outcome:
        """How long a run of a regular container takes and how it ends; `restarts` runs came before.

        `keep_running` says that the pod is meant to run for good.
        """
        where = f"{container.get('name')}/{restarts}"
        understood = understand(container)
        if self._own.run_time is not None:
            seconds = self._draw(f"run/{where}", self._own.run_time)
        elif understood is not None:
            seconds = understood.seconds
        elif self._defaults.run_time is not None:
            seconds = self._draw(f"run/{where}", self._defaults.run_time)
        else:
            seconds = FOREVER if keep_running else self._draw(f"run/{where}", RUN_TIME)
        return Outcome(seconds, self._exit_code(where, restarts, understood))

    def stop_delay(self, container: Object) -> float:
        """Seconds from SIGTERM to the exit of a container that obeys it."""
        specified = self._own.stop_delay or self._defaults.stop_delay or STOP_DELAY
        return self._draw(f"stop/{container.get('name')}", specified)

    def _exit_code(self, where: str, restarts: int, understood: Outcome | None) -> int:
        own, defaults = self._own, self._defaults
        rate = own.failure_rate if own.failure_rate is not None else defaults.failure_rate
        if rate is not None:
            fails = self._random(f"failure/{where}").random() < rate
            given = own.exit_code or defaults.exit_code or (1,)
            return (given[-1] or 1) if fails else 0
        if own.exit_code is not None:
            return own.exit_code[min(restarts, len(own.exit_code) - 1)]
        if understood is not None:
            return understood.exit_code
        if defaults.exit_code is not None:
            return defaults.exit_code[min(restarts, len(defaults.exit_code) - 1)]
        return 0

    def _draw(self, what: str, span: Span) -> float:
        return span.low if span.low == span.high else span.draw(self._random(what))

    def _random(self, what: str) -> random.Random:
        return random.Random(f"{self._seed}/{what}")
