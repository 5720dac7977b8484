"""Pending workloads of a queue in the visibility API of the embedded cluster."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_visibility_world import GROUP, KUEUE, World, in_world, workload

from pykueue.kube.transport import MERGE_PATCH


def names(items: list[dict[str, object]]) -> list[object]:
    return [one["metadata"]["name"] for one in items]  # type: ignore[index]


async def fill(world: World) -> None:
    """One that runs, and five that wait."""
    await world.submit(workload("running"))
    await world.pause()
    for name, queue, priority in (
        ("a", "left", None),
        ("b", "right", 5),
        ("c", "left", 5),
        ("d", "right", -1),
        ("e", "left", 0),
    ):
        await world.submit(workload(name, queue, priority))
        await world.pause()


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_pending_workloads_are_listed_in_order_with_their_positions(version: str) -> None:
    async def story(world: World) -> None:
        await fill(world)
        items = await world.waiting(version)
        assert names(items) == ["b", "c", "a", "e", "d"]
        assert [one["positionInClusterQueue"] for one in items] == [0, 1, 2, 3, 4]
        assert [(one["localQueueName"], one["positionInLocalQueue"]) for one in items] == [
            ("right", 0),
            ("left", 0),
            ("left", 1),
            ("left", 2),
            ("right", 1),
        ]
        assert [one["priority"] for one in items] == [5, 5, 0, 0, -1]
        assert set(items[0]["metadata"]) == {"name", "namespace", "creationTimestamp"}
        left = await world.waiting_locally("left", version)
        assert names(left) == ["c", "a", "e"]
        assert [one["positionInClusterQueue"] for one in left] == [1, 2, 3]
        assert [one["positionInLocalQueue"] for one in left] == [0, 1, 2]

    in_world(story)


def test_parts_of_the_list() -> None:
    async def story(world: World) -> None:
        await fill(world)
        assert names(await world.waiting(limit="2")) == ["b", "c"]
        assert names(await world.waiting(limit="2", offset="1")) == ["c", "a"]
        assert names(await world.waiting(offset="4")) == ["d"]
        assert names(await world.waiting(offset="9")) == []
        assert names(await world.waiting(limit="0", offset="-3")) == ["b", "c", "a", "e", "d"]
        assert names(await world.waiting(limit="-1")) == ["b", "c", "a", "e", "d"]
        (one,) = await world.waiting_locally("left", limit="1", offset="1")
        assert (one["metadata"]["name"], one["positionInLocalQueue"]) == ("a", 1)
        error = await world.refused(world.waiting(limit="many"))
        assert (error.code, error.message) == (400, "limit: 'many' is not a whole number")

    in_world(story)


def test_owners_are_named() -> None:
    async def story(world: World) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1", "controller": True}
        obj = workload("owned", cpu="2")
        obj["metadata"]["ownerReferences"] = [owner]
        await world.submit(obj)
        await world.pause()
        (item,) = await world.waiting()
        del owner["controller"]
        assert item["metadata"]["ownerReferences"] == [owner]

    in_world(story)


def test_queues_that_are_not_there_or_stopped_are_not_found() -> None:
    async def story(world: World) -> None:
        await fill(world)
        error = await world.refused(world.waiting(queue="none"))
        assert (error.code, error.reason) == (404, "NotFound")
        assert error.message == f'clusterqueue.{GROUP} "none" not found'
        error = await world.refused(world.waiting_locally("none"))
        assert error.message == f'localqueue.{GROUP} "none" not found'
        path = f"{KUEUE}/namespaces/default/localqueues/left"
        await world.request("PATCH", path, {"spec": {"stopPolicy": "Hold"}}, MERGE_PATCH)
        await world.pause()
        assert (await world.refused(world.waiting_locally("left"))).code == 404
        assert names(await world.waiting()) == ["b", "d"]

    in_world(story)


def test_only_this_can_be_asked() -> None:
    async def story(world: World) -> None:
        base = f"/apis/{GROUP}/v1beta2"
        for path in ("/clusterqueues", "/clusterqueues/cq", "/namespaces/default/localqueues/left/status"):
            assert (await world.refused(world.get(base + path))).code == 404
        path = f"{base}/clusterqueues/cq/pendingworkloads"
        assert (await world.refused(world.request("POST", path, {}))).code == 405

    in_world(story)


def test_roles_decide_who_may_look() -> None:
    async def story(world: World) -> None:
        joe = world.as_user("joe")
        error = await joe.refused(joe.waiting())
        assert error.code == 403
        assert 'cannot get resource "clusterqueues/pendingworkloads"' in error.message
        rules = [{"apiGroups": [GROUP], "resources": ["localqueues/pendingworkloads"], "verbs": ["get"]}]
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        meta = {"name": "looks"}
        group = "rbac.authorization.k8s.io"
        await world.request(
            "POST",
            f"{rbac}/roles",
            {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        )
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "looks"},
            "subjects": [{"kind": "User", "name": "joe", "apiGroup": group}],
        }
        await world.request("POST", f"{rbac}/rolebindings", binding)
        assert await joe.waiting_locally("left") == []
        assert (await joe.refused(joe.waiting())).code == 403

    in_world(story)


def test_the_group_is_discovered_and_described() -> None:
    async def story(world: World) -> None:
        discovery = world.server.pipeline.discovery
        groups = discovery.document("/apis")["groups"]
        (group,) = (one for one in groups if one["name"] == GROUP)
        assert group["preferredVersion"]["version"] == "v1beta2"
        assert [one["version"] for one in group["versions"]] == ["v1beta2", "v1beta1"]
        listed = discovery.document(f"/apis/{GROUP}/v1beta1")["resources"]
        assert {one["name"]: one["verbs"] for one in listed} == {
            "clusterqueues": [],
            "clusterqueues/pendingworkloads": ["get"],
            "localqueues": [],
            "localqueues/pendingworkloads": ["get"],
            "enginestates": ["get"],
            "pendingworkloads": ["get", "list"],
            "workloads/story": ["get"],
            "workloads/why": ["get"],
        }
        found = [
            one for one in discovery.aggregated(False, "v2")["items"] if one["metadata"]["name"] == GROUP
        ]
        assert [one["freshness"] for one in found[0]["versions"]] == ["Current", "Current"]
        place = discovery.document("/openapi/v3")["paths"][f"apis/{GROUP}/v1beta2"]["serverRelativeURL"]
        described = discovery.document(place.partition("?")[0])
        assert f"/apis/{GROUP}/v1beta2/clusterqueues/{{name}}/pendingworkloads" in described["paths"]
        service = await world.get(f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.{GROUP}")
        (condition,) = service["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")

    in_world(story)


@pytest.mark.parametrize("on", [True, False])
def test_the_gate_switches_it_off(on: bool) -> None:
    async def story(world: World) -> None:
        if on:
            await world.waiting()
        else:
            assert (await world.refused(world.waiting())).code == 404

    in_world(story, gates={"VisibilityOnDemand": on})


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    waiting=st.lists(
        st.tuples(st.sampled_from(["left", "right"]), st.integers(-2, 2), st.sampled_from([0.0, 0.5, 2.0])),
        min_size=2,
        max_size=8,
    ),
    strategy=st.sampled_from(["BestEffortFIFO", "StrictFIFO"]),
    seed=st.integers(0, 3),
)
def test_the_order_is_that_in_which_workloads_are_admitted(
    waiting: list[tuple[str, int, float]], strategy: str, seed: int
) -> None:
    async def story(world: World) -> None:
        await world.submit(workload("running"))
        await world.pause()
        order = list(range(len(waiting)))
        random.Random(seed).shuffle(order)
        for number in order:
            queue, priority, pause = waiting[number]
            await world.submit(workload(f"w{number}", queue, priority))
            await world.pause(pause)
        await world.pause()
        told = names(await world.waiting())
        assert len(told) == len(waiting)
        for name in told:
            (running,) = await world.admitted()
            await world.finish(running)
            await world.pause()
            assert await world.admitted() == [name]
        assert await world.waiting() == []

    in_world(story, strategy)
