"""Query parameters of any text: an answer below 500, and 400 for numbers that are none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from clients_harness import RawClient, config_map

from pykueue.testing import RunningServer, running_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
#: Texts that are no integers of 64 bits.
WRONG = ["minus", "1" * 5000, "²", "1.5", "1_0", "0x1", " 1", "9" * 20, "--1"]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> RawClient:
    return RawClient(server)


@pytest.mark.parametrize("text", [*WRONG, "-5"])
@pytest.mark.parametrize("query", ["", "watch=1&", "resourceVersionMatch=NotOlderThan&"])
def test_resource_versions_that_are_no_numbers_are_refused(client: RawClient, query: str, text: str) -> None:
    status = client.refused("GET", f"{CONFIG_MAPS}?{query}resourceVersion={quote(text)}")
    if "watch" in query or "Match" not in query:
        assert status["code"] == 400
        assert "strconv.ParseUint" in status["message"]


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("query", ["limit", "timeoutSeconds", "watch=1&timeoutSeconds"])
def test_numbers_of_lists_and_watches_that_are_none_are_refused(
    client: RawClient, query: str, text: str
) -> None:
    status = client.refused("GET", f"{CONFIG_MAPS}?{query}={quote(text)}")
    assert status["code"] == 400
    assert "strconv.ParseInt" in status["message"]


@pytest.mark.parametrize("text", WRONG)
def test_grace_periods_that_are_no_numbers_are_refused(client: RawClient, text: str) -> None:
    status = client.refused("DELETE", f"{CONFIG_MAPS}/x?gracePeriodSeconds={quote(text)}")
    assert status["code"] in (404, 422)


def test_the_longest_grace_period_is_a_date(client: RawClient, server: RunningServer) -> None:
    pod = {"metadata": {"name": "slow"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    pod["spec"]["nodeName"] = "there"

    assert client.ask("POST", "/api/v1/namespaces/default/pods", json.dumps(pod).encode())[0] == 201
    path = f"/api/v1/namespaces/default/pods/slow?gracePeriodSeconds={2**63 - 1}"
    code, answer = client.ask("DELETE", path)
    assert code == 200, answer
    assert json.loads(answer)["metadata"]["deletionGracePeriodSeconds"] == 2**31 - 1


@pytest.mark.parametrize("text", ["a>" + "1" * 5000, "a<²", "a in (" + "b," * 9000 + "c)", "," * 30_000])
def test_label_selectors_of_any_text_are_answered(client: RawClient, text: str) -> None:
    code, _ = client.ask("GET", f"{CONFIG_MAPS}?labelSelector={quote(text)}")
    assert code in (200, 400)


def test_malformed_label_selector_is_refused_with_the_requirement(client: RawClient) -> None:
    status = client.refused("GET", f"{CONFIG_MAPS}?labelSelector={quote('a in b')}")
    assert status["code"] == 400
    assert status["message"] == "unable to parse requirement: found 'b' where '(' is needed in 'a in b'"


def test_continue_tokens_of_any_text_are_refused(client: RawClient) -> None:
    for text in ("x", "e30", "1" * 5000, quote("é")):
        assert client.refused("GET", f"{CONFIG_MAPS}?limit=1&continue={text}")["code"] in (400, 410)
    client.ask("POST", CONFIG_MAPS, str(config_map("a")).encode())
