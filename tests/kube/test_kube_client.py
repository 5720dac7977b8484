"""Requests: what is sent, when, and how often."""

from __future__ import annotations

import asyncio

import pytest
from kube_fake import FakeApi, Object

from pykueue.api.resources import CONFIG_MAPS, NODES, PODS
from pykueue.clock import Clock, run_virtual
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.limiter import TokenBucket


def test_a_list_is_read_page_by_page_and_its_items_say_what_they_are() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        for number in range(7):
            api.put(PODS, f"p{number}", "a")
            api.objects[PODS.path("a", f"p{number}")].pop("kind")
        found = await Client(api, clock=clock, page_size=3).list(PODS, "a", label_selector="x=y")
        assert [item["metadata"]["name"] for item in found.items] == [f"p{n}" for n in range(7)]
        assert {item["kind"] for item in found.items} == {"Pod"}
        assert found.resource_version == "7"
        assert [request.query.get("continue") for request in api.requests] == [None, "3", "6"]
        assert {request.query["labelSelector"] for request in api.requests} == {"x=y"}

    run_virtual(main)


def test_the_request_limit_lets_a_burst_through_and_then_keeps_the_rate_in_order() -> None:
    async def main(clock: Clock) -> None:
        bucket = TokenBucket(clock, qps=20, burst=30)
        loop = asyncio.get_running_loop()
        passed: list[tuple[int, float]] = []

        async def ask(number: int) -> None:
            await bucket.acquire()
            passed.append((number, round(loop.time(), 6)))

        await asyncio.gather(*(ask(number) for number in range(50)))
        assert [number for number, _ in passed] == list(range(50))
        assert [at for _, at in passed[:30]] == [0.0] * 30
        assert [at for _, at in passed[30:]] == [round((n + 1) / 20, 6) for n in range(20)]
        await clock.sleep(10)
        before = loop.time()
        await asyncio.gather(*(ask(number) for number in range(31)))
        assert loop.time() - before == pytest.approx(1 / 20)

    run_virtual(main)


def test_request_cancelled_while_waiting_frees_its_slot() -> None:
    async def main(clock: Clock) -> None:
        bucket = TokenBucket(clock, qps=1, burst=1)
        await bucket.acquire()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await bucket.acquire()
        started = asyncio.get_running_loop().time()
        await bucket.acquire()
        assert asyncio.get_running_loop().time() - started == pytest.approx(0.5)

    run_virtual(main)


def test_a_server_that_asks_for_patience_gets_it() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.put(NODES, "n")
        api.refusals = [
            ApiError(429, "TooManyRequests", "busy", retry_after=2.0),
            ApiError(503, "ServiceUnavailable", "starting", retry_after=3.0),
        ]
        node = await Client(api, clock=clock).get(NODES, "n")
        assert node["metadata"]["name"] == "n"
        assert asyncio.get_running_loop().time() == 5.0
        api.refusals = [ApiError(500, "InternalError", "broken")]
        with pytest.raises(ApiError, match="broken"):
            await Client(api, clock=clock).get(NODES, "n")
        api.refusals = [ApiError(429, "TooManyRequests", "busy", retry_after=1.0)] * 11
        with pytest.raises(ApiError, match="busy"):
            await Client(api, clock=clock).get(NODES, "n")

    run_virtual(main)


def test_modify_reads_again_after_a_conflict() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        api.put(CONFIG_MAPS, "m", "a", data={"n": "0"})
        seen: list[str] = []

        def add_one(stored: Object) -> Object:
            seen.append(stored["data"]["n"])
            if len(seen) == 1:
                api.put(CONFIG_MAPS, "m", "a", data={"n": "10"})
            return {**stored, "data": {"n": str(int(stored["data"]["n"]) + 1)}}

        result = await Client(api, clock=clock).modify(CONFIG_MAPS, "m", "a", add_one)
        assert seen == ["0", "10"]
        assert result["data"] == {"n": "11"}

    run_virtual(main)


def test_deletes_and_applies_carry_their_options() -> None:
    async def main(clock: Clock) -> None:
        api = FakeApi()
        client = Client(api, clock=clock)
        api.put(PODS, "p", "a")
        await client.apply(
            PODS, {"metadata": {"name": "p", "namespace": "a"}}, field_manager="me", force=True, dry_run=True
        )
        assert dict(api.requests[-1].query) == {"dryRun": "All", "fieldManager": "me", "force": "true"}
        await client.delete(PODS, "p", "a", propagation="Foreground", uid="u", grace_period=0)
        assert api.requests[-1].body == {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u"},
        }

    run_virtual(main)
