"""One Job per topology domain (docs/reference/cluster-workloads.md 2.11)."""

from __future__ import annotations

from jobset_world import World, racks, replicated, tell

from pykueue.api.resources import NODES, PODS

EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
BY_NODE_SELECTOR = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}


async def racks_of(world: World, job: str) -> list[str]:
    nodes = {n["metadata"]["name"]: n["metadata"]["labels"] for n in (await world.client.list(NODES)).items}
    placed = [pod["spec"].get("nodeName") for pod in await world.pods(job)]
    return [nodes[name]["rack"] if name else "" for name in placed]


def test_each_job_has_a_rack_of_its_own() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 3, 4), annotations=EXCLUSIVE)
        await world.wait(60)
        taken = [await racks_of(world, f"js-a-{index}") for index in range(3)]
        assert all(len(of_job) == 4 and len(set(of_job)) == 1 for of_job in taken), taken
        assert len({of_job[0] for of_job in taken}) == 3
        follower = (await world.pods("js-a-0"))[1]
        assert follower["spec"]["nodeSelector"] == {"rack": taken[0][0]}

    tell(story, racks(4, 2))


def test_followers_are_not_created_before_the_leader_has_its_place() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 3, 2), annotations=EXCLUSIVE)
        await world.wait(60)
        counts = sorted([len(await world.pods(f"js-a-{index}")) for index in range(3)])
        assert counts == [1, 2, 2], "two racks for three Jobs: the third has its first pod only"
        reasons = {reason for index in range(3) for _, reason, _ in await world.events(f"js-a-{index}")}
        assert "FailedCreate" in reasons

    tell(story, racks(2, 2))


def test_only_the_replicated_job_that_says_so_is_placed_alone() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("a", 2, 2, annotations=EXCLUSIVE),
            replicated("b", 1, 2, pod={"nodeSelector": {"rack": "r2"}}),
        )
        await world.wait(60)
        assert {tuple(set(await racks_of(world, f"js-a-{n}"))) for n in range(2)} == {("r0",), ("r1",)}
        assert await world.running("js-b-0") == 2
        assert "affinity" not in (await world.pods("js-b-0"))[0]["spec"]

    tell(story, racks(3, 2))


def test_pods_outside_their_leaders_rack_go_and_come_back_inside() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 1, 3, backoffLimit=6), annotations=EXCLUSIVE)
        await world.wait(30)
        (home,) = set(await racks_of(world, "js-a-0"))
        for node in (await world.client.list(NODES, label_selector=f"rack={home}")).items:
            moved = {"metadata": {"labels": {"rack": "moved"}}}
            await world.client.patch(NODES, node["metadata"]["name"], None, moved)
        follower = (await world.pods("js-a-0"))[1]
        await world.client.delete(PODS, follower["metadata"]["name"], "default")
        reasons: set[str] = set()
        for _ in range(60):
            await world.wait(0.5)
            for pod in (await world.client.list(PODS, "default")).items:
                reasons.update(c.get("reason") or "" for c in pod["status"].get("conditions") or ())
        assert "ExclusivePlacementViolation" in reasons
        await world.wait(120)
        assert await racks_of(world, "js-a-0") == ["moved"] * 3
        assert (await world.pods("js-a-0"))[2]["spec"]["nodeSelector"] == {"rack": "moved"}

    tell(story, racks(2, 3))


def test_by_node_selector_nodes_are_prepared_beforehand() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 2), annotations={**EXCLUSIVE, **BY_NODE_SELECTOR})
        await world.wait(10)
        (pod,) = await world.pods("js-a-1")
        selector = {"alpha.jobset.sigs.k8s.io/namespaced-job": "default_js-a-1"}
        assert pod["spec"]["nodeSelector"] == selector
        toleration = {"key": "alpha.jobset.sigs.k8s.io/no-schedule", "operator": "Exists"}
        assert toleration in pod["spec"]["tolerations"]
        assert "affinity" not in pod["spec"]
        assert await world.running() == 0
        node = (await world.client.list(NODES)).items[0]["metadata"]["name"]
        await world.client.patch(NODES, node, None, {"metadata": {"labels": selector}})
        await world.wait(30)
        assert (await world.pods("js-a-1"))[0]["spec"]["nodeName"] == node

    tell(story)
