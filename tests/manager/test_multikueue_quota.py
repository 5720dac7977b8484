"""Quota of the manager's ClusterQueue that follows the workers' (docs/reference/admission-checks.md 20.1)."""

from __future__ import annotations

from typing import Any

import pytest
from multikueue_world import Clusters, dispatched

from pykueue.api.objects import condition_of
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, MULTIKUEUE_CONFIGS

AUTOMATED = "featureGates: {MultiKueueManagerQuotaAutomation: true}\n"


async def automate(c: Clusters, management: str = "Automated") -> None:
    await c.manager.patch(MULTIKUEUE_CONFIGS, "config", {"spec": {"quotaManagement": management}})
    await c.wait()


async def quota(c: Clusters, stack: Any = None) -> list[dict[str, Any]]:
    (group,) = (await (stack or c.manager).cluster_queue())["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    return list(flavor["resources"])


async def set_quota(c: Clusters, worker: str, cpu: int, **resources: str) -> None:
    found = {"cpu": str(cpu), **resources}
    quotas = [{"name": name, "nominalQuota": value} for name, value in found.items()]
    flavors = [{"name": "default-flavor", "resources": quotas}]
    groups = [{"coveredResources": list(found), "flavors": flavors}]
    await c.workers[worker].patch(CLUSTER_QUEUES, "cq", {"spec": {"resourceGroups": groups}})


async def automation(c: Clusters) -> tuple[str, str, str]:
    queue = await c.manager.cluster_queue()
    found = condition_of(queue.get("status"), "MultiKueueManagerQuotaAutomation") or {}
    return (found.get("status", ""), found.get("reason", ""), found.get("message", ""))


def test_48_quota_is_the_sum_of_the_connected_workers() -> None:
    async def test(c: Clusters) -> None:
        assert (await automation(c))[:2] == ("False", "NotRequested")
        await set_quota(c, "w1", 30)
        await set_quota(c, "w2", 50)
        await automate(c)
        assert await quota(c) == [{"name": "cpu", "nominalQuota": "80"}]
        assert (await automation(c))[:2] == ("True", "QuotaAutomated")
        c.lines["w2"].cut()
        await c.wait()
        assert await quota(c) == [{"name": "cpu", "nominalQuota": "30"}]
        c.lines["w2"].restore()
        await c.wait(20)
        assert await quota(c) == [{"name": "cpu", "nominalQuota": "80"}]
        # A worker without the LocalQueue does not count, nor does the manager's queue once it is manual.
        await c.workers["w1"].delete(LOCAL_QUEUES, "lq")
        await c.wait()
        assert await quota(c) == [{"name": "cpu", "nominalQuota": "50"}]
        await automate(c, "Manual")
        await set_quota(c, "w2", 7)
        await c.wait()
        assert await quota(c) == [{"name": "cpu", "nominalQuota": "50"}]
        assert (await automation(c))[:2] == ("False", "NotRequested")

    dispatched(test, "w1", "w2", configuration=AUTOMATED)


def test_resources_that_the_manager_does_not_cover_are_named_and_nothing_is_written() -> None:
    async def test(c: Clusters) -> None:
        await set_quota(c, "w1", 30, memory="1Gi")
        await c.wait()
        await automate(c)
        assert await automation(c) == (
            "False",
            "UnsupportedConfiguration",
            "coveredResources lacks resources of workers: memory",
        )
        assert await quota(c) == [{"name": "cpu", "nominalQuota": 100}]

    dispatched(test, "w1", configuration=AUTOMATED)


@pytest.mark.parametrize("gate", [True, False])
def test_gate_decides_whether_quota_is_written(gate: bool) -> None:
    async def test(c: Clusters) -> None:
        before = await quota(c)
        await set_quota(c, "w1", 30)
        await automate(c)
        written = [{"name": "cpu", "nominalQuota": "30"}]
        assert before != written
        assert await quota(c) == (written if gate else before)

    dispatched(test, "w1", configuration=AUTOMATED.replace("true", str(gate).lower()))
