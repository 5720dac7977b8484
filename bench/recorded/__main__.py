"""`python -m bench.recorded`: a day of a whole cluster is recorded in virtual time, and replayed.

Embedded API server, controllers, pod scheduler, simulated nodes and the manager with its flight recorder run
in one process in virtual time. Jobs of four teams in one cohort arrive by chance around the clock, run, and
are deleted ten minutes after their end. The replay must decide the same; its wall time is the figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, NAMESPACES, RESOURCE_FLAVORS
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.embedded.nodes.pool import parse_pools
from pykueue.kube.client import Client
from pykueue.manager.recorder import Limits, component
from pykueue.manager.recorder.files import prepare_directory, segments
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


def queues() -> list[tuple[Any, dict[str, Any]]]:
    """Four ClusterQueues that borrow from each other, as objects with their resources."""
    found: list[tuple[Any, dict[str, Any]]] = [
        (RESOURCE_FLAVORS, {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "default"}})
    ]
    for team in TEAMS:
        quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(_QUOTA)}]}
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


async def day(clock: Clock, folder: Path, count: int) -> None:
    """Record a day with so many jobs."""
    cluster = Cluster(clock=clock, rng=random.Random(1), pools=parse_pools(_POOLS), job_kinds=())
    await cluster.start()
    running = asyncio.create_task(cluster.run())
    await cluster.synced()
    assert cluster.manager is not None
    client = Client(cluster.transport("system:admin"), clock=clock)
    for resource, obj in queues():
        await client.create(resource, obj)
    await clock.sleep(10)
    cluster.manager.add(component(folder, Limits(size_bytes_max=1 << 34)))
    await clock.sleep(1)
    random_, began = random.Random(2), clock.monotonic()
    at = 0.0
    for number in range(count):
        at += random_.expovariate(count / DAY)
        await clock.sleep(max(0.0, began + at - clock.monotonic()))
        await client.create(JOBS, job(number, random_))
        if number % 1000 == 0:
            print(f"  {number} jobs, {at / 3600:.1f} h", flush=True)
    await clock.sleep(max(0.0, began + DAY - clock.monotonic()))
    running.cancel()
    await asyncio.wait([running])
    await cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recorded", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS_MIN)
    parser.add_argument("--folder", type=Path, help="where the recording is kept; default: nowhere")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as scratch:
        folder = options.folder or Path(scratch) / "flight"
        prepare_directory(folder)
        began = time.perf_counter()
        run_virtual(lambda clock: day(clock, folder, options.jobs))
        recorded = time.perf_counter() - began
        size = sum(each.stat().st_size for each in segments(folder))
        began = time.perf_counter()
        found = replay(folder)
        replayed = time.perf_counter() - began
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
    }
    print(
        f"{options.jobs:,} jobs in a day: {found.events:,} events, {found.cycles:,} cycles, "
        f"{found.decisions:,} decisions; {size / 1e6:.1f} MB; recorded in {recorded:.0f} s\n"
        f"replayed in {replayed:.1f} s (bar {REPLAY_SECONDS_MAX:.0f}), {found.different} cycles differ"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
