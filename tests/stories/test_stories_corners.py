"""Corner cases of a Workload's life (docs/reference/kueue-semantics.md 15, rows 80, 85 and 86).

Rows 77, 78, 83 and 84 are in test_stories_ready_wait.py, row 79 is in test_stories_workload.py.
"""

from __future__ import annotations

from stories_world import Object, Story, job, play, pool

from pykueue.api.resources import ADMISSION_CHECKS, LOCAL_QUEUES, WORKLOADS
from queue_manifests import API, cluster_queue, flavor, local_queue, priority

NODES = [pool("a", cpu="16"), pool("b", cpu="16")]


def test_80_admission_check_applies_only_to_its_flavors() -> None:
    async def story(world: Story) -> None:
        for name, kind in (("free", "b"), ("checked", "a")):
            await world.create(job(name, pod={"nodeSelector": {"kind": kind}}, run_time="forever"))
        await world.wait(10)
        assert await world.admitted("free")
        assert await world.running("free-") == 1
        assert await world.reason("checked") == ("True", "QuotaReserved")
        assert not await world.admitted("checked")
        (asked,) = (await world.workload("checked"))["status"]["admissionChecks"]
        assert (asked["name"], asked["state"]) == ("only-a", "Pending")
        assert not (await world.workload("free"))["status"].get("admissionChecks")
        ready = {**asked, "state": "Ready", "message": "yes"}
        name = (await world.workload("checked"))["metadata"]["name"]
        await world.patch(WORKLOADS, name, {"status": {"admissionChecks": [ready]}}, "status")
        await world.wait(5)
        assert await world.running("checked-") == 1

    check: Object = {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": "only-a"},
        "spec": {"controllerName": "example.com/check"},
    }
    rules = {"admissionChecks": [{"name": "only-a", "onFlavors": ["a"]}]}
    queue = cluster_queue("q", {"a": {"cpu": 4}, "b": {"cpu": 4}}, admissionChecksStrategy=rules)
    flavors = [flavor(name, nodeLabels={"kind": name}) for name in ("a", "b")]

    async def with_check(world: Story) -> None:
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "yes"}
        active["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await world.patch(ADMISSION_CHECKS, "only-a", {"status": {"conditions": [active]}}, "status")
        await world.wait(2)
        await story(world)

    play(with_check, nodes=NODES, objects=[*flavors, check, queue, local_queue("q")])


def by_usage(*queues: str) -> list[Object]:
    """A ClusterQueue for one job at a time, whose LocalQueues go in the order of their past usage."""
    mode = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    made = [flavor(), cluster_queue("q", {"cpu": 10}, **mode), priority("high", 100)]
    return [*made, *(local_queue(name, "q") for name in queues)]


def test_past_usage_goes_before_priority() -> None:
    """The example of 10.5: who used the queue for an hour is behind who did not, whatever the priorities."""

    async def story(world: Story) -> None:
        await world.create(job("long", 10, queue="x", run_time="60m"))
        await world.wait(1800)
        await world.create(job("x", 10, queue="x", labels={"kueue.x-k8s.io/priority-class": "high"}))
        await world.create(job("y", 10, queue="y"))
        await world.history.until_finished("long")
        await world.wait(5)
        assert (await world.admitted("y"), await world.admitted("x")) == (True, False)

    sharing = "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 5m}"
    play(story, sharing, nodes=NODES, objects=by_usage("x", "y"))


def test_85_without_half_life_only_pending_penalties_count() -> None:
    async def story(world: Story) -> None:
        await world.create(job("long", 10, queue="x", run_time="60m"))
        await world.wait(1800)
        await world.create(job("x", 10, queue="x", labels={"kueue.x-k8s.io/priority-class": "high"}))
        await world.create(job("y", 10, queue="y"))
        await world.history.until_finished("long")
        await world.wait(5)
        assert (await world.admitted("y"), await world.admitted("x")) == (False, True)

    sharing = "admissionFairSharing: {usageHalfLifeTime: 0s, usageSamplingInterval: 5m}"
    play(story, sharing, nodes=NODES, objects=by_usage("x", "y"))


def test_86_queue_of_weight_0_is_ordered_last() -> None:
    async def story(world: Story) -> None:
        await world.patch(LOCAL_QUEUES, "x", {"spec": {"fairSharing": {"weight": "0"}}})
        await world.create(job("first", 10, queue="y", run_time="60s"))
        await world.wait(5)
        await world.create(job("x", 10, queue="x", labels={"kueue.x-k8s.io/priority-class": "high"}))
        await world.create(job("y", 10, queue="y"))
        await world.history.until_finished("first")
        await world.wait(5)
        assert (await world.admitted("y"), await world.admitted("x")) == (True, False)

    sharing = "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 5m}"
    play(story, sharing, nodes=NODES, objects=by_usage("x", "y"))
