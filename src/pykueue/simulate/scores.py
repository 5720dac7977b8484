"""How good past forecasts were: kept in a file, judged once the workloads have started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from pykueue.api import kueue
from pykueue.api.meta import parse_time
from pykueue.questions.used import held_between
from pykueue.simulate.forecast import When

#: Forecasts kept; the oldest are dropped beyond it.
KEPT: Final = 1000


class Forecast(msgspec.Struct):
    """One answer, and whether the workload started in its interval."""

    workload: str
    queue: str
    """`namespace/name` of its LocalQueue."""
    earliest: float
    """Seconds since 1970."""
    latest: float
    inside: bool | None = None
    """None until the workload has started."""


class Scores:
    """The forecasts in a file."""

    def __init__(self, file: Path) -> None:
        """A file that does not exist or is damaged has no forecasts. Raises OSError if it cannot be read."""
        self._file = file
        self._forecasts: list[Forecast] = []
        with suppress(FileNotFoundError, msgspec.DecodeError):
            self._forecasts = msgspec.json.decode(file.read_bytes(), type=list[Forecast])

    def judge(self, workloads: Iterable[kueue.Workload]) -> None:
        """Notes which workloads have started since, and when."""
        starts: Mapping[str, float] = {
            each.metadata.uid or each.metadata.key: held[0]
            for each in workloads
            if (held := held_between(each, 0.0)) is not None
        }
        for forecast in self._forecasts:
            start = starts.get(forecast.workload)
            if forecast.inside is None and start is not None:
                # An answer is given in whole seconds.
                forecast.inside = forecast.earliest - 1 <= start <= forecast.latest + 1

    def add(self, workload: kueue.Workload, answer: When) -> None:
        """Keeps an answer that has both ends; the latest of several about one workload."""
        if not answer.earliest or not answer.latest:
            return
        name = workload.metadata.uid or workload.metadata.key
        self._forecasts = [
            each for each in self._forecasts if each.workload != name or each.inside is not None
        ]
        earliest, latest = parse_time(answer.earliest), parse_time(answer.latest)
        self._forecasts.append(Forecast(name, _queue(workload), earliest, latest))

    def write(self) -> None:
        """Keeps the newest forecasts. Raises OSError."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(self._forecasts[-KEPT:]))
        part.replace(self._file)

    def of_queue(self, workload: kueue.Workload) -> tuple[int, int]:
        """Past starts inside the interval, and all past starts, of the LocalQueue of a workload."""
        judged = [
            each.inside
            for each in self._forecasts
            if each.queue == _queue(workload) and each.inside is not None
        ]
        return sum(judged), len(judged)


def _queue(workload: kueue.Workload) -> str:
    return f"{workload.metadata.namespace}/{workload.spec.queue_name}"
