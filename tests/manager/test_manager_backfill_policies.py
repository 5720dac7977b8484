"""BackfillPolicies on a running manager: what starts before others says why, and is counted at its end."""

from __future__ import annotations

from typing import Any

import pytest
from manager_stack import Stack, job, story

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.meta import format_time, parse_time
from pykueue.api.reservations import RESERVATIONS
from pykueue.kube.errors import ApiError

Object = dict[str, Any]

_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: hpc}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default-flavor, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: hpc, namespace: default}
spec: {clusterQueue: hpc}
"""


def policy(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": BACKFILL_POLICIES.api_version,
        "kind": BACKFILL_POLICIES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def limited(name: str, cpus: int, seconds: int) -> Object:
    made = job(name, cpus, queue="hpc")
    made["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = str(seconds)
    return made


async def busy(s: Stack) -> None:
    """Job `first` runs and `big`, which needs more than it leaves, waits for its end."""
    await s.apply(_QUEUE)
    await s.client.create(BACKFILL_POLICIES, policy("hpc", clusterQueues=["hpc"]))
    await s.apply(limited("first", 6, 3600))
    await s.settle()
    await s.run_job("first")
    await s.apply(limited("big", 8, 3600))
    await s.settle()


def test_job_that_ends_before_the_reservation_starts_and_says_why() -> None:
    async def life(s: Stack) -> None:
        await busy(s)
        await s.apply(limited("long", 3, 7200))
        await s.apply(limited("short", 3, 600))
        await s.settle()
        assert "Capacity is reserved for it from " in await s.message("big")
        assert "Would delay default/job-big-" in await s.message("long")
        assert await s.suspended("long")
        assert not await s.suspended("short")
        found = await s.conditions("short")
        assert found["Backfilled"] == ("True", "EndsBefore")
        assert "Backfilled" not in await s.conditions("first")
        (condition,) = (await s.get(BACKFILL_POLICIES, "hpc"))["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Active", "True", "Ready")

        await s.stop_manager()
        await s.start_manager()
        await s.settle()
        assert await s.suspended("long"), "the same after a restart"
        await s.run_job("short")
        await s.finish_job("short")
        await s.finish_job("first")
        await s.settle()
        assert not await s.suspended("big")
        lines = s.manager.metrics.text().decode().splitlines()
        (ended,) = [line for line in lines if line.startswith("pykueue_backfilled_workloads_total{")]
        assert 'result="kept"' in ended
        (kept,) = [line for line in lines if line.startswith("pykueue_backfill_reservations_total{")]
        assert 'result="kept"' in kept

    story(life)


def test_policies_that_contradict_each_other_are_refused_and_name_both() -> None:
    async def life(s: Stack) -> None:
        create = s.client.create
        await create(BACKFILL_POLICIES, policy("one", cohort="lab"))
        await s.settle()
        for spec, text in (
            ({"cohort": "lab"}, "BackfillPolicy one is for cohort lab already"),
            ({"clusterQueues": ["c"], "cohort": "x"}, "are not accepted together"),
            ({"cohort": "x", "strategy": "Conservative", "depth": 2}, "depth is for strategy EASY"),
            ({"cohort": "x", "assumedRunTime": "0s"}, "must be more than 0s"),
            ({"cohort": "x", "depth": 0}, "spec.depth"),
        ):
            with pytest.raises(ApiError) as refused:
                await create(BACKFILL_POLICIES, policy("two", **spec))
            assert text in refused.value.message

    story(life)


def reservation(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.kind,
        "metadata": {"name": name},
        "spec": {
            "flavors": [{"name": "default-flavor", "resources": [{"name": "cpu", "quantity": 6}]}],
            "duration": "1h",
            **spec,
        },
    }


def test_job_that_would_run_into_maintenance_waits_until_it_is_over() -> None:
    async def life(s: Stack) -> None:
        await s.apply(_QUEUE)
        start = format_time(parse_time(s.now()) + 1800)
        maintenance = {"clusterQueue": "hpc", "purpose": "Maintenance"}
        await s.client.create(RESERVATIONS, reservation("night", start=start, **maintenance))
        await s.settle()
        status = (await s.get(RESERVATIONS, "night"))["status"]
        assert (status["conditions"][0]["reason"], status["windowStart"]) == ("Ready", start)
        assert (status["state"], status["printed"]) == ("Upcoming", "default-flavor: 6 cpu")
        await s.apply(limited("long", 5, 3600))
        await s.apply(limited("short", 4, 600))
        await s.settle()
        assert f"Would use quota of Reservation night, whose window begins at {start}" in (
            await s.message("long")
        )
        assert not await s.suspended("short")
        await s.settle(1800 + 60)
        assert (await s.get(RESERVATIONS, "night"))["status"]["state"] == "Open"
        await s.settle(3600)
        assert not await s.suspended("long")
        status = (await s.get(RESERVATIONS, "night"))["status"]
        assert status["conditions"][0]["reason"] == "Over"
        for spec, text in (
            ({"start": start}, "exactly one of clusterQueue and cohort must be set"),
            ({"clusterQueue": "hpc"}, "exactly one of start and schedule must be set"),
            ({"clusterQueue": "hpc", "schedule": "0 25 * * *"}, "spec.schedule"),
            ({"clusterQueue": "hpc", "schedule": "@daily", "timeZone": "Moon/Sea"}, "spec.timeZone"),
            ({"clusterQueue": "hpc", "start": start, "duration": "0s"}, "must be more than 0s"),
        ):
            with pytest.raises(ApiError) as refused:
                await s.client.create(RESERVATIONS, reservation("wrong", **spec))
            assert text in refused.value.message

    story(life)
