"""A controller of admission checks: says yes, no, or later, and changes its mind, when a seed wants it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Key, Object, get, key_of
from pykueue.api.resources import ADMISSION_CHECKS, WORKLOADS
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

from .scenario import CHECK
from .writers import independent_task


class CheckController:
    """Answers for every Workload that reserved quota. Its own requests are reliable."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._tasks: set[asyncio.Task[None]] = set()
        #: Workloads whose check was Ready once and then another state; this happens once per workload.
        self._minds_changed: set[Key] = set()

    async def activate(self) -> None:
        """Report that the check is served."""
        condition = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "",
            "lastTransitionTime": format_time(self._clock.time()),
        }
        status = {"status": {"conditions": [condition]}}
        await self._client.patch(ADMISSION_CHECKS, CHECK, None, status, subresource="status")

    def workload_stored(self, before: Object | None, after: Object | None) -> None:
        """Called in the step of the write."""
        if after is None or not conditions.has_quota(after) or _state(after) != "Pending":
            return
        if before is None or not conditions.has_quota(before) or _state(before) != "Pending":
            task = independent_task(self._answer(key_of(after)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def stop(self) -> list[asyncio.Task[None]]:
        """End everything; returns what has to be awaited."""
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    async def _answer(self, key: Key) -> None:
        luck = self._rng.random()
        state = "Ready" if luck < 0.8 else "Retry" if luck < 0.95 else "Rejected"
        await self._change(key, "Pending", state, 4.0)
        if state == "Ready" and key not in self._minds_changed and self._rng.random() < 0.2:
            self._minds_changed.add(key)
            await self._change(key, "Ready", self._rng.choice(("Retry", "Retry", "Rejected")), 15.0)

    async def _change(self, key: Key, before: str, after: str, patience: float) -> None:
        """Change the answer within so many seconds, if it still is what it was and quota is held."""
        while True:
            await self._clock.sleep(self._rng.uniform(0.1, patience))
            try:
                workload = await self._client.get(WORKLOADS, key[1], key[0])
                if not conditions.has_quota(workload) or _state(workload) != before:
                    return
                patch = self._patch(workload, after)
                await self._client.patch(WORKLOADS, key[1], key[0], patch, subresource="status")
                return
            except ApiError as error:
                if error.not_found:
                    return
                if not error.conflict and error.code < 500:
                    raise

    def _patch(self, workload: Object, state: str) -> Object:
        answer: dict[str, Any] = {
            "name": CHECK,
            "state": state,
            "message": state,
            "lastTransitionTime": format_time(self._clock.time()),
        }
        if state == "Retry":
            answer["requeueAfterSeconds"] = self._rng.choice((1, 5))
        version = workload["metadata"]["resourceVersion"]
        return {"metadata": {"resourceVersion": version}, "status": {"admissionChecks": [answer]}}


def _state(workload: Object) -> str:
    for check in get(workload, "status", "admissionChecks") or ():
        if check.get("name") == CHECK:
            return str(check.get("state"))
    return ""
