"""What `kubectl create --dry-run=server` says about a job: when it would start."""

from __future__ import annotations

from collections.abc import Sequence

from pykueue.api.decoding import DecodeError
from pykueue.api.durations import format_duration
from pykueue.api.meta import format_time, parse_time
from pykueue.api.objects import Object, get
from pykueue.jobs.base import JobIntegration, MissingReferenceError
from pykueue.jobs.workload import build, queue_name
from pykueue.manager.cluster import MissingPriorityClassError
from pykueue.manager.manager import Manager
from pykueue.simulate.live.forecasts import Forecasts
from pykueue.simulate.live.protocol import Start, Starts

#: Name of the Workload of a job that is not created.
_NAME = "dry-run"
_LATER = "when it would start is not known yet; a dry run in some seconds may say it"


class StartAdvice:
    """When a job would start, as a warning; nothing where that is not known."""

    def __init__(self, manager: Manager, forecasts: Forecasts) -> None:
        self._manager = manager
        self._forecasts = forecasts

    async def __call__(self, integration: JobIntegration, job: Object) -> Sequence[str]:
        """The warnings for a job of a kind."""
        workload = self._workload(integration, job)
        if workload is None:
            return ()
        starts = await self._forecasts.start_of(workload)
        if starts is None:
            return [_LATER]
        return [text(starts, next(iter(starts.starts.values())))]

    def _workload(self, integration: JobIntegration, job: Object) -> Object | None:
        """The Workload that the job would become; None where it is not queued by itself."""
        if not queue_name(job) or get(job, "metadata", "ownerReferences"):
            return None
        cluster = self._manager.cluster
        try:
            priority, reference = cluster.priority_of(job, integration)
            workload = build(job, integration, priority, reference)
        except (MissingPriorityClassError, MissingReferenceError, DecodeError):
            return None  # the manager says so at the job
        metadata = {
            "name": _NAME,
            "namespace": job["metadata"].get("namespace") or "default",
            "uid": _NAME,
            "creationTimestamp": format_time(int(self._manager.now())),
        }
        return {**workload, "metadata": metadata}


def text(starts: Starts, start: Start) -> str:
    """The answer in a line."""
    now = parse_time(starts.now)
    until = [parse_time(each) - now if each else None for each in (start.earliest, start.latest)]
    earliest, latest = until
    if earliest is None:
        when = f"would not start within {starts.hours:.0f}h in {starts.futures - start.started}"
        return f"{when} of {starts.futures} simulated futures"
    if latest is not None and latest <= 0:
        when = "would start at once"
    else:
        last = format_duration(latest) if latest is not None else f"more than {starts.hours:.0f}h"
        when = f"would start between {format_duration(max(0.0, earliest))} and {last} from now"
        when += " with a probability of 80 %"
    preempted = f", after {starts.preempted:.1f} preemptions on average" if starts.preempted else ""
    return f"{when}{preempted} ({starts.futures} simulated futures)"
