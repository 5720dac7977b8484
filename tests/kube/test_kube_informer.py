"""Watch caches: what handlers hear when connections break, histories end and objects come back."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from kube_fake import FakeApi

from pykueue.api.resources import CONFIG_MAPS, CRDS, NODES, PODS
from pykueue.clock import Clock, run_virtual
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer, InformerFactory

Story = list[tuple[str, str]]


@asynccontextmanager
async def running(component: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(component.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def story_of(informer: Informer) -> Story:
    """Everything a handler hears: kind of change and name=value."""
    story: Story = []

    def hear(type_: str, old: Any, new: Any) -> None:
        obj = old if new is None else new
        story.append((type_, f"{obj['metadata']['name']}={(obj.get('data') or {}).get('v')}"))

    informer.on_event(hear)
    return story


def maps(api: FakeApi, clock: Clock, **options: Any) -> Informer:
    return Informer(Client(api, clock=clock), CONFIG_MAPS, "a", clock=clock, **options)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("server_streams", [False, True])
def test_a_cache_lists_then_follows(stream: bool, server_streams: bool) -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.streams_lists = server_streams
        api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
        api.put(CONFIG_MAPS, "other", "b", data={"v": "1"})
        informer = maps(api, clock, stream=stream)
        story = story_of(informer)
        async with running(informer):
            await informer.synced()
            assert story == [("ADDED", "x=1")]
            await clock.sleep(1)
            api.put(CONFIG_MAPS, "x", "a", data={"v": "2"})
            api.put(CONFIG_MAPS, "y", "a", data={"v": "1"})
            api.remove(CONFIG_MAPS, "x", "a")
            await clock.sleep(1)
            assert story[1:] == [("MODIFIED", "x=2"), ("ADDED", "y=1"), ("DELETED", "x=2")]
            assert informer.get("a", "x") is None
            assert informer.get("a", "y")["data"] == {"v": "1"}
            late = story_of(informer)
            assert late == [("ADDED", "y=1")]
        assert api.watching == 0

    run_virtual(main)


def test_a_broken_watch_goes_on_where_it_stopped_without_listing_again() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        informer = maps(api, clock)
        story = story_of(informer)
        async with running(informer):
            await informer.synced()
            await clock.sleep(5)
            api.drop_watches(ConnectionResetError("gone"))
            api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
            api.put(CONFIG_MAPS, "x", "a", data={"v": "2"})
            await clock.sleep(5)
            api.drop_watches()
            api.put(CONFIG_MAPS, "x", "a", data={"v": "3"})
            await clock.sleep(5)
        assert story == [("ADDED", "x=1"), ("MODIFIED", "x=2"), ("MODIFIED", "x=3")]
        lists = [request for request in api.requests if "watch" not in request.query]
        assert len(lists) == 1

    run_virtual(main)


def test_an_index_of_metadata_is_computed_again_only_when_metadata_changes() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        labels = {"app": "one"}
        api.put(CONFIG_MAPS, "x", "a", data={"v": "1"}, metadata={"labels": labels})
        informer = maps(api, clock)
        asked: list[str] = []

        def app_of(obj: Any) -> list[str]:
            asked.append(obj["data"]["v"])
            return [obj["metadata"]["labels"]["app"]]

        informer.add_index("app", app_of, of_metadata=True)
        async with running(informer):
            await informer.synced()
            await clock.sleep(1)
            asked.clear()
            api.put(CONFIG_MAPS, "x", "a", data={"v": "2"}, metadata={"labels": labels})
            await clock.sleep(1)
            assert asked == []
            assert [one["data"]["v"] for one in informer.by_index("app", "one")] == ["2"]
            api.put(CONFIG_MAPS, "x", "a", data={"v": "3"}, metadata={"labels": {"app": "two"}})
            await clock.sleep(1)
            assert informer.by_index("app", "one") == []
            assert [one["data"]["v"] for one in informer.by_index("app", "two")] == ["3"]

    run_virtual(main)


def test_an_index_of_the_spec_is_computed_again_only_with_another_generation() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        informer = maps(api, clock)
        asked: list[str] = []

        def value_of(obj: Any) -> list[str]:
            asked.append(obj["data"]["v"])
            return [obj["data"]["v"]]

        informer.add_index("value", value_of, of_spec=True)
        async with running(informer):
            await informer.synced()
            api.put(CONFIG_MAPS, "x", "a", data={"v": "1"}, metadata={"generation": 1})
            await clock.sleep(1)
            asked.clear()
            api.put(CONFIG_MAPS, "x", "a", data={"v": "1"}, metadata={"generation": 1, "labels": {"a": "b"}})
            await clock.sleep(1)
            assert asked == []
            assert informer.by_index("value", "1")[0]["metadata"]["labels"] == {"a": "b"}
            api.put(CONFIG_MAPS, "x", "a", data={"v": "2"}, metadata={"generation": 2})
            await clock.sleep(1)
            assert informer.by_index("value", "1") == []
            assert informer.by_index("value", "2") == informer.list()
            # Without a generation nothing says that the spec is the same.
            for value in ("3", "4"):
                api.put(CONFIG_MAPS, "x", "a", data={"v": value})
                await clock.sleep(1)
                assert informer.by_index("value", value) == informer.list()

    run_virtual(main)


def test_relist_after_410_reports_only_what_changed() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        for name in ("same", "changed", "gone", "reborn"):
            api.put(CONFIG_MAPS, name, "a", data={"v": "1"})
        informer = maps(api, clock)
        story = story_of(informer)
        informer.add_index("value", lambda obj: [obj["data"]["v"]])
        async with running(informer):
            await informer.synced()
            await clock.sleep(1)
            story.clear()
            api.drop_watches()
            await clock.sleep(0)
            api.put(CONFIG_MAPS, "changed", "a", data={"v": "2"})
            api.remove(CONFIG_MAPS, "gone", "a")
            api.remove(CONFIG_MAPS, "reborn", "a")
            api.put(CONFIG_MAPS, "reborn", "a", data={"v": "2"})
            api.put(CONFIG_MAPS, "brief", "a", data={"v": "1"})
            api.remove(CONFIG_MAPS, "brief", "a")
            api.forget_history()
            api.drop_watches(ApiError(410, "Expired", "too old resource version"))
            await clock.sleep(60)
            assert sorted(story) == [
                ("ADDED", "reborn=2"),
                ("DELETED", "gone=1"),
                ("DELETED", "reborn=1"),
                ("MODIFIED", "changed=2"),
            ]
            assert story.index(("DELETED", "reborn=1")) < story.index(("ADDED", "reborn=2"))
            named = [obj["metadata"]["name"] for obj in informer.by_index("value", "2")]
            assert named == ["changed", "reborn"]
            assert [obj["metadata"]["name"] for obj in informer.by_index("value", "1")] == ["same"]

    run_virtual(main)


def test_a_first_list_is_taken_page_by_page_and_begun_again_where_it_breaks_off() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        for name in ("a", "b", "c", "d", "e"):
            api.put(CONFIG_MAPS, name, "a", data={"v": "1"})
        client = Client(api, clock=clock, page_size=2)
        informer = Informer(client, CONFIG_MAPS, "a", clock=clock)
        story: list[tuple[str, str, int]] = []

        def hear(type_: str, old: Any, new: Any) -> None:
            assert not informer.has_synced
            story.append((type_, (old if new is None else new)["metadata"]["name"], len(api.requests)))
            if len(story) == 2:
                api.remove(CONFIG_MAPS, "a", "a")
                api.put(CONFIG_MAPS, "b", "a", data={"v": "2"})
                api.refusals.append(ApiError(410, "Expired", "the continue token is too old"))

        informer.on_event(hear)
        async with running(informer):
            await informer.synced()
            assert story == [
                ("ADDED", "a", 1),
                ("ADDED", "b", 1),
                ("MODIFIED", "b", 3),
                ("ADDED", "c", 3),
                ("ADDED", "d", 4),
                ("ADDED", "e", 4),
                ("DELETED", "a", 4),
            ]
            assert [obj["metadata"]["name"] for obj in informer.list()] == ["b", "c", "d", "e"]

    run_virtual(main)


def test_bookmarks_move_the_point_to_resume_from() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        informer = maps(api, clock)
        async with running(informer):
            await informer.synced()
            await clock.sleep(1)
            for number in range(10):
                api.put(NODES, f"n{number}")
            api.bookmark(CONFIG_MAPS)
            await clock.sleep(1)
            api.forget_history()
            api.drop_watches()
            await clock.sleep(1)
        assert api.requests[-1].query["resourceVersion"] == "10"
        assert len([request for request in api.requests if "watch" not in request.query]) == 1

    run_virtual(main)


MISSING = ApiError(404, "NotFound", "the server could not find the requested resource")


def test_an_optional_resource_that_is_not_served_has_no_objects_until_its_definition_appears() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.refusals = [MISSING]
        api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
        informer = maps(api, clock, optional=True)
        story = story_of(informer)
        async with running(informer):
            await informer.synced()
            assert informer.list() == []
            assert not informer.is_served
            await clock.sleep(1)
            before = len(api.requests)
            await clock.sleep(3600)
            assert len(api.requests) == before, "nothing is asked for while nothing changes"
            api.refusals = [MISSING]  # the definition is there before its resource is served
            api.put(CRDS, "configmaps.")
            await clock.sleep(5)
            assert story == [("ADDED", "x=1")]
            assert informer.is_served
            api.refusals = [MISSING]
            api.remove(CRDS, "configmaps.")
            api.drop_watches(MISSING)
            await clock.sleep(5)
            assert story[1:] == [("DELETED", "x=1")]
            assert not informer.is_served
            api.put(CRDS, "configmaps.")
            await clock.sleep(5)
            assert story[2:] == [("ADDED", "x=1")]

    run_virtual(main)


def test_an_optional_resource_is_listed_again_from_time_to_time_without_the_right_to_watch_definitions() -> (
    None
):
    async def main(clock: Clock) -> None:
        api = FakeApi()
        forbidden = ApiError(403, "Forbidden", "customresourcedefinitions is forbidden")
        api.refusals = [MISSING, forbidden, MISSING, forbidden]
        api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
        informer = maps(api, clock, optional=True)
        story = story_of(informer)
        async with running(informer):
            await clock.sleep(60)
            assert story == [("ADDED", "x=1")]
            assert informer.is_served

    run_virtual(main)


def test_a_server_that_is_away_is_asked_ever_more_rarely() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        times: list[float] = []
        api.refusals = [ConnectionRefusedError("away") for _ in range(9)]

        async def call(request: Any, original: Callable[..., Any] = api.call) -> Any:
            times.append(asyncio.get_running_loop().time())
            return await original(request)

        api.call = call  # type: ignore[method-assign]
        informer = maps(api, clock)
        async with running(informer):
            await informer.synced()
        gaps = [round(after - before, 3) for before, after in itertools.pairwise(times)]
        assert gaps == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]

    run_virtual(main)


def test_failing_handler_or_invalid_object_does_not_affect_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        informer = maps(api, clock, transform=lambda obj: {**obj, "data": {"v": int(obj["data"]["v"])}})

        def fail(type_: str, old: Any, new: Any) -> None:
            raise RuntimeError("no")

        informer.on_event(fail)
        story = story_of(informer)
        async with running(informer):
            await informer.synced()
            api.put(CONFIG_MAPS, "bad", "a", data={"v": "not a number"})
            api.put(CONFIG_MAPS, "good", "a", data={"v": "1"})
            await clock.sleep(1)
            api.put(CONFIG_MAPS, "good", "a", data={"v": "neither"})
            await clock.sleep(1)
        assert story == [("ADDED", "good=1"), ("DELETED", "good=1")]

    run_virtual(main)
    assert "cannot read a/bad" in caplog.text


def test_one_informer_per_resource_also_after_the_start() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.put(PODS, "p", "a")
        factory = InformerFactory(Client(api, clock=clock), clock=clock)
        pods = factory.informer(PODS, "a")
        assert factory.informer(PODS, "a") is pods
        assert factory.informer(PODS, "a", "k=v") is not pods
        async with running(factory):
            await factory.synced()
            nodes = factory.informer(NODES)
            await factory.synced()
            assert nodes.has_synced
            assert len(pods) == 1

    run_virtual(main)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_breaks_the_cache_ends_up_equal_to_the_server_and_handlers_saw_each_step(seed: int) -> None:
    async def main(clock: Clock) -> None:
        rng = random.Random(seed)
        api = FakeApi()
        informer = maps(api, clock)
        informer.add_index("value", lambda obj: [obj["data"]["v"]])
        mirror: dict[str, str] = {}

        def follow(type_: str, old: Any, new: Any) -> None:
            name = (old or new)["metadata"]["name"]
            if type_ == "ADDED":
                assert name not in mirror
            else:
                assert name in mirror
            if new is None:
                del mirror[name]
            else:
                mirror[name] = new["data"]["v"]

        informer.on_event(follow)
        async with running(informer):
            for _ in range(300):
                action = rng.random()
                name = f"m{rng.randrange(8)}"
                if action < 0.5:
                    api.put(CONFIG_MAPS, name, "a", data={"v": str(rng.randrange(4))})
                elif action < 0.75 and CONFIG_MAPS.path("a", name) in api.objects:
                    api.remove(CONFIG_MAPS, name, "a")
                elif action < 0.8:
                    api.drop_watches(rng.choice([None, ConnectionResetError("x")]))
                elif action < 0.83:
                    api.forget_history()
                    api.drop_watches()
                elif action < 0.86:
                    api.refusals.append(ApiError(500, "InternalError", "oops"))
                elif action < 0.9:
                    api.bookmark(CONFIG_MAPS)
                else:
                    await clock.sleep(rng.random() * 3)
            api.refusals.clear()
            await clock.sleep(60)
            stored = {obj["metadata"]["name"]: obj["data"]["v"] for obj in api.objects.values()}
            assert mirror == stored
            assert {o["metadata"]["name"]: o["data"]["v"] for o in informer.list()} == stored
            for value in "0123":
                found = {obj["metadata"]["name"] for obj in informer.by_index("value", value)}
                assert found == {name for name, v in stored.items() if v == value}

    run_virtual(main)


def test_a_noted_write_is_read_at_once_and_never_taken_back_by_an_older_event() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
        informer = maps(api, clock)
        story = story_of(informer)
        async with running(informer):
            await informer.synced()
            middle = api.put(CONFIG_MAPS, "x", "a", data={"v": "2"})
            written = api.put(CONFIG_MAPS, "x", "a", data={"v": "3"})
            created = api.put(CONFIG_MAPS, "y", "a", data={"v": "1"})
            informer.note(written)
            informer.note(middle)
            informer.note(created)
            assert informer.get("a", "x") == written
            assert informer.get("a", "y") == created
            await clock.sleep(1)
            assert informer.get("a", "x") == written
            assert story == [("ADDED", "x=1"), ("MODIFIED", "x=3"), ("ADDED", "y=1")]
            api.remove(CONFIG_MAPS, "y", "a")
            await clock.sleep(1)
            informer.note(created)
            assert informer.get("a", "y") is None

    run_virtual(main)


def test_own_write_during_a_relist_outlives_an_older_list() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
        informer = maps(api, clock)
        async with running(informer):
            await informer.synced()
            api.refusals.append(ApiError(503, "ServiceUnavailable", "later"))
            api.forget_history()
            api.drop_watches(ApiError(410, "Expired", "too old"))
            await clock.sleep(0.1)
            written = api.put(CONFIG_MAPS, "x", "a", data={"v": "2"})
            informer.note(written)
            assert informer.get("a", "x") == written
            await clock.sleep(60)
            assert informer.get("a", "x") == written

    run_virtual(main)


def test_what_was_noted_as_gone_does_not_come_back_with_an_older_event() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        first = api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
        informer = maps(api, clock)
        story = story_of(informer)
        async with running(informer):
            await informer.synced()
            api.put(CONFIG_MAPS, "x", "a", data={"v": "2"})
            api.remove(CONFIG_MAPS, "x", "a")
            informer.note_gone(first)
            assert informer.get("a", "x") is None
            await clock.sleep(1)
            assert story == [("ADDED", "x=1"), ("DELETED", "x=1")]
            again = api.put(CONFIG_MAPS, "x", "a", data={"v": "3"})
            await clock.sleep(1)
            assert informer.get("a", "x") == again

    run_virtual(main)


@pytest.mark.parametrize("recent", [0, 1, 500])
@pytest.mark.parametrize("packing", ["text", "compressed"])
def test_packed_objects_read_as_any_other(packing: Any, recent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykueue.kube.informer.RECENT", recent)

    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
        api.put(CONFIG_MAPS, "y", "a", data={"v": "done"})
        informer = maps(api, clock, pack=lambda obj: packing if obj["data"]["v"] == "done" else None)
        informer.add_index("v", lambda obj: [obj["data"]["v"]])
        story = story_of(informer)
        async with running(informer):
            await informer.synced()
            api.put(CONFIG_MAPS, "x", "a", data={"v": "done"})
            await clock.sleep(1)
            assert [obj["metadata"]["name"] for obj in informer.by_index("v", "done")] == ["y", "x"]
            assert informer.get("a", "x")["data"] == {"v": "done"}
            assert len(informer.list()) == 2
            assert story_of(informer) == [
                ("ADDED", "x=done"),
                ("ADDED", "y=done"),
            ]
            api.put(CONFIG_MAPS, "x", "a", data={"v": "2"})
            api.remove(CONFIG_MAPS, "y", "a")
            await clock.sleep(1)
            assert informer.by_index("v", "done") == []
        assert story == [
            ("ADDED", "x=1"),
            ("ADDED", "y=done"),
            ("MODIFIED", "x=done"),
            ("MODIFIED", "x=2"),
            ("DELETED", "y=done"),
        ]

    run_virtual(main)


def test_objects_are_packed_when_others_were_stored_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykueue.kube.informer.RECENT", 2)

    async def main(clock: Clock) -> None:
        api = FakeApi()
        informer = maps(api, clock, pack=lambda obj: "text")
        async with running(informer):
            await informer.synced()
            for name in ("x", "y", "z"):
                api.put(CONFIG_MAPS, name, "a", data={"v": "1"})
            await clock.sleep(1)
            # One that is kept as it is, is the same object each time it is read.
            assert informer.get("a", "y") is informer.get("a", "y")
            assert informer.list()[2] is informer.get("a", "z")
            assert informer.get("a", "x") == informer.list()[0]
            assert informer.get("a", "x") is not informer.list()[0]
            assert informer.get("a", "y") is informer.list()[1]

    run_virtual(main)


def test_the_packed_objects_that_were_read_last_are_unpacked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykueue.kube.informer.RECENT", 0)
    monkeypatch.setattr("pykueue.kube.informer.OPENED", 2)

    async def main(clock: Clock) -> None:
        api = FakeApi()
        informer = maps(api, clock, pack=lambda obj: "text")
        before: list[Any] = []
        async with running(informer):
            await informer.synced()
            for name in ("x", "y", "z"):
                api.put(CONFIG_MAPS, name, "a", data={"v": "1"})
            await clock.sleep(1)
            informer.on_event(lambda type_, old, new: before.append(old) if old else None)
            x, y = informer.get("a", "x"), informer.get("a", "y")
            assert informer.get("a", "x") is x
            assert informer.get("a", "y") is y
            assert informer.get("a", "z") is informer.get("a", "z")
            assert informer.get("a", "x") is not x  # two others were read since
            assert informer.get("a", "x") == x
            read = informer.get("a", "z")
            api.put(CONFIG_MAPS, "z", "a", data={"v": "2"})
            await clock.sleep(1)
            assert before[0] is read
            assert informer.get("a", "z")["data"] == {"v": "2"}
            api.remove(CONFIG_MAPS, "z", "a")
            await clock.sleep(1)
            assert informer.get("a", "z") is None

    run_virtual(main)


def test_handlers_are_called_in_their_order_not_in_that_in_which_they_were_added() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        informer = maps(api, clock)
        called: list[str] = []
        for name, order in (("late", 1), ("first of 0", 0), ("early", -1), ("second of 0", 0)):
            informer.on_event(lambda *_, name=name: called.append(name), order)
        async with running(informer):
            await informer.synced()
            api.put(CONFIG_MAPS, "x", "a", data={"v": "1"})
            await clock.sleep(1)
        assert called == ["early", "first of 0", "second of 0", "late"]

    run_virtual(main)
