"""A company's cluster after some hours, with its dashboard: what screenshots of the documentation show.

The hours pass in virtual time; then the same loop serves the pages in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import selectors
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from dashboard_world import PATIENCE, ShiftedClock, World

from pykueue.api.meta import format_time
from pykueue.api.resources import JOBS, NAMESPACES
from pykueue.clock import Clock
from pykueue.cluster import FRAMEWORKS, Cluster
from pykueue.embedded.nodes.pool import NodePool, parse_pools
from pykueue.kube.client import Client
from pykueue.kube.transport import Request
from pykueue.manager.configuration.loading import parse
from pykueue.simulate.live.forecasts import Forecasts
from pykueue.simulate.live.process import starts
from pykueue.simulate.live.protocol import Ask
from pykueue.web.dashboard.embedded import embedded_dashboard
from pykueue.web.visibility.embedded import serve as serve_visibility
from queue_manifests import API, cluster_queue, flavor, local_queue, priority, topology

Object = dict[str, Any]

#: Hours that have passed when the pages are looked at.
HOURS = 5
BLOCK, RACK = "cloud.example.com/block", "cloud.example.com/rack"
POOLS = f"""
pools:
- name: h100
  count: 8
  allocatable: {{cpu: "96", memory: 1Ti, pods: "110", nvidia.com/gpu: "8"}}
  labels: {{pool: h100}}
  topology:
  - {{label: {BLOCK}, count: 2}}
  - {{label: {RACK}, count: 2}}
- name: on-demand
  count: 6
  allocatable: {{cpu: "32", memory: 128Gi, pods: "110"}}
  labels: {{pool: on-demand}}
- name: spot
  count: 4
  allocatable: {{cpu: "32", memory: 128Gi, pods: "110"}}
  labels: {{pool: spot}}
"""
#: Quota is of cpu and GPUs.
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources: {excludeResourcePrefixes: [memory]}
"""
GPU = "nvidia.com/gpu"
RECLAIM = {
    "reclaimWithinCohort": "Any",
    "withinClusterQueue": "LowerPriority",
    "borrowWithinCohort": {"policy": "Never"},
}
#: Team -> (jobs per hour, names, pods, requests of a pod, minutes).
LOAD = {
    "vision": (
        3,
        ("segmentation", "detector-train", "augment"),
        (2, 4),
        {"cpu": 8, "memory": "96Gi", GPU: 4},
        (20, 80),
    ),
    "language": (
        4,
        ("pretrain-shard", "finetune", "eval"),
        (1, 2, 4),
        {"cpu": 10, "memory": "400Gi", GPU: 8},
        (15, 70),
    ),
    "robotics": (6, ("policy-search", "sim-rollout"), (4, 8), {"cpu": 4, "memory": "12Gi"}, (10, 50)),
    "serving": (5, ("canary", "warm-cache"), (2, 3), {"cpu": 6, "memory": "8Gi"}, (20, 90)),
    "etl": (12, ("ingest", "compact", "features"), (2, 6), {"cpu": 4, "memory": "16Gi"}, (8, 40)),
}


def queues() -> list[Object]:
    """A tree of two cohorts, five teams, three flavors."""
    cohorts = [
        {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}
        for name, spec in (
            ("company", {}),
            ("research", {"parentName": "company"}),
            ("production", {"parentName": "company"}),
        )
    ]

    def team(name: str, cohort: str, quota: Object, **spec: Any) -> list[Object]:
        made = cluster_queue(name, quota, cohortName=cohort, preemption=RECLAIM, **spec)
        return [made, local_queue("main", name, namespace=name)]

    return [
        topology("data-center", BLOCK, RACK, "kubernetes.io/hostname"),
        flavor("h100", nodeLabels={"pool": "h100"}, topologyName="data-center"),
        flavor("on-demand", nodeLabels={"pool": "on-demand"}),
        flavor("spot", nodeLabels={"pool": "spot"}),
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "PreemptionPolicy",
            "metadata": {"name": "company"},
            "spec": {"cohort": "company", "minAdmitDuration": {"reclaimWithinCohort": "5m"}},
        },
        priority("urgent", 1000),
        priority("nightly", -10),
        own(
            "Budget",
            "language-gpus",
            {
                "selector": {"namespace": "language"},
                "resources": [{"name": GPU, "hours": "160"}, {"name": "cpu", "hours": "900"}],
                "window": {"rolling": "720h"},
                "thresholds": [
                    {"percent": 80, "action": "Warn"},
                    {"percent": 100, "action": "NoBorrowing"},
                ],
            },
        ),
        own(
            "Budget",
            "research",
            {
                "selector": {"cohort": "research"},
                "resources": [{"name": GPU, "hours": "2000"}],
                "window": {"rolling": "720h"},
            },
        ),
        *cohorts,
        *team("vision", "research", {"h100": {"cpu": 300, GPU: 24}}),
        *team("language", "research", {"h100": {"cpu": 400, GPU: 32}}, fairSharing={"weight": "2"}),
        *team("robotics", "research", {"on-demand": {"cpu": 64}, "spot": {"cpu": 32}}),
        *team("serving", "production", {"on-demand": {"cpu": 96}}),
        *team("etl", "production", {"spot": {"cpu": 96}}),
        *team("archive", "production", {"spot": {"cpu": 8}}, stopPolicy="Hold"),
    ]


def own(kind: str, name: str, spec: Object) -> Object:
    """An object of a kind that Kueue does not have."""
    return {"apiVersion": "pykueue.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def reservations(now: float) -> list[Object]:
    """A course every week, a deadline, and an upgrade of nodes."""

    def gpus(number: int) -> list[Object]:
        return [{"name": "h100", "resources": [{"name": GPU, "quantity": number}]}]

    at = [format_time(int(now // 3600 + hours) * 3600) for hours in (75, 163)]
    weekly = {"schedule": "0 8 * * mon", "timeZone": "Europe/Berlin", "duration": "4h"}
    upgrade = [{"name": "spot", "resources": [{"name": "cpu", "quantity": 64}]}]
    return [
        own("Reservation", "course", {"clusterQueue": "vision", "flavors": gpus(8), **weekly}),
        own(
            "Reservation",
            "paper-deadline",
            {"cohort": "research", "flavors": gpus(16), "start": at[0], "duration": "12h"},
        ),
        own(
            "Reservation",
            "node-upgrade",
            {
                "cohort": "production",
                "purpose": "Maintenance",
                "flavors": upgrade,
                "start": at[1],
                "duration": "2h",
            },
        ),
    ]


def job(
    team: str, name: str, pods: int, requests: Object, minutes: float | None, klass: str = "", **more: Any
) -> Object:
    """A Job of a team; without minutes it runs on."""
    amounts = {key: str(value) for key, value in requests.items()}
    container = {"name": "main", "image": "registry.example.com/train:1.4"}
    container["resources"] = {"requests": amounts, "limits": amounts}  # type: ignore[assignment]
    annotations = {
        "sim.pykueue.io/run-time": "forever" if minutes is None else f"{minutes:g}m",
        "sim.pykueue.io/start-delay": "5s",
        **more.pop("annotations", {}),
    }
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    if klass:
        labels["kueue.x-k8s.io/priority-class"] = klass
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container], **more},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": team, "labels": labels},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "suspend": True,
            "backoffLimit": 0,
            "template": template,
        },
    }


def submissions(rng: random.Random) -> Iterator[tuple[float, Object]]:
    """Jobs with the seconds after which each is submitted."""
    numbers = itertools.count(1)
    found = []
    for team, (per_hour, names, pods, requests, (least, most)) in LOAD.items():
        at = 0.0
        while (at := at + rng.expovariate(per_hour / 3600)) < HOURS * 3600:
            klass = rng.choices(("", "nightly", "urgent"), (8, 3, 1))[0]
            name = f"{rng.choice(names)}-{next(numbers):03}"
            found.append((at, job(team, name, rng.choice(pods), requests, rng.uniform(least, most), klass)))
    last = HOURS * 3600.0
    long = "hyperparameter-sweep-of-the-multilingual-translation-model-v2"
    found += [
        (last - 5400, job("language", long, 8, {"cpu": 10, GPU: 8}, 60)),
        (last - 3000, job("vision", "world-model", 20, {"cpu": 8, GPU: 8}, 60)),
        # No node has as much: it is admitted, and its pods cannot be scheduled.
        (last - 1500, job("serving", "index-rebuild", 1, {"cpu": 40}, 60, "urgent")),
        (last - 600, job("etl", "daily-report", 8, {"cpu": 12, "memory": "8Gi"}, 30, "nightly")),
        (last - 900, job("archive", "export-2025", 2, {"cpu": 2}, 60)),
    ]
    return iter(sorted(found, key=lambda one: one[0]))


class _Selector(selectors.DefaultSelector):
    """Moves the loop's time to the next timer instead of waiting, until the loop is live."""

    loop: PassingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.loop.live_since is not None:
            return super().select(timeout)
        ready = super().select(0)
        if not ready and timeout:
            self.loop.passed += timeout
        return ready


class PassingLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time that goes on in real time after `go_live`."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.live_since: float | None = None
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        real = 0.0 if self.live_since is None else time.monotonic() - self.live_since
        return self.passed + real

    def go_live(self) -> None:
        self.live_since = time.monotonic()


class _Clock(ShiftedClock):
    """The clock of a loop, also for other threads."""

    def __init__(self, loop: PassingLoop, epoch: float) -> None:
        super().__init__(epoch)
        self._loop, self._start = loop, epoch

    def time(self) -> float:
        return self._start + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time() + self.shift


async def _create(client: Client, obj: Object) -> None:
    kind = obj["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    namespace = obj["metadata"].get("namespace")
    place = f"/apis/{obj['apiVersion']}/{f'namespaces/{namespace}/' if namespace else ''}{plural}"
    await client.call(Request("POST", place, body=obj))


async def _live(client: Client, clock: Clock) -> None:
    """Submit the jobs of the hours, each at its time."""
    began = clock.time()
    for name in (*LOAD, "archive"):
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    for obj in queues():
        await _create(client, obj)
    for at, one in submissions(random.Random(7)):
        await clock.sleep(began + at - clock.time())
        await client.create(JOBS, one)
    await clock.sleep(began + HOURS * 3600 - clock.time())
    for obj in reservations(clock.time()):
        await _create(client, obj)
    await clock.sleep(1.0)


async def _forecast(document: bytes) -> bytes:
    """What the manager has a process for, in a thread: the process has the lowest priority."""
    ask = msgspec.json.decode(document, type=Ask)
    return msgspec.json.encode(await asyncio.to_thread(starts, ask, time.monotonic))


@contextlib.contextmanager
def running_company(folder: Path) -> Iterator[World]:
    """The cluster and its dashboard, until the body ends."""
    loop = PassingLoop()
    clock = _Clock(loop, time.time() - HOURS * 3600)
    world = World(loop, clock)
    started, stop = threading.Event(), asyncio.Event()
    failed: list[BaseException] = []
    pools: list[NodePool] = parse_pools(POOLS)

    async def main() -> None:
        settings = parse(CONFIGURATION, "company", frameworks=FRAMEWORKS)
        cluster = Cluster(clock=clock, rng=random.Random(1), configuration=settings, pools=pools, pace=None)
        await cluster.start()
        assert cluster.server is not None
        assert cluster.manager is not None
        forecasts = Forecasts(cluster.manager, _forecast)
        await serve_visibility(cluster.server, cluster.manager, forecasts)
        world.admin = Client(cluster.server.transport())
        world.dashboard = await embedded_dashboard(cluster.server, settings, clock)
        running = [
            asyncio.create_task(cluster.run()),
            asyncio.create_task(world.dashboard.run(at_once=True)),
        ]
        try:
            await cluster.synced()
            await _live(world.admin, clock)
            loop.go_live()
            address = await cluster.server.serve("127.0.0.1", 0, folder)
            world.admin_token, world.kubeconfig = address.token, folder / "kubeconfig"
            world.url = await world.dashboard.open()
            started.set()
            await stop.wait()
        finally:
            await forecasts.stop()
            await world.dashboard.close()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await cluster.stop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(main())
        except BaseException as error:
            failed.append(error)
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=run, name="company")
    thread.start()
    try:
        assert started.wait(PATIENCE * 20), "the cluster did not start"
        if failed:
            raise failed[0]
        yield world
    finally:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
