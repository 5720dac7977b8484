"""Calls of a webhook that has much to do, that answers nothing, and that ends connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from apiserver_harness import CONFIG_MAPS, Api, config_map, with_server

from pykueue.embedded.apiserver.webhooks.services import Services
from pykueue.embedded.apiserver.webhooks.turns import CALLS_UNDER_WAY, Turns
from pykueue.kube.errors import ApiError

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
Post = Callable[..., Awaitable[Any]]


def allowed(review: Any) -> Any:
    return {"kind": "AdmissionReview", "response": {"uid": review["request"]["uid"], "allowed": True}}


async def configure(api: Api) -> None:
    webhook = {
        "name": "guard.example.com",
        "clientConfig": {"url": "https://guard.example.com/"},
        "rules": [RULE],
        "timeoutSeconds": 10,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    await api.create(CONFIGURATIONS, {**body, "metadata": {"name": "guard"}, "webhooks": [webhook]})


def play(monkeypatch: pytest.MonkeyPatch, post: Post, count: int) -> tuple[list[Any], float]:
    """The outcomes of creations that come at once, and how long they take; `post` is the webhook's server."""
    outcomes: list[Any] = []
    seconds = 0.0

    async def story(api: Api) -> None:
        nonlocal seconds
        monkeypatch.setattr(Services, "_post", post)
        await configure(api)
        begun = asyncio.get_running_loop().time()
        created = (api.create(CONFIG_MAPS, config_map(f"c{number}")) for number in range(count))
        outcomes.extend(await asyncio.gather(*created, return_exceptions=True))
        seconds = asyncio.get_running_loop().time() - begun

    with_server(story)
    return outcomes, seconds


def test_a_busy_webhook_gets_no_more_calls_than_it_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = most = 0
    processor = asyncio.Lock()

    async def post(_self: Services, _url: str, _certified: Any, _trust: Any, review: Any) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        async with processor:  # it answers ten in a second
            await asyncio.sleep(0.1)
        at_once -= 1
        return allowed(review)

    outcomes, seconds = play(monkeypatch, post, 300)
    assert [one for one in outcomes if isinstance(one, Exception)] == []
    assert most == CALLS_UNDER_WAY
    assert seconds == pytest.approx(30, abs=0.1)


def test_a_webhook_that_answers_nothing_fails_all_calls_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(*_: Any) -> Any:
        await asyncio.sleep(3600)

    outcomes, seconds = play(monkeypatch, post, 100)
    assert {(type(one), one.code) for one in outcomes} == {(ApiError, 500)}
    assert all("context deadline exceeded after 10s" in one.message for one in outcomes)
    assert seconds == pytest.approx(10, abs=0.1)


def test_a_call_given_up_while_it_waits_leaves_the_turns_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(_self: Services, _url: str, _certified: Any, _trust: Any, review: Any) -> Any:
        await asyncio.sleep(1)
        return allowed(review)

    async def story(api: Api) -> None:
        monkeypatch.setattr(Services, "_post", post)
        await configure(api)
        calls = [
            asyncio.create_task(api.create(CONFIG_MAPS, config_map(f"c{number}")))
            for number in range(3 * CALLS_UNDER_WAY)
        ]
        await asyncio.sleep(0.5)
        for one in calls[::2]:  # some are under way, others wait
            one.cancel()
        left = calls[1::2]
        await asyncio.gather(*left)
        await api.create(CONFIG_MAPS, config_map("next"))

    with_server(story)


def test_an_answer_that_has_arrived_is_read_when_this_process_was_stopped_meanwhile() -> None:
    async def story() -> bytes:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            theirs.send(b"answer")
            try:
                return await Turns().call(lambda: reader.read(6), 0)
            finally:
                writer.close()

    assert asyncio.run(story()) == b"answer"


@pytest.mark.parametrize(("times", "code"), [(1, 201), (2, 500)])
def test_a_review_is_sent_again_when_the_connection_ends_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, times: int, code: int
) -> None:
    ended = 0

    async def post(_self: Services, _url: str, _certified: Any, _trust: Any, review: Any) -> Any:
        nonlocal ended
        if ended < times:
            ended += 1
            raise aiohttp.ServerDisconnectedError
        return allowed(review)

    outcomes, _ = play(monkeypatch, post, 1)
    assert (outcomes[0].code if isinstance(outcomes[0], ApiError) else 201) == code
