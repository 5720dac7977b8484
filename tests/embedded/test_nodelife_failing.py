"""Nodes that fail, what a cluster shows of it, and what becomes of their pods."""

import asyncio

import pytest
from nodes_stage import condition, play, pod

from pykueue.api.resources import LEASES, NODES
from pykueue.kube.errors import ApiError

THREE = (
    "pools: [{name: n, count: 3, allocatable: {cpu: 4, memory: 8Gi, pods: 110},"
    " simulation: {startDelay: 1s, runTime: 2h}}]"
)
ALL = ("nodes", "scheduler", "controllers")


async def annotate(stage, node, **said):
    """Set or, with None, remove annotations `sim.pykueue.io/...` of a node."""
    changes = {f"sim.pykueue.io/{key.replace('_', '-')}": value for key, value in said.items()}
    await stage.client.patch(NODES, node, None, {"metadata": {"annotations": changes}})


async def node(stage, name="n-0"):
    return await stage.client.get(NODES, name)


async def taints(stage, name="n-0"):
    return {(one["key"], one["effect"]) for one in (await node(stage, name))["spec"].get("taints") or ()}


async def lease(stage, name="n-0"):
    return (await stage.client.get(LEASES, name, "kube-node-lease"))["spec"]


def on(name, pod_name="p", **options):
    return pod(pod_name, "sleep", "7200", nodeSelector={"kubernetes.io/hostname": name}, **options)


async def gone(stage, name):
    with pytest.raises(ApiError) as caught:
        await stage.pod(name)
    return caught.value.not_found


UNREACHABLE = {
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
}
NOT_READY = {("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")}


def test_every_node_holds_a_lease_that_lasts_a_day_and_is_renewed_four_times_in_it():
    async def story(stage):
        await stage.until(1)
        held = await stage.client.get(LEASES, "n-1", "kube-node-lease")
        assert held["spec"] == {
            "holderIdentity": "n-1",
            "leaseDurationSeconds": 86400,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }
        (owner,) = held["metadata"]["ownerReferences"]
        assert owner["uid"] == (await node(stage, "n-1"))["metadata"]["uid"]
        await stage.until(6 * 3600 - 1)
        assert (await lease(stage, "n-1"))["renewTime"] == "2026-01-01T00:00:00.000000Z"
        await stage.until(6 * 3600 + 1)
        assert (await lease(stage, "n-1"))["renewTime"] == "2026-01-01T06:00:00.000000Z"
        await stage.restart("nodes")
        await stage.until(6 * 3600 + 5)
        assert (await lease(stage, "n-1"))["renewTime"] == "2026-01-01T06:00:00.000000Z"
        await stage.until(2 * 86400)
        assert condition(await node(stage, "n-1"), "Ready") == ("True", "KubeletReady")

    play(story, pools=THREE, parts=ALL)


def test_deleted_lease_is_created_again_and_deleted_with_its_node():
    async def story(stage):
        await stage.until(1)
        await stage.client.delete(LEASES, "n-1", "kube-node-lease")
        await stage.until(2)
        assert (await lease(stage, "n-1"))["holderIdentity"] == "n-1"
        await stage.client.delete(NODES, "n-1")
        await stage.until(3)
        with pytest.raises(ApiError):
            await lease(stage, "n-1")

    play(story, pools=THREE, parts=ALL)


def test_node_that_stops_reporting_becomes_unknown_and_its_pods_are_evicted_after_five_minutes():
    async def story(stage):
        await stage.create(on("n-0"))
        await stage.until(10)
        assert condition(await stage.pod("p"), "Ready")[0] == "True"
        await annotate(stage, "n-0", fail="unreachable")
        await stage.until(11)
        assert (await lease(stage))["leaseDurationSeconds"] == 40
        await stage.until(59)
        assert condition(await node(stage), "Ready") == ("True", "KubeletReady")
        await stage.until(61)
        lost = await node(stage)
        assert condition(lost, "Ready") == ("Unknown", "NodeStatusUnknown")
        assert condition(lost, "DiskPressure") == ("Unknown", "NodeStatusUnknown")
        assert await taints(stage) == UNREACHABLE
        assert condition(await stage.pod("p"), "Ready")[0] == "False"
        assert ("NodeNotReady", "Node n-0 status is now: NodeNotReady") in await stage.events("n-0")
        assert ("NodeNotReady", "Node is not ready") in await stage.events("p")
        await stage.until(359)
        assert "deletionTimestamp" not in (await stage.pod("p"))["metadata"]
        await stage.until(361)
        evicted = await stage.pod("p")
        assert condition(evicted, "DisruptionTarget") == ("True", "DeletionByTaintManager")
        assert ("TaintManagerEviction", "Marking for deletion Pod default/p") in await stage.events("p")
        # The node agent does not see the deletion, so the pod stays.
        await stage.until(2000)
        stuck = await stage.pod("p")
        assert stuck["status"]["phase"] == "Running"
        assert stuck["metadata"]["deletionTimestamp"]

    play(story, pools=THREE, parts=ALL)


def test_node_that_reports_again_recovers_and_ends_its_deleted_pods():
    async def story(stage):
        await stage.create(on("n-0", "stays"), on("n-1", "goes"))
        await stage.until(10)
        for name in ("n-0", "n-1"):
            await annotate(stage, name, fail="unreachable")
        await stage.until(100)
        await annotate(stage, "n-0", fail=None)
        await stage.until(101)
        back = await node(stage)
        assert condition(back, "Ready") == ("True", "KubeletReady")
        assert condition(back, "MemoryPressure") == ("False", "KubeletHasSufficientMemory")
        assert await taints(stage) == set()
        assert (await lease(stage))["leaseDurationSeconds"] == 86400
        assert condition(await stage.pod("stays"), "Ready")[0] == "True"
        cancelled = ("TaintManagerEviction", "Cancelling deletion of Pod default/stays")
        assert cancelled in await stage.events("stays")
        assert ("NodeReady", "Node n-0 status is now: NodeReady") in await stage.events("n-0")
        await stage.until(500)
        await annotate(stage, "n-1", fail=None)
        await stage.until(502)
        assert await gone(stage, "goes")
        assert (await stage.pod("stays"))["status"]["phase"] == "Running"

    play(story, pools=THREE, parts=ALL)


def test_not_ready_node_still_terminates_its_pods():
    async def story(stage):
        await stage.create(on("n-0"))
        await stage.until(10)
        await annotate(stage, "n-0", fail="not-ready")
        await stage.until(12)
        assert condition(await node(stage), "Ready") == ("False", "KubeletNotReady")
        assert await taints(stage) == NOT_READY
        assert condition(await stage.pod("p"), "Ready")[0] == "False"
        writes = (await stage.pod("p"))["metadata"]["resourceVersion"]
        await stage.until(300)
        assert (await stage.pod("p"))["metadata"]["resourceVersion"] == writes
        await stage.until(315)
        assert await gone(stage, "p")

    play(story, pools=THREE, parts=ALL)


def test_a_crash_ends_what_ran_and_restarts_what_is_to_be_restarted():
    async def story(stage):
        await stage.create(on("n-0", "once"), on("n-0", "always", policy="Always"))
        await stage.until(10)
        await annotate(stage, "n-0", fail="crash")
        await stage.until(40)
        assert (await stage.pod("once"))["status"]["phase"] == "Running"
        await annotate(stage, "n-0", fail=None)
        await stage.until(45)
        once, always = await stage.pod("once"), await stage.pod("always")
        assert once["status"]["phase"] == "Failed"
        ended = once["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (255, "Unknown")
        assert ended["finishedAt"] == "2026-01-01T00:00:10Z"
        (container,) = always["status"]["containerStatuses"]
        assert container["restartCount"] == 1
        assert container["state"]["running"]["startedAt"] == "2026-01-01T00:00:40Z"
        # Less than 50 s passed: no controller reacted.
        assert condition(await node(stage), "Ready")[0] == "True"

    play(story, pools=THREE, parts=ALL)


def test_what_failed_stays_failed_when_everything_is_started_again():
    async def story(stage):
        await stage.create(on("n-0"))
        await stage.until(10)
        await annotate(stage, "n-0", fail="unreachable")
        await stage.until(100)
        await stage.restart("nodes", "scheduler", "controllers")
        await stage.until(359)
        assert "deletionTimestamp" not in (await stage.pod("p"))["metadata"]
        await stage.until(361)
        assert (await stage.pod("p"))["metadata"]["deletionTimestamp"]
        assert await taints(stage) == UNREACHABLE

    play(story, pools=THREE, parts=ALL)


def test_pods_say_themselves_how_long_they_stay_on_a_failed_node():
    async def story(stage):
        def tolerant(name, **more):
            keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            said = [{"key": key, "operator": "Exists", "effect": "NoExecute", **more} for key in keys]
            return on("n-0", name, tolerations=said)

        await stage.create(tolerant("forever"), tolerant("short", tolerationSeconds=30), on("n-0", "usual"))
        await stage.until(10)
        await annotate(stage, "n-0", fail="not-ready")
        await stage.until(39)
        assert len(await stage.pods()) == 3
        await stage.until(42)
        assert {one["metadata"]["name"] for one in await stage.pods()} == {"forever", "usual"}
        await stage.until(4000)
        assert {one["metadata"]["name"] for one in await stage.pods()} == {"forever"}

    play(story, pools=THREE, parts=ALL)


def test_taint_of_the_user_evicts_pods_that_do_not_tolerate_it():
    async def story(stage):
        toleration = {"key": "fire", "operator": "Equal", "value": "hot", "effect": "NoExecute"}
        await stage.create(
            on("n-0", "leaves"),
            on("n-0", "stays", tolerations=[toleration]),
            on("n-0", "later", tolerations=[{**toleration, "tolerationSeconds": 60}]),
            on("n-1", "elsewhere"),
        )
        await stage.until(10)
        taint = {"key": "fire", "value": "hot", "effect": "NoExecute"}
        await stage.client.patch(NODES, "n-0", None, {"spec": {"taints": [taint]}})
        await stage.until(12)
        assert await gone(stage, "leaves")
        await stage.until(69)
        assert (await stage.pod("later"))["status"]["phase"] == "Running"
        await stage.until(75)
        assert {one["metadata"]["name"] for one in await stage.pods()} == {"stays", "elsewhere"}
        assert await taints(stage) == {("fire", "NoExecute")}

    play(story, pools=THREE, parts=ALL)


def test_a_cordon_is_a_taint_too():
    async def story(stage):
        await stage.until(1)
        await stage.client.patch(NODES, "n-0", None, {"spec": {"unschedulable": True}})
        await stage.until(2)
        assert await taints(stage) == {("node.kubernetes.io/unschedulable", "NoSchedule")}
        await stage.client.patch(NODES, "n-0", None, {"spec": {"unschedulable": None}})
        await stage.until(3)
        assert await taints(stage) == set()

    play(story, pools=THREE, parts=ALL)


def test_pressure_keeps_pods_away():
    async def story(stage):
        await stage.until(1)
        pressed = {"type": "DiskPressure", "status": "True", "reason": "ItIsFull", "message": "full"}
        others = [one for one in (await node(stage))["status"]["conditions"] if one["type"] != "DiskPressure"]
        change = {"status": {"conditions": [*others, pressed]}}
        await stage.client.patch(NODES, "n-0", None, change, subresource="status")
        await stage.until(60)
        assert await taints(stage) == {("node.kubernetes.io/disk-pressure", "NoSchedule")}

    play(story, pools=THREE, parts=ALL)


def test_no_pod_is_evicted_when_every_node_fails():
    async def story(stage):
        await stage.create(on("n-0"))
        await stage.until(10)
        for name in ("n-0", "n-1", "n-2"):
            await annotate(stage, name, fail="unreachable")
        await stage.until(3000)
        assert condition(await node(stage), "Ready")[0] == "Unknown"
        assert await taints(stage) == {("node.kubernetes.io/unreachable", "NoSchedule")}
        assert "deletionTimestamp" not in (await stage.pod("p"))["metadata"]
        await annotate(stage, "n-2", fail=None)
        await stage.until(3020)
        assert await taints(stage, "n-0") | await taints(stage, "n-1") >= UNREACHABLE

    play(story, pools=THREE, parts=ALL)


def test_failed_nodes_lose_their_pods_one_in_ten_seconds():
    async def story(stage):
        for number in range(4):
            await stage.create(on(f"n-{number}", f"p-{number}"))
        await stage.until(10)
        for number in range(4):
            await annotate(stage, f"n-{number}", fail="unreachable")

        async def evicting():
            shown = [await taints(stage, f"n-{number}") for number in range(4)]
            return sum(("node.kubernetes.io/unreachable", "NoExecute") in one for one in shown)

        found = []
        for at in (61, 71, 81, 91):
            await stage.until(at)
            found.append(await evicting())
        assert found == [1, 2, 3, 4]

    play(story, pools=THREE.replace("count: 3", "count: 10"), parts=ALL)


def test_no_pod_is_evicted_in_a_small_zone_of_which_most_nodes_fail():
    async def story(stage):
        await stage.until(10)
        for number in range(3):
            await annotate(stage, f"n-{number}", fail="unreachable")
        await stage.until(300)
        shown = [await taints(stage, f"n-{number}") for number in range(3)]
        assert all(("node.kubernetes.io/unreachable", "NoSchedule") in one for one in shown)
        # One may have had its turn before the third one was missed.
        assert sum(("node.kubernetes.io/unreachable", "NoExecute") in one for one in shown) <= 1

    play(story, pools=THREE.replace("count: 3", "count: 5"), parts=ALL)


def test_failures_are_drawn_by_the_seed_and_end_by_themselves():
    pools = (
        "seed: 3\npools: [{name: n, count: 8, allocatable: {cpu: 4},"
        " life: {failEvery: 30m, failFor: 5m, failAs: not-ready}}]"
    )

    async def story(stage):
        changes = []

        async def follow():
            known = {}
            async for _, one in stage.client.watch(NODES, resource_version="0"):
                ready = condition(one, "Ready") if one.get("status", {}).get("conditions") else None
                name = one["metadata"].get("name")
                if ready and known.get(name) not in (None, ready):
                    changes.append((name, ready[0], stage.now))
                known[name] = ready or known.get(name)

        following = asyncio.create_task(follow())
        await stage.until(2 * 3600)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return changes

    changes = play(story, pools=pools, parts=ALL)
    failed = [(name, at) for name, ready, at in changes if ready == "False"]
    back = [(name, at) for name, ready, at in changes if ready == "True"]
    assert 10 <= len(failed) <= 60  # 8 nodes, 2 hours, one failure per node in about half an hour
    for name, at in back:
        began = max(since for other, since in failed if other == name and since < at)
        assert 299 <= at - began <= 302
    assert play(story, pools=pools, parts=ALL) == changes
