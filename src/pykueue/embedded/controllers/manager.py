"""All built-in controllers of the embedded cluster, as one component."""

from __future__ import annotations

import asyncio
import random

from pykueue.clock import Clock
from pykueue.embedded.controllers.jobs.controller import JobController
from pykueue.kube.client import Client
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.resources import JOBS, PODS
from pykueue.kube.transport import Transport

#: Requests per second, and burst, that the Job controller allows itself for everything it does, as on a
#: cluster (reference/cluster-workloads.md, 1.1).
JOB_QPS = 20.0
JOB_BURST = 30


class Controllers:
    """Runs the Job controller, the garbage collector, the namespace controller and their like.

    `job_qps` None lifts the Job controller's request limit: right for throughput, wrong for scenarios that
    depend on how pods of several Jobs interleave.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        *,
        job_qps: float | None = JOB_QPS,
        job_burst: int = JOB_BURST,
    ) -> None:
        client = Client(transport, clock=clock, page_size=None)
        self._informers = InformerFactory(client, clock=clock)
        limiter = None if job_qps is None else TokenBucket(clock, job_qps, job_burst)
        job_client = Client(transport, limiter, clock=clock, page_size=None)
        jobs, pods = self._informers.informer(JOBS), self._informers.informer(PODS)
        self._components = [
            JobController(
                job_client,
                jobs,
                pods,
                EventRecorder(job_client, clock, "job-controller", random.Random(rng.random())),
                clock,
                random.Random(rng.random()),
            ),
        ]

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.run())
            for component in self._components:
                group.create_task(component.run())
