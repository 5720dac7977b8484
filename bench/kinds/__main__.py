"""`python -m bench.kinds`: the CPU time of queueing jobs of several kinds, per pod set; a table and JSON.

Each kind gets a fresh embedded API server in memory and a manager in one virtual loop, with admission rules
in process, and quota for all jobs. Jobs are created, queued, admitted and started; there are no pods. The CPU
time is that of the process: manager, API server and the client that creates the jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bench.queues import queues

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.jobkinds import JobKind, pod_set_slots, value_at
from pykueue.api.resources import WORKLOADS
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import webhook_of
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.operators.definitions import definitions
from pykueue.embedded.store.memory import MemoryStore
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.client import Client
from pykueue.manager.configuration import parse
from pykueue.manager.manager import Manager

Object = dict[str, Any]

#: Most CPU time per pod set, as a multiple of that of a batch Job in the same run.
BAR = 1.5
#: Runs of each kind; the one with the least CPU time counts.
RUNS = 2
_TEMPLATE: Object = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }
}


@dataclass(frozen=True)
class Load:
    """So many jobs of a kind."""

    framework: str
    spec: Object
    jobs: int

    @property
    def kind(self) -> JobKind:
        return BUILT_IN.jobs[self.framework].kind

    def job(self, number: int) -> Object:
        resource = self.kind.resource
        metadata = {
            "name": f"job-{number:06d}",
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        }
        spec = json.loads(json.dumps(self.spec))
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}

    @property
    def pod_sets(self) -> int:
        """Pod sets of each job."""
        return len(list(pod_set_slots(self.job(0), self.kind)))


def loads(scale: float) -> list[Load]:
    """The batch Jobs, and what is compared with them."""
    replica = {"replicas": 1, "template": _TEMPLATE}
    group = {"groupName": "workers", "replicas": 1, "rayStartParams": {}, "template": _TEMPLATE}
    cluster = {"headGroupSpec": {"rayStartParams": {}, "template": _TEMPLATE}, "workerGroupSpecs": [group]}
    ray = {"entrypoint": "main", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    ray["submitterPodTemplate"] = _TEMPLATE
    return [
        Load("batch/job", {"template": _TEMPLATE}, round(5000 * scale)),
        Load("ray.io/rayjob", ray, round(1000 * scale)),
        Load(
            "kubeflow.org/pytorchjob",
            {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
            round(5000 * scale),
        ),
    ]


async def measure(clock: Clock, load: Load) -> float:
    """CPU seconds until all jobs are started."""
    server = Server(MemoryStore(), clock, random.Random(1))
    await server.start()
    kind = load.kind
    await server.install_crds([*crds(), *(definitions([kind]) if kind.custom else ())])
    server.register_conversion("kueue.x-k8s.io", convert)
    client = Client(server.transport(), clock=clock)
    for resource, obj in queues(1_000_000):
        await client.create(resource, obj)
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    text += f"integrations: {{frameworks: [{kind.framework}]}}\n"
    manager = Manager(server.transport("pykueue-manager"), parse(text), clock, random.Random(2))
    for hook in manager.webhooks():
        server.admission.register(webhook_of(hook))
    task = asyncio.create_task(manager.run())
    await manager.synced()
    await clock.sleep(10)
    before = time.process_time()
    for number in range(load.jobs):
        await client.create(kind.resource, load.job(number))
    await clock.sleep(600)
    spent = time.process_time() - before
    assert kind.suspend is not None
    started = [
        one for one in (await client.list(kind.resource)).items if value_at(one, kind.suspend) is False
    ]
    workloads = (await client.list(WORKLOADS)).items
    assert len(started) == len(workloads) == load.jobs, f"{len(started)} of {load.jobs} jobs started"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await server.stop()
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the jobs")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    base = 0.0
    print(f"{'kind':26} {'jobs':>6} {'pod sets':>9} {'CPU s':>8} {'ms/pod set':>11} {'x Job':>6}")
    for load in loads(arguments.scale):
        spent = min(run_virtual(lambda clock, load=load: measure(clock, load)) for _ in range(RUNS))
        each = spent / (load.jobs * load.pod_sets)
        base = base or each
        figures[load.framework] = {
            "jobs": load.jobs,
            "pod_sets": load.pod_sets,
            "cpu_seconds": round(spent, 2),
            "ms_per_pod_set": round(each * 1000, 2),
            "of_a_job": round(each / base, 2),
        }
        row = figures[load.framework].values()
        print(f"{load.framework:26} {'{:>6} {:>9} {:>8} {:>11} {:>6}'.format(*row)}", flush=True)
    print(f"bar: {BAR} times a Job")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
