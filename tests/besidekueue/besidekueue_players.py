"""Play random scenarios on a cluster with Kueue's manager and on one with ours, and compare what is seen.

By hand, in `tests/besidekueue` with PYTHONPATH=..:../realcluster:../cli and PYKUEUE_KUEUE set:

    python besidekueue_players.py elastic --seed 1 --runs 40
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from besidekueue_manager import KueueManager, folder
from besidekueue_scenarios import KINDS, Change, Scenario, configuration, devices, shared
from cli_processes import Up

from pykueue.api import conditions
from pykueue.api.objects import get, is_deleting
from pykueue.api.pods import is_terminal
from pykueue.api.quantity import Quantity, parse
from pykueue.api.resources import CLUSTER_QUEUES, JOBS, PODS, WORKLOADS
from pykueue.clock import VIRTUAL_EPOCH, Clock, run_virtual
from pykueue.cluster import FRAMEWORKS, Cluster
from pykueue.embedded.nodes.pool import NodePool, load_pools
from pykueue.kube.client import Client
from pykueue.kube.config import load
from pykueue.kube.discovery import Discovery
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import parse as parse_configuration
from pykueue.simulate.submit import Submitter

Object = dict[str, Any]
#: What is seen of each scenario after its start and after each change.
Views = dict[int, list[Object]]

#: Seconds after which nothing more follows from a change: in virtual time, and without a write in real time.
VIRTUAL, QUIET = 15.0, 6.0
_ANNOTATION = "kueue.x-k8s.io/"
FLAVOR = f"{_ANNOTATION}workload-allowed-resource-flavors"
#: Of jobs and their Workloads, and the gate of their pods.
ELASTIC = f"{_ANNOTATION}elastic-job"
REPLACES = f"{_ANNOTATION}workload-slice-replacement-for"
_SEEN = (WORKLOADS, JOBS, PODS, CLUSTER_QUEUES)


def nodes() -> Object:
    """The file of node pools for both clusters."""
    pool = {"name": "node", "count": 2, "allocatable": {"cpu": "9000", "memory": "9000Gi", "pods": "9000"}}
    return {"pools": [{**pool, "devices": devices()}]}


async def play(
    client: Client, clock: Clock, settle: Callable[[], Awaitable[None]], scenarios: list[Scenario]
) -> Views:
    """Play all scenarios at the same time, change by change."""
    submitter = Submitter(client, Discovery(client.transport), clock)
    views: Views = {each.seed: [] for each in scenarios}

    async def look() -> None:
        await settle()
        found = {resource: (await client.list(resource, None)).items for resource in _SEEN}
        for each in scenarios:
            views[each.seed].append(_view(found, each))

    await submitter.create(shared())
    for each in scenarios:
        await submitter.create(each.objects)
    await look()
    for number in range(max(len(each.changes) for each in scenarios)):
        for each in scenarios:
            if number < len(each.changes):
                await _make(client, submitter, each, each.changes[number])
        await look()
    return views


async def _make(client: Client, submitter: Submitter, scenario: Scenario, change: Change) -> None:
    namespace = scenario.namespace if change.resource.namespaced else None
    if change.do == "create":
        await submitter.create([change.body])
        return
    with suppress(ApiError):
        if change.do == "delete":
            await client.delete(change.resource, change.name, namespace, propagation="Background")
        else:
            await client.patch(change.resource, change.name, namespace, change.body)


def _view(found: dict[Any, list[Object]], scenario: Scenario) -> Object:
    """What is compared of a scenario: jobs with their Workloads and pods, and the usage of queues."""
    own = {
        resource: [each for each in objects if each["metadata"].get("namespace") == scenario.namespace]
        for resource, objects in found.items()
    }
    queues = {
        each["metadata"]["name"]: _usage(each)
        for each in found[CLUSTER_QUEUES]
        if each["metadata"]["name"].endswith(f"-{scenario.seed}")
    }
    jobs = {}
    for job in own[JOBS]:
        uid = job["metadata"]["uid"]
        workloads = [
            each for each in own[WORKLOADS] if _is_owned(each, uid) and not conditions.is_finished(each)
        ]
        of_variants = [
            (get(variant, "metadata", "annotations", FLAVOR), _workload(variant))
            for each in workloads
            for variant in own[WORKLOADS]
            if _is_owned(variant, each["metadata"]["uid"])
        ]
        pods = [
            each
            for each in own[PODS]
            if _is_owned(each, uid) and not is_terminal(each) and not is_deleting(each)
        ]
        gated = sum(
            any(g["name"] == ELASTIC for g in get(each, "spec", "schedulingGates") or ()) for each in pods
        )
        views = sorted(map(_workload, workloads), key=str)
        if of_variants:  # Kueue writes no reason to their parent
            views = [{name: value for name, value in view.items() if name != "reason"} for view in views]
        jobs[job["metadata"]["name"]] = {
            "suspended": bool(job["spec"].get("suspend")),
            "workloads": views,
            **({"variants": sorted(of_variants, key=str)} if of_variants else {}),
            "pods": len(pods) - gated,
            "gated": gated,
        }
    return {"jobs": jobs, "queues": queues}


def _is_owned(obj: Object, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ())


def _workload(workload: Object) -> Object:
    """Sizes, and admission or why there is none.

    Of elastic jobs the size in force is compared: a slice that shrinks here may be replaced by a smaller one
    with Kueue. Growth beyond the quota of all flavors is ExceedsMaxQuota here, and WaitingForQuota there, as
    Kueue compares the growth alone with that quota.
    """
    annotations = workload["metadata"].get("annotations") or {}
    counts = {pods["name"]: pods["count"] for pods in workload["spec"]["podSets"]}
    seen: Object = {"counts": list(counts.values()), "active": workload["spec"].get("active", True)}
    admission = get(workload, "status", "admission")
    if admission and conditions.is_true(workload, "QuotaReserved"):
        fields = ("flavors",) if ELASTIC in annotations else ("flavors", "count", "resourceUsage")
        seen["admission"] = [
            {name: each.get(name) for name in fields} for each in admission["podSetAssignments"]
        ]
        for each in seen["admission"]:
            if "resourceUsage" in each:
                each["resourceUsage"] = {name: _plain(text) for name, text in each["resourceUsage"].items()}
        seen["admitted"] = conditions.is_true(workload, "Admitted")
    else:
        reason = conditions.reason(workload, "QuotaReserved")
        is_growth = REPLACES in annotations and reason == "ExceedsMaxQuota"
        seen["reason"] = "WaitingForQuota" if is_growth else reason
    return seen


def _plain(text: str) -> str:
    """A quantity without a suffix for powers of two, which Kueue keeps."""
    return str(Quantity(parse(text).nanos))


def _usage(queue: Object) -> Object:
    reserved = {
        f"{flavor['name']} {each['name']}": _plain(each["total"])
        for flavor in get(queue, "status", "flavorsReservation") or ()
        for each in flavor["resources"]
        if each["total"] != "0"
    }
    return {"reserved": reserved, "pending": get(queue, "status", "pendingWorkloads") or 0}


# The two clusters


def play_ours(scenarios: list[Scenario]) -> Views:
    """Play on an embedded cluster in virtual time."""
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration()}
    views: Views = {}

    async def main(_: Clock) -> None:
        clock = Clock(VIRTUAL_EPOCH.timestamp())
        cluster = Cluster(
            clock=clock,
            rng=random.Random(1),
            configuration=parse_configuration(json.dumps(document), frameworks=FRAMEWORKS),
            pools=_pools(),
        )
        await cluster.start()
        running = asyncio.create_task(cluster.run())
        await cluster.synced()
        client = Client(cluster.transport("user"), clock=clock)
        try:
            views.update(await play(client, clock, lambda: clock.sleep(VIRTUAL), scenarios))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await cluster.stop()

    run_virtual(main)
    return views


def _pools() -> list[NodePool]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "nodes.yaml"
        file.write_text(yaml.safe_dump(nodes()))
        return load_pools(file)


def play_kueue(scenarios: list[Scenario], scratch: Path) -> Views:
    """Play on an embedded API server with its controllers and Kueue's manager, in real time."""
    file = scratch / "nodes.yaml"
    file.write_text(yaml.safe_dump(nodes()))
    up = Up(scratch / "up", "--only", "apiserver,kube", "--in-memory", "--nodes", str(file)).start()
    manager = None
    try:
        manager = KueueManager(folder(), up.kubeconfig, scratch, configuration())
        manager.start()
        return asyncio.run(_play_in_real_time(up.kubeconfig, scenarios))
    finally:
        if manager is not None:
            manager.stop()
        up.kill()


async def _play_in_real_time(kubeconfig: Path, scenarios: list[Scenario]) -> Views:
    transport = await load(kubeconfig)
    client, clock = Client(transport), Clock()

    async def settle() -> None:
        last, since = None, clock.monotonic()
        while clock.monotonic() - since < QUIET:
            found = {
                (each["metadata"]["uid"], each["metadata"]["resourceVersion"])
                for resource in _SEEN
                for each in (await client.list(resource, None)).items
            }
            if found != last:
                last, since = found, clock.monotonic()
            await asyncio.sleep(0.5)

    try:
        return await play(client, clock, settle, scenarios)
    finally:
        await transport.close()


def differences(scenario: Scenario, ours: list[Object], kueue: list[Object]) -> list[str]:
    """What differs after the first change after which anything differs."""
    for number, (mine, theirs) in enumerate(zip(ours, kueue, strict=True)):
        if mine == theirs:
            continue
        change = scenario.changes[number - 1] if number else None
        what = f"{change.do} {change.resource.kind} {change.name}" if change else "the start"
        lines = [f"seed {scenario.seed}, after change {number - 1}: {what}"]
        for part in ("jobs", "queues"):
            for name in sorted({*mine[part], *theirs[part]}):
                pair = mine[part].get(name), theirs[part].get(name)
                if pair[0] != pair[1]:
                    lines += [f"  {name}", f"    ours  {pair[0]}", f"    Kueue {pair[1]}"]
        return lines
    return []


def compare(kind: str, seeds: Iterable[int], scratch: Path) -> dict[int, list[str]]:
    """The differences of each scenario in which there are any."""
    scenarios = [KINDS[kind](seed) for seed in seeds]
    ours, kueue = play_ours(scenarios), play_kueue(scenarios, scratch)
    found = {each.seed: differences(each, ours[each.seed], kueue[each.seed]) for each in scenarios}
    return {seed: lines for seed, lines in found.items() if lines}


def main() -> None:
    """Compare scenarios and print what differs; the exit code is 1 if anything does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = compare(given.kind, range(given.seed, given.seed + given.runs), Path(scratch))
    for lines in found.values():
        print("\n".join(lines))
    print(f"{given.runs} scenarios {given.kind}, {len(found)} differ: {sorted(found)}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
