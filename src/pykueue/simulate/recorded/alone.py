"""Each ClusterQueue of a recording alone: its own workloads on its own nominal quota, simulated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replaced

from pykueue.api import kueue
from pykueue.engine import Options, Upsert
from pykueue.engine.events import Event
from pykueue.simulate.changes import decoded
from pykueue.simulate.journal import Journal
from pykueue.simulate.plan import Plan, Present
from pykueue.simulate.recorded.history import History, of_recording
from pykueue.simulate.scenario.jobs import Job
from pykueue.simulate.simulation import Simulation


class _Ends(Journal):
    """When workloads come to their end."""

    def __init__(self) -> None:
        self.ends: dict[str, float] = {}

    def over(self, at: float, key: str, how: str) -> None:
        self.ends[key] = at


def turnarounds_alone(path: Path) -> dict[str, float]:
    """Seconds from creation to end of the recorded workloads, if their ClusterQueue were alone.

    Without its cohort, and at its quota and rules of the start of the recording. Raises RecordingError,
    DecodeError and OSError.
    """
    history = of_recording(path)
    objects = decoded(history.objects.values())
    locals_: dict[str, str] = {
        obj.metadata.key: obj.spec.cluster_queue for obj in objects if isinstance(obj, kueue.LocalQueue)
    }
    jobs: dict[str, list[Job]] = defaultdict(list)
    present: dict[str, list[Present]] = defaultdict(list)
    for job in history.jobs:
        jobs[locals_.get(_local(job), "")].append(job)
    for each in history.present:
        present[locals_.get(_local(each.job), "")].append(each)
    found: dict[str, float] = {}
    for obj in objects:
        if isinstance(obj, kueue.ClusterQueue):
            name = obj.metadata.name
            found |= _alone(history, objects, obj, jobs[name], present[name])
    return found


def _alone(
    history: History, objects: list[Any], queue: kueue.ClusterQueue, jobs: list[Job], present: list[Present]
) -> dict[str, float]:
    alone = replaced(queue, spec=replaced(queue.spec, cohort_name=None))
    name = queue.metadata.name
    events: list[Event] = []
    for obj in objects:
        match obj:
            case kueue.Cohort():
                continue
            case kueue.ClusterQueue():
                if obj is queue:
                    events.append(Upsert(alone))
            case kueue.LocalQueue():
                if obj.spec.cluster_queue == name:
                    events.append(Upsert(obj))
            case _:
                events.append(Upsert(obj))
    journal = _Ends()
    plan = Plan(
        options=history.options or Options(),
        objects=events,
        jobs=iter([replace(job) for job in jobs]),
        start=history.start,
        present=present,
    )
    Simulation(plan, journal).run()
    created = {job.key: job.at for job in (*jobs, *(each.job for each in present))}
    return {key: end - created[key] for key, end in journal.ends.items() if key in created}


def _local(job: Job) -> str:
    return f"{job.namespace}/{job.spec.queue_name}"
