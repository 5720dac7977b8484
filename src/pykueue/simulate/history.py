"""What happened to the jobs and pods of one namespace, in the API server's own order.

The record is kept from watch events, so it shows what any client could have seen; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykueue.api.objects import Object, true_condition
from pykueue.api.pods import is_ready, phase
from pykueue.api.resources import JOBS, PODS, WORKLOADS
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer

JOB_LABEL = "batch.kubernetes.io/job-name"


@dataclass(slots=True)
class PodRecord:
    """One pod as it was last seen, and the revisions at which it appeared and first became ready."""

    name: str
    job: str
    created: int
    ready: int | None = None
    phase: str = "Pending"
    is_ready: bool = False
    gone: bool = False
    object: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class JobRecord:
    """One job as it was last seen."""

    name: str
    suspended: bool = False
    finished: str = ""
    wanted: int = 1
    succeeded: int = 0
    failed: int = 0


class History:
    """Follows jobs, pods and Workloads of `namespace` until cancelled."""

    def __init__(self, client: Client, clock: Clock, namespace: str = "default") -> None:
        self._clock = clock
        self.pods: dict[str, PodRecord] = {}
        self.jobs: dict[str, JobRecord] = {}
        self.workloads: dict[str, dict[str, Any]] = {}
        #: When anything was last seen to change, in seconds of the clock.
        self.changed_at = clock.time()
        self._changed = asyncio.Event()
        self._informers = [Informer(client, resource, namespace) for resource in (PODS, JOBS, WORKLOADS)]
        for informer, handler in zip(self._informers, (self._pod, self._job, self._workload), strict=True):
            informer.on_event(handler)

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())

    def pods_of(self, job: str) -> list[PodRecord]:
        """The pods the job has now, by name."""
        return sorted((p for p in self.pods.values() if p.job == job and not p.gone), key=lambda p: p.name)

    def first_pod(self, job: str) -> int | None:
        """The revision at which the job's first pod appeared."""
        return min((pod.created for pod in self.pods.values() if pod.job == job), default=None)

    def all_ready(self, job: str, count: int) -> int | None:
        """The revision at which `count` pods of the job had become ready; None while fewer have."""
        ready = sorted(pod.ready for pod in self.pods.values() if pod.job == job and pod.ready is not None)
        return ready[count - 1] if len(ready) >= count else None

    async def until_still(self, seconds: float) -> None:
        """Wait until nothing has changed for that long."""
        while (rest := self.changed_at + seconds - self._clock.time()) > 0:
            await self._clock.sleep(rest)

    async def until_finished(self, *jobs: str) -> None:
        """Wait until each of the jobs is Complete or Failed."""
        await self.until(lambda: all(name in self.jobs and self.jobs[name].finished for name in jobs))

    async def until_gone(self) -> None:
        """Wait until no job, pod or Workload is left."""
        await self.until(
            lambda: not self.jobs and not self.workloads and all(pod.gone for pod in self.pods.values())
        )

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until `true()`; it is asked again after every change."""
        while not true():
            await self._changed.wait()

    def _touch(self) -> None:
        self.changed_at = self._clock.time()
        self._changed.set()
        self._changed = asyncio.Event()

    def _pod(self, _type: str, old: Object | None, new: Object | None) -> None:
        obj = new or old or {}
        meta = obj["metadata"]
        revision = int(meta["resourceVersion"])
        record = self.pods.get(meta["uid"])
        if record is None:
            job = meta.get("labels", {}).get(JOB_LABEL, "")
            record = self.pods[meta["uid"]] = PodRecord(meta["name"], job, revision)
        record.object = obj
        record.gone = new is None
        record.phase = phase(obj) or "Pending"
        record.is_ready = is_ready(obj)
        if record.is_ready and record.ready is None:
            record.ready = revision
        self._touch()

    def _job(self, _type: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            if old is not None:
                self.jobs.pop(old["metadata"]["name"], None)
        else:
            spec, status = new["spec"], new.get("status", {})
            end = true_condition(status, "Complete", "Failed")
            self.jobs[new["metadata"]["name"]] = JobRecord(
                name=new["metadata"]["name"],
                suspended=bool(spec.get("suspend")),
                finished=end["type"] if end is not None else "",
                wanted=int(spec.get("completions") or spec.get("parallelism") or 1),
                succeeded=int(status.get("succeeded") or 0),
                failed=int(status.get("failed") or 0),
            )
        self._touch()

    def _workload(self, _type: str, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self.workloads[new["metadata"]["name"]] = new
        elif old is not None:
            self.workloads.pop(old["metadata"]["name"], None)
        self._touch()
