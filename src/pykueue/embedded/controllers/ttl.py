"""Finished Jobs with `ttlSecondsAfterFinished` go when their time is over.

Source: docs/reference/cluster-workloads.md, 1.13.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, Object, is_deleting, true_condition
from pykueue.api.resources import JOBS
from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer

WORKERS = 5


class TtlController:
    """Keyed by namespace and name; run by `run`."""

    def __init__(self, client: Client, jobs: Informer, clock: Clock) -> None:
        self._client = client
        self._jobs = jobs
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "ttl-after-finished", self._sync, clock=clock, workers=WORKERS, wait_for=[jobs.synced]
        )
        jobs.on_event(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and expiry(new) is not None:
            self._controller.queue.add((new["metadata"]["namespace"], new["metadata"]["name"]))

    async def _sync(self, key: Key) -> float | None:
        namespace, name = key
        job = self._jobs.get(namespace, name)
        left = self._left(job)
        if left is None or left > 0.0:
            return left
        try:
            # The cache may be behind a change of the TTL.
            job = await self._client.get(JOBS, name, namespace)
            left = self._left(job)
            if left is None or left > 0.0:
                return left
            uid = job["metadata"]["uid"]
            await self._client.delete(JOBS, name, namespace, propagation="Foreground", uid=uid)
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
        return None

    def _left(self, job: Object | None) -> float | None:
        at = None if job is None else expiry(job)
        return None if at is None else at - self._clock.time()


def expiry(job: Object) -> float | None:
    """When the Job is to go, in seconds since 1970; None if never, or not known yet."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or is_deleting(job):
        return None
    end = true_condition(job.get("status"), "Complete", "Failed")
    return parse_time(end["lastTransitionTime"]) + float(ttl) if end is not None else None
