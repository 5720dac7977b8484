"""Agents, controllers, scheduler and pools may die at any instant: what they were at is taken up again."""

import asyncio
import random

import pytest
from nodes_stage import condition, play

from pykueue.api.resources import DEPLOYMENTS, JOBS, LEASES, NODES, POD_DISRUPTION_BUDGETS
from pykueue.kube.errors import ApiError

PARTS = ("nodes", "scheduler", "controllers", "pools")
POOL = (
    "pools: [{name: n, count: 4, allocatable: {cpu: 4, pods: 110}, simulation: {startDelay: 1s},"
    " life: {reclaimNotice: 20s, replaceAfter: 30s}}]"
)
LABELS = {"app": "web"}


def job(number):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    said = {"sim.pykueue.io/run-time": "2m-6m", "sim.pykueue.io/stop-delay": "1s-10s"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number}", "namespace": "default"},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "backoffLimit": 1000,
            "template": {
                "metadata": {"annotations": said},
                "spec": {"restartPolicy": ("Never", "OnFailure")[number % 2], "containers": [container]},
            },
        },
    }


WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        },
    },
}
BUDGET = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"matchLabels": LABELS}, "minAvailable": 2},
}


async def trouble(stage, rng):
    """One thing that happens to a node."""
    names = [one["metadata"]["name"] for one in (await stage.client.list(NODES)).items]
    name = rng.choice(names or ["n-0"])

    def annotations(**said):
        return {"metadata": {"annotations": {f"sim.pykueue.io/{key}": value for key, value in said.items()}}}

    try:
        match rng.randrange(4):
            case 0:
                await stage.client.patch(NODES, name, None, annotations(reclaim="true"))
            case 1:
                await stage.client.delete(NODES, name)
            case _:
                way = rng.choice(("unreachable", "crash", "not-ready"))
                await stage.client.patch(NODES, name, None, annotations(fail=way))
                await stage.clock.sleep(rng.choice((3, 60, 400)))
                await stage.client.patch(NODES, name, None, annotations(fail=None))
    except ApiError as error:
        if not error.not_found:
            raise


@pytest.mark.parametrize("seed", range(2))
def test_nodes_and_jobs_survive_a_crash_of_all_their_controllers(seed):
    async def story(stage):
        rng = random.Random(seed)
        await stage.declare_pools(POOL)
        await stage.client.create(DEPLOYMENTS, WEB)
        await stage.client.create(POD_DISRUPTION_BUDGETS, BUDGET)
        for number in range(10):
            await stage.client.create(JOBS, job(number))
        async with asyncio.TaskGroup() as group:
            while stage.now < 1800:
                await stage.clock.sleep(rng.expovariate(1 / 40))
                group.create_task(trouble(stage, rng))
                await stage.clock.sleep(rng.choice((0.001, 0.5, 20)))
                dying = rng.sample(PARTS, rng.randint(1, len(PARTS)))
                await stage.kill(*dying)
                await stage.clock.sleep(rng.choice((0, 1, 70)))
                for name in dying:
                    stage.start(name)
        await stage.clock.sleep(1800)
        jobs = (await stage.client.list(JOBS)).items
        assert [condition(one, "Complete") and one["metadata"]["name"] for one in jobs] == [
            f"job-{number}" for number in range(10)
        ]
        web = await stage.client.get(DEPLOYMENTS, "web", "default")
        assert web["status"]["readyReplicas"] == 3
        budget = await stage.client.get(POD_DISRUPTION_BUDGETS, "web", "default")
        assert budget["status"]["currentHealthy"] == 3
        assert budget["status"]["disruptionsAllowed"] == 1
        nodes = (await stage.client.list(NODES)).items
        assert [one["metadata"]["name"] for one in nodes] == ["n-0", "n-1", "n-2", "n-3"]
        assert all(condition(one, "Ready") == ("True", "KubeletReady") for one in nodes)
        assert not any(one["spec"].get("taints") for one in nodes)
        addresses = [one["status"]["addresses"][0]["address"] for one in nodes]
        assert len(set(addresses)) == 4
        leases = (await stage.client.list(LEASES, "kube-node-lease")).items
        assert {one["metadata"]["name"] for one in leases} == {one["metadata"]["name"] for one in nodes}
        alive = [one for one in await stage.pods() if one["status"]["phase"] not in ("Succeeded", "Failed")]
        assert len(alive) == 3
        assert not any(one["metadata"].get("deletionTimestamp") for one in await stage.pods())

    play(story, pools="pools: []", parts=PARTS)
