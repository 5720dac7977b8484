"""Deleting a namespace: everything in it goes, and it says what it waits for."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from jobcontroller_cluster import Cluster, Object, story

from pykueue.api.resources import CONFIG_MAPS, EVENTS, JOBS, NAMESPACES, PODS
from pykueue.embedded.apiserver.handlers.expiry import HISTORY_AGE
from pykueue.embedded.apiserver.handlers.reads import Listing
from pykueue.embedded.apiserver.registry.call import Answer, Call
from pykueue.embedded.controllers.inventory import Entry, Inventory
from pykueue.embedded.store.records import Event, Record
from pykueue.kube.errors import ApiError


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


def test_conditions_of_a_terminating_namespace_name_what_remains() -> None:
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


@pytest.mark.interpreted
def test_a_namespace_waits_for_content_that_is_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    known, asked = Inventory.content, Counter[str]()

    def late(self: Inventory, name: str) -> list[Entry]:
        asked[name] += 1
        return [] if asked[name] <= 6 else known(self, name)

    async def tell(cluster: Cluster) -> None:
        await namespace(cluster)
        await config_map(cluster, "m", finalizers=["example.com/hold"])
        monkeypatch.setattr(Inventory, "content", late)
        await cluster.client.delete(NAMESPACES, "team")
        await cluster.wait(60)
        assert asked["team"] > 6
        assert await cluster.exists(NAMESPACES, "team", None)
        await cluster.client.patch(CONFIG_MAPS, "m", "team", {"metadata": {"finalizers": None}})
        await cluster.wait(60)
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


def test_job_in_a_terminating_namespace_emits_no_events() -> None:
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


def records_alive() -> int:
    gc.collect()
    return sum(type(one) in (Record, Event) for one in gc.get_objects())


def deletion_of(namespaces: int, objects: int) -> tuple[Counter[str], int]:
    """Requests while namespaces with objects in them are deleted at once, and states kept afterwards."""
    requests: Counter[str] = Counter()
    kept = 0

    async def tell(cluster: Cluster) -> None:
        nonlocal kept
        await cluster.wait(2 * HISTORY_AGE + 1)
        before = records_alive()
        for number in range(namespaces):
            await namespace(cluster, f"n{number}")
            for at in range(objects):
                await cluster.client.create(
                    CONFIG_MAPS,
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": f"c{at}", "namespace": f"n{number}"},
                    },
                )
        await cluster.wait(5)
        handle = cluster.server.pipeline.handle

        async def counted(call: Call) -> Answer | Listing:
            requests[call.verb()] += 1
            return await handle(call)

        cluster.server.pipeline.handle = counted  # type: ignore[method-assign]
        for number in range(namespaces):
            await cluster.client.delete(NAMESPACES, f"n{number}")
        await cluster.wait(10)
        for number in range(namespaces):
            assert not await cluster.exists(NAMESPACES, f"n{number}", None)
        await cluster.wait(2 * HISTORY_AGE + 1)
        kept = records_alive() - before

    story(tell)
    return requests, kept


def test_namespaces_deleted_at_once_take_requests_in_proportion_and_leave_nothing() -> None:
    few, kept_of_few = deletion_of(5, 20)
    many, kept_of_many = deletion_of(50, 20)
    assert many.total() <= 11 * few.total()
    larger, _ = deletion_of(5, 200)
    assert larger.total() <= few.total() + 10
    assert kept_of_few < 50
    assert kept_of_many < 50
