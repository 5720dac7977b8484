"""Groups of Volcano: phases and conditions, tasks, queues, and groups that make themselves."""

from gangs_stage import EIGHT, bound, group, phase, play, serve, volcanic
from nodes_stage import condition, pod

from pykueue.api.resources import JOBS, PRIORITY_CLASSES
from pykueue.embedded.podgroups.definitions import VOLCANO_POD_GROUPS, VOLCANO_QUEUES


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
        assert said[-1] == "queue small would exceed its capability of cpu."
        assert await phase(stage, resource, "c") == "Pending"
        assert "not enqueued in queue nowhere" in (await stage.events("c-0"))[-1][1]
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
