"""The pod scheduler at work on a cluster: what it writes, what it waits for, what it survives."""

import random

from nodes_stage import Flaky, condition, play, pod

from pykueue.api.resources import EVENTS, NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS, SERVICES
from pykueue.embedded.podscheduler import PodScheduler
from pykueue.kube.transport import JSON_PATCH

FULL = (
    "0/1 nodes are available: 1 Insufficient cpu. "
    "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)
THREE = "pools: [{name: n, count: 3, allocatable: {cpu: 4, pods: 110}, simulation: {startDelay: 0s}}]"


def scheduled_at(stage, name):
    """When the pod got its node."""
    return next(
        at for at, _, one in stage.seen if one["metadata"]["name"] == name and one["spec"].get("nodeName")
    )


async def phases(stage):
    return {one["metadata"]["name"]: one["status"]["phase"] for one in await stage.pods()}


def test_a_pod_that_waits_says_why_in_condition_and_event():
    async def story(stage):
        await stage.create(pod("big", "sleep", "100", cpu="3"), pod("late", "sleep", "100", cpu="2"))
        await stage.until(5)
        late = await stage.pod("late")
        (found,) = late["status"]["conditions"]
        assert (found["type"], found["status"], found["reason"]) == ("PodScheduled", "False", "Unschedulable")
        assert found["message"] == FULL
        assert await stage.events("late") == [("FailedScheduling", FULL)]
        assert ("Scheduled", "Successfully assigned default/big to n-0") in await stage.events("big")

    play(story)


def test_room_that_is_given_back_is_taken_within_a_second():
    async def story(stage):
        await stage.create(*(pod(f"first-{i}", "sleep", "100", cpu="1") for i in range(4)))
        await stage.until(1)
        await stage.create(*(pod(f"next-{i}", "sleep", "5", cpu="1") for i in range(4)))
        await stage.until(300)
        assert set((await phases(stage)).values()) == {"Succeeded"}
        for i in range(4):
            assert scheduled_at(stage, f"next-{i}") < 102

    play(story)


def test_a_new_node_helps_those_that_wait():
    async def story(stage):
        await stage.create(pod("p", cpu="8"))
        await stage.until(100)
        await stage.declare("pools: [{name: large, allocatable: {cpu: 8, memory: 8Gi, pods: 10}}]")
        await stage.until(110)
        assert (await stage.pod("p"))["spec"]["nodeName"] == "large-0"
        assert scheduled_at(stage, "p") == 100

    play(story)


def test_a_cordoned_node_takes_pods_again_when_it_is_open():
    async def story(stage):
        await stage.client.patch(NODES, "n-0", None, {"spec": {"unschedulable": True}})
        await stage.until(1)
        await stage.create(pod("p"))
        await stage.until(50)
        assert [message for reason, message in await stage.events("p")] == [
            "0/1 nodes are available: 1 node(s) were unschedulable. "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        ]
        await stage.client.patch(NODES, "n-0", None, {"spec": {"unschedulable": None}})
        await stage.until(51)
        assert (await stage.pod("p"))["spec"]["nodeName"] == "n-0"

    play(story)


def test_gates_hold_a_pod_back():
    async def story(stage):
        await stage.create(pod("p", schedulingGates=[{"name": "example.com/wait"}]))
        await stage.until(10)
        held = await stage.pod("p")
        assert condition(held, "PodScheduled") == ("False", "SchedulingGated")
        assert await stage.events("p") == []
        change = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await stage.client.patch(PODS, "p", "default", change, content_type=JSON_PATCH)
        await stage.until(11)
        assert condition(await stage.pod("p"), "PodScheduled") == ("True", "")

    play(story)


def test_pods_for_another_scheduler_are_left_to_it():
    async def story(stage):
        await stage.create(pod("other", schedulerName="example"))
        await stage.until(10)
        assert not (await stage.pod("other"))["spec"].get("nodeName")
        stage.start(
            "example", PodScheduler(stage.transport(), stage.clock, random.Random(1), names=["example"])
        )
        await stage.until(20)
        assert (await stage.pod("other"))["spec"]["nodeName"] == "n-0"

    play(story)


def test_a_more_important_pod_takes_the_place_of_a_lesser_one():
    async def story(stage):
        await stage.create(pod("low", "sleep", "1000", cpu="3", priority=1, sim_ignores_sigterm="true"))
        await stage.until(5)
        await stage.create(pod("high", "sleep", "5", cpu="3", priority=100))
        await stage.until(6)
        low, high = await stage.pod("low"), await stage.pod("high")
        assert condition(low, "DisruptionTarget") == ("True", "PreemptionByScheduler")
        assert low["metadata"]["deletionTimestamp"]
        assert high["status"]["nominatedNodeName"] == "n-0"
        assert ("Preempted", f"Preempted by pod {high['metadata']['uid']} on node n-0") in await stage.events(
            "low"
        )
        await stage.create(pod("small", "sleep", "1", cpu="2", priority=1))
        await stage.until(60)
        assert await phases(stage) == {"high": "Succeeded", "small": "Succeeded"}
        assert scheduled_at(stage, "high") == 35
        assert scheduled_at(stage, "small") > 35, "the room was made for the other pod"

    play(story)


def test_a_disruption_budget_turns_preemption_to_other_pods():
    two = "pools: [{name: n, count: 2, allocatable: {cpu: 4, pods: 110}}]"

    async def story(stage):
        kept = {"app": "kept"}
        await stage.create(pod("kept", "sleep", "1000", cpu="3", priority=1, labels=kept, nodeName="n-0"))
        slow = {"sim_ignores_sigterm": "true"}
        await stage.create(pod("free", "sleep", "1000", cpu="3", priority=50, nodeName="n-1", **slow))
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": kept}},
        }
        await stage.client.create(POD_DISRUPTION_BUDGETS, budget)
        await stage.until(5)
        await stage.create(pod("high", "sleep", "5", cpu="3", priority=100))
        await stage.until(6)
        assert (await stage.pod("high"))["status"]["nominatedNodeName"] == "n-1"
        assert condition(await stage.pod("free"), "DisruptionTarget") == ("True", "PreemptionByScheduler")
        assert condition(await stage.pod("kept"), "DisruptionTarget") is None

    play(story, pools=two)


def test_a_pod_that_goes_opens_other_nodes_than_its_own():
    zoned = "pools: [{name: n, count: 2, allocatable: {cpu: 4, pods: 1}, zones: [z]}]"
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    async def story(stage):
        await stage.create(pod("repels", "sleep", "50", nodeName="n-0", affinity=alone))
        await stage.until(1)
        await stage.create(pod("web", "sleep", "100", labels={"app": "web"}))
        await stage.until(20)
        assert "existing pods anti-affinity rules" in (await stage.events("web"))[0][1]
        await stage.client.patch(NODES, "n-0", None, {"spec": {"unschedulable": True}})
        await stage.until(70)
        assert (await stage.pod("web"))["spec"]["nodeName"] == "n-1"
        assert scheduled_at(stage, "web") < 53

    play(story, pools=zoned)


def test_services_spread_their_pods_a_little():
    async def story(stage):
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }
        await stage.client.create(SERVICES, service)
        await stage.until(1)
        await stage.create(pod("load-0", "sleep", "100", cpu="1", nodeName="n-0"))
        await stage.create(pod("load-1", "sleep", "100", cpu="1", nodeName="n-1"))
        for number in range(3):
            await stage.create(pod(f"web-{number}", "sleep", "100", labels={"app": "web"}))
            await stage.clock.sleep(1)
        chosen = [(await stage.pod(f"web-{number}"))["spec"]["nodeName"] for number in range(3)]
        assert sorted(chosen) == ["n-0", "n-1", "n-2"]

    play(story, pools=THREE)


def usage_is_within_bounds(pods, cpu=4):
    used = {}
    for one in pods:
        name = one["spec"].get("nodeName")
        if name and one["status"]["phase"] not in ("Succeeded", "Failed"):
            requests = one["spec"]["containers"][0]["resources"].get("requests") or {}
            used[name] = used.get(name, 0) + int(requests.get("cpu", 0))
    return all(total <= cpu for total in used.values())


def test_failed_bindings_are_made_good():
    async def story(stage):
        await stage.create(*(pod(f"p{i}", "sleep", "3", cpu=str(1 + i % 3)) for i in range(30)))
        for _ in range(100):
            await stage.clock.sleep(1)
            assert usage_is_within_bounds(await stage.pods())
        assert set((await phases(stage)).values()) == {"Succeeded"}

    play(story, pools=THREE, wrap=lambda inner: Flaky(inner, "/binding"))


def test_a_scheduler_that_is_killed_and_started_again_counts_right():
    async def story(stage):
        await stage.create(*(pod(f"p{i}", "sleep", "7", cpu=str(1 + i % 4)) for i in range(30)))
        for _ in range(150):
            await stage.clock.sleep(0.7)
            await stage.restart("scheduler")
            assert usage_is_within_bounds(await stage.pods())
        assert set((await phases(stage)).values()) == {"Succeeded"}

    play(story, pools=THREE)


def test_random_runs_never_overcommit_a_node_and_schedule_every_pod():
    chance = random.Random(5)

    async def story(stage):
        for number in range(120):
            said = {
                "sim_run_time": f"{chance.randint(1, 20)}s",
                "sim_ignores_sigterm": chance.choice(["true", "false"]),
            }
            await stage.create(
                pod(f"p{number}", cpu=str(chance.randint(1, 4)), priority=chance.randint(0, 3), **said)
            )
            if number % 7 == 0:
                victim = chance.choice(await stage.pods())["metadata"]["name"]
                await stage.client.delete(PODS, victim, "default")
            await stage.clock.sleep(chance.random())
            assert usage_is_within_bounds(await stage.pods())
        for _ in range(100):
            await stage.clock.sleep(7)
            assert usage_is_within_bounds(await stage.pods())
        assert set((await phases(stage)).values()) <= {"Succeeded", "Failed"}
        assert len(await stage.pods()) > 50

    play(story, pools=THREE)


def test_a_deleted_namespace_label_or_waiting_pod_leaves_nothing_behind():
    async def story(stage):
        await stage.create(
            pod("big", "sleep", "20", cpu="4"), pod("gone", cpu="4"), pod("stays", "sleep", "1", cpu="4")
        )
        await stage.until(1)
        await stage.client.delete(PODS, "gone", "default")
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "other", "labels": {"a": "b"}},
        }
        await stage.client.create(NAMESPACES, namespace)
        await stage.until(60)
        assert await phases(stage) == {"big": "Succeeded", "stays": "Succeeded"}

    play(story)


def test_the_same_seed_gives_the_same_placement():
    async def story(stage):
        await stage.create(*(pod(f"p{i}", "sleep", "3", cpu="1") for i in range(40)))
        await stage.until(60)
        return [(at, one["metadata"]["name"], one["spec"].get("nodeName")) for at, _, one in stage.seen]

    assert play(story, pools=THREE) == play(story, pools=THREE)


def test_a_thousand_nodes_are_filled_to_the_last_place():
    pools = "pools: [{name: n, count: 1000, allocatable: {cpu: 2, pods: 10}, simulation: {startDelay: 1h}}]"

    async def story(stage):
        await stage.create(*(pod(f"p{number:04}", cpu="1") for number in range(2010)))
        await stage.until(30)
        pods = await stage.pods()
        assert usage_is_within_bounds(pods, cpu=2)
        waiting = [one for one in pods if not one["spec"].get("nodeName")]
        assert len(waiting) == 10
        assert {one["status"]["conditions"][0]["message"] for one in waiting} == {
            "0/1000 nodes are available: 1000 Insufficient cpu. "
            "preemption: 0/1000 nodes are available: 1000 No preemption victims found for incoming pod."
        }
        failed = [
            one for one in (await stage.client.list(EVENTS)).items if one["reason"] == "FailedScheduling"
        ]
        assert len(failed) == 10

    play(story, pools=pools, parts=("scheduler",))
