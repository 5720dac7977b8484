"""Requests that once broke a bound of docs/develop/testing.md, reduced to what matters."""
# ruff: noqa: E501 (bodies are one line each)

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from hostile_encoding import MAGIC, PROTOBUF, as_json, field
from hostile_meter import Meter, Ordinary, metered_loop
from hostile_requests import SAMPLES, Sent
from hostile_run import calibrate, faults_of, too_dear
from hostile_world import Exchange, World

from pykueue.clock import Clock, run_virtual

MAPS = "/api/v1/namespaces/default/configmaps"
#: How often a request is sent; the least of its costs counts.
TIMES = 3


class Tried:
    """Sends requests to a fresh server each, and holds the answers to the bounds."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._ordinary: Ordinary | None = None

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Exchange:
        """The exchange, which breaks no bound."""
        if self._ordinary is None:
            self._ordinary = calibrate(self._meter)

        async def main(clock: Clock) -> Exchange:
            async with World(clock, 1, self._meter) as world:
                await world.create(MAPS, {"metadata": {"name": "a"}, "data": {"k1": "v"}})
                least = await world.ask(method, path, body, **headers)
                for _ in range(TIMES):
                    again = await world.ask(method, path, body, **headers)
                    least.cost = least.cost.least(again.cost)
                return least

        exchange = run_virtual(main)
        faults = faults_of(Sent([body]), exchange) + too_dear(exchange, self._ordinary)
        assert not faults, faults
        return exchange

    def code(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        """The code of the answer."""
        return self.send(method, path, body, **headers).answers[0].code


@pytest.fixture(scope="module")
def tried() -> Iterator[Tried]:
    with metered_loop() as meter:
        yield Tried(meter)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_json_nested_too_deeply_is_refused_whatever_the_method(tried: Tried, method: str) -> None:
    path = MAPS if method == "POST" else f"{MAPS}/a"
    assert tried.code(method, path, b"[" * 300 + b"]" * 300) == 400


@pytest.mark.parametrize(
    "steps",
    [
        [{"op": "add", "path": f"/metadata/annotations/k{number}", "value": "a"} for number in range(9_000)],
        [{"op": "add", "path": "/metadata/finalizers/-", "value": f"a/{number}"} for number in range(9_000)],
        [{"op": "add", "path": "/metadata/finalizers/0", "value": f"a/{number}"} for number in range(9_000)],
    ],
    ids=["keys", "last items", "first items"],
)
def test_json_patch_takes_time_in_proportion_to_its_operations(tried: Tried, steps: list[object]) -> None:
    first = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/finalizers", "value": []},
    ]
    path = "/api/v1/namespaces/default"
    tried.code("PATCH", path, as_json(first + steps), Content_Type="application/json-patch+json")


def test_json_patch_that_moves_too_many_list_items_is_refused(tried: Tried) -> None:
    steps = [
        {"op": "add", "path": "/metadata/finalizers", "value": ["a"] * 50_000},
        *([{"op": "add", "path": "/metadata/finalizers/0", "value": "a"}] * 9_000),
    ]
    path = "/api/v1/namespaces/default"
    assert tried.code("PATCH", path, as_json(steps), Content_Type="application/json-patch+json") == 413


@pytest.mark.parametrize("value", ["[]", "0", '{"a":1}', '"x"'])
def test_json_of_too_many_values_is_refused(tried: Tried, value: str) -> None:
    body = '{"data":[' + ",".join([value] * 300_000) + "]}"
    query = "?fieldValidation=Warn"
    assert tried.code("POST", MAPS + query, body.encode()) == 413


@pytest.mark.parametrize(
    "pod",
    [
        field(2, field(2, b"") * 400_000),
        field(2, field(2, field(4, b"a") * 400_000)),
        field(900, 0) * 400_000,
        field(2, field(2, field(8, field(1, field(1, "cpu") + field(2, field(1, "1") * 200_000))))),
    ],
    ids=["empty messages", "arguments", "unknown fields", "fields of a quantity"],
)
def test_protobuf_of_too_many_fields_is_refused(tried: Tried, pod: bytes) -> None:
    body = MAGIC + field(1, field(1, "v1") + field(2, "Pod")) + field(2, pod)
    path = "/api/v1/namespaces/default/pods"
    assert tried.code("POST", path, body, Content_Type=PROTOBUF) == 400


@pytest.mark.parametrize("jobs", ["1", '["w"]', '[{"name":"w","template":[1]}]', '{"a":"b"}'])
def test_custom_object_of_wrong_types_is_refused_where_a_rule_fills_in_defaults(
    tried: Tried, jobs: str
) -> None:
    body = '{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet","metadata":{"name":"a"},"spec":{"replicatedJobs":%s}}'
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    assert tried.code("POST", path, (body % jobs).encode()) == 422


@pytest.mark.parametrize(
    "patch",
    [
        {"kind": {f"k{number}": 1 for number in range(9_000)}},
        {"data": {f"k{number}": "1" for number in range(9_000)}},
        {"data": dict.fromkeys((f"k{number}" for number in range(9_000)), None)},
        {
            "metadata": {
                "finalizers": ["a/b"],
                "$setElementOrder/finalizers": [f"a/{n}" for n in range(9_000)],
            }
        },
        {
            "metadata": {
                "$retainKeys": [f"k{number}" for number in range(9_000)],
                **{f"k{n}": 1 for n in range(9_000)},
            }
        },
    ],
    ids=["unknown fields", "new keys", "removed keys", "order", "retained keys"],
)
def test_strategic_patch_takes_time_in_proportion_to_its_size(tried: Tried, patch: object) -> None:
    tried.code("PATCH", f"{MAPS}/a", as_json(patch), Content_Type="application/strategic-merge-patch+json")


@pytest.mark.parametrize(
    "expression", ["&a" * 9_000, "||".join(["object.a == 1"] * 3_000)], ids=["no CEL", "long"]
)
def test_expressions_of_too_many_characters_are_refused_uncompiled(tried: Tried, expression: str) -> None:
    webhook = copy.deepcopy(SAMPLES["ValidatingWebhookConfiguration"]["webhooks"][0])
    webhook["matchConditions"] = [{"name": "a", "expression": expression}]
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert tried.code("POST", path, as_json({"metadata": {"name": "a"}, "webhooks": [webhook]})) == 422


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        ("/api/v1/namespaces?resourceVersion=" + "9" * 5000, (400, 504)),
        ("/api/v1/namespaces?watch=1&resourceVersion=x", (400,)),
        ("/api/v1/namespaces?labelSelector=a%3E" + "9" * 6000, (200, 400)),
        ("/api/v1/namespaces?limit=" + "9" * 5000, (400,)),
    ],
)
def test_numbers_of_thousands_of_digits_are_refused(tried: Tried, path: str, codes: tuple[int, ...]) -> None:
    assert tried.code("GET", path) in codes


def test_review_without_a_name_is_shown_as_a_table(tried: Tried) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert tried.code("POST", path, b"{}", Accept="application/json;as=Table;v=v1;g=meta.k8s.io") == 201
