"""Reading many objects: selectors, pages, watches that resume and watches that cannot."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode

import pytest
from apiserver_harness import CONFIG_MAPS, PODS, Api, config_map, pod, with_server

from pykueue.kube.transport import Request

EVERYWHERE = "/api/v1/configmaps"


async def _three(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("c", {"app": "x", "n": "5"}))
    await api.create(CONFIG_MAPS, config_map("a", {"app": "y"}))
    await api.create("/api/v1/namespaces/kube-system/configmaps", config_map("b", {"app": "x"}))


def test_lists_are_ordered_by_namespace_and_name() -> None:
    async def story(api: Api) -> None:
        await _three(api)
        listed = await api.get(EVERYWHERE)
        assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
        names = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in listed["items"]]
        assert names == [("default", "a"), ("default", "c"), ("kube-system", "b")]
        assert await api.names(CONFIG_MAPS) == ["a", "c"]

    with_server(story)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", ["c", "b"]),
        ("app==x,n", ["c"]),
        ("app!=x", ["a"]),
        ("n!=5", ["a", "b"]),
        ("!n", ["a", "b"]),
        ("app in (x, y)", ["a", "c", "b"]),
        ("app notin (x)", ["a"]),
        ("n>4", ["c"]),
        ("n<5", []),
    ],
)
def test_label_selectors(selector: str, names: list[str]) -> None:
    async def story(api: Api) -> None:
        await _three(api)
        assert await api.names(EVERYWHERE, labelSelector=selector) == names

    with_server(story)


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in x"},
        {"labelSelector": "a=b=c"},
        {"labelSelector": "=,="},
        {"labelSelector": "n>x"},
        {"fieldSelector": "spec.nope=1"},
        {"fieldSelector": "nonsense"},
        {"limit": "abc"},
        {"continue": "nonsense"},
        {"resourceVersion": "abc"},
    ],
)
def test_a_malformed_query_is_a_bad_request(query: dict[str, str]) -> None:
    async def story(api: Api) -> None:
        error = await api.refused(api.get(CONFIG_MAPS, **query))
        assert (error.code, error.reason) == (400, "BadRequest")

    with_server(story)


def test_field_selectors_read_the_fields_of_the_kind() -> None:
    async def story(api: Api) -> None:
        await api.create(PODS, pod("p"))
        await api.create(PODS, pod("q"))
        await api.create(f"{PODS}/q/binding", {"target": {"name": "n"}})
        assert await api.names(PODS, fieldSelector="spec.nodeName=n") == ["q"]
        assert await api.names(PODS, fieldSelector="spec.nodeName=,status.phase=Pending") == ["p"]
        assert await api.names(PODS, fieldSelector="metadata.name!=p") == ["q"]

    with_server(story)


def test_pages_show_one_moment() -> None:
    async def story(api: Api) -> None:
        for name in "abcde":
            await api.create(CONFIG_MAPS, config_map(name))
        first = await api.get(CONFIG_MAPS, limit="2")
        assert [one["metadata"]["name"] for one in first["items"]] == ["a", "b"]
        assert first["metadata"]["remainingItemCount"] == 3
        await api.delete(f"{CONFIG_MAPS}/c")
        await api.create(CONFIG_MAPS, config_map("bb"))
        token = first["metadata"]["continue"]
        second = await api.get(CONFIG_MAPS, **{"limit": "2", "continue": token})
        assert [one["metadata"]["name"] for one in second["items"]] == ["c", "d"]
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        rest = await api.get(CONFIG_MAPS, **{"limit": "2", "continue": second["metadata"]["continue"]})
        assert [one["metadata"]["name"] for one in rest["items"]] == ["e"]
        assert "continue" not in rest["metadata"]
        error = await api.refused(
            api.get(CONFIG_MAPS, **{"limit": "2", "continue": token, "resourceVersion": "7"})
        )
        assert error.code == 400

    with_server(story)


def test_a_list_continued_too_late_expires() -> None:
    async def story(api: Api) -> None:
        for name in "abc":
            await api.create(CONFIG_MAPS, config_map(name))
        first = await api.get(CONFIG_MAPS, limit="1")
        await api.pause(3600)
        error = await api.refused(api.get(CONFIG_MAPS, **{"continue": first["metadata"]["continue"]}))
        assert (error.code, error.reason) == (410, "Expired")
        token = getattr(error, "token", "")
        assert await api.names(CONFIG_MAPS, **{"continue": token}) == ["b", "c"]

    with_server(story)


def test_list_versions_are_checked() -> None:
    async def story(api: Api) -> None:
        now = (await api.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
        assert await api.names(CONFIG_MAPS, resourceVersion=now, resourceVersionMatch="Exact") == []
        await api.create(CONFIG_MAPS, config_map("a"))
        asked = api.get(CONFIG_MAPS, resourceVersion=now, resourceVersionMatch="Exact")
        assert (await api.refused(asked)).code == 410
        assert (await api.refused(api.get(CONFIG_MAPS, resourceVersionMatch="Exact"))).code == 422
        assert (await api.refused(api.get(CONFIG_MAPS, sendInitialEvents="true"))).code == 422
        late = await api.refused(api.get(CONFIG_MAPS, resourceVersion="999999"))
        assert (late.code, late.details["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
        assert late.retry_after == 1

    with_server(story)


def test_a_watch_without_version_begins_with_what_is_there() -> None:
    async def story(api: Api) -> None:
        await _three(api)
        seen = api.watch(EVERYWHERE)
        await api.pause()
        await api.delete(f"{CONFIG_MAPS}/a")
        await api.pause()
        assert [(one.type, one.object["metadata"]["name"]) for one in seen] == [
            ("ADDED", "a"),
            ("ADDED", "c"),
            ("ADDED", "b"),
            ("DELETED", "a"),
        ]
        assert int(seen[-1].object["metadata"]["resourceVersion"]) == api.server.store.revision

    with_server(story)


def test_a_watch_resumes_where_it_was() -> None:
    async def story(api: Api) -> None:
        made = await api.create(CONFIG_MAPS, config_map("a"))
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "1"}})
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "2"}})
        seen = api.watch(CONFIG_MAPS, resourceVersion=made["metadata"]["resourceVersion"])
        await api.pause()
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "3"}})
        await api.pause()
        assert [one.object["data"]["k"] for one in seen] == ["1", "2", "3"]

    with_server(story)


def test_watch_from_an_expired_version_gets_410() -> None:
    async def story(api: Api) -> None:
        made = await api.create(CONFIG_MAPS, config_map("a"))
        for number in range(20):
            await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": str(number)}})
        await api.pause()
        seen = api.watch(CONFIG_MAPS, resourceVersion=made["metadata"]["resourceVersion"])
        await api.pause()
        assert [(one.type, one.object["code"]) for one in seen] == [("ERROR", 410)]

    with_server(story, history=10)


def test_objects_enter_and_leave_a_selection() -> None:
    async def story(api: Api) -> None:
        seen = api.watch(CONFIG_MAPS, labelSelector="app=x")
        await api.pause()
        await api.create(CONFIG_MAPS, config_map("a"))
        await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"app": "x"}}})
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})
        left = await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
        await api.pause()
        assert [one.type for one in seen] == ["ADDED", "MODIFIED", "DELETED"]
        assert seen[-1].object["metadata"]["labels"] == {"app": "x"}
        assert seen[-1].object["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]

    with_server(story)


def test_the_end_of_the_initial_events_is_marked() -> None:
    async def story(api: Api) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        seen = api.watch(
            CONFIG_MAPS,
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
        )
        await api.pause()
        assert [one.type for one in seen] == ["ADDED", "BOOKMARK"]
        mark = seen[-1].object
        assert (mark["kind"], mark["apiVersion"]) == ("ConfigMap", "v1")
        annotations = mark["metadata"]["annotations"]
        assert annotations["k8s.io/initial-events-end"] == "true"
        blueprint = json.loads(b64decode(annotations["kubernetes.io/initial-events-list-blueprint"]))
        assert (blueprint["kind"], blueprint["items"]) == ("ConfigMapList", [])
        wrong = api.watch(CONFIG_MAPS, sendInitialEvents="true")
        await api.pause()
        assert wrong[0].object["code"] == 422

    with_server(story)


def test_a_watch_ends_when_its_time_is_up() -> None:
    async def story(api: Api) -> None:
        events = []

        async def follow() -> None:
            request = Request("GET", CONFIG_MAPS, {"timeoutSeconds": "5"})
            async for event in api.server.transport().watch(request):
                events.append(event)

        started = api.clock.time()
        await asyncio.create_task(follow())
        assert api.clock.time() - started == 5
        assert events == []

    with_server(story)


def test_a_snapshot_and_its_watch_leave_no_gap() -> None:
    async def story(api: Api) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        listed = await api.get(CONFIG_MAPS)
        seen = api.watch(CONFIG_MAPS, resourceVersion=listed["metadata"]["resourceVersion"])
        await api.create(CONFIG_MAPS, config_map("b"))
        await api.pause()
        assert [one.object["metadata"]["name"] for one in seen] == ["b"]

    with_server(story)


def test_a_collection_is_deleted_by_selector() -> None:
    async def story(api: Api) -> None:
        await _three(api)
        gone = await api.delete(CONFIG_MAPS, labelSelector="app=x")
        assert [one["metadata"]["name"] for one in gone["items"]] == ["c"]
        assert await api.names(EVERYWHERE) == ["a", "b"]

    with_server(story)
