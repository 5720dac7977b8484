"""Events: what is kept of a flood, and that writing them disturbs no controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from kube_fake import FakeApi, Object

from pykueue.clock import Clock, run_virtual
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WAITING_LIMIT, WARNING, EventRecorder
from pykueue.kube.limiter import TokenBucket

POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "a", "uid": "u1", "resourceVersion": "7"},
}
NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u2"}}


def recorded(story: Callable[[Clock, FakeApi, EventRecorder], Awaitable[None]]) -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        recorder = EventRecorder(Client(api, clock=clock), clock, "job-controller")
        task = asyncio.create_task(recorder.run())
        await story(clock, api, recorder)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(main)


def seen(api: FakeApi) -> list[tuple[str, int]]:
    return [(obj["message"], obj["count"]) for obj in api.objects.values()]


def test_event_names_its_source_object_reason_and_time() -> None:
    async def story(clock: Clock, api: FakeApi, recorder: EventRecorder) -> None:
        recorder.event(POD, WARNING, "FailedScheduling", "no room")
        recorder.event(NODE, NORMAL, "Ready", "it is")
        await clock.sleep(1)
        event, about_node = api.objects.values()
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "namespace": "a",
            "uid": "u1",
            "resourceVersion": "7",
        }
        assert (event["type"], event["reason"], event["message"]) == (WARNING, "FailedScheduling", "no room")
        assert event["source"] == {"component": "job-controller"}
        assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"
        assert event["metadata"]["namespace"] == "a"
        assert about_node["metadata"]["namespace"] == "default"

    recorded(story)


def test_events_listed_by_name_are_listed_by_time() -> None:
    """`kubectl describe` shows events of one second in the order of their names."""

    async def story(clock: Clock, api: FakeApi, recorder: EventRecorder) -> None:
        steps = ["Scheduled", "Pulled", "Created", "Started", "Killing"]
        for step in steps:
            recorder.event(POD, NORMAL, step, step)
            await clock.sleep(0.001 if step == "Created" else 0)
        await clock.sleep(1)
        by_name = sorted(api.objects.values(), key=lambda event: str(event["metadata"]["name"]))
        assert [event["reason"] for event in by_name] == steps

    recorded(story)


def test_the_same_event_again_raises_a_count() -> None:
    async def story(clock: Clock, api: FakeApi, recorder: EventRecorder) -> None:
        for _ in range(3):
            recorder.event(POD, NORMAL, "Waiting", "still")
            await clock.sleep(10)
        assert seen(api) == [("still", 3)]
        (event,) = api.objects.values()
        assert event["lastTimestamp"] == "2026-01-01T00:00:20Z"
        api.objects.clear()
        recorder.event(POD, NORMAL, "Waiting", "still")
        await clock.sleep(1)
        assert seen(api) == [("still", 1)]

    recorded(story)


def test_twenty_created_pods_are_nine_events_and_a_combined_one() -> None:
    async def story(clock: Clock, api: FakeApi, recorder: EventRecorder) -> None:
        for number in range(20):
            recorder.event(POD, NORMAL, "SuccessfulCreate", f"Created pod: p-{number}")
        await clock.sleep(1)
        assert seen(api) == [
            *((f"Created pod: p-{number}", 1) for number in range(9)),
            ("(combined from similar events): Created pod: p-19", 11),
        ]
        await clock.sleep(601)
        recorder.event(POD, NORMAL, "SuccessfulCreate", "Created pod: p-20")
        await clock.sleep(1)
        assert seen(api)[-1] == ("Created pod: p-20", 1)

    recorded(story)


def test_an_object_has_a_burst_of_25_writes_and_then_one_per_five_minutes() -> None:
    async def story(clock: Clock, api: FakeApi, recorder: EventRecorder) -> None:
        for _ in range(50):
            recorder.event(POD, NORMAL, "SuccessfulCreate", "again")
        recorder.event(NODE, NORMAL, "Ready", "another object has its own allowance")
        await clock.sleep(1)
        assert [count for _, count in seen(api)] == [25, 1]
        assert recorder.dropped == 25
        for _ in range(12):
            await clock.sleep(100)
            recorder.event(POD, NORMAL, "SuccessfulCreate", "again")
        await clock.sleep(1)
        assert [count for _, count in seen(api)] == [29, 1]

    recorded(story)


def test_events_beyond_those_that_wait_are_dropped_and_their_texts_not_made() -> None:
    async def story(clock: Clock, api: FakeApi, recorder: EventRecorder) -> None:
        made: list[int] = []

        def note(number: int) -> str:
            made.append(number)
            return "text"

        for number in range(WAITING_LIMIT + 2):
            pod = {**POD, "metadata": {**POD["metadata"], "name": f"p-{number}", "uid": f"uid-{number}"}}
            recorder.event(pod, NORMAL, "SuccessfulCreate", partial(note, number))
        assert made == list(range(WAITING_LIMIT))
        assert recorder.dropped == 2
        await clock.sleep(1)
        assert len(seen(api)) == WAITING_LIMIT

    recorded(story)


def test_refused_events_are_dropped_and_writes_wait_for_the_limit_in_the_background() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        client = Client(api, TokenBucket(clock, qps=1, burst=1), clock=clock)
        recorder = EventRecorder(client, clock, "c")
        task = asyncio.create_task(recorder.run())
        api.refusals.append(ApiError(403, "Forbidden", "the namespace is terminating"))
        for number in range(4):
            recorder.event(POD, NORMAL, "Done", f"step {number}")
        assert asyncio.get_running_loop().time() == 0
        await clock.sleep(1.5)
        assert seen(api) == [("step 1", 1)]
        await clock.sleep(2)
        assert seen(api) == [("step 1", 1), ("step 2", 1), ("step 3", 1)]
        assert recorder.dropped == 1
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(main)
