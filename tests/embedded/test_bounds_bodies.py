"""Small request bodies that are expensive to parse: bounds on their cost, and the responses."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest
from clients_harness import PATIENCE, WIDGETS, RawClient

from pykueue.embedded.apiserver.http.warning_fields import (
    COUNT_LIMIT,
    ITEM_LIMIT,
    TOTAL_LIMIT,
    warning_fields,
)
from pykueue.embedded.objects.errors import MAX_CAUSES, MAX_CAUSES_TEXT, shown
from pykueue.embedded.objects.values import has_more_values
from pykueue.embedded.schema.causes import MAX_LISTED_VALUES
from pykueue.embedded.schema.walk import MAX_UNKNOWN
from pykueue.testing import RunningServer, running_server

WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget"}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        server.install_definitions(WIDGETS)
        yield server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> RawClient:
    return RawClient(server)


def merge_keys(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (merge_keys(40), "aliases make the document too large"),
        ("data: {a: " + "1" * 5000 + "}", "is too large"),
        ("data: {a: " + "[" * 5000, "nested deeper than 240 levels"),
        ("a: [" + "x," * 120_000 + "x]", "the document has more than 100000 values"),
        ("data: {a: 1" + ":1" * 60_000 + "", "did not find expected ',' or '}'"),
    ],
)
def test_yaml_bodies_that_would_take_long_are_refused(client: RawClient, body: str, message: str) -> None:
    status = client.refused("POST", CONFIG_MAPS, body.encode(), Content_Type="application/yaml")
    assert status["code"] == 400
    assert message in status["message"]


def test_yaml_with_a_number_of_base_60_is_text(client: RawClient) -> None:
    body = "metadata: {name: sixty}\ndata: {time: 1:02:05, long: 1" + ":1" * 60_000 + "}"
    code, answer = client.ask("POST", CONFIG_MAPS, body.encode(), Content_Type="application/yaml")
    assert code == 201
    assert b'"time":"1:02:05"' in answer


def test_yaml_keys_that_appear_twice_are_refused_by_strict_validation(client: RawClient) -> None:
    body = b"metadata: {name: twice}\ndata: {a: x, a: y}"
    status = client.refused(
        "POST", CONFIG_MAPS + "?fieldValidation=Strict", body, Content_Type="application/yaml"
    )
    assert 'strict decoding error: duplicate field "a"' in status["message"]
    code, _ = client.ask("POST", CONFIG_MAPS, body, Content_Type="application/yaml")
    assert code == 201


def answer_of(client: RawClient, method: str, path: str, body: object) -> http.client.HTTPResponse:
    """An answer with its header fields; reads at most as many as Python's client accepts."""
    connection = http.client.HTTPSConnection(*client.address, context=client.context, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_warnings_about_20_000_unknown_fields_are_summarised(client: RawClient) -> None:
    body = {"metadata": {"name": "unknown"}, **{f"field{n}": "x" * 20 for n in range(20_000)}}
    answer = answer_of(client, "POST", CONFIG_MAPS, body)
    assert answer.status == 201
    warnings = answer.headers.get_all("Warning") or []
    assert warnings[0] == '299 - "unknown field \\"field0\\""'
    assert len(warnings) == COUNT_LIMIT + 1
    assert warnings[-1] == f'299 - "{MAX_UNKNOWN - COUNT_LIMIT} more warnings are not shown"'
    assert sum(map(len, warnings)) < 2 * TOTAL_LIMIT


def test_warnings_over_the_limit_are_shortened_and_counted() -> None:
    fields = warning_fields([f"{n}" + "x" * 1000 for n in range(50)]).decode().splitlines()
    assert len(fields) == TOTAL_LIMIT // ITEM_LIMIT + 1
    assert fields[-1] == f'Warning: 299 - "{50 - TOTAL_LIMIT // ITEM_LIMIT} more warnings are not shown"'
    assert warning_fields(['a\x00"\n', 'a\x00"\n']) == b'Warning: 299 - "a \\" "\r\n'


def test_unknown_fields_below_a_long_key_have_short_paths(client: RawClient) -> None:
    managed = {"x" * 100_000: {f"field{n}": 1 for n in range(1000)}}
    body = {"metadata": {"name": "long"}, "spec": {"parts": [{"name": "a", **managed}]}}
    path = "/apis/example.com/v1/namespaces/default/widgets?fieldValidation=Strict"
    status = client.refused("POST", path, json.dumps({**WIDGET, **body}).encode())
    assert len(status["message"]) < 2000


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_causes_of_many_faults_are_listed_in_part(client: RawClient, count: int) -> None:
    parts = [{"name": "x" * 3000, "weight": "heavy"}] * count
    body = {**WIDGET, "metadata": {"name": "heavy"}, "spec": {"parts": parts[: min(count, 900)]}}
    if count > 1000:
        body["spec"] = {"parts": [{"name": f"{n}", "weight": ""} for n in range(count // 4)]}
    status = client.refused(
        "POST", "/apis/example.com/v1/namespaces/default/widgets", json.dumps(body).encode()
    )
    assert status["code"] == 422
    assert len(status["details"]["causes"]) <= MAX_CAUSES
    assert len(json.dumps(status)) < 4 * MAX_CAUSES_TEXT


def test_values_are_shown_in_part() -> None:
    assert shown({"a": [1, "b"]}) == '{"a":[1,"b"]}'
    assert len(shown("x" * 1_000_000)) < 1100
    assert len(shown({"x" * 1_000_000: "y" * 1_000_000})) < 2100
    assert shown(list(range(1000))).endswith('"... 901 more"]')
    assert len(shown([["x" * 100] * 1000] * 1000)) < 2100


def test_a_large_object_lists_its_first_fault(client: RawClient) -> None:
    values = {"a": list(range(MAX_LISTED_VALUES))}
    assert not has_more_values(values, MAX_LISTED_VALUES + 2)
    assert has_more_values(values, MAX_LISTED_VALUES + 1)
    body = {"metadata": {"name": "wrong"}, "data": {f"k{n}": 1 for n in range(MAX_LISTED_VALUES + 1)}}
    status = client.refused("POST", CONFIG_MAPS, json.dumps(body).encode())
    assert len(status["details"]["causes"]) == 1
