"""Pools that follow their declaration, and nodes that are taken back."""

import pytest
from nodes_stage import condition, play, pod

from pykueue.api.resources import CONFIG_MAPS, LEASES, NODES, POD_DISRUPTION_BUDGETS
from pykueue.embedded.nodes.scaling import declare_default
from pykueue.kube.errors import ApiError

ALL = ("nodes", "scheduler", "controllers", "pools")
SIMULATION = "simulation: {startDelay: 1s, runTime: 10h}"


def pools(count, life="", more=""):
    said = f", life: {{{life}}}" if life else ""
    first = f"name: n, count: {count}, allocatable: {{cpu: 4, pods: 110}}, {SIMULATION}{said}"
    return f"seed: 5\npools: [{{{first}}}{more}]"


async def names(stage):
    return {one["metadata"]["name"] for one in (await stage.client.list(NODES)).items}


def on(name, pod_name="p", **options):
    return pod(pod_name, nodeSelector={"kubernetes.io/hostname": name}, sim_run_time="forever", **options)


async def edit(stage, old, new):
    """As `kubectl edit` would: one piece of the declaration's text is replaced."""
    found = await stage.client.get(CONFIG_MAPS, "node-pools", "kube-system")
    text = found["data"]["pools.yaml"]
    assert old in text, text
    change = {"data": {"pools.yaml": text.replace(old, new)}}
    await stage.client.patch(CONFIG_MAPS, "node-pools", "kube-system", change)


def test_the_declaration_is_kept_as_it_was_given():
    async def story(stage):
        await stage.declare_pools(pools(2, "reclaimEvery: 2h, replaceAfter: 1m"))
        found = await stage.client.get(CONFIG_MAPS, "node-pools", "kube-system")
        assert found["data"]["pools.yaml"] == (
            "seed: '5'\n"
            "pools:\n"
            "- name: n\n"
            "  allocatable:\n"
            "    cpu: 4\n"
            "    pods: 110\n"
            "  count: 2\n"
            "  simulation:\n"
            "    startDelay: 1s\n"
            "    runTime: 10h\n"
            "  life:\n"
            "    reclaimEvery: 2h\n"
            "    replaceAfter: 1m\n"
        )

    play(story, parts=())


def test_a_pool_grows():
    async def story(stage):
        await stage.declare_pools(pools(2))
        await stage.until(5)
        await edit(stage, "count: 2", "count: 4")
        await stage.until(10)
        assert await names(stage) == {"n-0", "n-1", "n-2", "n-3"}
        assert condition(await stage.client.get(NODES, "n-3"), "Ready")[0] == "True"

    play(story, pools="pools: []", parts=ALL)


def test_a_pool_shrinks_by_draining_its_last_nodes():
    async def story(stage):
        await stage.declare_pools(pools(3))
        await stage.create(on("n-1", "stays"), on("n-2", "goes", sim_stop_delay="10s"))
        await stage.until(10)
        await edit(stage, "count: 3", "count: 2")
        await stage.until(12)
        leaving = await stage.client.get(NODES, "n-2")
        assert [one["key"] for one in leaving["spec"]["taints"]] == ["sim.pykueue.io/removed"]
        goes = await stage.pod("goes")
        assert goes["metadata"]["deletionTimestamp"]
        assert condition(goes, "DisruptionTarget") == ("True", "EvictionByEvictionAPI")
        await stage.until(26)
        assert await names(stage) == {"n-0", "n-1"}
        assert [one["metadata"]["name"] for one in await stage.pods()] == ["stays"]

    play(story, pools="pools: []", parts=ALL)


def test_a_budget_holds_up_the_shrinking_and_growing_again_ends_it():
    async def story(stage):
        await stage.declare_pools(pools(2))
        await stage.create(on("n-1", labels={"app": "a"}))
        await stage.client.create(
            POD_DISRUPTION_BUDGETS,
            {
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1},
            },
        )
        await stage.until(10)
        await edit(stage, "count: 2", "count: 1")
        await stage.until(60)
        await stage.restart("pools")
        await stage.until(100)
        assert await names(stage) == {"n-0", "n-1"}
        await edit(stage, "count: 1", "count: 2")
        await stage.until(110)
        assert not (await stage.client.get(NODES, "n-1"))["spec"].get("taints")
        assert (await stage.pod("p"))["status"]["phase"] == "Running"
        await edit(stage, "count: 2", "count: 1")
        await stage.until(120)
        await stage.client.delete(POD_DISRUPTION_BUDGETS, "b", "default")
        await stage.until(135)
        assert await names(stage) == {"n-0"}

    play(story, pools="pools: []", parts=ALL)


def test_what_a_pool_no_longer_says_is_taken_away_and_what_others_said_stays():
    def labelled(labels, life=""):
        said = f"labels: {{{labels}}}{life}"
        return f"pools: [{{name: n, count: 1, allocatable: {{cpu: 1}}, {said}}}]"

    async def seen(stage):
        meta = (await stage.client.get(NODES, "n-0"))["metadata"]
        return meta["labels"].get("a"), meta["labels"].get("b"), set(meta["annotations"])

    async def story(stage):
        await stage.declare_pools(labelled("a: x, b: y", ", life: {reclaimEvery: 300d, failEvery: 300d}"))
        mine = {"sim.pykueue.io/run-time": "5s"}
        change = {"metadata": {"labels": {"b": "mine"}, "annotations": mine}}
        await stage.client.patch(NODES, "n-0", None, change)
        await stage.until(5)
        await edit(stage, "    reclaimEvery: 300d\n", "")
        await stage.until(10)
        expected = {"sim.pykueue.io/run-time", "sim.pykueue.io/fail-every"}
        assert await seen(stage) == ("x", "y", expected)
        await stage.client.patch(NODES, "n-0", None, {"metadata": {"labels": {"b": "mine"}}})
        await stage.kill("pools")
        await stage.declare_pools(labelled("c: z"))
        assert await seen(stage) == (None, "mine", {"sim.pykueue.io/run-time"})

    play(story, pools="pools: []", parts=ALL)


def test_pool_that_is_no_longer_declared_is_removed_and_other_nodes_stay():
    async def story(stage):
        await stage.declare_pools(pools(1, more=", {name: other, count: 2, allocatable: {cpu: 1}}"))
        await stage.client.create(NODES, {"metadata": {"name": "by-hand-0"}, "status": {"allocatable": {}}})
        await stage.until(5)
        await stage.declare_pools(pools(1))
        await stage.until(15)
        assert await names(stage) == {"n-0", "by-hand-0"}

    play(story, pools="pools: []", parts=ALL)


def test_a_declaration_that_cannot_be_used_changes_nothing_and_says_why():
    async def story(stage):
        await stage.declare_pools(pools(2))
        await stage.until(5)
        await edit(stage, "count: 2", "count: many")
        await stage.until(10)
        assert await names(stage) == {"n-0", "n-1"}
        ((reason, message),) = await stage.events("node-pools")
        assert reason == "InvalidNodePools"
        assert 'pools.yaml: pools[0].count: "many" is not accepted' in message

    play(story, pools="pools: []", parts=ALL)


def test_pool_of_a_runtime_that_is_not_enabled_is_rejected():
    async def story(stage):
        await stage.declare_pools(pools(2))
        await stage.until(5)
        await edit(stage, "count: 2", "count: 2\n  runtime: process")
        await stage.until(10)
        ((reason, message),) = await stage.events("node-pools")
        assert reason == "InvalidNodePools"
        assert "pool n: runtime process must be in the file" in message

    play(story, pools="pools: []", parts=ALL)


def test_a_node_of_a_runtime_that_is_not_here_is_found_out():
    async def story(stage):
        said = {"pykueue.io/runtime": "process"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        node = {
            "metadata": {"name": "p-0", "annotations": said},
            "status": {"allocatable": {"cpu": "1"}, "conditions": [ready]},
        }
        await stage.client.create(NODES, node)
        lease = {
            "metadata": {"name": "p-0", "namespace": "kube-node-lease"},
            "spec": {"leaseDurationSeconds": 86400, "renewTime": "2026-01-01T00:00:00.000000Z"},
        }
        await stage.client.create(LEASES, lease)
        await stage.until(45)
        assert condition(await stage.client.get(NODES, "p-0"), "Ready")[0] == "True"
        await stage.until(55)
        lost = condition(await stage.client.get(NODES, "p-0"), "Ready")
        assert lost == ("Unknown", "NodeStatusUnknown")

    play(story, pools="pools: []", parts=ALL)


def test_deleted_node_is_created_again_only_if_its_pool_has_replace_after():
    async def story(stage):
        await stage.declare_pools(
            pools(1, more=", {name: spot, count: 1, allocatable: {cpu: 1}, life: {replaceAfter: 30s}}")
        )
        await stage.until(5)
        old = await stage.client.get(NODES, "spot-0")
        for name in ("n-0", "spot-0"):
            await stage.client.delete(NODES, name)
        await stage.until(30)
        assert await names(stage) == set()
        await stage.until(100)
        assert await names(stage) == {"spot-0"}
        assert (await stage.client.get(NODES, "spot-0"))["metadata"]["uid"] != old["metadata"]["uid"]
        await stage.restart("pools")
        await stage.until(110)
        assert await names(stage) == {"n-0", "spot-0"}

    play(story, pools="pools: []", parts=ALL)


def test_reclaimed_node_ends_its_pods_and_is_deleted():
    async def story(stage):
        await stage.declare_pools(pools(2, "reclaimNotice: 20s, replaceAfter: 1m"))
        await stage.create(
            on("n-0", "obeys", sim_stop_delay="5s"),
            on("n-0", "stubborn", sim_ignores_sigterm="true"),
            on("n-0", "quick", sim_ignores_sigterm="true", terminationGracePeriodSeconds=2),
        )
        await stage.until(10)
        change = {"metadata": {"annotations": {"sim.pykueue.io/reclaim": "true"}}}
        await stage.client.patch(NODES, "n-0", None, change)
        await stage.until(11)
        node = await stage.client.get(NODES, "n-0")
        assert condition(node, "Ready") == ("False", "KubeletNotReady")
        assert "sim.pykueue.io/reclaimed" in {one["key"] for one in node["spec"]["taints"]}
        assert ("NodeReclaimed", "Node n-0 is taken back in 20 s") in await stage.events("n-0")
        await stage.until(16)
        obeys = await stage.pod("obeys")
        assert (obeys["status"]["phase"], obeys["status"]["reason"]) == ("Failed", "Terminated")
        assert condition(obeys, "DisruptionTarget") == ("True", "TerminationByKubelet")
        assert obeys["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
        assert (await stage.pod("quick"))["status"]["phase"] == "Failed"
        assert (await stage.pod("stubborn"))["status"]["phase"] == "Running"
        await stage.until(30)
        stubborn = await stage.pod("stubborn")
        assert stubborn["status"]["phase"] == "Failed"
        assert stubborn["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        await stage.until(31)
        assert await names(stage) == {"n-1"}
        await stage.until(95)
        assert await names(stage) == {"n-0", "n-1"}
        # Annotations of the old node are not those of its successor.
        await stage.until(300)
        assert condition(await stage.client.get(NODES, "n-0"), "Ready")[0] == "True"
        with pytest.raises(ApiError):
            await stage.pod("obeys")

    play(story, pools="pools: []", parts=ALL)


def test_a_reclaim_goes_on_after_a_restart_in_the_middle_of_it():
    async def story(stage):
        await stage.declare_pools(pools(1, "reclaimNotice: 30s"))
        await stage.create(on("n-0", sim_stop_delay="20s"))
        await stage.until(10)
        change = {"metadata": {"annotations": {"sim.pykueue.io/reclaim": "true"}}}
        await stage.client.patch(NODES, "n-0", None, change)
        await stage.until(15)
        await stage.restart("nodes", "controllers", "scheduler", "pools")
        await stage.until(32)
        ended = await stage.pod("p")
        assert ended["status"]["reason"] == "Terminated"
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] == (
            "2026-01-01T00:00:30Z"
        )
        await stage.until(41)
        assert await names(stage) == set()

    play(story, pools="pools: []", parts=ALL)


def test_spot_nodes_are_taken_back_by_the_seed_and_replaced():
    async def story(stage):
        await stage.declare_pools(pools(6, "reclaimEvery: 30m, reclaimNotice: 30s, replaceAfter: 1m-3m"))
        seen = {}
        for minute in range(1, 121):
            await stage.until(60 * minute)
            for node in (await stage.client.list(NODES)).items:
                seen.setdefault(node["metadata"]["uid"], (node["metadata"]["name"], minute))
        assert len(await names(stage)) >= 4
        return list(seen.values())

    found = play(story, pools="pools: []", parts=ALL)
    # 6 nodes of half an hour each, over two hours
    assert 15 <= len(found) <= 40
    assert play(story, pools="pools: []", parts=ALL) == found


def test_new_cluster_without_a_declaration_gets_the_default_nodes_once():
    async def story(stage):
        assert await declare_default(stage.server.transport(), stage.clock)
        await stage.until(5)
        assert await names(stage) == {"node-0", "node-1", "node-2"}
        assert not await declare_default(stage.server.transport(), stage.clock)
        await edit(stage, "count: 3", "count: 0")
        await stage.until(30)
        assert await names(stage) == set()
        assert not await declare_default(stage.server.transport(), stage.clock)

    play(story, pools="pools: []", parts=ALL)


@pytest.mark.parametrize("text", ["pools: []", pools(1)])
def test_cluster_with_a_declaration_or_nodes_gets_no_default_nodes(text):
    async def story(stage):
        await stage.declare_pools(text)
        before = await names(stage)
        assert not await declare_default(stage.server.transport(), stage.clock)
        assert await names(stage) == before

    play(story, parts=())
