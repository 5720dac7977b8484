"""Requests that once broke a bound of docs/develop/testing.md, reduced to what matters."""
# ruff: noqa: E501 (bodies are one line each)

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator

import pytest
from hostile_encoding import MAGIC, PROTOBUF, as_json, field
from hostile_framing import UPGRADE
from hostile_meter import Meter, Ordinary, metered_loop
from hostile_requests import SAMPLES, Sent
from hostile_run import calibrate, faults_of, too_dear
from hostile_world import ADMIN, Exchange, World

from pykueue.clock import Clock, run_virtual

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
ENTERED = f"{PODS}/a"
#: How often a request is sent; the least of its costs counts.
TIMES = 3
#: How often what costs too much is tried again, each time beside what is ordinary then.
TRIALS = 5


class Tried:
    """Sends requests to a fresh server each, and holds the answers to the bounds."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._ordinary: Ordinary | None = None

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Exchange:
        """The exchange, which breaks no bound."""
        return self._hold(lambda world: world.ask(method, path, body, **headers), Sent([body]))

    def enter(self, frames: bytes) -> Exchange:
        """The exchange of an exec WebSocket whose client sends these frames in one go; it breaks no bound."""
        head = (
            f"GET {ENTERED}/exec?command=a&stdin=true HTTP/1.1\r\nAuthorization: Bearer {ADMIN}\r\n".encode()
        )
        head += UPGRADE + b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
        exchange = self._hold(lambda world: world.send([head, frames], 0), Sent([frames], 0))
        assert exchange.answers[0].code == 101
        return exchange

    def _hold(self, ask: Callable[[World], Awaitable[Exchange]], sent: Sent) -> Exchange:
        exchange, ordinary = self._try(ask), self._ordinary or calibrate(self._meter)
        self._ordinary = ordinary
        for _ in range(TRIALS):
            if not too_dear(exchange, ordinary):
                break
            # The machine may be slower now than when what is ordinary was measured.
            exchange, ordinary = self._try(ask), calibrate(self._meter)
        faults = faults_of(sent, exchange) + too_dear(exchange, ordinary)
        assert not faults, faults
        return exchange

    def _try(self, ask: Callable[[World], Awaitable[Exchange]]) -> Exchange:
        async def main(clock: Clock) -> Exchange:
            async with World(clock, 1, self._meter) as world:
                world.allow_entering()
                await world.create(MAPS, {"metadata": {"name": "a"}, "data": {"k1": "v"}})
                spec = {"containers": [{"name": "main", "image": "a"}]}
                await world.create(PODS, {"metadata": {"name": "a"}, "spec": spec})
                least = await ask(world)
                for _ in range(TIMES):
                    again = await ask(world)
                    least.cost = least.cost.least(again.cost)
                return least

        return run_virtual(main)

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


@pytest.mark.parametrize(
    "frame",
    [
        b"\x81\x81\0\0\0\0\xff",  # a message of one byte
        b"\x82\x80\0\0\0\0",  # an empty message
        b"\x82\x82\0\0\0\0\0a",  # input
        b"\x02\x81\0\0\0\0\0\x80\x81\0\0\0\0a",  # input in fragments
        b"\x82\x83\0\0\0\0\4{}",  # the size of the terminal
        b"\x89\x80\0\0\0\0",  # a ping
        b"\x8a\x80\0\0\0\0",  # a pong
    ],
    ids=["one byte", "empty", "input", "fragments", "size", "ping", "pong"],
)
def test_many_small_frames_cost_no_more_than_a_create_of_their_size(tried: Tried, frame: bytes) -> None:
    tried.enter(frame * 40_000)


def test_continuation_frames_without_end_are_cheap(tried: Tried) -> None:
    tried.enter(b"\x02\x80\0\0\0\0" + b"\0\x80\0\0\0\0" * 40_000)
