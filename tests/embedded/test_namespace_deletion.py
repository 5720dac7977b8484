"""Deleting a namespace: everything in it goes, and it says what it waits for."""

from __future__ import annotations

import pytest
from jobcontroller_cluster import Cluster, Object, story

from pykueue.kube.errors import ApiError
from pykueue.kube.resources import CONFIG_MAPS, EVENTS, JOBS, NAMESPACES, PODS


async def namespace(cluster: Cluster, name: str = "team") -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.client.create(NAMESPACES, body)


async def config_map(cluster: Cluster, name: str, **metadata: object) -> Object:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "team", **metadata},
    }
    return await cluster.client.create(CONFIG_MAPS, body)


def test_a_namespace_goes_with_all_its_content() -> None:
    async def tell(cluster: Cluster) -> None:
        await namespace(cluster)
        await cluster.create_job("job", "team", completions=3, parallelism=3)
        await config_map(cluster, "m")
        await cluster.wait(3)
        pods = await cluster.pods(namespace="team")
        await cluster.bind(pods[0])
        assert (await cluster.client.list(EVENTS, "team")).items
        marked = await cluster.client.delete(NAMESPACES, "team")
        assert marked["status"]["phase"] == "Terminating"
        await cluster.wait(5)
        (left,) = await cluster.pods(namespace="team")
        assert left["metadata"]["name"] == pods[0]["metadata"]["name"], "it has its grace time"
        assert await cluster.exists(NAMESPACES, "team", None)
        await cluster.remove(left)
        await cluster.wait(10)
        assert not await cluster.exists(NAMESPACES, "team", None)
        for resource in (JOBS, PODS, CONFIG_MAPS, EVENTS):
            assert (await cluster.client.list(resource)).items == []

    story(tell)


def test_an_empty_namespace_goes_at_once_and_may_come_again() -> None:
    async def tell(cluster: Cluster) -> None:
        await namespace(cluster)
        await cluster.client.delete(NAMESPACES, "team")
        await cluster.wait(1)
        assert not await cluster.exists(NAMESPACES, "team", None)
        await namespace(cluster)
        await config_map(cluster, "m")

    story(tell)


def test_what_holds_a_namespace_is_told_in_its_conditions() -> None:
    async def tell(cluster: Cluster) -> None:
        await namespace(cluster)
        await config_map(cluster, "m", finalizers=["example.com/hold"])
        await cluster.client.delete(NAMESPACES, "team")
        await cluster.wait(3)
        found = await cluster.client.get(NAMESPACES, "team")
        conditions = {one["type"]: one for one in found["status"]["conditions"]}
        remaining = conditions["NamespaceContentRemaining"]
        assert (remaining["status"], remaining["reason"]) == ("True", "SomeResourcesRemain")
        assert "configmaps. has 1 resource instances" in remaining["message"]
        held = conditions["NamespaceFinalizersRemaining"]
        assert (held["status"], held["reason"]) == ("True", "SomeFinalizersRemain")
        assert "example.com/hold in 1 resource instances" in held["message"]
        with pytest.raises(ApiError, match="being terminated"):
            await config_map(cluster, "late")
        await cluster.client.patch(CONFIG_MAPS, "m", "team", {"metadata": {"finalizers": None}})
        await cluster.wait(10)
        assert not await cluster.exists(NAMESPACES, "team", None)

    story(tell)


def test_a_restart_in_the_middle_changes_nothing() -> None:
    async def tell(cluster: Cluster) -> None:
        await namespace(cluster)
        for number in range(5):
            await config_map(cluster, f"m{number}", finalizers=["example.com/hold"])
        await cluster.client.delete(NAMESPACES, "team")
        await cluster.wait(1)
        await cluster.stop_controllers()
        for number in range(5):
            await cluster.client.patch(CONFIG_MAPS, f"m{number}", "team", {"metadata": {"finalizers": None}})
        await cluster.wait(5)
        assert await cluster.exists(NAMESPACES, "team", None)
        cluster.start_controllers()
        await cluster.wait(1)
        assert not await cluster.exists(NAMESPACES, "team", None)

    story(tell)


def test_a_job_in_a_namespace_that_goes_makes_no_noise() -> None:
    async def tell(cluster: Cluster) -> None:
        await namespace(cluster)
        await config_map(cluster, "m", finalizers=["example.com/hold"])
        job = await cluster.create_job("job", "team", completions=2, parallelism=2)
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        await cluster.client.patch(JOBS, "job", "team", hold)
        await cluster.wait(3)
        await cluster.client.delete(NAMESPACES, "team")
        await cluster.wait(60)
        assert await cluster.pods(namespace="team") == []
        found = (await cluster.client.list(EVENTS, "team")).items
        assert [event["reason"] for event in found if event["reason"].startswith("Failed")] == []
        assert job["metadata"]["uid"] == (await cluster.client.get(JOBS, "job", "team"))["metadata"]["uid"]

    story(tell)
