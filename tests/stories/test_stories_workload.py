"""What a Workload is and what it counts (docs/reference/cluster-workloads.md 5.4, rows C1 to C12)."""

from __future__ import annotations

from typing import Any

import pytest
from stories_world import Object, Story, condition, job, play, pool

from pykueue.api.resources import CRDS, JOBS, LIMIT_RANGES, WORKLOADS, Resource
from pykueue.kube.errors import ApiError
from queue_manifests import cluster_queue, local_queue, priority, queues

NODES = [pool(count=2, cpu="16")]
TEN = queues({"cpu": 10})
READY_WAIT_OFF = """
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
"""


def workload(name: str, *pod_sets: Object, version: str = "v1beta2", **spec: Any) -> Object:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": "q", "podSets": list(pod_sets), **spec},
    }


def pod_set(name: str, count: int, **requests: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    made = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"name": name, "count": count, "template": made}


def limit_range(**item: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


async def usage(world: Story, name: str) -> dict[str, str]:
    """What the admission of a job's Workload counts for its first pod set."""
    status = (await world.workload(name))["status"]
    found: dict[str, str] = status["admission"]["podSetAssignments"][0]["resourceUsage"]
    return found


async def finish(world: Story, name: str) -> None:
    """Say that a Workload without a job is finished, as its owner would."""
    found = await world.workload(name)
    known = found["status"]["conditions"]
    done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
    done["lastTransitionTime"] = known[-1]["lastTransitionTime"]
    name = found["metadata"]["name"]
    patch = {"status": {"conditions": [*known, done]}}
    await world.client.patch(WORKLOADS, name, world.namespace, patch, subresource="status")


def test_c1_decisions_and_status_are_mirrored_both_ways() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 2, run_time="20s"))
        await world.wait(8)
        found = await world.workload("a")
        (owner,) = found["metadata"]["ownerReferences"]
        stored = await world.get(JOBS, "a")
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "a", stored["metadata"]["uid"])
        assert owner["controller"] is True
        assert await world.admitted("a")
        assert await world.running() == 2
        assert await world.reason("a", "PodsReady") == ("True", "Started")
        await world.history.until_finished("a")
        await world.wait(2)
        assert await world.reason("a", "Finished") == ("True", "Succeeded")
        assert await world.used("q") == "0"

    play(story, nodes=NODES, objects=TEN)


def test_c2_a_workload_without_a_job_counts_and_makes_no_pods() -> None:
    async def story(world: Story) -> None:
        await world.create(
            workload(
                "sample-job", pod_set("main", 3, cpu="1", memory="200Mi"), version="v1beta1", active=True
            )
        )
        await world.wait()
        assert await world.admitted("sample-job")
        assert await usage(world, "sample-job") == {"cpu": "3", "memory": "600Mi"}
        assert await world.pods() == []
        assert await world.reason("sample-job", "Finished") == ("", "")
        await finish(world, "sample-job")
        await world.wait()
        assert await world.used("q") == "0"

    play(story, READY_WAIT_OFF, nodes=NODES, objects=queues({"cpu": 10, "memory": "1Gi"}))


def test_c3_inactive_is_stopped_and_active_competes_again() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 4, run_time="forever"))
        await world.wait()
        name = (await world.workload("a"))["metadata"]["name"]
        await world.patch(WORKLOADS, name, {"spec": {"active": False}})
        await world.wait(40)
        assert await world.reason("a", "Evicted") == ("True", "Deactivated")
        assert await world.suspended("a")
        assert await world.pods() == []
        assert await world.used("q") == "0"
        await world.wait(4 * 3600)
        assert not await world.admitted("a")
        await world.patch(WORKLOADS, name, {"spec": {"active": True}})
        await world.wait()
        assert await world.admitted("a")
        assert await world.running() == 4
        assert "requeueState" not in (await world.workload("a"))["status"]

    play(story, nodes=NODES, objects=TEN)


def test_c4_the_queue_of_a_workload_changes_only_while_it_waits() -> None:
    async def story(world: Story) -> None:
        await world.create(job("large", 11), job("small", run_time="forever"))
        await world.wait()
        for name, allowed in (("large", True), ("small", False)):
            name = (await world.workload(name))["metadata"]["name"]
            change = world.patch(WORKLOADS, name, {"spec": {"queueName": "other"}})
            if allowed:
                await change
            else:
                with pytest.raises(ApiError, match="queueName"):
                    await change

    play(story, nodes=NODES, objects=TEN)


def test_c5_several_pod_sets_are_added_up() -> None:
    async def story(world: Story) -> None:
        await world.create(
            workload("both", pod_set("driver", 1, cpu="2"), pod_set("workers", 3, cpu="1500m"))
        )
        await world.wait()
        assert await world.used("q") == "6500m"

    play(story, READY_WAIT_OFF, nodes=NODES, objects=TEN)


@pytest.mark.parametrize(
    ("container", "cpu"),
    [
        ({"resources": {}}, "1"),
        ({"resources": {"limits": {"cpu": "2"}}}, "1"),
        ({"resources": {"requests": {"cpu": "1"}}}, "2"),
    ],
)
def test_c6_defaults_count_and_leave_everything_as_written(container: Object, cpu: str) -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 2, pod={"container": container}))
        await world.wait()
        assert (await usage(world, "a"))["cpu"] == cpu
        stored = (await world.get(JOBS, "a"))["spec"]["template"], (await world.workload("a"))["spec"]
        for made in (stored[0], stored[1]["podSets"][0]["template"]):
            assert made["spec"]["containers"][0].get("resources", {}) == container["resources"]

    default = limit_range(defaultRequest={"cpu": "500m"})
    play(story, nodes=NODES, objects=[*TEN, default])


def test_c6_a_limit_counts_as_the_request_where_none_is_written() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 2, pod={"container": {"resources": {"limits": {"cpu": "2"}}}}))
        await world.wait()
        assert (await usage(world, "a"))["cpu"] == "4"

    play(story, nodes=NODES, objects=TEN)


def test_c6_the_overhead_of_the_runtime_class_is_counted() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 2, pod={"runtimeClassName": "boxed"}))
        await world.wait()
        assert (await usage(world, "a"))["cpu"] == "2200m"
        assert all(pod["spec"]["overhead"] == {"cpu": "100m"} for pod in await world.pods())

    boxed = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "boxed"},
        "handler": "boxed",
        "overhead": {"podFixed": {"cpu": "100m"}},
    }
    play(story, nodes=NODES, objects=[*TEN, boxed])


def test_c7_a_request_outside_the_limit_range_is_not_admitted_and_says_so() -> None:
    async def story(world: Story) -> None:
        three = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
        await world.create(job("a", pod={"container": {"resources": three}}))
        await world.wait()
        reserved = await world.condition("a", "QuotaReserved")
        assert (reserved["status"], reserved["reason"]) == ("False", "Misconfigured")
        assert "LimitRange" in reserved["message"]
        assert "cpu" in reserved["message"]
        assert await world.pods() == []
        await world.delete(LIMIT_RANGES, "limits")
        await world.wait()
        assert await world.running() == 1

    play(story, nodes=NODES, objects=[*TEN, limit_range(max={"cpu": "2"})])


def test_c8_pods_is_a_quota_and_not_a_request() -> None:
    async def story(world: Story) -> None:
        await world.create(job("first", 6, {}, run_time="30s"))
        await world.wait(2)
        await world.create(job("second", 6, {}))
        await world.wait()
        assert (await world.running("first-"), await world.suspended("second")) == (6, True)
        await world.history.until_finished("second")
        for refused in (job("bad", 1, {"pods": 1}), workload("bad", pod_set("main", 1, pods="1"))):
            with pytest.raises(ApiError, match="pods"):
                await world.create(refused)

    play(story, nodes=NODES, objects=queues({"pods": 10}))


def test_c9_the_class_on_the_job_orders_the_queue_and_leaves_the_pods_alone() -> None:
    async def story(world: Story) -> None:
        await world.create(job("running", 10, run_time="30s"))
        await world.wait(2)
        await world.create(job("low", 10, pod={"priorityClassName": "pods-low"}))
        await world.wait(2)
        label = {"kueue.x-k8s.io/priority-class": "high"}
        await world.create(job("high", 10, labels=label, pod={"priorityClassName": "pods-low"}))
        await world.wait(2)
        assert (await world.workload("low"))["spec"]["priority"] == 10
        assert (await world.workload("high"))["spec"]["priority"] == 1000
        await world.history.until_finished("running")
        await world.wait(4)
        assert await world.admitted("high")
        assert not await world.admitted("low")
        assert {pod["spec"]["priority"] for pod in await world.pods("high-")} == {10}

    low = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "pods-low"},
        "value": 10,
    }
    play(story, nodes=NODES, objects=[*TEN, low, priority("high", 1000)])


def test_c10_unknown_kind_is_queued_by_its_own_workload() -> None:
    async def story(world: Story) -> None:
        await world.client.create(CRDS, _definition())
        await world.wait(1)
        trains = Resource("example.com", "v1", "trains", "Train", True)
        train = {
            "apiVersion": "example.com/v1",
            "kind": "Train",
            "metadata": {"name": "t", "namespace": "default"},
        }
        owner = await world.client.create(trains, {**train, "spec": {"suspend": True}})
        made = workload("train-t", pod_set("main", 4, cpu="2"))
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        await world.create(made)
        await world.wait()
        assert await world.admitted("t")
        assert await world.used("q") == "8"
        await world.delete(trains, "t")
        await world.wait(60)
        assert await world.find_workload("train-t") is None
        assert await world.used("q") == "0"

    play(story, READY_WAIT_OFF, nodes=NODES, objects=TEN)


def _definition() -> Object:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trains.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "trains", "singular": "train", "kind": "Train"},
            "versions": [version],
        },
    }


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_c11_reclaimable_pods_release_their_quota(mode: str) -> None:
    async def story(world: Story) -> None:
        times = {"run-time": "30s-60s"} if mode == "NonIndexed" else {}
        await world.create(
            job("a", 3, simulation=times, run_time="30s-60s", completions=5, completionMode=mode)
        )
        seen: list[tuple[int, str]] = []
        while not await world.ended("a"):
            await world.wait(0.2)
            found = await world.find_workload("a")
            if found is None or not condition(found, "Admitted"):
                continue
            (given,) = found["status"].get("reclaimablePods") or [{"count": 0}]
            pair = given["count"], await world.used("q", field="flavorsUsage")
            if pair not in seen:
                seen.append(pair)
        given = [count for count, _ in seen]
        assert given == sorted(given)
        assert {(0, "3"), (1, "2"), (2, "1")} <= set(seen)

    play(story, nodes=NODES, objects=TEN)


def test_c12_requeue_state_is_cleared_after_activation() -> None:
    async def story(world: Story) -> None:
        await world.create(job("stuck", 2, {"cpu": 9}, run_time="forever"))
        await world.wait(75)
        found = await world.workload("stuck")
        assert found["status"]["requeueState"]["count"] == 1
        name = found["metadata"]["name"]
        await world.patch(WORKLOADS, name, {"spec": {"active": False}})
        await world.wait(2)
        await world.patch(WORKLOADS, name, {"spec": {"active": True}})
        await world.wait(2)
        assert "requeueState" not in (await world.workload("stuck"))["status"]
        assert await world.admitted("stuck")

    one = [pool(cpu="10")]
    play(story, "waitForPodsReady: {timeout: 1m}", nodes=one, objects=queues({"cpu": 18}))


def test_79_execution_time_before_a_preemption_counts() -> None:
    async def story(world: Story) -> None:
        limit = {"kueue.x-k8s.io/max-exec-time-seconds": "100"}
        await world.create(job("long", 10, run_time="forever", labels=limit))
        await world.until(lambda: world.admitted("long"))
        await world.wait(60)
        await world.create(
            job("urgent", 10, run_time="30s", labels={"kueue.x-k8s.io/priority-class": "high"})
        )
        await world.history.until_finished("urgent")
        await world.until(lambda: world.admitted("long"))
        used = (await world.workload("long"))["status"]["accumulatedPastExecutionTimeSeconds"]
        assert 59 <= used <= 63
        await world.wait(98 - used)
        assert await world.admitted("long")
        await world.wait(5)
        found = await world.workload("long")
        assert found["spec"]["active"] is False
        why = ("True", "DeactivatedDueToMaximumExecutionTimeExceeded")
        assert await world.reason("long", "Evicted") == why

    preempting = cluster_queue("q", {"cpu": 10}, preemption={"withinClusterQueue": "LowerPriority"})
    objects = [TEN[0], preempting, local_queue("q"), priority("high", 100)]
    play(story, nodes=NODES, objects=objects)
