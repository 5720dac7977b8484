"""How good past forecasts were: kept, and judged once the workloads have started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from pykueue.api import kueue
from pykueue.api.meta import parse_time
from pykueue.questions.used import held_between

#: Forecasts kept; the oldest are dropped beyond it.
KEPT: Final = 1000
#: Past starts of a queue below which its score says nothing.
SCORED: Final = 5


class Forecast(msgspec.Struct):
    """One answer, and whether the workload started in its interval."""

    workload: str
    """Its uid, or its key without one."""
    queue: str
    """`namespace/name` of its LocalQueue."""
    earliest: float
    """Seconds since 1970."""
    latest: float
    inside: bool | None = None
    """None until the workload has started."""
    key: str = ""
    """`namespace/name` of the workload."""


class Scores:
    """The newest forecasts, the oldest of them first."""

    def __init__(self, data: bytes = b"") -> None:
        """What `encode` returned; data that is damaged has no forecasts."""
        self._forecasts: list[Forecast] = []
        with suppress(msgspec.DecodeError):
            self._forecasts = msgspec.json.decode(data, type=list[Forecast])

    def encode(self) -> bytes:
        """The newest forecasts as JSON."""
        return msgspec.json.encode(self._forecasts[-KEPT:])

    def merge(self, other: Scores) -> None:
        """Takes over what others have kept: their forecasts of other workloads, and their judgements."""
        known = {each.workload: each for each in other._forecasts}
        for each in self._forecasts:
            found = known.pop(each.workload, None)
            if each.inside is None and found is not None and found.inside is not None:
                each.earliest, each.latest, each.inside = found.earliest, found.latest, found.inside
        self._forecasts = [*known.values(), *self._forecasts][-KEPT:]

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

    def unjudged(self) -> list[str]:
        """Keys of the workloads that had not started when they were last judged."""
        return [each.key for each in self._forecasts if each.inside is None and each.key]

    def add(self, workload: kueue.Workload, earliest: str, latest: str, first: bool = False) -> None:
        """Keeps an answer that has both ends; of several about one workload the latest, or the first one."""
        if not earliest or not latest:
            return
        name = workload.metadata.uid or workload.metadata.key
        if first and any(each.workload == name for each in self._forecasts):
            return
        self._forecasts = [
            each for each in self._forecasts if each.workload != name or each.inside is not None
        ]
        queue = f"{workload.metadata.namespace}/{workload.spec.queue_name}"
        times = parse_time(earliest), parse_time(latest)
        self._forecasts.append(Forecast(name, queue, *times, key=workload.metadata.key))
        del self._forecasts[:-KEPT]

    def of_queue(self, queue: str) -> tuple[int, int]:
        """Past starts inside the interval, and all past starts, of a LocalQueue `namespace/name`."""
        return self.of_queues().get(queue, (0, 0))

    def of_queues(self) -> dict[str, tuple[int, int]]:
        """The same of all LocalQueues with past starts."""
        found: dict[str, tuple[int, int]] = {}
        for each in self._forecasts:
            if each.inside is not None:
                inside, all = found.get(each.queue, (0, 0))
                found[each.queue] = inside + each.inside, all + 1
        return found


def read(file: Path) -> Scores:
    """The scores in a file; none where it does not exist. Raises OSError if it cannot be read."""
    try:
        return Scores(file.read_bytes())
    except FileNotFoundError:
        return Scores()


def write(file: Path, scores: Scores) -> None:
    """Replaces the file. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_bytes(scores.encode())
    part.replace(file)
