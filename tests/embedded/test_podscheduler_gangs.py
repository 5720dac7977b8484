"""Pods that are placed as a group or not at all: what users see of groups, pods and queues."""

import random
from contextlib import suppress

import nodes_stage
import pytest
from nodes_stage import Flaky, condition, pod

from pykueue.embedded.podgroups.admission import webhooks
from pykueue.embedded.podgroups.definitions import (
    COSCHEDULING_POD_GROUPS,
    DEFAULT_QUEUE,
    NATIVE_POD_GROUPS,
    NATIVE_WORKLOADS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    definitions,
)
from pykueue.kube.errors import ApiError
from pykueue.kube.resources import JOBS, NODES, PODS, PRIORITY_CLASSES
from pykueue.kube.transport import JSON_PATCH

EIGHT = "pools: [{name: n, count: 8, allocatable: {cpu: 1, pods: 110}, simulation: {startDelay: 1s}}]"
LABEL = "scheduling.x-k8s.io/pod-group"
ANNOTATION = "scheduling.k8s.io/group-name"


def play(story, **options):
    """With all kinds of groups served."""
    return nodes_stage.play(story, feature_gates=("GenericWorkload",), **options)


async def serve(stage):
    """The kinds of both APIs, and the queue groups are in by default."""
    await stage.server.install_crds(definitions())
    await stage.client.create(VOLCANO_QUEUES, DEFAULT_QUEUE)
    # The scheduler looks for kinds that were not served from time to time.
    await stage.clock.sleep(6)


def group(resource, name, **spec):
    if resource is NATIVE_POD_GROUPS:
        spec = {"schedulingPolicy": {"gang": {"minCount": spec["minMember"]}}}
    return {
        "apiVersion": resource.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def coscheduled(name, count, *command, first=0, **options):
    """Pods that name their group by label."""
    labels = {LABEL: name, **options.pop("labels", {})}
    return [
        pod(f"{name}-{i}", *(command or ("sleep", "30")), cpu="1", labels=labels, **options)
        for i in range(first, first + count)
    ]


def volcanic(name, count, *command, first=0, tasks=(), annotations=None, **options):
    """Pods for Volcano that name their group by annotation."""
    found = []
    for i in range(first, first + count):
        one = pod(f"{name}-{i}", *(command or ("sleep", "30")), cpu="1", schedulerName="volcano", **options)
        one["metadata"]["annotations"] |= {ANNOTATION: name, **(annotations or {})}
        if tasks:
            one["metadata"]["annotations"]["volcano.sh/task-spec"] = tasks[i]
        found.append(one)
    return found


def native(name, count, *command, first=0, **options):
    """Pods that name their group in a field."""
    member = {"schedulingGroup": {"podGroupName": name}, **options}
    return [
        pod(f"{name}-{i}", *(command or ("sleep", "30")), cpu="1", **member)
        for i in range(first, first + count)
    ]


MODES = {
    "coscheduling": (COSCHEDULING_POD_GROUPS, coscheduled),
    "volcano": (VOLCANO_POD_GROUPS, volcanic),
    "native": (NATIVE_POD_GROUPS, native),
}


@pytest.fixture(params=MODES.values(), ids=MODES)
def mode(request):
    return request.param


async def bound(stage, name):
    """How many pods of a group have a node."""
    return sum(
        1
        for one in await stage.pods()
        if one["metadata"]["name"].rpartition("-")[0] == name and one["spec"].get("nodeName")
    )


async def phase(stage, resource, name):
    return (await stage.client.get(resource, name, "default")).get("status", {}).get("phase")


def never_a_part(stage, name, least):
    """Whether at the end of every moment none or at least `least` pods of the group had nodes."""
    counts = {}
    with_node = set()
    for at, type_, one in stage.seen:
        if one["metadata"]["name"].rpartition("-")[0] != name:
            continue
        key = one["metadata"]["uid"]
        if type_ != "DELETED" and one["spec"].get("nodeName"):
            with_node.add(key)
        counts[at] = len(with_node)
    return all(count == 0 or count >= least for count in counts.values())


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


def test_volcano_serves_minimums_before_what_is_above_them():
    """Of two groups that could take all, each gets its minimum (3.4: members above it come later)."""

    async def story(stage):
        await serve(stage)
        for name in ("a", "b"):
            await stage.client.create(VOLCANO_POD_GROUPS, group(VOLCANO_POD_GROUPS, name, minMember=4))
        await stage.create(*volcanic("a", 8), *volcanic("b", 4))
        await stage.clock.sleep(5)
        assert (await bound(stage, "a"), await bound(stage, "b")) == (4, 4)

    play(story, pools=EIGHT)


def test_a_volcano_group_goes_through_its_phases():
    async def story(stage):
        await serve(stage)
        resource = VOLCANO_POD_GROUPS
        await stage.client.create(resource, group(resource, "a", minMember=4))
        await stage.client.create(resource, group(resource, "b", minMember=6))
        await stage.clock.sleep(3)
        assert await phase(stage, resource, "a") == "Inqueue"
        await stage.create(*volcanic("a", 4, "sleep", "20"))
        await stage.clock.sleep(4)
        running = await stage.client.get(resource, "a", "default")
        assert running["spec"]["queue"] == "default"
        assert (running["status"]["phase"], running["status"]["running"]) == ("Running", 4)
        assert condition(running, "Scheduled") == ("True", "")
        (said,) = [one for one in running["status"]["conditions"] if one["type"] == "Scheduled"]
        assert said["message"] == "tasks in gang are ready to be scheduled"
        assert said["transitionID"]
        await stage.create(*volcanic("b", 4))
        await stage.clock.sleep(3)
        waiting = await stage.client.get(resource, "b", "default")
        assert condition(waiting, "Unschedulable") == ("True", "NotEnoughTasks")
        await stage.create(*volcanic("b", 2, first=4))
        await stage.clock.sleep(3)
        waiting = await stage.client.get(resource, "b", "default")
        assert waiting["status"]["phase"] == "Inqueue"
        assert condition(waiting, "Unschedulable") == ("True", "NotEnoughResources")
        (said,) = [one["message"] for one in waiting["status"]["conditions"]]
        assert said.startswith("6/6 tasks in gang unschedulable: only 4 of 6 fit: 0/8 nodes are available")
        await stage.clock.sleep(20)
        done = await stage.client.get(resource, "a", "default")
        assert (done["status"]["phase"], done["status"]["succeeded"]) == ("Completed", 4)
        assert condition(await stage.client.get(resource, "b", "default"), "Unschedulable")[0] == "False"

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


def test_a_native_group_tells_whether_it_is_scheduled():
    async def story(stage):
        await serve(stage)
        resource = NATIVE_POD_GROUPS
        await stage.create(*(pod(f"other-{i}", "sleep", "20", cpu="1") for i in range(5)))
        await stage.clock.sleep(1)
        await stage.client.create(resource, group(resource, "a", minMember=4))
        await stage.create(*native("a", 4))
        await stage.clock.sleep(3)
        waiting = await stage.client.get(resource, "a", "default")
        assert condition(waiting, "PodGroupScheduled") == ("False", "Unschedulable")
        await stage.clock.sleep(30)
        assert await bound(stage, "a") == 4
        placed = await stage.client.get(resource, "a", "default")
        assert condition(placed, "PodGroupScheduled") == ("True", "Scheduled")

    play(story, pools=EIGHT)


def test_a_native_group_stays_as_long_as_a_pod_uses_it():
    async def story(stage):
        await serve(stage)
        resource = NATIVE_POD_GROUPS
        await stage.client.create(resource, group(resource, "a", minMember=2))
        await stage.create(*native("a", 2, "sleep", "20"))
        await stage.clock.sleep(5)
        await stage.client.delete(resource, "a", "default")
        await stage.clock.sleep(5)
        leaving = await stage.client.get(resource, "a", "default")
        assert leaving["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
        await stage.clock.sleep(20)
        with pytest.raises(ApiError, match="not found"):
            await stage.client.get(resource, "a", "default")

    play(story, pools=EIGHT)


def test_a_native_group_is_made_from_a_template_that_is_there():
    async def story(stage):
        for webhook in webhooks(stage.server):
            stage.server.admission.register(webhook)
        resource = NATIVE_POD_GROUPS
        reference = {"workloadName": "w", "podGroupTemplateName": "t"}
        made = group(resource, "a", minMember=2)
        made["spec"]["podGroupTemplateRef"] = {"workload": reference}
        with pytest.raises(ApiError, match="workload w does not exist"):
            await stage.client.create(resource, made)
        workload = {
            "apiVersion": NATIVE_WORKLOADS.api_version,
            "kind": "Workload",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}]},
        }
        await stage.client.create(NATIVE_WORKLOADS, workload)
        await stage.client.create(resource, made)
        reference["podGroupTemplateName"] = "other"
        made["metadata"]["name"] = "b"
        with pytest.raises(ApiError, match="workload w has no pod group template other"):
            await stage.client.create(resource, made)
        grown = {"spec": {"podGroupTemplates": [{"name": "u", "schedulingPolicy": {"basic": {}}}]}}
        with pytest.raises(ApiError, match="immutable"):
            await stage.client.patch(NATIVE_WORKLOADS, "w", "default", grown)

    play(story, pools=EIGHT)


def test_a_basic_native_group_is_placed_pod_by_pod():
    async def story(stage):
        await serve(stage)
        loose = group(NATIVE_POD_GROUPS, "a", minMember=1)
        loose["spec"]["schedulingPolicy"] = {"basic": {}}
        await stage.client.create(NATIVE_POD_GROUPS, loose)
        await stage.create(*native("a", 10))
        await stage.clock.sleep(5)
        assert await bound(stage, "a") == 8

    play(story, pools=EIGHT)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({}, "must specify one of"),
        ({"basic": {}, "gang": {"minCount": 1}}, "must specify exactly one of"),
        ({"gang": {"minCount": 0}}, "must be greater than zero"),
    ],
)
def test_a_native_group_has_one_policy(policy, message):
    async def story(stage):
        wrong = group(NATIVE_POD_GROUPS, "a", minMember=1)
        wrong["spec"]["schedulingPolicy"] = policy
        with pytest.raises(ApiError, match=message):
            await stage.client.create(NATIVE_POD_GROUPS, wrong)
        template = {"name": "t", "schedulingPolicy": policy}
        workload = {"apiVersion": NATIVE_WORKLOADS.api_version, "kind": "Workload"}
        spec = {"podGroupTemplates": [template]}
        with pytest.raises(ApiError, match=message):
            await stage.client.create(
                NATIVE_WORKLOADS,
                {**workload, "metadata": {"name": "w", "namespace": "default"}, "spec": spec},
            )

    play(story, pools=EIGHT)


def test_each_task_has_its_minimum():
    tasks = ["worker"] * 6 + ["server"]

    async def story(stage):
        await serve(stage)
        spec = {"minMember": 4, "minTaskMember": {"worker": 3, "server": 1}}
        await stage.client.create(VOLCANO_POD_GROUPS, group(VOLCANO_POD_GROUPS, "a", **spec))
        await stage.create(*(pod(f"other-{i}", "sleep", "20", cpu="1") for i in range(4)))
        await stage.clock.sleep(1)
        await stage.create(*volcanic("a", 6, tasks=tasks))
        await stage.clock.sleep(3)
        assert await bound(stage, "a") == 0
        waiting = await stage.client.get(VOLCANO_POD_GROUPS, "a", "default")
        assert condition(waiting, "Unschedulable") == ("True", "NotEnoughPodsOfTask")
        await stage.create(*volcanic("a", 1, tasks=tasks, first=6))
        await stage.clock.sleep(3)
        assert await bound(stage, "a") == 4
        assert (await stage.pod("a-6"))["spec"].get("nodeName"), "the one server goes before further workers"

    play(story, pools=EIGHT)


def test_pods_for_volcano_without_a_group_get_one():
    """One per owner, with the minimum its annotation says (3.2)."""

    async def story(stage):
        await serve(stage)
        template = pod("x", "sleep", "30", cpu="1", schedulerName="volcano")
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "j",
                "namespace": "default",
                "annotations": {"scheduling.volcano.sh/group-min-member": "3"},
            },
            "spec": {
                "parallelism": 3,
                "completions": 3,
                "template": {"metadata": {}, "spec": template["spec"]},
            },
        }
        uid = (await stage.client.create(JOBS, job))["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True}
        members = [pod(f"j-{i}", "sleep", "30", cpu="1", schedulerName="volcano") for i in range(3)]
        for one in members:
            one["metadata"]["ownerReferences"] = [owner]
        await stage.create(*members[:2], pod("alone", "sleep", "30", cpu="1", schedulerName="volcano"))
        await stage.clock.sleep(5)
        made = await stage.client.get(VOLCANO_POD_GROUPS, f"podgroup-{uid}", "default")
        assert made["spec"]["minMember"] == 3
        assert made["metadata"]["ownerReferences"][0]["uid"] == uid
        assert (await bound(stage, "j"), bool((await stage.pod("alone"))["spec"].get("nodeName"))) == (
            0,
            True,
        )
        await stage.create(members[2])
        await stage.clock.sleep(3)
        assert await bound(stage, "j") == 3

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


def test_a_queue_lets_in_what_it_is_open_for_and_no_more_than_its_capability():
    async def story(stage):
        await serve(stage)
        resource = VOLCANO_POD_GROUPS
        small = {"apiVersion": VOLCANO_QUEUES.api_version, "kind": "Queue", "metadata": {"name": "small"}}
        await stage.client.create(VOLCANO_QUEUES, {**small, "spec": {"capability": {"cpu": "3"}}})
        await stage.client.create(resource, group(resource, "a", minMember=2, queue="small"))
        await stage.client.create(resource, group(resource, "b", minMember=2, queue="small"))
        await stage.client.create(resource, group(resource, "c", minMember=2, queue="nowhere"))
        await stage.create(*volcanic("a", 2, "sleep", "20"), *volcanic("b", 2), *volcanic("c", 2))
        await stage.clock.sleep(5)
        assert [await bound(stage, name) for name in "abc"] == [2, 0, 0]
        said = [message for _, message in await stage.events("b-0")]
        assert said[-1] == "queue small may have no more cpu: its capability is reached."
        assert await phase(stage, resource, "c") == "Pending"
        assert "not let into queue nowhere" in (await stage.events("c-0"))[-1][1]
        await stage.clock.sleep(40)
        assert await bound(stage, "b") == 2

    play(story, pools=EIGHT)


def test_groups_that_ask_for_more_than_there_is_stay_pending():
    """minResources beyond 1.2 times what the nodes have is not let in (3.4)."""

    async def story(stage):
        await serve(stage)
        resource = VOLCANO_POD_GROUPS
        for name, cpu in (("a", "5"), ("b", "5"), ("c", "10")):
            spec = {"minMember": 5, "minResources": {"cpu": cpu}}
            await stage.client.create(resource, group(resource, name, **spec))
            await stage.clock.sleep(2)
        phases = [await phase(stage, resource, name) for name in "abc"]
        assert phases == ["Inqueue", "Pending", "Pending"]

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


def test_a_more_important_group_makes_room_for_all_of_itself_or_for_nobody(mode):
    resource, pods = mode

    async def story(stage):
        await serve(stage)
        await stage.create(*(pod(f"low-{i}", "sleep", "1000", cpu="1", priority=1) for i in range(4)))
        await stage.create(*(pod(f"keep-{i}", "sleep", "1000", cpu="1", priority=100) for i in range(4)))
        await stage.clock.sleep(5)
        await stage.client.create(resource, group(resource, "big", minMember=5))
        await stage.create(*pods("big", 5, priority=50))
        await stage.clock.sleep(30)
        assert await bound(stage, "low") == 4, "five would not fit even then, so nobody is pushed aside"
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


def test_the_priority_class_of_a_group_decides_whose_turn_it_is():
    async def story(stage):
        await serve(stage)
        resource = VOLCANO_POD_GROUPS
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        await stage.client.create(PRIORITY_CLASSES, {**high, "metadata": {"name": "high"}})
        await stage.create(*(pod(f"w-{i}", "sleep", "10", cpu="1") for i in range(8)))
        await stage.client.create(resource, group(resource, "a", minMember=5))
        await stage.client.create(resource, group(resource, "z", minMember=5, priorityClassName="high"))
        await stage.create(*volcanic("a", 5), *volcanic("z", 5))
        await stage.clock.sleep(30)
        assert (await bound(stage, "a"), await bound(stage, "z")) == (0, 5)

    play(story, pools=EIGHT)


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


def test_a_group_of_nobody_is_refused():
    async def story(stage):
        await serve(stage)
        nobody = group(COSCHEDULING_POD_GROUPS, "a", minMember=0)
        with pytest.raises(ApiError, match="minMember"):
            await stage.client.create(COSCHEDULING_POD_GROUPS, nobody)

    play(story, pools=EIGHT)
