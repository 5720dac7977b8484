"""What the batch working group's talk shows of jobs and queues (docs/reference/cluster-workloads.md 5.5)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from stories_world import GPU, Object, Story, condition, holds, job, play, pool

from pykueue.api.resources import JOBS, PODS, WORKLOADS
from pykueue.api.times import parse_time
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from queue_manifests import cluster_queue, flavor, local_queue, priority, queues

NODES = [pool(count=4, cpu="64")]
#: The rules of the talk's slide.
RULES = [
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [40, 41, 42]}},
]


async def indexes(world: Story, prefix: str = "") -> list[int]:
    label = "batch.kubernetes.io/job-completion-index"
    return sorted(int(pod["metadata"]["labels"][label]) for pod in await world.pods(prefix))


async def resize(world: Story, name: str, **spec: int) -> None:
    await world.patch(JOBS, name, {"spec": spec})


def test_t1_an_elastic_job_grows_and_shrinks_at_the_top() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 4, queue=None, run_time="forever"))
        await world.wait(10)
        await resize(world, "a", parallelism=6, completions=6)
        await world.wait(10)
        assert await indexes(world) == [0, 1, 2, 3, 4, 5]
        await resize(world, "a", parallelism=2, completions=2)
        await world.wait(40)
        assert await indexes(world) == [0, 1]
        with pytest.raises(ApiError) as refused:
            await resize(world, "a", completions=3)
        assert refused.value.code == 422
        await world.create(job("b", 2, queue=None, completionMode="NonIndexed"))
        with pytest.raises(ApiError) as refused:
            await resize(world, "b", parallelism=3, completions=3)
        assert refused.value.code == 422

    play(story, nodes=NODES)


def test_t1_a_queued_job_that_changes_its_size_queues_again() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 4, run_time="forever"))
        await world.wait(10)
        first = (await world.workload("a"))["metadata"]["uid"]
        await resize(world, "a", parallelism=6, completions=6)
        await world.wait(45)
        second = await world.workload("a")
        assert second["metadata"]["uid"] != first
        assert second["spec"]["podSets"][0]["count"] == 6
        assert await world.running() == 6
        assert await world.used("q") == "6"
        assert len(await world.all(WORKLOADS)) == 1
        assert await world.events("a", "Stopped")

    play(story, nodes=NODES, objects=queues({"cpu": 10}))


def test_t1_with_a_minimum_the_size_is_the_queues_while_it_runs() -> None:
    async def story(world: Story) -> None:
        minimum = {"kueue.x-k8s.io/job-min-parallelism": "2"}
        await world.create(job("a", 4, run_time="forever", annotations=minimum))
        await world.wait(10)
        with pytest.raises(ApiError, match="parallelism"):
            await resize(world, "a", parallelism=3)
        assert await world.running() == 4

    play(story, nodes=NODES, objects=queues({"cpu": 10}))


def test_t2_the_policy_as_printed_is_refused_by_name() -> None:
    async def story(world: Story) -> None:
        printed = job("a", queue=None)
        printed["apiVersion"] = "v1"
        with pytest.raises((ApiError, LookupError), match="Job"):
            await world.create(printed)
        nested = job("a", queue=None)
        nested["spec"]["template"]["spec"] |= {"backoffLimit": 6, "podFailurePolicy": {"rules": RULES}}
        with pytest.raises(ApiError) as refused:
            await world.cluster.transport("user").call(
                Request("POST", JOBS.path("default"), {"fieldValidation": "Strict"}, nested)
            )
        for field in ("backoffLimit", "podFailurePolicy"):
            assert f'unknown field "spec.template.spec.{field}"' in refused.value.message
        always = job("a", queue=None, podFailurePolicy={"rules": RULES})
        always["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
        with pytest.raises(ApiError, match="restartPolicy"):
            await world.create(always)

    play(story, nodes=NODES)


def failing(name: str, exit_code: str, rules: list[Object], **options: Any) -> Object:
    return job(
        name,
        queue=None,
        backoffLimit=6,
        podFailurePolicy={"rules": rules},
        simulation={"exit-code": exit_code},
        **options,
    )


def test_t2_a_code_that_may_be_tried_again_is_tried_seven_times() -> None:
    async def story(world: Story) -> None:
        await world.create(failing("a", "42", RULES, run_time="1s"))
        await world.history.until_finished("a")
        found = await world.get(JOBS, "a")
        assert condition(found, "Failed")["reason"] == "BackoffLimitExceeded"
        assert found["status"]["failed"] == 7
        born = sorted(parse_time(pod["metadata"]["creationTimestamp"]) for pod in await world.all(PODS))
        apart = [later - earlier for earlier, later in pairwise(born)]
        assert len(born) == 7
        for waited, delay in zip(apart, (10, 20, 40, 80, 160, 320), strict=True):
            assert delay <= waited <= delay + 6

    play(story, nodes=NODES)


def test_t2_a_code_that_may_not_ends_the_job_at_once_and_names_the_rule() -> None:
    async def story(world: Story) -> None:
        await world.create(failing("a", "1", [RULES[1]], run_time="1s"))
        await world.history.until_finished("a")
        failed = condition(await world.get(JOBS, "a"), "Failed")
        assert failed["reason"] == "PodFailurePolicy"
        assert "exit code 1" in failed["message"]
        assert "rule at index 0" in failed["message"]
        assert len(await world.all(PODS)) == 1

    play(story, nodes=NODES)


def test_t2_a_disruption_that_is_ignored_costs_nothing() -> None:
    async def story(world: Story) -> None:
        await world.create(failing("a", "0", RULES, run_time="60s"))
        await world.wait(10)
        (pod,) = await world.pods()
        name = pod["metadata"]["name"]
        disrupted = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        }
        conditions = [*pod["status"]["conditions"], disrupted]
        await world.patch(PODS, name, {"status": {"conditions": conditions}}, "status")
        await world.delete(PODS, name)
        await world.history.until_finished("a")
        found = await world.get(JOBS, "a")
        assert holds(found, "Complete")
        assert found["status"].get("failed", 0) == 0

    play(story, nodes=NODES)


def test_t3_replacement_pod_follows_pod_replacement_policy() -> None:
    """A pod that is deleted counts as failed: its replacement comes after the back-off of 10 s (1.8)."""

    async def story(world: Story) -> None:
        slow = {"stop-delay": "30s"}
        for name, policy in (("now", "TerminatingOrFailed"), ("later", "Failed")):
            options: Object = {"queue": None, "run_time": "forever", "simulation": slow}
            await world.create(job(name, podReplacementPolicy=policy, **options))
        await world.wait(10)
        for name in ("now", "later"):
            (pod,) = await world.pods(f"{name}-")
            await world.delete(PODS, pod["metadata"]["name"])
        await world.wait(15)
        assert len(await world.pods("now-")) == 1
        assert (await world.get(JOBS, "now"))["status"]["terminating"] == 1
        assert await world.pods("later-") == []
        assert (await world.get(JOBS, "later"))["status"].get("active", 0) == 0
        await world.wait(40)
        assert await world.running("now-") == 1
        assert await world.running("later-") == 1

    play(story, nodes=NODES)


def test_t5_the_fifty_first_cpu_waits() -> None:
    async def story(world: Story) -> None:
        one = {"cpu": 1, "memory": "2G"}
        await world.create(*(job(f"j{number}", 1, one, run_time="forever") for number in range(51)))
        await world.wait(30)
        assert await world.running() == 50
        assert await world.used("q") == "50"
        assert await world.used("q", "memory") == "97656250Ki"  # 100G, as sizes are written in usage
        queue = await world.cluster_queue("q")
        assert (queue["admittedWorkloads"], queue["pendingWorkloads"]) == (50, 1)
        assert {pod["spec"]["nodeSelector"]["gpu"] for pod in await world.pods()} == {"a100"}

    quota: dict[str, dict[str, str | int]] = {"a100": {"cpu": 50, "memory": "200G", GPU: 20}}
    objects = [flavor("a100", nodeLabels={"gpu": "a100"}), cluster_queue("q", quota), local_queue("q")]
    node = pool(count=2, cpu="64", memory="400G", gpu="10")
    node.labels["gpu"] = "a100"
    play(story, nodes=[node], objects=objects)


@pytest.mark.parametrize(("selector", "running"), [({"kind": "on-demand"}, 10), ({}, 100)])
def test_t6_spot_comes_first_and_on_demand_is_for_those_who_need_it(
    selector: dict[str, str], running: int
) -> None:
    async def story(world: Story) -> None:
        pod = {"nodeSelector": selector} if selector else {}
        for number in range(100):
            await world.create(job(f"j{number}", run_time="forever", pod=pod))
        await world.wait(60)
        assert await world.running() == running
        kinds = {pod["spec"]["nodeSelector"]["kind"] for pod in await world.pods()}
        assert kinds == ({"on-demand"} if selector else {"spot"})
        nodes = {pod["spec"]["nodeName"].rpartition("-")[0] for pod in await world.pods()}
        assert nodes == kinds

    flavors = [flavor(name, nodeLabels={"kind": name}) for name in ("spot", "on-demand")]
    queue = cluster_queue("q", {"spot": {"cpu": 10000}, "on-demand": {"cpu": 10}})
    nodes = [pool("spot", 4), pool("on-demand", 1)]
    play(story, nodes=nodes, objects=[*flavors, queue, local_queue("q")])


def _held(workload: Object) -> int:
    """What a Workload of pods of 1 cpu holds: the pods that are done have given theirs back."""
    if not holds(workload, "QuotaReserved") or holds(workload, "Finished"):
        return 0
    given = workload["status"].get("reclaimablePods") or [{"count": 0}]
    return int(workload["spec"]["podSets"][0]["count"] - given[0]["count"])


def test_t11_a_hundred_jobs_never_exceed_the_quota_go_in_order_and_all_finish() -> None:
    async def story(world: Story) -> None:
        names = [f"j{number:02}" for number in range(100)]
        for number, name in enumerate(names):
            label = {"kueue.x-k8s.io/priority-class": "high"} if number % 10 == 9 else {}
            await world.create(job(name, 2, run_time="5s-15s", labels=label))
            await world.wait(0.02)
        most = 0
        while any(not found.finished for found in world.history.jobs.values()):
            used = sum(_held(one) for one in world.history.workloads.values())
            assert used <= 10
            most = max(most, used)
            await world.wait(0.5)
        assert most == 10
        assert {found.finished for found in world.history.jobs.values()} == {"Complete"}

        def admitted_at(name: str) -> float:
            owned = world.history.workloads.values()
            mine = next(one for one in owned if one["metadata"]["ownerReferences"][0]["name"] == name)
            return parse_time(condition(mine, "QuotaReserved")["lastTransitionTime"])

        for wanted in ([n for n in names if n.endswith("9")], [n for n in names if not n.endswith("9")]):
            times = [admitted_at(name) for name in wanted]
            assert times == sorted(times)
        assert max(map(admitted_at, names[9::10])) < min(map(admitted_at, names[20:22]))

    play(story, nodes=NODES, objects=[*queues({"cpu": 10}), priority("high", 100)])


def test_t12_no_pod_of_the_next_job_before_all_pods_of_the_first_are_ready() -> None:
    async def story(world: Story) -> None:
        await world.create(job("first", 40), job("second", 40))
        await world.history.until_finished("first", "second")
        whole, began = world.history.all_ready("first", 40), world.history.first_pod("second")
        assert whole is not None
        assert began is not None
        assert whole < began

    blocking = "waitForPodsReady: {timeout: 10m, blockAdmission: true}"
    play(story, blocking, nodes=NODES, objects=queues({"cpu": 100}))
