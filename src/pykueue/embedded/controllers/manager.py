"""All built-in controllers of the embedded cluster, as one component."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from pykueue.clock import Clock
from pykueue.embedded.controllers.cronjobs import CronJobController
from pykueue.embedded.controllers.garbage import GarbageCollector
from pykueue.embedded.controllers.inventory import Inventory
from pykueue.embedded.controllers.jobs.controller import JobController
from pykueue.embedded.controllers.namespaces import NamespaceController
from pykueue.embedded.controllers.ttl import TtlController
from pykueue.kube.client import Client
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.resources import CRON_JOBS, JOBS, NAMESPACES, PODS
from pykueue.kube.transport import Transport

#: Requests per second, and burst, that the Job controller allows itself for everything it does, as on a
#: cluster (reference/cluster-workloads.md, 1.1).
JOB_QPS = 20.0
JOB_BURST = 30


class Component(Protocol):
    """Something that works until cancelled."""

    async def run(self) -> None: ...


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
        informers = InformerFactory(client, clock=clock)
        inventory = Inventory(client, clock)

        def recorder(component: str, through: Client) -> EventRecorder:
            return EventRecorder(through, clock, component, random.Random(rng.random()))

        limiter = None if job_qps is None else TokenBucket(clock, job_qps, job_burst)
        job_client = Client(transport, limiter, clock=clock, page_size=None)
        jobs, pods = informers.informer(JOBS), informers.informer(PODS)
        garbage_events = recorder("garbage-collector-controller", client)
        job_events = recorder("job-controller", job_client)
        cron_events = recorder("cronjob-controller", client)
        self._components: tuple[Component, ...] = (
            informers,
            inventory,
            garbage_events,
            GarbageCollector(client, inventory, garbage_events, clock),
            NamespaceController(client, informers.informer(NAMESPACES), inventory, clock),
            job_events,
            JobController(job_client, jobs, pods, job_events, clock, random.Random(rng.random())),
            TtlController(client, jobs, clock),
            cron_events,
            CronJobController(client, informers.informer(CRON_JOBS), jobs, cron_events, clock),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for component in self._components:
                group.create_task(component.run())
