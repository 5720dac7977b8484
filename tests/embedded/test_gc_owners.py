"""The garbage collector: what goes with its owner, what stays, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from jobcontroller_cluster import Cluster, Object, story

from pykueue.api.resources import CONFIG_MAPS, CRDS, NODES, SERVICES, Resource

WIDGETS = Resource("example.com", "v1", "widgets", "Widget", True)


def owner(obj: Object, *, blocks: bool = False) -> Object:
    reference = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
    }
    return {**reference, "blockOwnerDeletion": True} if blocks else reference


async def config_map(
    cluster: Cluster, name: str, *owners: Object, namespace: str = "default", **metadata: Any
) -> Object:
    if owners:
        metadata["ownerReferences"] = list(owners)
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **metadata},
    }
    return await cluster.client.create(CONFIG_MAPS, obj)


async def there(cluster: Cluster, *names: str) -> list[str]:
    """Which of the config maps exist."""
    return [name for name in names if await cluster.exists(CONFIG_MAPS, name)]


def test_background_deletion_takes_dependents_and_theirs_along() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        b = await config_map(cluster, "b", owner(a))
        await config_map(cluster, "c", owner(b))
        await config_map(cluster, "free")
        await cluster.wait(1)
        assert await there(cluster, "a", "b", "c", "free") == ["a", "b", "c", "free"]
        await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Background")
        assert not await cluster.exists(CONFIG_MAPS, "a")
        await cluster.wait(1)
        assert await there(cluster, "b", "c", "free") == ["free"]

    story(tell)


def test_a_dependent_with_another_real_owner_only_loses_the_dangling_reference() -> None:
    async def tell(cluster: Cluster) -> None:
        a, b = await config_map(cluster, "a"), await config_map(cluster, "b")
        await config_map(cluster, "shared", owner(a), owner(b))
        await cluster.client.delete(CONFIG_MAPS, "a", "default")
        await cluster.wait(1)
        shared = await cluster.client.get(CONFIG_MAPS, "shared", "default")
        assert shared["metadata"]["ownerReferences"] == [owner(b)]
        await cluster.client.delete(CONFIG_MAPS, "b", "default")
        await cluster.wait(1)
        assert await there(cluster, "shared") == []

    story(tell)


def test_orphan_deletion_leaves_dependents_without_the_reference() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        await config_map(cluster, "b", owner(a))
        await cluster.wait(1)
        marked = await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Orphan")
        assert marked["metadata"]["finalizers"] == ["orphan"]
        await cluster.wait(1)
        assert await there(cluster, "a", "b") == ["b"]
        b = await cluster.client.get(CONFIG_MAPS, "b", "default")
        assert "ownerReferences" not in b["metadata"]

    story(tell)


def test_foreground_deletion_waits_for_dependents_that_block_and_only_for_those() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        await config_map(cluster, "blocks", owner(a, blocks=True), finalizers=["example.com/hold"])
        await config_map(cluster, "trails", owner(a), finalizers=["example.com/hold"])
        await cluster.wait(1)
        await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Foreground")
        await cluster.wait(1)
        held = await cluster.client.get(CONFIG_MAPS, "a", "default")
        assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
        for name in ("blocks", "trails"):
            dependent = await cluster.client.get(CONFIG_MAPS, name, "default")
            assert "deletionTimestamp" in dependent["metadata"]
        await cluster.client.patch(CONFIG_MAPS, "blocks", "default", {"metadata": {"finalizers": None}})
        await cluster.wait(1)
        assert await there(cluster, "a", "blocks", "trails") == ["trails"]

    story(tell)


def test_foreground_deletion_goes_down_the_whole_tree_leaves_first() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        b = await config_map(cluster, "b", owner(a, blocks=True))
        await config_map(cluster, "c", owner(b, blocks=True), finalizers=["example.com/hold"])
        await cluster.wait(1)
        await cluster.client.delete(CONFIG_MAPS, "a", "default", propagation="Foreground")
        await cluster.wait(1)
        assert await there(cluster, "a", "b", "c") == ["a", "b", "c"]
        await cluster.client.patch(CONFIG_MAPS, "c", "default", {"metadata": {"finalizers": None}})
        await cluster.wait(1)
        assert await there(cluster, "a", "b", "c") == []

    story(tell)


def test_an_owner_of_the_same_name_but_another_uid_is_not_the_owner() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        await config_map(cluster, "b", {**owner(a), "uid": "00000000-0000-0000-0000-000000000000"})
        await cluster.wait(1)
        assert await there(cluster, "a", "b") == ["a"]

    story(tell)


def test_an_owner_in_another_namespace_counts_as_absent_and_is_reported() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a", namespace="kube-system")
        await config_map(cluster, "b", owner(a))
        await cluster.wait(1)
        assert await there(cluster, "b") == []
        assert [reason for _, reason, _ in await cluster.events("b")] == ["OwnerRefInvalidNamespace"]

    story(tell)


def test_a_cluster_scoped_dependent_of_a_namespaced_owner_is_left_alone() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "ownerReferences": [owner(a)]},
        }
        await cluster.client.create(NODES, node)
        await cluster.client.delete(CONFIG_MAPS, "a", "default")
        await cluster.wait(1)
        assert await cluster.exists(NODES, "n", None)

    story(tell)


def test_owners_and_dependents_of_custom_kinds_are_collected_like_all_others() -> None:
    async def tell(cluster: Cluster) -> None:
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                    }
                ],
            },
        }
        widget: Object = {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "w", "namespace": "default"},
        }
        unknown = {**owner({**widget, "metadata": {"name": "w", "uid": "not-yet"}})}
        await config_map(cluster, "early", unknown)
        await cluster.wait(1)
        assert await there(cluster, "early") == ["early"], "of an unknown kind nothing follows"
        await cluster.client.create(CRDS, definition)
        await cluster.wait(1)
        assert await there(cluster, "early") == []
        created = await cluster.client.create(WIDGETS, widget)
        await config_map(cluster, "mine", owner(created))
        await cluster.wait(1)
        assert await there(cluster, "mine") == ["mine"]
        await cluster.client.delete(WIDGETS, "w", "default")
        await cluster.wait(1)
        assert await there(cluster, "mine") == []

    story(tell)


def test_what_became_garbage_while_the_collector_was_down_goes_when_it_is_back() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        b = await config_map(cluster, "b")
        c = await config_map(cluster, "c")
        await config_map(cluster, "of-a", owner(a))
        await config_map(cluster, "of-b", owner(b, blocks=True))
        await config_map(cluster, "of-c", owner(c))
        await cluster.wait(1)
        await cluster.stop_controllers()
        await cluster.client.delete(CONFIG_MAPS, "a", "default")
        await cluster.client.delete(CONFIG_MAPS, "b", "default", propagation="Foreground")
        await cluster.client.delete(CONFIG_MAPS, "c", "default", propagation="Orphan")
        await cluster.wait(10)
        assert await there(cluster, "of-a", "b", "of-b", "c", "of-c") == ["of-a", "b", "of-b", "c", "of-c"]
        cluster.start_controllers()
        await cluster.wait(2)
        assert await there(cluster, "of-a", "b", "of-b", "c", "of-c") == ["of-c"]

    story(tell)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_deleted_in_whatever_order_nothing_dangles_and_nothing_owned_is_lost(seed: int) -> None:
    async def tell(cluster: Cluster) -> None:
        rng = cluster.rng
        known: list[Object] = []
        for number in range(40):
            owners = [owner(one, blocks=rng.random() < 0.5) for one in rng.sample(known, min(len(known), 2))]
            kept = [one for one in owners if rng.random() < 0.6]
            known.append(await config_map(cluster, f"m{number}", *kept))
        gone: set[str] = set()
        for one in rng.sample(known, 15):
            policy = rng.choice(["Background", "Foreground", "Orphan"])
            name = one["metadata"]["name"]
            if await cluster.exists(CONFIG_MAPS, name):
                await cluster.client.delete(CONFIG_MAPS, name, "default", propagation=policy)
                gone.add(one["metadata"]["uid"])
            if rng.random() < 0.3:
                await cluster.wait(rng.random())
            if rng.random() < 0.1:
                await cluster.stop_controllers()
                cluster.start_controllers()
        await cluster.wait(30)
        left = (await cluster.client.list(CONFIG_MAPS, "default")).items
        uids = {one["metadata"]["uid"] for one in left}
        assert not uids & gone
        for one in left:
            assert "deletionTimestamp" not in one["metadata"]
            for reference in one["metadata"].get("ownerReferences") or ():
                assert reference["uid"] in uids
        free = {one["metadata"]["uid"] for one in known if not one["metadata"].get("ownerReferences")} - gone
        assert free <= uids

    story(tell, seed)


def test_a_service_and_its_like_are_collected_too() -> None:
    async def tell(cluster: Cluster) -> None:
        a = await config_map(cluster, "a")
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s", "namespace": "default", "ownerReferences": [owner(a)]},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        }
        await cluster.client.create(SERVICES, service)
        await cluster.client.delete(CONFIG_MAPS, "a", "default")
        await cluster.wait(1)
        assert not await cluster.exists(SERVICES, "s")

    story(tell)
