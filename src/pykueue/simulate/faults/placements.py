"""Where the jobs of runs with several clusters run, and whether they may: docs/use/multikueue.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, controller_of, get, is_deleting
from pykueue.api.pods import phase
from pykueue.api.resources import PODS
from pykueue.jobs.identifiers import IDENTIFIERS

from . import jobkinds
from .sites import Site
from .trace import Trace


def is_dispatched(obj: Mapping[str, Any]) -> bool:
    """Whether it is a job, or a pod of one: not part of another job."""
    return controller_of(obj) is None


def unit_of(job: Mapping[str, Any]) -> str:
    """The name by which a job is known in all clusters: that of its group for a pod of one."""
    group = IDENTIFIERS.group_name(job) if job["kind"] == PODS.kind else ""
    return str(group or job["metadata"]["name"])


def unit_of_workload(workload: Mapping[str, Any]) -> str:
    """The job of a Workload; that of a group of pods has the group's name."""
    owner = controller_of(workload)
    return str(workload["metadata"]["name"] if owner is None else owner.get("name"))


def is_active(job: Mapping[str, Any]) -> bool:
    """Whether it runs: pods are at work, or it is a pod that has a node."""
    if job["kind"] != PODS.kind:
        return jobkinds.active(job)
    return bool(get(job, "spec", "nodeName")) and phase(job) not in ("Succeeded", "Failed")


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether it has succeeded or failed; a pod that is deleted fails because it is stopped."""
    if job["kind"] != PODS.kind:
        return jobkinds.ended(job)
    return phase(job) == "Succeeded" or (phase(job) == "Failed" and not is_deleting(job))


def ends_for_good(job: Mapping[str, Any]) -> bool:
    """Whether it has ended, which must be seen; a pod that succeeds while it is stopped is gone at once."""
    return has_ended(job) and not (job["kind"] == PODS.kind and is_deleting(job))


def _parts(job: Mapping[str, Any]) -> int:
    """Objects that make up the job."""
    return int(annotations_of(job).get(names.POD_GROUP_TOTAL_COUNT_ANNOTATION) or 1)


class Placements:
    """Where the job of each name runs, and whether it may."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        #: Workers that run a job of this name.
        self._running: dict[str, set[str]] = {}
        #: What there is of a job on a worker, by name: of a group its pods.
        self._present: dict[tuple[str, str], dict[str, Object]] = {}
        #: Where it ended last, with what reason.
        self._ended: dict[str, str] = {}
        #: Jobs and workers for which the guarantee does not hold any more, with the reason.
        self._excused: dict[tuple[str, str], str] = {}
        self.checked = 0

    def excuse(self, worker: str, reason: str) -> None:
        """The guarantee does not cover what runs on a worker now, or ran last."""
        for name in list(self._running):
            if worker in self._running[name] or self._ended.get(name) == worker:
                self._excused[name, worker] = reason

    def restored(self, worker: str, jobs: Iterable[Object], finished: Collection[str]) -> None:
        """A worker has an older state with these jobs; of jobs in `finished` the manager has seen the end.

        What it has of them, the manager can remove only once it has reached the worker again. An end that the
        state does not have any more never happened, unless the manager has seen it.
        """
        for workers in self._running.values():
            workers.discard(worker)
        self._present = {key: found for key, found in self._present.items() if key[1] != worker}
        self._excused = {key: why for key, why in self._excused.items() if key[1] != worker}
        self._ended = {name: at for name, at in self._ended.items() if at != worker or name in finished}
        for job in jobs:
            name = unit_of(job)
            self._excused[name, worker] = "restored from an older state"
            self._present.setdefault((name, worker), {})[job["metadata"]["name"]] = job
            if is_active(job):
                self._running.setdefault(name, set()).add(worker)

    def job_stored(self, site: Site, before: Object | None, after: Object | None) -> None:
        """A job of a cluster was written, or a pod of one."""
        job = after or before
        assert job is not None
        if not site.runs_jobs:
            return
        name = unit_of(job)
        key = name, site.name
        present = self._present.setdefault(key, {})
        if after is None:
            present.pop(job["metadata"]["name"], None)
        else:
            present[job["metadata"]["name"]] = after
        found = self._running.setdefault(name, set())
        if any(map(is_active, present.values())):
            if site.name not in found:
                found.add(site.name)
                self._started(name, site.name)
        else:
            found.discard(site.name)
            if not present and self._excused.pop(key, "") and self._ended.get(name) == site.name:
                del self._ended[name]
        if after is not None and sum(map(ends_for_good, present.values())) >= _parts(after):
            if key not in self._excused:
                self._ended[name] = site.name
            else:
                self._ended.setdefault(name, site.name)

    def _started(self, name: str, worker: str) -> None:
        self.checked += 1
        if (name, worker) in self._excused:
            return
        for other in sorted(self._running[name] - {worker}):
            if (name, other) not in self._excused:
                self._trace.violate(f"job {name} runs on {worker} while it runs on {other}")
        other = self._ended.get(name, worker)
        if other != worker and (name, other) not in self._excused:
            self._trace.violate(f"job {name} runs on {worker} after it ended on {other}")

    def workload_stored(self, site: Site, before: Object | None, after: Object | None) -> None:
        """A Workload of a cluster was written."""
        if site.runs_jobs or after is None:
            return
        name = unit_of_workload(after)
        was, now = (get(one or {}, "status", "clusterName") or "" for one in (before, after))
        if was and now and was != now:
            self._trace.violate(f"the worker of job {name} changes from {was} to {now}")
        if before is not None and conditions.is_finished(before) and not conditions.is_finished(after):
            self._trace.violate(f"job {name} is not finished any more")
