"""`python -m bench.recorded`: a day of a whole cluster is recorded in virtual time, and replayed.

Embedded API server, controllers, pod scheduler, simulated nodes and the manager with its flight recorder run
in one process in virtual time. Jobs of four teams in one cohort arrive by chance around the clock, run, and
are deleted ten minutes after their end. The replay must decide the same; its wall time is the figure.
With `--workloads` the jobs are Workloads without pods, which takes a fifth of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.recorded.fidelity import described, fidelity

from pykueue.api import conditions
from pykueue.api.objects import key_of, merge_patch
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import PARTS, Cluster
from pykueue.embedded.nodes.pool import parse_pools
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.recorder import Limits, component
from pykueue.manager.recorder.files import prepare_directory, segments
from pykueue.manager.workloads import transitions
from pykueue.simulate.recorded.replay import replay

#: The bars: jobs, seconds of the replay of a day.
JOBS_MIN, REPLAY_SECONDS_MAX = 50_000, 60.0
DAY = 24 * 3600.0
TEAMS = ("a", "b", "c", "d")
_API = "kueue.x-k8s.io/v1beta2"
_POOLS = """
pools:
- {name: cpu, count: 8, allocatable: {cpu: "120", memory: 1Ti, pods: "500"}}
"""
#: Mean CPU seconds of a job: 1.8 CPUs for 15 minutes.
_QUOTA = 240


def queues(quota_cpus: int) -> list[tuple[Any, dict[str, Any]]]:
    """Four ClusterQueues that borrow from each other, as objects with their resources."""
    found: list[tuple[Any, dict[str, Any]]] = [
        (RESOURCE_FLAVORS, {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "default"}})
    ]
    for team in TEAMS:
        quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(quota_cpus)}]}
        spec = {
            "cohortName": "company",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        }
        metadata = {"name": team}
        found += [
            (NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
            (
                CLUSTER_QUEUES,
                {"apiVersion": _API, "kind": "ClusterQueue", "metadata": metadata, "spec": spec},
            ),
            (
                LOCAL_QUEUES,
                {
                    "apiVersion": _API,
                    "kind": "LocalQueue",
                    "metadata": {"name": "jobs", "namespace": team},
                    "spec": {"clusterQueue": team},
                },
            ),
        ]
    return found


def job(number: int, random_: random.Random) -> dict[str, Any]:
    """A Job of one team: one to four pods of one CPU, for some minutes to hours."""
    team = random_.choice(TEAMS)
    pods = random_.choice((1, 1, 1, 2, 4))
    seconds = min(4 * 3600, max(10, int(random_.lognormvariate(6.3, 1.0))))
    template = {
        "metadata": {"annotations": {"sim.pykueue.io/run-time": f"{seconds}s"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number}",
            "namespace": team,
            "labels": {"kueue.x-k8s.io/queue-name": "jobs"},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "ttlSecondsAfterFinished": 600,
            "suspend": True,
            "template": template,
        },
    }


def workload(manifest: dict[str, Any]) -> dict[str, Any]:
    """The Workload of a Job, without the Job."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    pods = {"name": "main", "count": spec["parallelism"], "template": {"spec": spec["template"]["spec"]}}
    return {
        "apiVersion": _API,
        "kind": "Workload",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {"queueName": "jobs", "priority": 0, "podSets": [pods]},
    }


class Runs:
    """Finishes admitted Workloads after their run time, and deletes them ten minutes later."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self.informer = Informer(client, WORKLOADS)
        self.informer.on_event(self._changed)
        #: Run times in seconds, by namespace and name.
        self.seconds: dict[tuple[str, str], float] = {}
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}

    def _changed(self, _type: str, _old: Any, new: Any) -> None:
        if new is None or conditions.is_finished(new):
            return
        key = key_of(new)
        runs = conditions.is_admitted(new) and not conditions.is_evicted(new)
        if runs and key not in self._running:
            self._running[key] = asyncio.create_task(self._run(key))
        elif not runs and key in self._running:
            self._running.pop(key).cancel()

    def tasks(self) -> list[asyncio.Task[None]]:
        """What goes on."""
        return list(self._running.values())

    async def _run(self, key: tuple[str, str]) -> None:
        await self._clock.sleep(self.seconds[key])
        while True:
            seen = self.informer.get(*key)
            if not conditions.is_admitted(seen) or conditions.is_evicted(seen):
                return
            patch = merge_patch(seen, transitions.finished(seen, "Succeeded", "Done", self._clock.time()))
            patch.setdefault("metadata", {})["resourceVersion"] = seen["metadata"]["resourceVersion"]
            try:
                await self._client.patch(WORKLOADS, key[1], key[0], patch, subresource="status")
                break
            except ApiError as error:
                if error.code != 409:
                    raise
                await self._clock.sleep(0.01)
        await self._clock.sleep(600)
        await self._client.delete(WORKLOADS, key[1], key[0])
        del self._running[key], self.seconds[key]


@dataclass(frozen=True)
class Load:
    """What is recorded."""

    jobs: int
    seconds: float
    alone: bool
    """Workloads without Jobs."""
    seed: int
    quota_cpus: int
    """Of each team."""


async def day(clock: Clock, folder: Path, load: Load) -> None:
    """Record a day, or a part of it."""
    count, alone = load.jobs, load.alone
    # Workloads without pods never become ready.
    configuration = replace(load_configuration(None), wait_for_pods_ready=None)
    cluster = Cluster(
        clock=clock,
        rng=random.Random(1),
        configuration=configuration,
        pools=() if alone else parse_pools(_POOLS),
        parts=("apiserver", "manager") if alone else PARTS,
        job_kinds=(),
    )
    await cluster.start()
    running = asyncio.create_task(cluster.run())
    await cluster.synced()
    assert cluster.manager is not None
    client = Client(cluster.transport("system:admin"), clock=clock)
    for resource, obj in queues(load.quota_cpus):
        await client.create(resource, obj)
    await clock.sleep(10)
    cluster.manager.add(component(folder, Limits(size_bytes_max=1 << 34)))
    await clock.sleep(1)
    runs = Runs(client, clock)
    follower = asyncio.create_task(runs.informer.run()) if alone else None
    random_, began = random.Random(load.seed), clock.monotonic()
    at = 0.0
    for number in range(count):
        at += random_.expovariate(count / load.seconds)
        await clock.sleep(max(0.0, began + at - clock.monotonic()))
        made = job(number, random_)
        if alone:
            annotations = made["spec"]["template"]["metadata"]["annotations"]
            seconds = float(annotations["sim.pykueue.io/run-time"].removesuffix("s"))
            runs.seconds[made["metadata"]["namespace"], made["metadata"]["name"]] = seconds
            await client.create(WORKLOADS, workload(made))
        else:
            await client.create(JOBS, made)
        if number % 1000 == 0:
            print(f"  {number} jobs, {at / 3600:.1f} h", flush=True)
    await clock.sleep(max(0.0, began + load.seconds - clock.monotonic()))
    tasks = [each for each in (running, follower, *runs.tasks()) if each is not None]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recorded", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS_MIN)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--quota", type=int, default=_QUOTA, help="CPUs of each team")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--workloads", action="store_true", help="Workloads without Jobs and pods")
    parser.add_argument("--folder", type=Path, help="where the recording is kept; default: nowhere")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as scratch:
        folder = options.folder or Path(scratch) / "flight"
        prepare_directory(folder)
        began = time.perf_counter()
        load = Load(options.jobs, options.hours * 3600, options.workloads, options.seed, options.quota)
        run_virtual(lambda clock: day(clock, folder, load))
        recorded = time.perf_counter() - began
        size = sum(each.stat().st_size for each in segments(folder))
        began = time.perf_counter()
        found = replay(folder)
        replayed = time.perf_counter() - began
        simulated = fidelity(folder)
    figures = {
        "jobs": options.jobs,
        "events": found.events,
        "cycles": found.cycles,
        "decisions": found.decisions,
        "different": found.different,
        "sha256": found.replayed,
        "bytes": size,
        "record_seconds": recorded,
        "replay_seconds": replayed,
        "simulated": simulated,
    }
    print(
        f"{options.jobs:,} jobs in a day: {found.events:,} events, {found.cycles:,} cycles, "
        f"{found.decisions:,} decisions; {size / 1e6:.1f} MB; recorded in {recorded:.0f} s\n"
        f"replayed in {replayed:.1f} s (bar {REPLAY_SECONDS_MAX:.0f}), {found.different} cycles differ\n"
        + described(simulated)
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
