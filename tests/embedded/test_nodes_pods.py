"""The life of pods on simulated nodes, as a client of the API sees it."""

import asyncio

import pytest
from nodes_stage import SIM, Flaky, condition, play, pod, state

from pykueue.api.resources import EVENTS, NODES, PODS
from pykueue.kube.transport import MERGE_PATCH

DONE = ("terminated", 0)


def test_a_pod_is_bound_created_runs_and_completes():
    async def story(stage):
        await stage.create(pod("p", "sleep", "5"))
        await stage.until(60)
        seen = [
            (at, one["status"]["phase"], state(one), condition(one, "Ready"))
            for at, _, one in stage.seen
            if state(one)
        ]
        assert seen == [
            (0, "Pending", ("waiting", "ContainerCreating"), ("False", "ContainersNotReady")),
            (1, "Running", ("running", ""), ("True", "")),
            (6, "Succeeded", DONE, ("False", "PodCompleted")),
        ]
        last = stage.seen[-1][2]["status"]
        assert last["startTime"] == "2026-01-01T00:00:00Z"
        assert last["hostIP"] == "172.16.0.1"
        assert last["podIP"] == "10.0.0.1"
        (container,) = last["containerStatuses"]
        assert container["state"]["terminated"] == {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": "2026-01-01T00:00:01Z",
            "finishedAt": "2026-01-01T00:00:06Z",
        }
        assert condition(stage.seen[-1][2], "PodScheduled") == ("True", "")
        assert [reason for reason, _ in sorted(await stage.events("p"))] == [
            *("Created", "Pulled", "Scheduled", "Started")
        ]

    play(story)


def test_a_failing_pod_fails_with_its_exit_code():
    async def story(stage):
        await stage.create(pod("p", "sh", "-c", "sleep 2; exit 3"))
        await stage.until(60)
        last = await stage.pod("p")
        assert (last["status"]["phase"], state(last)) == ("Failed", ("terminated", 3))
        assert condition(last, "Ready") == ("False", "PodFailed")

    play(story)


def test_annotations_say_how_long_a_program_runs_and_how_it_ends():
    async def story(stage):
        await stage.create(
            pod("p", "python", "train.py", sim_start_delay="3s", sim_run_time="4s", sim_exit_code="7")
        )
        await stage.until(6.9)
        assert state(await stage.pod("p")) == ("running", "")
        await stage.until(7.1)
        assert state(await stage.pod("p")) == ("terminated", 7)

    play(story)


def test_invalid_annotation_is_reported_and_ignored():
    async def story(stage):
        await stage.create(pod("p", "sleep", "5", sim_run_time="soon"))
        await stage.until(60)
        assert state(await stage.pod("p")) == DONE
        told = [message for reason, message in await stage.events("p") if reason == "InvalidSimulation"]
        assert told == [
            f"annotation {SIM}run-time: 'soon' is neither a duration such as 10s, 500ms, 1m30s or forever, "
            "nor a range such as 1s-5s"
        ]

    play(story)


def test_failures_are_repeated_in_place_with_growing_delay():
    async def story(stage):
        await stage.create(pod("p", policy="OnFailure", sim_run_time="1s", sim_exit_code="1,1,1,0"))
        await stage.until(200)
        starts = []
        for at, _, one in stage.seen:
            (container,) = one["status"].get("containerStatuses") or [None]
            if (
                container
                and "running" in container["state"]
                and (at, container["restartCount"]) not in starts
            ):
                starts.append((at, container["restartCount"]))
        assert starts == [(1, 0), (2, 1), (13, 2), (34, 3)]
        last = await stage.pod("p")
        assert last["status"]["phase"] == "Succeeded"
        waiting = {state(one) for at, _, one in stage.seen if 3 <= at < 13}
        assert waiting == {("waiting", "CrashLoopBackOff")}
        assert {one["status"]["phase"] for at, _, one in stage.seen if 1 <= at < 35} == {"Running"}

    play(story)


def test_a_pod_meant_to_stay_is_started_again_even_after_success():
    async def story(stage):
        await stage.create(
            pod("again", "sleep", "1", policy="Always"), pod("server", "nginx", policy="Always")
        )
        await stage.until(100)
        assert (await stage.pod("again"))["status"]["containerStatuses"][0]["restartCount"] > 1
        server = await stage.pod("server")
        assert (state(server), condition(server, "Ready")) == (("running", ""), ("True", ""))

    play(story)


@pytest.mark.parametrize(
    ("fields", "ready_at"),
    [
        ({}, 1),
        ({"sim_ready_delay": "20s"}, 21),
        ({"readinessProbe": {"initialDelaySeconds": 5, "exec": {"command": ["true"]}}}, 6),
        ({"readinessProbe": {"successThreshold": 3, "exec": {"command": ["true"]}}}, 21),
    ],
)
def test_readiness_comes_when_said(fields, ready_at):
    async def story(stage):
        probe = {"readinessProbe": fields.pop("readinessProbe")} if "readinessProbe" in fields else {}
        container = {"name": "main", "image": "busybox", "command": ["sleep", "100"], **probe}
        await stage.create(pod("p", containers=[container], **fields))
        await stage.until(60)
        assert min(at for at, _, one in stage.seen if condition(one, "Ready") == ("True", "")) == ready_at
        assert min(at for at, _, one in stage.seen if one["status"]["phase"] == "Running") == 1

    play(story)


def test_readiness_gates_are_waited_for():
    async def story(stage):
        gate = {"conditionType": "example.com/lb"}
        await stage.create(pod("p", "sleep", "100", readinessGates=[gate]))
        await stage.until(10)
        assert condition(await stage.pod("p"), "Ready") == ("False", "ReadinessGatesNotReady")
        passed = [
            *(await stage.pod("p"))["status"]["conditions"],
            {"type": "example.com/lb", "status": "True"},
        ]
        await stage.client.patch(
            PODS, "p", "default", {"status": {"conditions": passed}}, subresource="status"
        )
        await stage.until(11)
        assert condition(await stage.pod("p"), "Ready") == ("True", "")
        assert condition(await stage.pod("p"), "example.com/lb") == ("True", "")

    play(story)


def named(name, *command, **fields):
    return {"name": name, "image": "busybox", "command": list(command), **fields}


def test_init_containers_run_one_after_the_other_beside_their_sidecars():
    async def story(stage):
        init = [
            named("first", "sleep", "2"),
            named("sidecar", "proxy", restartPolicy="Always"),
            named("second", "sleep", "3"),
        ]
        await stage.create(pod("p", "sleep", "4", initContainers=init))
        await stage.until(60)

        def at(name, wanted):
            return next(when for when, _, one in stage.seen if state(one, name) == wanted)

        assert at("first", ("running", "")) == 1
        assert at("sidecar", ("running", "")) == 3
        assert at("second", ("running", "")) == 3
        assert at("main", ("running", "")) == 6
        assert at("main", DONE) == at("sidecar", DONE) == 10
        assert (await stage.pod("p"))["status"]["phase"] == "Succeeded"
        early = next(one for when, _, one in stage.seen if when == 1)
        assert early["status"]["phase"] == "Pending"
        assert state(early) == ("waiting", "PodInitializing")
        assert condition(early, "Initialized") == ("False", "ContainersNotInitialized")

    play(story)


def test_a_failing_init_container_fails_a_pod_that_is_never_repeated():
    async def story(stage):
        await stage.create(
            pod("never", initContainers=[named("i", "exit", "4")]),
            pod("again", policy="OnFailure", initContainers=[named("i", "exit", "4")]),
        )
        await stage.until(60)
        never, again = await stage.pod("never"), await stage.pod("again")
        assert (never["status"]["phase"], state(never, "i")) == ("Failed", ("terminated", 4))
        assert (again["status"]["phase"], state(again, "i")) == ("Pending", ("waiting", "CrashLoopBackOff"))

    play(story)


def test_a_pod_past_its_deadline_is_stopped():
    async def story(stage):
        await stage.create(pod("p", "sleep", "100", activeDeadlineSeconds=5))
        await stage.until(60)
        last = (await stage.pod("p"))["status"]
        assert (last["phase"], last["reason"]) == ("Failed", "DeadlineExceeded")
        assert last["containerStatuses"][0]["state"]["terminated"]["finishedAt"] == "2026-01-01T00:00:05Z"

    play(story)


def last_state_and_end(stage, name):
    at, _, one = next(
        entry
        for entry in reversed(stage.seen)
        if entry[1] == "DELETED" and entry[2]["metadata"]["name"] == name
    )
    return at, one["status"]["phase"], state(one)


@pytest.mark.parametrize(
    ("fields", "grace", "expected"),
    [
        ({}, None, (10.1, "Failed", ("terminated", 143))),
        ({"sim_stop_delay": "3s"}, None, (13, "Failed", ("terminated", 143))),
        ({"sim_ignores_sigterm": "true"}, None, (40, "Failed", ("terminated", 137))),
        ({"sim_ignores_sigterm": "true"}, 5, (15, "Failed", ("terminated", 137))),
        (
            {"sim_ignores_sigterm": "true", "terminationGracePeriodSeconds": 2},
            None,
            (12, "Failed", ("terminated", 137)),
        ),
        ({"sim_stop_delay": "1m"}, None, (40, "Failed", ("terminated", 137))),
        ({"sim_stop_delay": "1m", "sim_run_time": "12s"}, None, (13, "Succeeded", DONE)),
        ({"sim_start_delay": "1m"}, None, (10, "Failed", ("terminated", 137))),
    ],
)
def test_a_deleted_pod_stops_in_its_own_time_and_goes(fields, grace, expected):
    async def story(stage):
        await stage.create(pod("p", "sleep", "100", **fields))
        await stage.until(10)
        await stage.client.delete(PODS, "p", "default", grace_period=grace)
        await stage.until(100)
        assert last_state_and_end(stage, "p") == expected

    play(story)


def test_a_second_shorter_order_counts():
    async def story(stage):
        await stage.create(pod("p", "sleep", "100", sim_ignores_sigterm="true"))
        await stage.until(10)
        await stage.client.delete(PODS, "p", "default")
        await stage.until(15)
        await stage.client.delete(PODS, "p", "default", grace_period=3)
        await stage.until(100)
        assert last_state_and_end(stage, "p") == (18, "Failed", ("terminated", 137))

    play(story)


def test_a_finalizer_keeps_the_ended_pod():
    async def story(stage):
        await stage.create(pod("p", "sleep", "100", finalizers=["example.com/count"]))
        await stage.until(10)
        await stage.client.delete(PODS, "p", "default")
        await stage.until(20)
        held = await stage.pod("p")
        assert (held["status"]["phase"], held["metadata"]["deletionGracePeriodSeconds"]) == ("Failed", 0)
        await stage.client.patch(PODS, "p", "default", {"metadata": {"finalizers": None}})
        await stage.until(21)
        assert await stage.pods() == []

    play(story)


def test_a_pod_deleted_by_force_goes_at_once_and_its_address_is_free():
    async def story(stage):
        await stage.create(pod("p", "sleep", "100"))
        await stage.until(10)
        await stage.client.delete(PODS, "p", "default", grace_period=0)
        assert await stage.pods() == []
        await stage.create(pod("p", "sleep", "1"))
        await stage.until(30)
        assert (await stage.pod("p"))["status"]["phase"] == "Succeeded"

    play(story)


def workers(count, **fields):
    said = {"sim_waits_for_siblings": str(count), "sim_run_time": "5s", "sim_start_delay": "1s-3s", **fields}
    return [pod(f"w{number:02}", "python", owner="job", **said) for number in range(count)]


def test_siblings_that_need_each_other_wait_until_all_run():
    async def story(stage):
        *most, last = workers(20)
        await stage.create(*most)
        await stage.until(1000)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Running"}
        await stage.create(last)
        await stage.until(1005.9)
        assert "Succeeded" not in {one["status"]["phase"] for one in await stage.pods()}
        await stage.until(1100)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}
        gathered = next(
            at
            for at, _, one in stage.seen
            if one["metadata"]["name"] == "w19" and state(one) == ("running", "")
        )
        ends = {at for at, _, one in stage.seen if one["status"]["phase"] == "Succeeded"}
        assert len(ends) == 1
        assert ends.pop() == pytest.approx(gathered + 5, abs=0.002)

    play(story)


def test_pod_that_starts_after_its_siblings_have_succeeded_ends():
    async def story(stage):
        *most, last = workers(3)
        for one in most:
            one["metadata"]["annotations"]["sim.pykueue.io/waits-for-siblings"] = "2"
        await stage.create(*most)
        await stage.until(100)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}
        await stage.create(last)
        await stage.until(200)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}

    play(story)


def test_pods_of_other_owners_are_no_siblings():
    async def story(stage):
        mine, other = workers(2)
        other["metadata"]["ownerReferences"][0]["uid"] = "another"
        await stage.create(mine, other)
        await stage.until(100)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Running"}

    play(story)


def outcome(stage):
    """How every pod ended: phase, restarts, seconds between start and end."""
    return {
        one["metadata"]["name"]: (
            one["status"]["phase"],
            one["status"]["containerStatuses"][0]["restartCount"],
            one["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"],
        )
        for _, _, one in stage.seen
        if one["status"]["phase"] in ("Succeeded", "Failed")
    }


def mixed():
    return [
        *workers(4),
        pod("short", "sleep", "3"),
        pod("failing", "exit", "2"),
        pod("repeated", policy="OnFailure", sim_run_time="2s", sim_exit_code="1,1,0"),
        pod("initial", "sleep", "2", initContainers=[named("i", "sleep", "4")]),
        pod("slow", "sleep", "1", sim_start_delay="6s", sim_ready_delay="1s"),
    ]


def close(left, right):
    """Whether two outcomes are the same, up to the whole seconds in which the API keeps times."""
    if left.keys() != right.keys():
        return False
    for name, (phase, restarts, end) in left.items():
        other_phase, other_restarts, other_end = right[name]
        if (phase, restarts) != (other_phase, other_restarts) or abs(
            int(end[-3:-1]) - int(other_end[-3:-1])
        ) > 2:
            return False
    return True


def undisturbed():
    async def story(stage):
        await stage.create(*mixed())
        await stage.until(50)
        return outcome(stage)

    return play(story)


@pytest.mark.parametrize("dead", [0.0, 2.5])
def test_run_killed_at_any_time_ends_like_an_undisturbed_one(dead):
    expected = undisturbed()
    assert len(expected) == 9
    for kill in range(1, 90, 4):
        at = kill / 5

        async def story(stage, at=at):
            await stage.create(*mixed())
            await stage.until(at)
            await stage.kill("nodes")
            await stage.clock.sleep(dead)
            stage.start("nodes")
            await stage.until(59)
            return outcome(stage)

        assert close(play(story), expected), f"killed at {at}"


def test_writes_that_fail_are_made_good():
    async def story(stage):
        await stage.create(*mixed())
        await stage.until(59)
        return outcome(stage)

    assert close(play(story, wrap=lambda inner: Flaky(inner, "/status")), undisturbed())


def test_killed_while_pods_stop_they_stop_all_the_same():
    async def story(stage):
        await stage.create(pod("p", "sleep", "100", sim_ignores_sigterm="true"))
        await stage.until(10)
        await stage.client.delete(PODS, "p", "default")
        await stage.until(20)
        await stage.restart("nodes")
        await stage.until(100)
        assert last_state_and_end(stage, "p") == (40, "Failed", ("terminated", 137))

    play(story)


def test_the_same_seed_gives_the_same_events():
    async def story(stage):
        await stage.create(*mixed())
        await stage.until(50)
        return [
            (at, type_, one["metadata"]["name"], one["metadata"]["resourceVersion"], one["status"])
            for at, type_, one in stage.seen
        ]

    assert play(story) == play(story)


def test_thousands_of_pods_need_no_tasks_of_their_own():
    simulation = "{startDelay: 1s-9s, runTime: 5m}"
    pools = f"pools: [{{name: n, count: 50, allocatable: {{pods: 110}}, simulation: {simulation}}}]"

    async def story(stage):
        await stage.create(*(pod(f"p{number}", "python") for number in range(1000)))
        await stage.until(100)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Running"}
        assert len(asyncio.all_tasks()) < 100
        addresses = {one["status"]["podIP"] for one in await stage.pods()}
        assert len(addresses) == 1000
        await stage.until(400)
        assert {one["status"]["phase"] for one in await stage.pods()} == {"Succeeded"}

    play(story, pools=pools, events=False)


def test_pods_of_a_node_that_is_gone_stand_still_until_it_is_back():
    async def story(stage):
        await stage.create(pod("p", "sleep", "5"))
        await stage.until(2)
        node = await stage.client.get(NODES, "n-0")
        await stage.client.delete(NODES, "n-0")
        await stage.until(30)
        assert (await stage.pod("p"))["status"]["phase"] == "Running"
        await stage.client.create(NODES, {**node, "metadata": {"name": "n-0"}})
        await stage.until(31)
        assert (await stage.pod("p"))["status"]["phase"] == "Succeeded"

    play(story)


def test_a_pod_bound_by_hand_runs_too():
    async def story(stage):
        await stage.create(pod("p", "sleep", "1", nodeName="n-0"))
        await stage.until(10)
        last = await stage.pod("p")
        assert (last["status"]["phase"], condition(last, "PodScheduled")) == ("Succeeded", ("True", ""))

    play(story, parts=("nodes",))


def test_the_conditions_of_others_are_left_alone():
    async def story(stage):
        await stage.create(pod("p", "sleep", "5"))
        await stage.until(2)
        marked = [
            *(await stage.pod("p"))["status"]["conditions"],
            {"type": "DisruptionTarget", "status": "True"},
        ]
        await stage.client.patch(
            PODS,
            "p",
            "default",
            {"status": {"conditions": marked}},
            content_type=MERGE_PATCH,
            subresource="status",
        )
        await stage.until(10)
        last = await stage.pod("p")
        assert (last["status"]["phase"], condition(last, "DisruptionTarget")) == ("Succeeded", ("True", ""))

    play(story)


def test_events_can_be_left_out():
    async def story(stage):
        await stage.create(pod("p", "sleep", "1"))
        await stage.until(10)
        assert [one["reason"] for one in (await stage.client.list(EVENTS)).items] == ["Scheduled"]

    play(story, events=False)
