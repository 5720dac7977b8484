"""`pykueue shadow` beside Kueue's own manager under generated load, in real time.

By hand, in `tests/besidekueue` with PYTHONPATH=..:../realcluster:../cli and PYKUEUE_KUEUE set:

    python besidekueue_load.py plain --minutes 60 --folder DIR

The report is printed, and written to DIR with the differences and the logs. Kinds of load: `plain`
(borrowing, preemption, changed quotas, deleted jobs), `fair` (the same with fair sharing), `topology`, and
`checks` (admission checks that become ready, ask for another attempt, or reject).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import yaml
from besidekueue_manager import KueueManager, folder
from besidekueue_recording import recording
from cli_processes import Up

from pykueue.api import conditions
from pykueue.api.meta import format_time
from pykueue.api.objects import Object, get
from pykueue.api.resources import CLUSTER_QUEUES, JOBS, WORKLOADS
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import load
from pykueue.kube.discovery import Discovery
from pykueue.kube.errors import ApiError
from pykueue.questions.shadow.report import Report, report_text
from pykueue.simulate.submit import Submitter
from queue_manifests import admission_check, cluster_queue, flavor, local_queue, priority, topology

LABEL: Final = "kueue.x-k8s.io/"
KINDS: Final = ("plain", "fair", "topology", "checks")
QUEUES: Final = 8
COHORTS: Final = 3
PRIORITIES: Final = {"low": -10, "high": 10}
CHECK: Final = "example.com/approval"
LEVELS: Final = ("cloud.example.com/block", "cloud.example.com/rack", "kubernetes.io/hostname")
#: Pending jobs beyond which one is deleted for each that is created.
PENDING_MAX: Final = 120
#: Mean seconds between two changes of a quota, and between two deletions of a job.
QUOTA_EVERY, DELETE_EVERY = 30.0, 20.0


def nodes() -> Object:
    """A file of node pools: 64 nodes in 4 blocks of 4 racks."""
    pool = {
        "name": "node",
        "count": 64,
        "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
        "topology": [{"label": LEVELS[0], "count": 4}, {"label": LEVELS[1], "count": 4}],
        "simulation": {"startDelay": "100ms-1s"},
    }
    return {"pools": [pool]}


def configuration(kind: str) -> Object:
    """What Kueue's configuration has for a kind of load."""
    if kind == "fair":
        strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        return {"fairSharing": {"preemptionStrategies": strategies}}
    return {}


class Load:
    """Creates queues, then Jobs, and changes quotas and deletes Jobs meanwhile."""

    def __init__(self, kind: str, rate: float, seed: int, client: Client) -> None:
        """`rate`: Jobs a second."""
        self._kind, self._rate = kind, rate
        self._rng = random.Random(f"{kind}-{seed}")
        self._client, self._clock = client, Clock()
        self._submitter = Submitter(client, Discovery(client.transport), self._clock)
        self._jobs: list[str] = []
        self._created = 0

    async def create_queues(self) -> None:
        """Create flavors, queues and what they refer to."""
        topologies = [topology("data-center", *LEVELS)] if self._kind == "topology" else []
        checks = [admission_check("approval", CHECK)] if self._kind == "checks" else []
        term = (
            {"topologyName": "data-center", "nodeLabels": {"kubernetes.io/os": "linux"}} if topologies else {}
        )
        await self._submitter.create(
            [
                *(priority(name, value) for name, value in PRIORITIES.items()),
                *topologies,
                *checks,
                *(flavor(name, **term) for name in ("on-demand", "spot")),
                *(self._queue(number) for number in range(QUEUES)),
                *(local_queue(f"q{number}") for number in range(QUEUES)),
            ]
        )
        for check in checks:
            active = _condition("Active", "True", "Active")
            name = check["metadata"]["name"]
            resource = await Discovery(self._client.transport).find(check["apiVersion"], check["kind"])
            status = {"status": {"conditions": [active]}}
            await self._client.patch(resource, name, None, status, subresource="status")

    def _queue(self, number: int) -> Object:
        rng = self._rng
        spec: Object = {
            "cohortName": f"c{number % COHORTS}",
            "preemption": {
                "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
                "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
            },
        }
        if self._kind == "fair":
            spec["fairSharing"] = {"weight": rng.choice(("1", "2", "500m"))}
        if self._kind == "checks":
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": "approval"}]}
        return cluster_queue(f"q{number}", self._quota(), **spec)

    def _quota(self) -> dict[str, dict[str, str | int]]:
        return {name: {"cpu": self._rng.randint(4, 14)} for name in ("on-demand", "spot")}

    async def run(self) -> None:
        """Go on until cancelled."""
        acts: list[Awaitable[None]] = [
            self._repeat(1 / self._rate, self._submit),
            self._repeat(QUOTA_EVERY, self._change_quota),
            self._repeat(DELETE_EVERY, self._delete),
        ]
        if self._kind == "checks":
            acts.append(self._repeat(0.5, self._decide_checks))
        await asyncio.gather(*acts)

    async def _repeat(self, every: float, act: Callable[[], Awaitable[None]]) -> None:
        """At random times, `every` so many seconds on average."""
        while True:
            await self._clock.sleep(self._rng.expovariate(1 / every))
            with suppress(ApiError):
                await act()

    async def _submit(self) -> None:
        name = f"j{self._created}"
        self._created += 1
        await self._client.create(JOBS, self._job(name))
        self._jobs.append(name)
        if self._created % 20 == 0:
            await self._limit()

    def _job(self, name: str) -> Object:
        rng = self._rng
        labels = {LABEL + "queue-name": f"q{rng.randrange(QUEUES)}"}
        if rng.random() < 0.5:
            labels[LABEL + "priority-class"] = rng.choice(list(PRIORITIES))
        annotations = {"sim.pykueue.io/run-time": f"{rng.randint(3, 40)}s"}
        if self._kind == "topology":
            mode = rng.choice(("required", "preferred", "unconstrained"))
            level = "true" if mode == "unconstrained" else rng.choice(LEVELS)
            annotations[f"{LABEL}podset-{mode}-topology"] = level
        container = {
            "name": "c",
            "image": "i",
            "resources": {"requests": {"cpu": rng.choice(("500m", "1", "2", "3"))}},
        }
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        pods = rng.randint(1, 4)
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "suspend": True,
                "ttlSecondsAfterFinished": 20,
                "template": template,
            },
        }

    async def _limit(self) -> None:
        """Delete pending jobs beyond a number, chosen at random."""
        jobs = (await self._client.list(JOBS, "default")).items
        pending = sorted(each["metadata"]["name"] for each in jobs if each["spec"].get("suspend"))
        for name in self._rng.sample(pending, max(0, len(pending) - PENDING_MAX)):
            await self._delete_job(name)

    async def _delete(self) -> None:
        if self._jobs:
            await self._delete_job(self._jobs.pop(self._rng.randrange(len(self._jobs))))

    async def _delete_job(self, name: str) -> None:
        await self._client.delete(JOBS, name, "default", propagation="Background")

    async def _change_quota(self) -> None:
        queue = cluster_queue(name := f"q{self._rng.randrange(QUEUES)}", self._quota())
        groups = queue["spec"]["resourceGroups"]
        await self._client.patch(CLUSTER_QUEUES, name, None, {"spec": {"resourceGroups": groups}})

    async def _decide_checks(self) -> None:
        """What a check's controller does: most checks become ready, some ask for a retry, few reject."""
        for workload in (await self._client.list(WORKLOADS, "default")).items:
            states = get(workload, "status", "admissionChecks") or []
            if not conditions.is_true(workload, "QuotaReserved") or conditions.is_finished(workload):
                continue
            if not any(each["state"] == "Pending" for each in states):
                continue
            state = self._rng.choices(("Ready", "Retry", "Rejected"), (90, 8, 2))[0]
            for each in states:
                if each["state"] == "Pending":
                    each.update(
                        state=state, message=state, lastTransitionTime=format_time(self._clock.time())
                    )
            name, version = workload["metadata"]["name"], workload["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "status": {"admissionChecks": states}}
            with suppress(ApiError):
                await self._client.patch(WORKLOADS, name, "default", patch, subresource="status")


def _condition(type: str, status: str, reason: str) -> Object:
    time = format_time(Clock().time())
    return {"type": type, "status": status, "reason": reason, "message": "", "lastTransitionTime": time}


async def play(
    kind: str, rate: float, seed: int, kubeconfig: Path, follow: Callable[[Client], Awaitable[None]]
) -> None:
    """Create the queues, and load the cluster while `follow` runs."""
    transport = await load(kubeconfig)
    try:
        client = Client(transport)
        made = Load(kind, rate, seed, client)
        await made.create_queues()
        await Clock().sleep(2)
        loading = asyncio.create_task(made.run())
        try:
            await follow(client)
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
    finally:
        await transport.close()


def beside_kueue(
    kind: str,
    rate: float,
    seed: int,
    scratch: Path,
    follow: Callable[[Path], Callable[[Client], Awaitable[None]]],
) -> None:
    """Start a cluster and Kueue's manager, and play a kind of load there."""
    file = scratch / "nodes.yaml"
    file.write_text(yaml.safe_dump(nodes()))
    up = Up(scratch / "up", "--only", "apiserver,kube", "--in-memory", "--nodes", str(file)).start()
    manager = None
    try:
        manager = KueueManager(folder(), up.kubeconfig, scratch, configuration(kind))
        manager.start()
        asyncio.run(play(kind, rate, seed, up.kubeconfig, follow(up.kubeconfig)))
    finally:
        if manager is not None:
            manager.stop()
        up.kill()


def with_shadow(minutes: float, scratch: Path) -> Callable[[Path], Callable[[Client], Awaitable[None]]]:
    """Run `pykueue shadow`; its report becomes `report.json`, its differences `shadow.log`."""

    def at(kubeconfig: Path) -> Callable[[Client], Awaitable[None]]:
        async def follow(_: Client) -> None:
            command = [sys.executable, "-m", "pykueue.cli.main", "shadow", "--kubeconfig", str(kubeconfig)]
            command += ["--manager-log", str(scratch / "kueue.log")]
            with (scratch / "report.json").open("w") as out, (scratch / "shadow.log").open("w") as log:
                process = await asyncio.create_subprocess_exec(
                    *command, "--for", f"{minutes * 60:.0f}s", "-o", "json", stdout=out, stderr=log
                )
                await process.wait()

        return follow

    return at


def main() -> None:
    """Play one kind of load and print the report."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1.0, help="Jobs a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--record", action="store_true", help="record changes instead of comparing decisions")
    given = parser.parse_args()
    scratch = given.folder or Path(tempfile.mkdtemp())
    scratch.mkdir(parents=True, exist_ok=True)
    follow = recording if given.record else with_shadow
    beside_kueue(given.kind, given.rate, given.seed, scratch, follow(given.minutes, scratch))
    if given.record:
        print(f"recording and logs: {scratch}")
        return
    report = msgspec.json.decode((scratch / "report.json").read_bytes(), type=Report)
    print("\n".join(report_text(report)))
    print(f"report and logs: {scratch}")


if __name__ == "__main__":
    main()
