"""Pods that are placed as a group or not at all: what users see of groups, pods and queues."""

import random
from contextlib import suppress

import pytest
from gangs_stage import EIGHT, LABEL, MODES, bound, coscheduled, group, never_a_part, phase, play, serve
from nodes_stage import Flaky, condition, pod

from pykueue.api.resources import NODES, PODS
from pykueue.embedded.podgroups.definitions import COSCHEDULING_POD_GROUPS
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import JSON_PATCH


@pytest.fixture(params=MODES.values(), ids=MODES)
def mode(request):
    return request.param


def test_a_group_is_placed_whole_and_the_next_one_waits_for_all_its_room(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        for name in ("a", "b"):
            await stage.client.create(resource, group(resource, name, minMember=5))
        both = [one for pair in zip(pods("a", 5), pods("b", 5), strict=True) for one in pair]
        await stage.create(*both)
        await stage.clock.sleep(10)
        assert (await bound(stage, "a"), await bound(stage, "b")) == (5, 0)
        waiting = await stage.pod("b-0")
        assert condition(waiting, "PodScheduled") == ("False", "Unschedulable")
        message = waiting["status"]["conditions"][0]["message"]
        assert message == (
            "0/8 nodes are available: 8 Insufficient cpu. "
            "Pod group default/b is placed as a whole or not at all; part of it would fit."
        )
        assert [reason for reason, _ in await stage.events("b-0")] == ["FailedScheduling"]
        await stage.clock.sleep(90)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}
        assert never_a_part(stage, "a", 5)
        assert never_a_part(stage, "b", 5)

    play(story, pools=EIGHT)


def test_without_groups_the_same_pods_share_the_nodes():
    async def story(stage):
        await stage.clock.sleep(1)
        names = [f"{name}-{i}" for i in range(5) for name in ("a", "b")]
        await stage.create(*(pod(name, "sleep", "30", cpu="1") for name in names))
        await stage.clock.sleep(10)
        assert (await bound(stage, "a"), await bound(stage, "b")) == (4, 4)

    play(story, pools=EIGHT)


def test_nothing_starts_before_enough_pods_exist_and_the_group_does(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        await stage.create(*pods("a", 3))
        await stage.clock.sleep(5)
        assert await bound(stage, "a") == 0
        said = (await stage.pod("a-0"))["status"]["conditions"][0]["message"]
        assert said == "Pod group default/a does not exist."
        await stage.client.create(resource, group(resource, "a", minMember=4))
        await stage.clock.sleep(5)
        assert await bound(stage, "a") == 0
        said = (await stage.pod("a-0"))["status"]["conditions"][0]["message"]
        assert said == "Fewer pods of pod group default/a exist than the 4 it needs."
        await stage.create(*pods("a", 1, first=3))
        await stage.clock.sleep(3)
        assert await bound(stage, "a") == 4

    play(story, pools=EIGHT)


def test_a_gated_member_holds_all_back(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        await stage.client.create(resource, group(resource, "a", minMember=4))
        await stage.create(*pods("a", 3), *pods("a", 1, first=3, schedulingGates=[{"name": "example.com/g"}]))
        await stage.clock.sleep(10)
        assert await bound(stage, "a") == 0
        change = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await stage.client.patch(PODS, "a-3", "default", change, content_type=JSON_PATCH)
        await stage.clock.sleep(3)
        assert await bound(stage, "a") == 4

    play(story, pools=EIGHT)


def test_members_above_the_minimum_take_what_is_left(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        await stage.client.create(resource, group(resource, "a", minMember=6))
        await stage.create(*pods("a", 10))
        await stage.clock.sleep(5)
        assert await bound(stage, "a") == 8
        await stage.clock.sleep(80)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}

    play(story, pools=EIGHT)


def test_a_coscheduling_group_goes_through_its_phases():
    async def story(stage):
        await serve(stage)
        resource = COSCHEDULING_POD_GROUPS
        await stage.client.create(resource, group(resource, "a", minMember=4))
        await stage.create(*coscheduled("a", 2, "sleep", "20"))
        await stage.clock.sleep(3)
        assert await phase(stage, resource, "a") == "Pending"
        await stage.create(*coscheduled("a", 2, "sleep", "20", first=2))
        await stage.clock.sleep(1.1)
        assert await phase(stage, resource, "a") in ("Scheduling", "Running")
        await stage.clock.sleep(3)
        status = (await stage.client.get(resource, "a", "default"))["status"]
        assert (status["phase"], status["running"], status["scheduled"]) == ("Running", 4, 4)
        assert status["scheduleStartTime"]
        await stage.clock.sleep(20)
        assert await phase(stage, resource, "a") == "Finished"

    play(story, pools=EIGHT)


def test_a_group_that_fails_says_so():
    async def story(stage):
        await serve(stage)
        resource = COSCHEDULING_POD_GROUPS
        await stage.client.create(resource, group(resource, "a", minMember=3))
        await stage.create(*coscheduled("a", 2), *coscheduled("a", 1, "exit", "1", first=2))
        await stage.clock.sleep(5)
        assert await phase(stage, resource, "a") == "Failed"

    play(story, pools=EIGHT)


def test_fluence_makes_a_group_of_the_size_the_label_says():
    async def story(stage):
        await serve(stage)
        labels = {"batch.kubernetes.io/job-name": "j", "fluence.group-size": "3"}
        members = [
            pod(f"j-{i}", cpu="1", schedulerName="fluence", labels=labels, owner="j") for i in range(3)
        ]
        await stage.create(*members[:2])
        await stage.clock.sleep(5)
        made = await stage.client.get(COSCHEDULING_POD_GROUPS, "fluence-group-default-j", "default")
        assert made["spec"] == {"minMember": 3, "scheduleTimeoutSeconds": 300}
        assert await bound(stage, "j") == 0
        await stage.create(members[2])
        await stage.clock.sleep(3)
        assert await bound(stage, "j") == 3

    play(story, pools=EIGHT)


def test_min_resources_must_be_free_before_a_coscheduled_group_is_tried():
    async def story(stage):
        await serve(stage)
        resource = COSCHEDULING_POD_GROUPS
        spec = {"minMember": 2, "minResources": {"cpu": "8"}}
        await stage.client.create(resource, group(resource, "a", **spec))
        await stage.create(pod("other", "sleep", "20", cpu="1"))
        await stage.clock.sleep(1)
        await stage.create(*coscheduled("a", 2))
        await stage.clock.sleep(5)
        assert await bound(stage, "a") == 0
        assert "less cpu free than minResources" in (await stage.events("a-0"))[0][1]
        await stage.clock.sleep(30)
        assert await bound(stage, "a") == 2

    play(story, pools=EIGHT)


def test_groups_of_the_same_second_go_by_name():
    """A scheduler that starts finds them all at once (3.6: priority, time of the group, name)."""

    async def story(stage):
        await serve(stage)
        resource = COSCHEDULING_POD_GROUPS
        for name in ("c", "b", "a"):
            await stage.client.create(resource, group(resource, name, minMember=5))
            await stage.create(*coscheduled(name, 5, "sleep", "10"))
        stage.start("scheduler")
        started = []
        for name in ("a", "b", "c"):
            await stage.clock.sleep(11)
            started.append([name for name in "abc" if await bound(stage, name)])
        assert started == [["a"], ["a", "b"], ["a", "b", "c"]]

    play(story, pools=EIGHT, parts=("nodes",))


def test_group_preempts_only_if_all_of_its_pods_fit(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        await stage.create(*(pod(f"low-{i}", "sleep", "1000", cpu="1", priority=1) for i in range(4)))
        await stage.create(*(pod(f"keep-{i}", "sleep", "1000", cpu="1", priority=100) for i in range(4)))
        await stage.clock.sleep(5)
        await stage.client.create(resource, group(resource, "big", minMember=5))
        await stage.create(*pods("big", 5, priority=50))
        await stage.clock.sleep(30)
        assert await bound(stage, "low") == 4, "five would not fit even then, so no pod is preempted"
        await stage.client.create(resource, group(resource, "fits", minMember=3))
        await stage.create(*pods("fits", 3, priority=50))
        await stage.clock.sleep(60)
        assert (await bound(stage, "fits"), await bound(stage, "low"), await bound(stage, "keep")) == (
            3,
            1,
            4,
        )
        assert never_a_part(stage, "fits", 3)

    play(story, pools=EIGHT)


def test_nodes_kept_for_a_group_are_given_back_when_it_takes_too_long():
    async def story(stage):
        await serve(stage)
        stuck = {"sim_ignores_sigterm": "true", "terminationGracePeriodSeconds": 1000}
        await stage.create(*(pod(f"low-{i}", "sleep", "1000", cpu="1", priority=1) for i in range(3)))
        await stage.create(pod("slow-0", "sleep", "1000", cpu="1", priority=1, **stuck))
        await stage.create(*(pod(f"keep-{i}", "sleep", "1000", cpu="1", priority=100) for i in range(4)))
        await stage.clock.sleep(5)
        resource = COSCHEDULING_POD_GROUPS
        spec = {"minMember": 4, "scheduleTimeoutSeconds": 20}
        await stage.client.create(resource, group(resource, "big", **spec))
        await stage.create(*coscheduled("big", 4, priority=50, labels={"x": "y"}))
        await stage.clock.sleep(10)
        assert (await stage.pod("big-0"))["status"].get("nominatedNodeName")
        await stage.create(pod("small", "sleep", "1000", cpu="1", priority=50))
        await stage.clock.sleep(5)
        assert not (await stage.pod("small"))["spec"].get("nodeName"), "the room is kept"
        await stage.clock.sleep(20)
        assert (await stage.pod("small"))["spec"].get("nodeName"), "and given back"
        assert await bound(stage, "big") == 0

    play(story, pools=EIGHT)


def test_a_scheduler_that_is_killed_again_and_again_leaves_no_group_in_parts(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        for number in range(6):
            name = f"g{number}"
            await stage.client.create(resource, group(resource, name, minMember=5))
            await stage.create(*pods(name, 5, "sleep", "7"))
        for _ in range(400):
            await stage.clock.sleep(0.7)
            await stage.restart("scheduler")
        await stage.clock.sleep(60)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}

    play(story, pools=EIGHT)


def test_failed_bindings_do_not_keep_a_group_from_becoming_whole(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        for number in range(6):
            name = f"g{number}"
            await stage.client.create(resource, group(resource, name, minMember=5))
            await stage.create(*pods(name, 5, "sleep", "3"))
        await stage.clock.sleep(200)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}

    play(story, pools=EIGHT, wrap=lambda inner: Flaky(inner, "/binding"))


def test_random_groups_all_end_and_are_never_seen_in_parts():
    chance = random.Random(3)

    async def story(stage):
        await serve(stage)
        sizes = {}
        for number in range(30):
            resource, pods = MODES[chance.choice(list(MODES))]
            name, size = f"g{number}", chance.choice((2, 3, 5, 8))
            sizes[name] = size
            members = pods(name, size, "sleep", str(chance.randint(1, 15)))
            chance.shuffle(members)
            made = group(resource, name, minMember=size)
            first = chance.random() < 0.5
            if first:
                await stage.client.create(resource, made)
            await stage.create(*members)
            if not first:
                await stage.client.create(resource, made)
            await stage.clock.sleep(chance.random() * 3)
        await stage.clock.sleep(900)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}
        for name, size in sizes.items():
            assert never_a_part(stage, name, size)

    play(story, pools=EIGHT)


def test_room_kept_for_a_member_above_the_minimum_is_given_back_when_it_gets_another_place():
    async def story(stage):
        await serve(stage)
        slow = {"sim_ignores_sigterm": "true", "terminationGracePeriodSeconds": 60}
        await stage.create(pod("low", "sleep", "1000", cpu="1", priority=1, **slow))
        await stage.create(*(pod(f"keep-{i}", "sleep", "200", cpu="1", priority=100) for i in range(5)))
        await stage.clock.sleep(5)
        resource = COSCHEDULING_POD_GROUPS
        await stage.client.create(resource, group(resource, "a", minMember=2))
        fails = ("sh", "-c", "sleep 10 && exit 1")
        await stage.create(*coscheduled("a", 1, *fails, priority=50))
        await stage.create(*coscheduled("a", 2, "sleep", "30", first=1, priority=50))
        await stage.clock.sleep(5)
        assert (await stage.pod("a-2"))["status"]["nominatedNodeName"], "waits for the low one to leave"
        await stage.clock.sleep(10)
        assert (await stage.pod("a-2"))["spec"]["nodeName"], "has the place of the one that failed"
        await stage.create(pod("other", "sleep", "1", cpu="1", priority=50))
        await stage.clock.sleep(300)
        await stage.create(*(pod(f"all-{i}", "sleep", "100", cpu="1") for i in range(8)))
        await stage.clock.sleep(10)
        assert await bound(stage, "all") == 8

    play(story, pools=EIGHT)


@pytest.mark.parametrize("seed", [3, 39])
def test_whatever_happens_to_groups_and_single_pods_no_room_is_lost(seed):
    """Priorities, deletions, restarts, cordons and failing bindings; then all that can run has run."""
    chance = random.Random(seed)

    async def something(stage, number):
        kind = chance.choice([*list(MODES), "alone"])
        said = {"sim_ignores_sigterm": chance.choice(["true", "false"])}
        if chance.random() < 0.6:
            said["priority"] = chance.choice((1, 50, 100))
        if kind == "alone":
            seconds = str(chance.randint(1, 20))
            await stage.create(pod(f"s{number}", "sleep", seconds, cpu="1", **said))
        else:
            resource, pods = MODES[kind]
            name, size = f"g{number}", chance.choice((2, 3, 5, 8))
            members = pods(name, size + chance.choice((0, 0, 2)), "sleep", str(chance.randint(1, 15)), **said)
            chance.shuffle(members)
            await stage.client.create(resource, group(resource, name, minMember=size))
            await stage.create(*members)
        if chance.random() < 0.2:
            victim = chance.choice(await stage.pods())["metadata"]["name"]
            with suppress(ApiError):
                await stage.client.delete(PODS, victim, "default")
        if chance.random() < 0.15:
            await stage.restart("scheduler")
        if chance.random() < 0.1:
            cordon = {"spec": {"unschedulable": chance.random() < 0.5}}
            await stage.client.patch(NODES, f"n-{chance.randrange(8)}", None, cordon)

    async def story(stage):
        await serve(stage)
        for number in range(40):
            await something(stage, number)
            await stage.clock.sleep(chance.random() * 5)
            used = [one["spec"]["nodeName"] for one in await stage.pods() if takes_room(one)]
            assert len(used) == len(set(used)), "every node has room for one"
        for number in range(8):
            await stage.client.patch(NODES, f"n-{number}", None, {"spec": {"unschedulable": None}})
        await stage.clock.sleep(2600)
        waiting = [one for one in await stage.pods() if one["status"]["phase"] == "Pending"]
        reasons = {one["status"]["conditions"][0]["message"].partition(" pod")[0] for one in waiting}
        assert reasons <= {"Fewer"}, "only members of groups of which too many were deleted"

    play(story, pools=EIGHT, wrap=lambda inner: Flaky(inner, "/binding"))


def takes_room(one):
    return one["spec"].get("nodeName") and one["status"].get("phase") not in ("Succeeded", "Failed")


def test_group_with_min_member_0_is_rejected():
    async def story(stage):
        await serve(stage)
        empty = group(COSCHEDULING_POD_GROUPS, "a", minMember=0)
        with pytest.raises(ApiError, match="minMember"):
            await stage.client.create(COSCHEDULING_POD_GROUPS, empty)

    play(story, pools=EIGHT)


def test_a_waiting_pod_that_leaves_its_group_is_placed_alone():
    async def story(stage):
        await serve(stage)
        resource = COSCHEDULING_POD_GROUPS
        for name in ("a", "b"):
            await stage.client.create(resource, group(resource, name, minMember=3))
        await stage.create(*coscheduled("a", 2), *coscheduled("b", 2))
        await stage.clock.sleep(3)
        await stage.client.patch(PODS, "a-0", "default", {"metadata": {"labels": {LABEL: None}}})
        await stage.clock.sleep(3)
        assert (await stage.pod("a-0"))["spec"]["nodeName"]
        await stage.client.patch(PODS, "a-1", "default", {"metadata": {"labels": {LABEL: "b"}}})
        await stage.clock.sleep(3)
        assert (await stage.pod("a-1"))["spec"]["nodeName"], "it makes the other group complete"
        assert await bound(stage, "b") == 2

    play(story, pools=EIGHT)
