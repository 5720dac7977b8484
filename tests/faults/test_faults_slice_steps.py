"""An elastic job grows, shrinks and grows again; something happens after each write of the manager in turn.

The job shares its queue with another one. What must hold of every run of elastic jobs is checked after every
write, and again once everything has settled.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from pykueue.api import conditions
from pykueue.api.kueue.names import ELASTIC_JOB_ANNOTATION, QUEUE_LABEL
from pykueue.api.objects import Object
from pykueue.api.resources import CLUSTER_QUEUES, JOBS, WORKLOADS
from pykueue.kube.transport import Request
from pykueue.simulate.faults.elasticruns import ElasticRun, ResizingUsers
from pykueue.simulate.faults.run import Report, play_run
from pykueue.simulate.faults.scenario import NAMESPACE, Scenario, job, scenario
from pykueue.simulate.faults.transport import NO_FAULTS

#: Seconds after the creation of the job, and its size from then on.
SIZES = ((4.0, 4), (8.0, 1), (12.0, 3), (14.0, 5))
#: The writes after which something happens: all of them with PYKUEUE_FAULT_RUNS=12000.
STEPS = 45
STRIDE = max(1, 12000 // int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")))
SHOWN = 150

Act = Callable[["SteppedRun"], Awaitable[None]]


def plan() -> Scenario:
    """One queue, an elastic job of two pods, and a job beside it."""
    found = scenario(random.Random(0))
    quota = {"name": "cpu", "nominalQuota": 6}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f0", "resources": [quota]}]}
    queue, local = found.of_kind("ClusterQueue")[0], found.of_kind("LocalQueue")[0]
    name = queue["metadata"]["name"]
    queue = {**queue, "spec": {"namespaceSelector": {}, "resourceGroups": [group], "stopPolicy": "None"}}
    local = {**local, "spec": {"clusterQueue": name}}
    others = [obj for obj in found.objects if obj["kind"] in ("ResourceFlavor", "WorkloadPriorityClass")]
    labels = {QUEUE_LABEL: local["metadata"]["name"]}
    return replace(
        found,
        configuration="apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n",
        objects=[*others, queue, local],
        jobs=[
            (0.0, job("e0", labels, {ELASTIC_JOB_ANNOTATION: "true"}, 2, 1, 12)),
            (1.0, job("j0", labels, {}, 2, 1, 2)),
        ],
        rates=NO_FAULTS,
        stuck=0.0,
        trouble=20.0,
        acts=0,
        deaths=1,
        kills=0,
        jumps=False,
    )


class Resizing(ResizingUsers):
    """Users who change the size of the job at fixed times."""

    async def meddle(self) -> None:
        start = self._clock.time()
        for at, size in SIZES:
            await self._clock.sleep(start + at - self._clock.time())
            found = await self._client.find(JOBS, "e0", NAMESPACE)
            if found is not None:
                self._trace.note("user", f"sets parallelism {size}")
                await self._patch(JOBS, found, {"spec": {"parallelism": size}})

    async def slices(self) -> list[Object]:
        """The unfinished Workloads of the elastic job, oldest first."""
        found = [one for one in await self._all(WORKLOADS) if "-e0-" in one["metadata"]["name"]]
        unfinished = [one for one in found if not conditions.is_finished(one)]
        return sorted(unfinished, key=lambda one: int(one["metadata"]["resourceVersion"]))

    async def delete_slice(self, number: int) -> None:
        for one in (await self.slices())[number:][:1]:
            await self._client.delete(WORKLOADS, one["metadata"]["name"], NAMESPACE)

    async def deactivate_slice(self, number: int) -> None:
        for one in (await self.slices())[number:][:1]:
            await self._patch(WORKLOADS, one, {"spec": {"active": False}})

    async def resize(self, size: int) -> None:
        found = await self._client.find(JOBS, "e0", NAMESPACE)
        if found is not None:
            await self._patch(JOBS, found, {"spec": {"parallelism": size}})

    async def replace_job(self) -> None:
        if await self._client.find(JOBS, "e0", NAMESPACE) is not None:
            await self._client.delete(JOBS, "e0", NAMESPACE, propagation="Background")
            await self._create(JOBS, self._scenario.jobs[0][1])

    async def stop_queue(self, policy: str) -> None:
        (queue,) = await self._all(CLUSTER_QUEUES)
        await self._patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": policy}})


class SteppedRun(ElasticRun):
    """Something happens right after a certain write of the manager."""

    users_class = Resizing
    users: Resizing
    step = 0
    act: Act

    _written = 0

    def _start_manager(self) -> None:
        super()._start_manager()
        carry = self.transport.call

        async def call(request: Request) -> Any:
            answer = await carry(request)
            if request.method != "GET" and not request.path.endswith("/events"):
                self._written += 1
                if self._written == self.step:
                    self.trace.note("fault", f"after {request.method} {request.path[-60:]}")
                    await self.act()
            return answer

        self.transport.call = call  # type: ignore[method-assign]

    async def kill(self) -> None:
        """The manager dies, and is started again."""
        self.trace.note("fault", "the manager is killed")
        self.transport.die()
        self._crashed.set()
        await asyncio.get_running_loop().create_future()


ACTS: dict[str, Act] = {
    "kill": SteppedRun.kill,
    "delete the older slice": lambda run: run.users.delete_slice(0),
    "delete the newer slice": lambda run: run.users.delete_slice(-1),
    "deactivate the older slice": lambda run: run.users.deactivate_slice(0),
    "deactivate the newer slice": lambda run: run.users.deactivate_slice(-1),
    "grow": lambda run: run.users.resize(6),
    "shrink": lambda run: run.users.resize(1),
    "replace the job": lambda run: run.users.replace_job(),
    "drain the queue": lambda run: run.users.stop_queue("HoldAndDrain"),
}


def play(number: int, act: Act) -> Report:
    kind = type("Stepped", (SteppedRun,), {"step": number, "act": act})
    return play_run(kind, number, plan(), random.Random(7), True)


def test_the_story_has_slices_and_ends_within_the_steps() -> None:
    report = play(0, SteppedRun.kill)
    text = report.text()
    assert not report.violations, text
    assert text.count("WorkloadSliceReplaced") >= 2, text


@pytest.mark.parametrize("name", ACTS)
def test_slices_hold_whatever_happens_after_any_write(name: str) -> None:
    for number in range(1 + list(ACTS).index(name) % STRIDE, STEPS, STRIDE):
        report = play(number, ACTS[name])
        assert not report.violations, f"write {number}: {report.text(SHOWN)}"
