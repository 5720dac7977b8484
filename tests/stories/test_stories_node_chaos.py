"""Whatever happens to nodes, at any time: no node is overfull, no pod is lost, all jobs finish.

A seed draws what happens: nodes fail in every way, are drained, tainted, taken back, deleted, pools shrink
and grow, while Jobs, a JobSet, and a Deployment with a budget share them.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from stories_world import Story, holds, job, play, pool

from pykueue.api.resources import CONFIG_MAPS, DEPLOYMENTS, JOB_SETS, JOBS, LEASES, NODES, PODS
from pykueue.embedded.nodes.pool import Life
from pykueue.kube.errors import ApiError
from queue_manifests import queues

Object = dict[str, Any]

NODES_COUNT = 8
CPUS = 4
#: Seconds in which things happen, and in which all of it must be over after that.
TROUBLE, PEACE = 3600.0, 7200.0
RECOVERY = "waitForPodsReady: {timeout: 10m, recoveryTimeout: 5m}"
FORGIVING = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


def deployment() -> Object:
    labels = {"app": "web"}
    container = {
        "name": "c",
        "image": "i",
        "command": ["sleep", "1000000"],
        "resources": {"requests": {"cpu": "1"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
}


def job_set() -> Object:
    workers = job("x", 3, run_time="8m", queue=None, backoffLimit=0)["spec"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "failurePolicy": {"maxRestarts": 1000},
            "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": workers}}],
        },
    }


class Chaos:
    """What happens to the nodes of one story."""

    def __init__(self, story: Story, seed: int) -> None:
        self.story = story
        self.rng = random.Random(seed)
        self.ways = (self.fail, self.fail, self.drain, self.taint, self.reclaim, self.delete, self.resize)

    async def run(self) -> None:
        end = self.story.clock.time() + TROUBLE
        async with asyncio.TaskGroup() as group:
            while self.story.clock.time() < end:
                group.create_task(self.one())
                await self.story.wait(self.rng.expovariate(1 / 60))

    async def one(self) -> None:
        names = [one["metadata"]["name"] for one in (await self.story.client.list(NODES)).items]
        if names:
            try:
                await self.rng.choice(self.ways)(self.rng.choice(names))
            except ApiError as error:
                if not error.not_found and not error.conflict:
                    raise

    async def annotate(self, node: str, key: str, value: str | None) -> None:
        change = {"metadata": {"annotations": {f"sim.pykueue.io/{key}": value}}}
        await self.story.client.patch(NODES, node, None, change)

    async def fail(self, node: str) -> None:
        await self.annotate(node, "fail", self.rng.choice(("unreachable", "crash", "not-ready")))
        await self.story.wait(self.rng.choice((5, 30, 100, 600)))
        await self.annotate(node, "fail", None)

    async def drain(self, node: str) -> None:
        await self.story.client.patch(NODES, node, None, {"spec": {"unschedulable": True}})
        for _ in range(10):
            pods = await self.story.client.list(PODS, field_selector=f"spec.nodeName={node}")
            for pod in pods.items:
                name = pod["metadata"]["name"]
                body = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": name, "namespace": "default"},
                }
                try:
                    await self.story.client.create(PODS, body, name=name, subresource="eviction")
                except ApiError as error:
                    if error.code not in (404, 409, 429):
                        raise
            await self.story.wait(5)
        await self.story.client.patch(NODES, node, None, {"spec": {"unschedulable": None}})

    async def taint(self, node: str) -> None:
        def changed(add: bool) -> Any:
            def change(found: Object) -> Object:
                kept = [one for one in found["spec"].get("taints") or () if one["key"] != "fire"]
                if add:
                    kept.append({"key": "fire", "effect": "NoExecute"})
                return {**found, "spec": {**found["spec"], "taints": kept}}

            return change

        await self.story.client.modify(NODES, node, None, changed(True))
        await self.story.wait(self.rng.uniform(1, 120))
        await self.story.client.modify(NODES, node, None, changed(False))

    async def reclaim(self, node: str) -> None:
        await self.annotate(node, "reclaim", "true")

    async def delete(self, node: str) -> None:
        await self.story.client.delete(NODES, node)

    async def resize(self, _: str) -> None:
        found = await self.story.client.get(CONFIG_MAPS, "node-pools", "kube-system")
        lines = found["data"]["pools.yaml"].splitlines()
        wanted = f"  count: {self.rng.randint(5, NODES_COUNT)}"
        text = "\n".join(wanted if line.startswith("  count:") else line for line in lines)
        await self.story.client.patch(
            CONFIG_MAPS, "node-pools", "kube-system", {"data": {"pools.yaml": text + "\n"}}
        )

    async def put_right(self) -> None:
        found = await self.story.client.get(CONFIG_MAPS, "node-pools", "kube-system")
        lines = found["data"]["pools.yaml"].splitlines()
        text = "\n".join(f"  count: {NODES_COUNT}" if line.startswith("  count:") else line for line in lines)
        await self.story.client.patch(
            CONFIG_MAPS, "node-pools", "kube-system", {"data": {"pools.yaml": text + "\n"}}
        )


async def watch_nodes(story: Story) -> None:
    """No node is ever overfull."""
    while True:
        used: dict[str, int] = {}
        for pod in (await story.client.list(PODS)).items:
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                name = pod["spec"]["nodeName"]
                used[name] = used.get(name, 0) + 1
        assert all(count <= CPUS for count in used.values()), used
        await story.wait(2)


@pytest.mark.parametrize("seed", range(4))
def test_jobs_finish_on_nodes_that_fail_in_every_way(seed: int) -> None:
    async def story(story: Story) -> None:
        names = [f"job-{number}" for number in range(24)]
        for number, name in enumerate(names):
            policy = {"podFailurePolicy": FORGIVING} if number % 2 else {}
            again = {} if number % 2 else {"pod": {"restartPolicy": "OnFailure"}}
            await story.create(
                job(name, 1 + number % 4, run_time="10m-25m", backoffLimit=1000, **policy, **again)
            )
        await story.create(job_set(), deployment(), BUDGET)
        watching = asyncio.create_task(watch_nodes(story))
        chaos = Chaos(story, seed)
        await chaos.run()
        await chaos.put_right()

        async def all_done() -> bool:
            assert not watching.done(), watching.result()
            done = [
                holds(one, "Complete") for one in await story.all(JOBS) if one["metadata"]["name"] in names
            ]
            if len(done) < len(names) or not all(done):
                return False
            return holds(await story.get(JOB_SETS, "set"), "Completed")

        while not await all_done():
            await story.wait(20)
            assert story.clock.time() - started < TROUBLE + PEACE, await left(story)
        watching.cancel()
        await story.wait(60)
        web = (await story.get(DEPLOYMENTS, "web"))["status"]
        assert (web["replicas"], web["readyReplicas"]) == (4, 4)
        assert await story.used("q") == "0"
        for pod in await story.all(PODS):
            # What is left has ended, or serves.
            ended = pod["status"]["phase"] in ("Succeeded", "Failed")
            assert ended or pod["metadata"]["name"].startswith("web-"), pod["metadata"]["name"]
            assert not pod["metadata"].get("deletionTimestamp")
        nodes = (await story.client.list(NODES)).items
        assert len(nodes) == NODES_COUNT
        assert all(holds(node, "Ready") and not node["spec"].get("taints") for node in nodes)
        leases = (await story.client.list(LEASES, "kube-node-lease")).items
        assert {one["metadata"]["name"] for one in leases} == {one["metadata"]["name"] for one in nodes}
        assert {one["spec"]["leaseDurationSeconds"] for one in leases} == {86400}

    started = 0.0

    async def begin(world: Story) -> None:
        nonlocal started
        started = world.clock.time()
        await story(world)

    nodes = msgspec.structs.replace(
        pool(count=NODES_COUNT, cpu=str(CPUS)), life=Life(reclaim_notice="30s", replace_after="1m-2m")
    )
    play(begin, RECOVERY, nodes=[nodes], objects=queues({"cpu": 24}), seed=seed)


async def left(story: Story) -> str:
    """What is not done, for people to read."""
    lines = []
    for one in await story.all(JOBS):
        if not holds(one, "Complete"):
            lines.append(f"{one['metadata']['name']}: {one.get('status')}")
    for pod in await story.all(PODS):
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            meta = pod["metadata"]
            where = pod["spec"].get("nodeName")
            lines.append(
                f"{meta['name']} on {where}: {pod['status']['phase']} {meta.get('deletionTimestamp')}"
            )
    for node in (await story.client.list(NODES)).items:
        lines.append(f"{node['metadata']['name']}: {node['spec']} {node['status']['conditions'][-1]}")
    return "\n".join(lines)
