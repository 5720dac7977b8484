"""The jobs of a scenario that a trace recorded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pykueue.api import kueue
from pykueue.api.similar import did_you_mean
from pykueue.simulate.scenario.jobs import Job, pod_set
from pykueue.simulate.scenario.laws import draw_of
from pykueue.simulate.scenario.reading import ScenarioError
from pykueue.simulate.scenario.types import PodSet, Trace

from .formats import READERS
from .record import Record, TraceError

#: Records that may stand in the file after one that was submitted later.
_OUT_OF_ORDER: Final = 10_000

_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


class TraceJobs:
    """The jobs of one trace."""

    def __init__(
        self,
        trace: Trace,
        folder: Path,
        where: str,
        name: str,
        random: Random,
        local_queues: Collection[str] | None = None,
    ) -> None:
        """`name` begins the names of the jobs. `local_queues` are those that exist; None: any.

        Raises ScenarioError.
        """
        self._local_queues = local_queues
        self._trace = trace
        self._file = folder / trace.file
        self._where = where
        self._name = name
        self._random = random
        try:
            self._zone = ZoneInfo(trace.time_zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ScenarioError(f"{where}.timeZone: {trace.time_zone!r} is not a time zone") from None
        if not self._file.is_file():
            raise ScenarioError(f"{where}.file: {self._file}: no such file")
        if not trace.scale or not trace.speed:
            raise ScenarioError(f"{where}: scale and speed must be above 0")
        #: Pod sets that are alike are one object, decoded once.
        self._specs: dict[tuple[object, ...], kueue.PodSet] = {}

    def jobs(self) -> Iterator[Job]:
        """In the order of their arrival, the first one at the start of the simulation."""
        trace, taken, made = self._trace, 0.0, 0
        first: float | None = None
        for record in self._in_order():
            taken += trace.scale
            while taken >= 1:
                taken -= 1
                if trace.jobs_max is not None and made >= trace.jobs_max:
                    return
                if first is None:
                    first = record.submitted
                yield self._job(record, (record.submitted - first) / trace.speed, made)
                made += 1

    def _in_order(self) -> Iterator[Record]:
        """Records by submission; traces are nearly in that order."""
        heap: list[tuple[float, int, Record]] = []
        last = float("-inf")
        try:
            for number, record in enumerate(READERS[self._trace.format](self._file, self._zone)):
                if record.run_time is None or not (record.gpus or record.cpu):
                    continue  # never ran, or asked for nothing
                if record.submitted < last:
                    why = f"job {record.name} was submitted before {_OUT_OF_ORDER} jobs that stand before it"
                    raise TraceError(self._file, record.line, "", why)
                heappush(heap, (record.submitted, number, record))
                if len(heap) > _OUT_OF_ORDER:
                    last, _, found = heappop(heap)
                    yield found
        except TraceError as error:
            raise ScenarioError(f"{self._where}: {error}") from None
        while heap:
            yield heappop(heap)[2]

    def _job(self, record: Record, at: float, number: int) -> Job:
        trace = self._trace
        fields = {
            "queue": record.queue,
            "user": record.user,
            "group": record.group,
            "cluster": record.cluster,
            "class": record.job_class,
        }
        namespace, _, queue = _filled(trace.queue, fields).partition("/")
        if not queue:
            namespace, queue = "default", namespace
        if self._local_queues is not None and f"{namespace}/{queue}" not in self._local_queues:
            near = did_you_mean(f"{namespace}/{queue}", self._local_queues)
            why = f"LocalQueue {namespace}/{queue} of job {record.name} is not among the manifests{near}"
            raise ScenarioError(f"{self._where}: {TraceError(self._file, record.line, '', why)}")
        job_class = trace.job_class.replace("{class}", record.job_class or "job")
        requests = {"cpu": f"{round(record.cpu * 1000)}m"} if record.cpu else {}
        if record.memory:
            requests["memory"] = str(round(record.memory))
        if record.gpus:
            # Kubernetes counts extended resources in whole pieces only.
            requests[trace.gpu] = str(max(1, round(record.gpus)))
        shape = (record.pods, *requests.items())
        pods = self._specs.get(shape)
        if pods is None:
            pods = self._specs[shape] = pod_set(PodSet(requests=requests, count=record.pods), self._where)
        limit = None if record.limit is None else max(1, round(record.limit))
        spec = kueue.WorkloadSpec(
            queue_name=queue or "default",
            priority=trace.priorities.get(record.job_class, 0),
            pod_sets=[pods],
            maximum_execution_time_seconds=limit,
        )
        try:
            run_time = draw_of(trace.run_time, self._random, record.run_time, limit)()
        except ValueError as error:
            raise ScenarioError(f"{self._where}.runTime: {error}") from None
        return Job(at, namespace, f"{self._name}-{number}", job_class, spec, run_time, record.failed)


def _filled(template: str, fields: dict[str, str]) -> str:
    """The template with fields of the record as parts of names."""
    for name, value in fields.items():
        if f"{{{name}}}" in template:
            clean = _NOT_IN_NAMES.sub("-", value.lower()).strip("-") or "none"
            template = template.replace(f"{{{name}}}", clean[:63])
    return template
