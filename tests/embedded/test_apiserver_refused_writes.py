"""A write that the disk refuses has no effect: neither on objects nor on anything that follows from them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from apiserver_harness import CONFIG_MAPS, CRDS, PODS, WIDGETS, Api, config_map, pod, widget_definition
from faulty_store import Disk, with_disk

from pykueue.kube.errors import ApiError

Object = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDINGS = f"{RBAC}/clusterrolebindings"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}


async def lost(api: Api, disk: Disk, method: str, path: str, body: Any = None) -> None:
    """Make a request that a full disk refuses."""
    disk.room = -1
    error = await api.refused(api.request(method, path, body))
    disk.room = None
    assert error.code == 500
    assert "could not be made durable: database or disk is full" in error.message


def binding(user: str, role: str) -> Object:
    return {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def as_user(api: Api, name: str) -> Api:
    return Api(api.server, api.clock, name, ())


def test_refused_binding_grants_no_rights(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        eve = as_user(api, "eve")
        await lost(api, disk, "POST", BINDINGS, binding("eve", "cluster-admin"))
        assert (await eve.refused(eve.get(CONFIG_MAPS))).code == 403
        await api.create(BINDINGS, binding("eve", "cluster-admin"))
        await eve.get(CONFIG_MAPS)

    with_disk(tmp_path, story)


def test_rights_are_granted_only_when_their_binding_is_settled(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        eve = as_user(api, "eve")
        disk.room = -1
        writing = asyncio.ensure_future(api.create(BINDINGS, binding("eve", "cluster-admin")))
        await asyncio.sleep(0)
        assert api.server.store.revision > api.server.store.settled_revision
        assert (await eve.refused(eve.get(CONFIG_MAPS))).code == 403
        with pytest.raises(ApiError):
            await writing

    with_disk(tmp_path, story)


def test_refused_revocation_leaves_rights(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        eve = as_user(api, "eve")
        await api.create(BINDINGS, binding("eve", "cluster-admin"))
        await lost(api, disk, "DELETE", f"{BINDINGS}/b")
        await eve.get(CONFIG_MAPS)

    with_disk(tmp_path, story)


def test_refused_role_adds_nothing_to_aggregated_roles(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        await api.create(BINDINGS, binding("eve", "view"))
        eve = as_user(api, "eve")
        role = {
            "metadata": {"name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
        }
        await lost(api, disk, "POST", f"{RBAC}/clusterroles", role)
        await api.pause()
        assert (await eve.refused(eve.get("/api/v1/secrets"))).code == 403
        await api.create(f"{RBAC}/clusterroles", role)
        await api.pause()
        await eve.get("/api/v1/secrets")

    with_disk(tmp_path, story)


def test_refused_definition_is_not_served(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        await lost(api, disk, "POST", CRDS, widget_definition())
        assert (await api.refused(api.get(WIDGETS))).code == 404
        await api.create(CRDS, widget_definition())
        await api.create(WIDGETS, WIDGET)
        await lost(api, disk, "DELETE", f"{CRDS}/widgets.example.com")
        await api.pause(10)
        assert await api.names(WIDGETS) == ["w"]

    with_disk(tmp_path, story)


def test_definition_deleted_while_the_disk_is_full_goes_when_it_is_not(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        await api.create(CRDS, widget_definition())
        await api.create(WIDGETS, WIDGET)
        await api.delete(f"{CRDS}/widgets.example.com")
        disk.room = -1
        await api.pause(30)
        assert await api.names(WIDGETS) == ["w"]
        disk.room = None
        await api.pause(30)
        assert (await api.refused(api.get(f"{CRDS}/widgets.example.com"))).code == 404
        assert (await api.refused(api.get(WIDGETS))).code == 404

    with_disk(tmp_path, story)


def test_refused_webhook_is_not_called(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        webhook = {
            "name": "no.example.com",
            "rules": [rule],
            "clientConfig": {"service": {"namespace": "default", "name": "missing"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        await lost(api, disk, "POST", VALIDATING, {"metadata": {"name": "no"}, "webhooks": [webhook]})
        await api.create(CONFIG_MAPS, config_map("a"))

    with_disk(tmp_path, story)


def test_refused_pod_is_not_charged_to_its_quota(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        await api.create(QUOTAS, quota)
        counted = {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}
        await api.patch(f"{QUOTAS}/q/status", counted)
        await lost(api, disk, "POST", PODS, pod("a"))
        assert (await api.get(f"{QUOTAS}/q"))["status"]["used"] == {"pods": "0"}
        await api.create(PODS, pod("b"))

    with_disk(tmp_path, story)


def test_refused_priority_class_is_no_default(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        default = {"metadata": {"name": "d"}, "value": 7, "globalDefault": True}
        await lost(api, disk, "POST", CLASSES, default)
        created = await api.create(PODS, pod("a"))
        assert created["spec"]["priority"] == 0

    with_disk(tmp_path, story)


def test_refused_namespace_takes_nothing_and_refused_end_of_one_stops_nothing(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        namespace = {"metadata": {"name": "n"}}
        inside = "/api/v1/namespaces/n/configmaps"
        await lost(api, disk, "POST", "/api/v1/namespaces", namespace)
        assert (await api.refused(api.create(inside, config_map("a")))).code == 404
        await api.create("/api/v1/namespaces", namespace)
        await lost(api, disk, "DELETE", "/api/v1/namespaces/n")
        await api.create(inside, config_map("a"))

    with_disk(tmp_path, story)


def test_refused_registration_is_not_in_discovery(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        spec = {
            "group": "far.example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 1,
            "service": {"namespace": "default", "name": "far"},
        }
        await lost(api, disk, "POST", SERVICES, {"metadata": {"name": "v1.far.example.com"}, "spec": spec})
        assert api.server.pipeline.discovery.document("/apis/far.example.com") is None

    with_disk(tmp_path, story)


def test_readers_and_watchers_see_no_write_before_it_is_settled(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        await api.create(CONFIG_MAPS, config_map("kept", value="old"))
        seen = api.watch(CONFIG_MAPS)
        await api.pause()
        del seen[:]
        disk.room = -1
        writes = [
            asyncio.ensure_future(api.create(CONFIG_MAPS, config_map("a"))),
            asyncio.ensure_future(api.patch(f"{CONFIG_MAPS}/kept", {"data": {"value": "new"}})),
        ]
        await asyncio.sleep(0)
        late = api.watch(CONFIG_MAPS)
        listed = await api.get(CONFIG_MAPS)
        assert [one["metadata"]["name"] for one in listed["items"]] == ["kept"]
        assert listed["items"][0]["data"] == {"value": "old"}
        assert listed["metadata"]["resourceVersion"] == str(api.server.store.settled_revision)
        assert (await api.get(f"{CONFIG_MAPS}/kept"))["data"] == {"value": "old"}
        assert (await api.refused(api.get(f"{CONFIG_MAPS}/a"))).code == 404
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(one, ApiError) and one.code == 500 for one in answers)
        await api.pause()
        assert not seen
        assert [event.object["metadata"]["name"] for event in late] == ["kept"]

    with_disk(tmp_path, story)


def test_refusal_that_rests_on_a_lost_write_is_no_answer(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        disk.room = -1
        first = asyncio.ensure_future(api.delete(f"{CONFIG_MAPS}/a"))
        await asyncio.sleep(0)
        again = asyncio.ensure_future(api.delete(f"{CONFIG_MAPS}/a"))
        answers = await asyncio.gather(first, again, return_exceptions=True)
        assert [one.code for one in answers if isinstance(one, ApiError)] == [500, 500]
        await api.get(f"{CONFIG_MAPS}/a")

    with_disk(tmp_path, story)


def test_what_the_server_writes_by_itself_is_written_when_the_disk_works_again(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        account = "/api/v1/namespaces/n/serviceaccounts/default"
        creating = asyncio.ensure_future(api.create("/api/v1/namespaces", {"metadata": {"name": "n"}}))
        while "n" not in await api.names("/api/v1/namespaces"):
            await api.pause(0.0001)
        disk.room = -1  # the namespace is stored, its account is not yet
        await creating
        await api.pause(0.5)
        assert (await api.refused(api.get(account))).code == 404
        disk.room = None
        await api.pause(5)
        await api.get(account)

    with_disk(tmp_path, story)


def test_expired_event_goes_after_its_removal_was_lost(tmp_path: Path) -> None:
    async def story(api: Api, disk: Disk) -> None:
        event = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "R",
        }
        events = "/api/v1/namespaces/default/events"
        await api.create(events, event)
        await api.pause(3590)
        disk.room = -1
        await api.pause(60)
        assert await api.names(events) == ["e"]
        disk.room = None
        await api.pause(10)
        assert await api.names(events) == []

    with_disk(tmp_path, story)


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
def test_health_fails_while_writes_of_the_size_that_failed_would(tmp_path: Path, path: str) -> None:
    async def story(api: Api, disk: Disk) -> None:
        health = api.server.pipeline.health
        assert (await health.answer(path, {})).code == 200
        disk.room = 1000
        error = await api.refused(api.create(CONFIG_MAPS, config_map("big", value="x" * 5000)))
        assert error.code == 500
        await api.create(CONFIG_MAPS, config_map("small"))
        for _ in range(3):
            await api.pause(2)
            verdict = await health.answer(path, {})
            assert verdict.code == 500
            assert "store failed: " in verdict.text
            assert "database or disk is full" in verdict.text
        disk.room = None
        await api.pause(2)
        assert (await health.answer(path, {})).code == 200

    with_disk(tmp_path, story)
