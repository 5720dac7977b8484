"""What no client should send: it is answered with a Status or a closed connection, and the server goes on."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from clients_harness import PATIENCE, WIDGETS, RawClient, config_map, deployment, pod, widget
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.testing import RunningServer, running_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SETTINGS = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        server.install_definitions(WIDGETS)
        yield server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> RawClient:
    return RawClient(server)


@pytest.fixture(autouse=True)
def _the_server_goes_on(client: RawClient, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert client.alive()
    faults = [record for record in caplog.records if record.exc_info]
    assert not faults, faults


def is_untyped(code: int, answer: bytes) -> bool:
    """Applying what does not fit the schema is a 500 on any API server."""
    return code == 500 and b"failed to create typed patch object" in answer


class TestBodies:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"nonsense",
            b"[]",
            b"null",
            b"1",
            b'"text"',
            b"{}",
            b'{"metadata":[]}',
            b'{"metadata":{"name":1}}',
            b'{"metadata":{"name":"a","labels":[]}}',
            b'{"metadata":{"name":"a","labels":{"a":1}}}',
            b'{"metadata":{"name":"a","annotations":"x"}}',
            b'{"metadata":{"name":"a","ownerReferences":[1]}}',
            b'{"metadata":{"name":"a","finalizers":{"a":1}}}',
            b'{"metadata":{"name":"a"},"data":[]}',
            b'{"metadata":{"name":"\xff\xfe"}}',
            b'{"metadata":{"name":"\\ud800"}}',
            b'{"metadata":{"name":"a\\u0000b"}}',
            b'{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}',
            b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}',
            b'{"apiVersion":1,"kind":{},"metadata":{"name":"a"}}',
            b'{"metadata":{"name":"a"},"data":{"a":1.5}}',
            b'{"metadata":{"name":"a"},"immutable":"yes"}',
            b"k8s\x00",
            b"k8s\x00\xff\xff\xff\xff\xff",
        ],
    )
    @pytest.mark.parametrize(
        "media", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", ""]
    )
    def test_that_are_not_objects(self, client: RawClient, body: bytes, media: str) -> None:
        client.refused("POST", CONFIG_MAPS, body, Content_Type=media)

    @pytest.mark.parametrize("depth", [200, 5_000, 200_000])
    @pytest.mark.parametrize("kind", ["configmaps", "widgets"])
    def test_that_are_nested_too_deeply(self, client: RawClient, depth: int, kind: str) -> None:
        path = CONFIG_MAPS if kind == "configmaps" else "/apis/example.com/v1/namespaces/default/widgets"
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            nested = opening * depth + b"1" + closing * depth
            body = b'{"metadata":{"name":"deep","annotations":' + nested + b"}}"
            client.refused("POST", path, body, Content_Type="application/json")
            client.refused("POST", path, nested, Content_Type="application/yaml")

    def test_yaml_that_grows(self, client: RawClient) -> None:
        levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
        bomb = f"a0: &a0 [x]\n{levels}\nmetadata: {{name: bomb}}\n".encode()
        client.refused("POST", CONFIG_MAPS, bomb, Content_Type="application/yaml")

    def test_that_are_too_large(self, client: RawClient) -> None:
        for size in (1_200_000, 3_200_000):
            body = json.dumps(config_map("large", text="x" * size)).encode()
            code, _ = client.ask("POST", CONFIG_MAPS, body, Content_Type="application/json")
            assert code in (201, 413, 422)
        declared = client.connect()
        declared.sendall(
            f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n"
            "Content-Length: 99999999999\r\n\r\n".encode()
        )
        assert b" 413 " in declared.recv(200)
        declared.close()

    @pytest.mark.parametrize(
        "media", ["text/html", "multipart/form-data", "application/xml", "a/b/c;;", "\x01"]
    )
    def test_of_unknown_media(self, client: RawClient, media: str) -> None:
        # What is no header at all is refused before it is a request.
        with contextlib.suppress(ConnectionError, http.client.HTTPException, ValueError):
            client.refused("POST", CONFIG_MAPS, b"<a/>", Content_Type=media)

    @SETTINGS
    @given(body=st.binary(max_size=300))
    def test_of_any_bytes(self, client: RawClient, body: bytes) -> None:
        for media in ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf"):
            client.refused("POST", CONFIG_MAPS, body, Content_Type=media)


class TestRequests:
    @pytest.mark.parametrize(
        "path",
        [
            "/api/v1/namespaces/default/configmaps/%00",
            "/api/v1/namespaces/default/configmaps/%ff%fe",
            "/api/v1/namespaces/%2e%2e/configmaps/x",
            "/api/v1/namespaces/default/configmaps/../../secrets",
            "/apis/nope/v1/things",
            "/api/v9/pods",
            "/api/v1/namespaces/default/pods/a/b/c/d/e",
            "//////",
            CONFIG_MAPS + "?labelSelector=%%%",
            CONFIG_MAPS + "?labelSelector=a+in+(",
            CONFIG_MAPS + "?labelSelector===",
            CONFIG_MAPS + "?fieldSelector=a%3Db%3Dc",
            CONFIG_MAPS + "?limit=-1",
            CONFIG_MAPS + "?limit=many",
            CONFIG_MAPS + "?continue=garbage",
            CONFIG_MAPS + "?resourceVersion=minus",
            CONFIG_MAPS + "?resourceVersion=-5",
            CONFIG_MAPS + "?resourceVersion=99999999999999999999999",
            CONFIG_MAPS + "?resourceVersionMatch=Sometimes&resourceVersion=1",
            CONFIG_MAPS + "?watch=1&resourceVersion=minus",
            CONFIG_MAPS + "?watch=1&sendInitialEvents=true",
        ],
    )
    def test_paths_and_queries(self, client: RawClient, path: str) -> None:
        code, answer = client.ask("GET", path)
        # As on any API server: versions to come are waited for in vain, and no version is a fault.
        known = (b"Too large resource version", b"strconv.ParseUint")
        assert code < 500 or any(text in answer for text in known), answer
        assert b"Traceback" not in answer

    @pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "HEAD", "FROB"])
    def test_methods(self, client: RawClient, method: str) -> None:
        assert client.ask(method, CONFIG_MAPS)[0] in (200, 400, 404, 405, 501)

    @pytest.mark.parametrize(
        "token", ["", "Bearer", "Bearer a.b.c", "Bearer ....", "Basic xyz", "Bearer e30.e30.AAAA", "Bearer é"]
    )
    def test_credentials(self, client: RawClient, token: str) -> None:
        code, answer = client.ask("GET", CONFIG_MAPS, Authorization=token)
        assert code == 401, answer

    @pytest.mark.parametrize(
        ("media", "patch"),
        [
            ("application/json-patch+json", b'{"op":"add"}'),
            ("application/json-patch+json", b'[{"op":"frob","path":"/a"}]'),
            ("application/json-patch+json", b'[{"op":"add","path":"a","value":1}]'),
            ("application/json-patch+json", b'[{"op":"add","path":"/data/-/~2","value":1}]'),
            ("application/json-patch+json", b'[{"op":"remove","path":""}]'),
            ("application/json-patch+json", b'[{"op":"replace","path":"","value":[]}]'),
            ("application/json-patch+json", b'[{"op":"move","from":"/metadata","path":"/metadata/x"}]'),
            ("application/json-patch+json", b"[1]"),
            ("application/json-patch+json", b'[{"op":"copy","from":"/nope","path":"/data"}]'),
            ("application/merge-patch+json", b"[]"),
            ("application/merge-patch+json", b"1"),
            ("application/merge-patch+json", b'{"metadata":{"name":"other"}}'),
            ("application/merge-patch+json", b'{"data":[1]}'),
            ("application/strategic-merge-patch+json", b'{"$patch":"frob"}'),
            ("application/strategic-merge-patch+json", b'{"metadata":{"finalizers":[1]}}'),
            ("application/strategic-merge-patch+json", b'{"metadata":{"ownerReferences":[{"x":1}]}}'),
            ("application/apply-patch+yaml", b"a: b: c"),
            ("application/apply-patch+yaml", b"[]"),
            ("application/apply-patch+yaml", b'{"apiVersion":"v1","kind":"ConfigMap","data":{"a":[1]}}'),
        ],
    )
    def test_patches(self, client: RawClient, media: str, patch: bytes) -> None:
        name = f"{CONFIG_MAPS}/patched"
        client.ask("POST", CONFIG_MAPS, json.dumps(config_map("patched", a="b")).encode())
        code, answer = client.ask("PATCH", f"{name}?fieldManager=me", patch, Content_Type=media)
        assert code in (400, 409, 415, 422) or is_untyped(code, answer), answer


class TestConnections:
    def test_rubbish_instead_of_http(self, client: RawClient) -> None:
        for rubbish in (b"\x00" * 5000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 100_000):
            connection = client.connect()
            try:
                connection.sendall(rubbish)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            except OSError:
                pass  # closed: that is an answer
            finally:
                connection.close()

    def test_no_tls(self, client: RawClient) -> None:
        with socket.create_connection(client.address, timeout=PATIENCE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(4096)

    def test_bodies_that_never_end(self, client: RawClient) -> None:
        """The connections stay open unanswered; others are served, and leaving is enough to end them."""
        head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n"
        slow = [client.connect() for _ in range(20)]
        for number, connection in enumerate(slow):
            connection.sendall(
                (
                    head
                    + (
                        "Content-Length: 100\r\n\r\n{"
                        if number % 2
                        else "Transfer-Encoding: chunked\r\n\r\n5\r\n{"
                    )
                ).encode()
            )
        assert client.alive()
        for connection in slow:
            connection.close()

    def test_many_idle_watches(self, client: RawClient) -> None:
        ask = (
            f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n\r\n"
        ).encode()
        watches = [client.connect() for _ in range(300)]
        for connection in watches:
            connection.sendall(ask)
        for connection in watches:
            assert connection.recv(17) == b"HTTP/1.1 200 OK\r\n"
        assert client.alive()
        for connection in watches:
            connection.close()

    def test_leaving_in_the_middle_of_an_answer(self, client: RawClient) -> None:
        ask = (
            f"GET /openapi/v3/api/v1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n\r\n"
        ).encode()
        for _ in range(20):
            connection = client.connect()
            connection.sendall(ask)
            connection.recv(10)
            connection.close()

    def test_many_at_once(self, client: RawClient) -> None:
        codes: list[int] = []

        def ask() -> None:
            codes.append(client.ask("GET", CONFIG_MAPS)[0])

        threads = [threading.Thread(target=ask) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(codes) <= {200, 429}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["", "1", "-1", "10Gi", "2026-01-01T00:00:00Z", 2**63, -(2**70), 1e308]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with the value at a path replaced."""
    if not path:
        return value
    if isinstance(document, dict):
        return {**document, path[0]: replaced(document[path[0]], path[1:], value)}
    return [replaced(one, path[1:], value) if n == path[0] else one for n, one in enumerate(document)]


def sample(schema: Any, resolve: Any, depth: int = 0) -> Any:
    """A document that has every field of a published schema, down to some depth."""
    if "$ref" in schema:
        schema = resolve(schema["$ref"])
    for one in schema.get("allOf", ()):
        schema = {**resolve(one["$ref"]), **schema} if "$ref" in one else {**one, **schema}
    kind = schema.get("type")
    if "properties" in schema and depth < 7:
        return {name: sample(below, resolve, depth + 1) for name, below in schema["properties"].items()}
    if kind == "array":
        return [sample(schema.get("items", {}), resolve, depth + 1)] if depth < 7 else []
    if kind == "object":
        extra = schema.get("additionalProperties")
        return {"key": sample(extra, resolve, depth + 1)} if isinstance(extra, dict) and depth < 7 else {}
    return {"string": "text", "integer": 1, "number": 1, "boolean": True}.get(kind, "1")


class TestEveryField:
    """A wrong value anywhere in any kind: stored after all, or refused with a Status; never a fault."""

    def kinds(self, server: RunningServer) -> list[tuple[str, str, dict[str, Any]]]:
        assert server.cluster.server is not None
        found = []
        for endpoint in server.cluster.server.core.registry:
            if "create" not in endpoint.kind.verbs or endpoint.group.startswith("auth"):
                continue
            document = endpoint.schema.openapi()
            definitions = document.get("components", {}).get("schemas", {})
            resolve = lambda ref, known=definitions: known.get(ref.rpartition("/")[2], {})  # noqa: E731
            whole = sample(document, resolve)
            if not isinstance(whole, dict):
                continue
            whole.update(apiVersion=endpoint.api_version, kind=endpoint.kind.kind)
            whole["metadata"] = {"name": "fuzzed"}
            root = (
                f"/apis/{endpoint.group}/{endpoint.version}" if endpoint.group else f"/api/{endpoint.version}"
            )
            space = "/namespaces/default" if endpoint.namespaced else ""
            found.append((endpoint.qualified, f"{root}{space}/{endpoint.plural}", whole))
        return found

    def ask(self, server: RunningServer, request: Request) -> None:
        assert server.cluster.server is not None
        transport = server.cluster.server.transport()
        try:
            server.run(transport.call(request))
        except ApiError as error:
            if error.code >= 500 and not is_untyped(error.code, error.message.encode()):
                raise AssertionError(f"{request.path} {request.body}: {error}") from error

    def test_of_every_kind(self, server: RunningServer) -> None:
        """One value of each type in each field of each kind, through every kind of write."""
        wrong: tuple[Any, ...] = (None, True, -1, 2**70, 1.5, "", "x", [], [1], [{}], {}, {"a": 1}, {"a": {}})
        for name, path, whole in self.kinds(server):
            if name.startswith(("customresourcedefinitions", "namespaces")) or "webhook" in name:
                continue
            query = {"dryRun": "All"}
            for number, place in enumerate(places(whole)):
                if place[0] in ("apiVersion", "kind") or len(place) > 6:
                    continue
                for value in wrong[number % 3 :: 3]:
                    self.ask(server, Request("POST", path, query, replaced(whole, place, value)))

    @SETTINGS
    @given(data=st.data())
    def test_of_objects_that_are_stored(self, server: RunningServer, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["configmaps", "pods", "deployments", "widgets"]))
        root, whole = {
            "configmaps": ("/api/v1", config_map("c", {"a": "b"}, d="e")),
            "pods": (
                "/api/v1",
                pod("p", tolerations=[{"key": "a", "operator": "Exists"}], nodeSelector={"a": "b"}),
            ),
            "deployments": ("/apis/apps/v1", deployment("d")),
            "widgets": ("/apis/example.com/v1", widget("w", color="red", parts=[{"name": "a", "weight": 1}])),
        }[kind]
        path = f"{root}/namespaces/default/{kind}"
        place = data.draw(st.sampled_from(list(places(whole))))
        broken = replaced(whole, place, data.draw(JSON_VALUES))
        self.ask(server, Request("POST", path, {}, whole))
        name = f"{path}/{whole['metadata']['name']}"
        self.ask(server, Request("PUT", name, {}, broken))
        for media in ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"):
            query = {"fieldManager": "fuzz", "force": "true"} if media.startswith("apply") else {}
            self.ask(server, Request("PATCH", name, query, broken, f"application/{media}"))
            self.ask(server, Request("PATCH", f"{name}/status", query, broken, f"application/{media}"))
        self.ask(server, Request("GET", path))
        self.ask(server, Request("DELETE", name, {}, {"propagationPolicy": "Background"}))

    @SETTINGS
    @given(value=JSON_VALUES)
    def test_of_definitions(self, server: RunningServer, value: Any) -> None:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        whole = {**WIDGETS, "metadata": {"name": "widgets.example.com"}}
        every = list(places(whole))
        for place in every[:: max(1, len(every) // 12)]:
            self.ask(server, Request("POST", path, {"dryRun": "All"}, replaced(whole, place, value)))
            body = replaced(whole, place, value)
            self.ask(
                server,
                Request(
                    "PATCH",
                    f"{path}/widgets.example.com",
                    {"dryRun": "All"},
                    body,
                    "application/merge-patch+json",
                ),
            )
