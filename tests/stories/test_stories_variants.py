"""Concurrent admission: a job competes for every flavor at once and moves to a more preferred one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from stories_world import Object, Story, holds, job, play, pool

from pykueue.api import decode
from pykueue.api.meta import new_condition
from pykueue.api.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, JOBS, WORKLOADS
from pykueue.clock import Clock, JumpingClock
from pykueue.questions import competing, find_workload
from queue_manifests import admission_check, cluster_queue, flavor, local_queue, priority

GATE = "featureGates: {ConcurrentAdmission: true}\n"
PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
FLAVOR = "kueue.x-k8s.io/workload-allowed-resource-flavors"
NODES = [pool("reservation", cpu="8"), pool("spot", cpu="8")]


def queues(
    reservation: int = 4, spot: int = 4, mode: str = "TryPreferredFlavors", last: str = "", **spec: Any
) -> list[Object]:
    """Two flavors, the reserved nodes before the others, and a queue with concurrent admission."""
    migration: Object = {"mode": mode}
    if last:
        migration["constraints"] = {"lastAcceptableFlavorName": last}
    quota: dict[str, dict[str, str | int]] = {"reservation": {"cpu": reservation}, "spot": {"cpu": spot}}
    queue = cluster_queue("q", quota, concurrentAdmissionPolicy={"migration": migration}, **spec)
    flavors = [flavor(name, nodeLabels={"kind": name}) for name in ("reservation", "spot")]
    return [*flavors, queue, local_queue("q")]


def run(
    story: Callable[[Story], Awaitable[None]],
    objects: list[Object],
    configuration: str = GATE,
    make_clock: type[Clock] = Clock,
) -> None:
    play(story, configuration, nodes=NODES, objects=objects, make_clock=make_clock)


def forever(name: str, pods: int, **more: Any) -> Object:
    return job(name, pods, run_time="forever", **more)


async def variants(world: Story, name: str) -> dict[str, Object]:
    """The variants of the Workload of a job, by flavor."""
    parent = await world.workload(name)
    uid = parent["metadata"]["uid"]
    return {
        one["metadata"]["annotations"][FLAVOR]: one
        for one in await world.all(WORKLOADS)
        if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ()))
    }


async def flavors(world: Story, name: str) -> set[str]:
    """The flavors that the Workload of a job is admitted with."""
    parent = await world.workload(name)
    if not holds(parent, "Admitted"):
        return set()
    return {
        chosen
        for given in parent["status"]["admission"]["podSetAssignments"]
        for chosen in given["flavors"].values()
    }


async def nodes(world: Story, name: str) -> set[str]:
    """The nodes that the running pods of a job are on."""
    return {
        pod["spec"]["nodeName"] for pod in await world.pods(name) if pod["status"].get("phase") == "Running"
    }


async def active(world: Story, name: str) -> set[str]:
    """The flavors whose variants are active."""
    return {
        flavor
        for flavor, one in (await variants(world, name)).items()
        if one["spec"].get("active") is not False
    }


def test_job_has_a_variant_for_each_flavor_and_is_admitted_as_one_of_them() -> None:
    async def story(world: Story) -> None:
        await world.create(forever("a", 3))
        await world.wait(10)
        parent = await world.workload("a")
        assert parent["metadata"]["labels"][PARENT] == "true"
        mine = await variants(world, "a")
        assert set(mine) == {"reservation", "spot"}
        for one in mine.values():
            assert one["metadata"]["ownerReferences"][0]["name"] == parent["metadata"]["name"]
            assert one["spec"]["preemptionGates"] == [{"name": "kueue.x-k8s.io/concurrent-admission"}]
            assert one["spec"]["podSets"] == parent["spec"]["podSets"]
        assert await flavors(world, "a") == {"reservation"}
        assert await active(world, "a") == {"reservation"}
        assert await world.running() == 3
        assert await nodes(world, "a") == {"reservation-0"}
        # Quota is counted once: with the variant.
        assert await world.used("q") == "3 0"
        status = await world.cluster_queue("q")
        assert (status["admittedWorkloads"], status["pendingWorkloads"]) == (1, 0)

    run(story, queues())


def test_job_moves_to_the_preferred_flavor_once_that_has_room() -> None:
    async def story(world: Story) -> None:
        await world.create(forever("first", 3))
        await world.wait(10)
        await world.create(forever("second", 3))
        await world.wait(10)
        assert await flavors(world, "second") == {"spot"}
        assert await active(world, "second") == {"reservation", "spot"}
        assert await nodes(world, "second") == {"spot-0"}
        await world.delete(JOBS, "first")
        await world.wait(60)
        assert await flavors(world, "second") == {"reservation"}
        assert await nodes(world, "second") == {"reservation-0"}
        assert await world.running() == 3
        assert await world.used("q") == "3 0"
        assert await active(world, "second") == {"reservation"}
        assert await world.events(
            (await world.workload("second"))["metadata"]["name"], "EvictedDueToVariantEvicted"
        )

    run(story, queues())


def test_first_admission_is_retained() -> None:
    async def story(world: Story) -> None:
        await world.create(forever("first", 3))
        await world.wait(10)
        await world.create(forever("second", 3))
        await world.wait(10)
        assert await active(world, "second") == {"spot"}
        await world.delete(JOBS, "first")
        await world.wait(60)
        assert await flavors(world, "second") == {"spot"}

    run(story, queues(mode="RetainFirstAdmission"))


def test_a_finished_job_finishes_its_variants_and_a_deleted_one_leaves_none() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 3), forever("b", 1))
        await world.wait(60)
        assert await world.ended("a") == "Complete"
        assert all(holds(one, "Finished") for one in (await variants(world, "a")).values())
        await world.delete(JOBS, "a")
        await world.delete(JOBS, "b")
        await world.wait(60)
        assert await world.all(WORKLOADS) == []
        assert await world.used("q") == "0 0"

    run(story, queues())


def test_variants_preempt_one_after_the_other() -> None:
    async def story(world: Story) -> None:
        for name in ("a", "b"):
            await world.create(forever(name, 3))
            await world.wait(10)
        high = {"kueue.x-k8s.io/priority-class": "high"}
        await world.create(priority("high", 10), forever("c", 3, labels=high))
        await world.wait(120)
        # One victim, of the preferred flavor: the other keeps running.
        assert await flavors(world, "c") == {"reservation"}
        assert (await flavors(world, "a"), await flavors(world, "b")) == (set(), {"spot"})
        assert await world.used("q") == "3 3"
        reason = await world.condition("a", "QuotaReserved")
        assert "reservation: " in reason["message"]
        assert "spot: " in reason["message"]

    run(story, queues(preemption={"withinClusterQueue": "LowerPriority"}))


def test_job_whose_pods_are_not_ready_in_time_tries_the_next_flavor() -> None:
    configuration = GATE + "waitForPodsReady: {timeout: 20s, requeuingStrategy: {backoffBaseSeconds: 3600}}\n"

    async def story(world: Story) -> None:
        # No node has the label of the preferred flavor: its pods stay pending.
        await world.create(flavor("lost", nodeLabels={"kind": "lost"}))
        lost = {"lost": {"cpu": 4}, "spot": {"cpu": 4}}
        policy = {"migration": {"mode": "TryPreferredFlavors"}}
        await world.create(cluster_queue("q2", lost, concurrentAdmissionPolicy=policy), local_queue("q2"))
        await world.create(forever("a", 2, queue="q2"))
        await world.wait(10)
        assert await flavors(world, "a") == {"lost"}
        await world.wait(60)
        assert await flavors(world, "a") == {"spot"}
        assert await world.running("a") == 2
        assert await world.used("q2") == "0 2"
        evicted = (await variants(world, "a"))["lost"]["status"]["schedulingStats"]["evictions"]
        assert [(one["reason"], one["count"]) for one in evicted] == [("PodsReadyTimeout", 1)]

    run(story, queues(), configuration)


def test_job_runs_elsewhere_while_the_check_of_a_preferred_flavor_is_pending() -> None:
    checks = {"admissionChecks": [{"name": "capacity", "onFlavors": ["reservation"]}]}

    async def story(world: Story) -> None:
        await world.create(admission_check("capacity", "example.com/capacity"))
        status = {"conditions": [new_condition(None, "Active", "True", "Active", "", world.clock.time())]}
        await world.patch(ADMISSION_CHECKS, "capacity", {"status": status}, "status")
        await world.create(forever("a", 3))
        await world.wait(10)
        assert await nodes(world, "a") == {"spot-0"}
        # Both variants hold quota: each of its flavor.
        assert await world.used("q") == "3 3"
        waiting = (await variants(world, "a"))["reservation"]
        (check,) = waiting["status"]["admissionChecks"]
        update = {"name": "main", "annotations": {"example.com/capacity": "7"}}
        ready = {**check, "state": "Ready", "message": "", "podSetUpdates": [update]}
        name = waiting["metadata"]["name"]
        await world.patch(WORKLOADS, name, {"status": {"admissionChecks": [ready]}}, "status")
        await world.wait(60)
        assert await nodes(world, "a") == {"reservation-0"}
        pods = await world.pods("a")
        assert {pod["metadata"]["annotations"].get("example.com/capacity") for pod in pods} == {"7"}
        assert await world.used("q") == "3 0"

    run(story, queues(admissionChecksStrategy=checks))


def test_deactivated_job_gives_its_quota_back_and_competes_again_when_activated() -> None:
    async def story(world: Story) -> None:
        await world.create(forever("a", 3))
        await world.wait(10)
        name = (await world.workload("a"))["metadata"]["name"]
        await world.patch(WORKLOADS, name, {"spec": {"active": False}})
        await world.wait(30)
        assert await active(world, "a") == set()
        assert (await world.used("q"), await world.running()) == ("0 0", 0)
        await world.patch(WORKLOADS, name, {"spec": {"active": True}})
        await world.wait(30)
        assert await flavors(world, "a") == {"reservation"}

    run(story, queues())


def test_quota_of_a_deleted_variant_is_released_when_the_job_has_stopped() -> None:
    async def story(world: Story) -> None:
        await world.create(forever("a", 3))
        await world.wait(10)
        mine = await variants(world, "a")
        await world.delete(WORKLOADS, mine["reservation"]["metadata"]["name"])
        await world.wait(60)
        again = await variants(world, "a")
        assert again["reservation"]["metadata"]["uid"] != mine["reservation"]["metadata"]["uid"]
        assert await flavors(world, "a") == {"reservation"}
        assert await world.used("q") == "3 0"
        assert await world.events("a", "Stopped")

    run(story, queues())


def test_job_of_a_drained_queue_runs_again_although_the_clock_was_set_back() -> None:
    async def story(world: Story) -> None:
        assert isinstance(world.clock, JumpingClock)
        await world.create(forever("a", 3))
        await world.wait(30)
        await world.patch(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await world.wait(30)
        assert await flavors(world, "a") == set()
        world.clock.offset -= 50
        await world.patch(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "None"}})
        await world.wait(30)
        assert await flavors(world, "a") == {"reservation"}
        assert await world.running() == 3

    run(story, queues(), make_clock=JumpingClock)


def test_question_about_a_job_is_about_its_variant() -> None:
    async def story(world: Story) -> None:
        await world.create(forever("first", 3))
        await world.wait(10)
        await world.create(forever("second", 3))
        await world.wait(10)
        workloads = [decode(one) for one in await world.all(WORKLOADS)]
        found, notes = competing(workloads, find_workload(workloads, "job/second", "default"))
        assert found.metadata.annotations[FLAVOR] == "spot"
        assert "(reservation)" in notes[0]

    run(story, queues())


@pytest.mark.parametrize("gate", [GATE, ""], ids=["gate on", "gate off"])
def test_gate_decides_whether_the_policy_has_an_effect(gate: str) -> None:
    async def story(world: Story) -> None:
        await world.create(forever("first", 3))
        await world.wait(10)
        labels = next(
            one["metadata"].get("labels", {})
            for one in await world.all(WORKLOADS)
            if one["metadata"]["ownerReferences"][0]["kind"] == "Job"
        )
        assert (PARENT in labels) is bool(gate)
        assert len(await world.all(WORKLOADS)) == (3 if gate else 1)
        assert await flavors(world, "first") == {"reservation"}

    run(story, queues(), gate)


def test_a_flavor_that_is_added_or_removed() -> None:
    async def story(world: Story) -> None:
        await world.create(forever("big", 4), flavor("zone"))
        await world.wait(10)
        await world.create(forever("a", 5))
        await world.wait(10)
        assert await flavors(world, "a") == set()
        (group,) = (await world.get(CLUSTER_QUEUES, "q"))["spec"]["resourceGroups"]
        zone = {"name": "zone", "resources": [{"name": "cpu", "nominalQuota": "6"}]}
        wider = {**group, "flavors": [*group["flavors"], zone]}
        await world.patch(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": [wider]}})
        await world.wait(30)
        assert await flavors(world, "a") == {"zone"}
        await world.patch(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": [group]}})
        await world.wait(60)
        assert await flavors(world, "a") == set()
        assert set(await variants(world, "a")) == {"reservation", "spot"}
        assert await world.running("a") == 0

    run(story, queues())
