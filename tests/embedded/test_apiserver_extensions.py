"""Programs that extend the server from outside: converters of custom objects, aggregated API servers."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apiserver_harness import CRDS, widget_definition
from clients_harness import Kubectl

from pykueue.clock import VIRTUAL_EPOCH
from pykueue.embedded.apiserver.auth.certificates import Authority
from pykueue.embedded.apiserver.discovery import aggregation
from pykueue.embedded.apiserver.http import documents
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import JSON, MERGE_PATCH, Request
from pykueue.testing import RunningServer, running_server

Object = dict[str, Any]

#: What a program answers: code and body, for method, path with query, headers and body.
Answer = Callable[[str, str, Any, bytes], tuple[int, Any]]


@contextmanager
def program(authority: Authority, answer: Answer) -> Iterator[int]:
    """A program behind HTTPS; yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # one request a connection: none outlives the program

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, value = answer(self.command, self.path, self.headers, body)
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            """Nothing to say."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        web.daemon_threads = True
        context = authority.server_context(["127.0.0.1"])
        context.verify_mode = ssl.CERT_NONE  # clients of any authority
        web.socket = context.wrap_socket(web.socket, server_side=True)
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            yield int(web.server_address[1])
        finally:
            web.shutdown()
            thread.join()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", VIRTUAL_EPOCH)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(parts=("apiserver",)) as running:
        yield running


def ask(server: RunningServer, method: str, path: str, body: Any = None, **query: str) -> Any:
    assert server.cluster.server is not None
    kind = MERGE_PATCH if method == "PATCH" else JSON
    return server.run(server.cluster.server.transport().call(Request(method, path, query, body, kind)))


V1 = "/apis/example.com/v1/namespaces/default/widgets"
V2 = "/apis/example.com/v2/namespaces/default/widgets"


def two_versions(url: str, authority: Authority) -> Object:
    """Widgets whose `size` is called `width` in v2."""
    crd = widget_definition()
    (first,) = crd["spec"]["versions"]
    text = json.dumps(first).replace('"size"', '"width"').replace(".spec.size", ".spec.width")
    second = {**json.loads(text), "name": "v2", "storage": False}
    crd["spec"]["versions"] = [first, second]
    client = {"url": url, "caBundle": base64.b64encode(authority.certificate).decode()}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return crd


def widget(version: str, name: str, labels: Any = None, **spec: Any) -> Object:
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Widget",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


def converted(obj: Object, version: str) -> Object:
    old, new = ("size", "width") if version.endswith("v2") else ("width", "size")
    spec = {new if key == old else key: value for key, value in obj["spec"].items()}
    return {**obj, "apiVersion": version, "spec": spec}


def test_custom_objects_are_converted_by_the_webhook_of_their_definition(
    server: RunningServer, authority: Authority
) -> None:
    asked: list[int] = []

    def convert(_: str, __: str, ___: Any, body: bytes) -> tuple[int, Any]:
        review = json.loads(body)
        request = review["request"]
        asked.append(len(request["objects"]))
        if any(one["metadata"]["name"] == "odd" for one in request["objects"]):
            result = {"status": "Failure", "message": "too odd"}
            return 200, {**review, "response": {"uid": request["uid"], "result": result}}
        new = [converted(one, request["desiredAPIVersion"]) for one in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": new}
        return 200, {**review, "response": response}

    with program(authority, convert) as port:
        ask(server, "POST", CRDS, two_versions(f"https://127.0.0.1:{port}/convert", authority))
        made = ask(server, "POST", V2, widget("v2", "a", width=7))
        assert made["spec"] == {"width": 7}
        assert ask(server, "GET", f"{V1}/a")["spec"] == {"size": 7}
        ask(server, "PATCH", f"{V2}/a", {"spec": {"width": 8}})
        assert ask(server, "GET", f"{V1}/a")["spec"]["size"] == 8
        for number in range(5):
            ask(server, "POST", V1, widget("v1", f"b{number}", size=number + 1))
        asked.clear()
        items = ask(server, "GET", V2)["items"]
        assert [one["spec"]["width"] for one in items] == [8, 1, 2, 3, 4, 5]
        assert asked == [5]
        with pytest.raises(
            ApiError, match=r"conversion webhook for example.com, Kind=Widget failed: too odd"
        ):
            ask(server, "POST", V2, widget("v2", "odd", width=1))
    with pytest.raises(ApiError, match=r"connect: connection refused"):
        ask(server, "POST", V2, widget("v2", "late", width=1))
    assert ask(server, "POST", V1, widget("v1", "late", size=1))["spec"]["size"] == 1


def test_slow_conversion_webhook_delays_only_requests_that_need_it(
    server: RunningServer, authority: Authority
) -> None:
    go = threading.Event()

    def convert(_: str, __: str, ___: Any, body: bytes) -> tuple[int, Any]:
        review = json.loads(body)
        request = review["request"]
        go.wait(20)
        new = [converted(one, request["desiredAPIVersion"]) for one in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": new}
        return 200, {**review, "response": response}

    assert server.cluster.server is not None
    transport = server.cluster.server.transport()

    async def watched() -> None:
        seen: list[tuple[str, Any]] = []
        watch = transport.watch(Request("GET", V2, {"labelSelector": "team=a"}))

        async def follow() -> None:
            async for event in watch:
                seen.append((event.type, event.object["spec"]["width"]))
                if len(seen) == 3:
                    return

        following = [asyncio.create_task(follow())]
        await transport.call(Request("POST", V1, {}, widget("v1", "a", size=1, labels={"team": "a"})))
        reading = asyncio.create_task(transport.call(Request("GET", f"{V2}/a")))
        # The converter does not answer yet; everything else works.
        await transport.call(Request("POST", V1, {}, widget("v1", "b", size=2)))
        assert (await transport.call(Request("GET", f"{V1}/b")))["spec"] == {"size": 2}
        assert not seen
        assert not reading.done()
        go.set()
        assert (await reading)["spec"] == {"width": 1}
        change = Request("PATCH", f"{V1}/a", {}, {"spec": {"size": 3}}, MERGE_PATCH)
        await transport.call(change)
        gone = Request("PATCH", f"{V1}/a", {}, {"metadata": {"labels": {"team": "b"}}}, MERGE_PATCH)
        await transport.call(gone)
        await asyncio.gather(*following)
        await watch.aclose()
        assert seen == [("ADDED", 1), ("MODIFIED", 3), ("DELETED", 3)]

    with program(authority, convert) as port:
        ask(server, "POST", CRDS, two_versions(f"https://127.0.0.1:{port}/convert", authority))
        server.run(watched())


def test_a_watch_ends_when_its_objects_cannot_be_converted(
    server: RunningServer, authority: Authority
) -> None:
    ask(server, "POST", CRDS, two_versions("https://127.0.0.1:1/convert", authority))
    assert server.cluster.server is not None
    transport = server.cluster.server.transport()

    async def watched() -> None:
        watch = transport.watch(Request("GET", V2))
        first = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        await transport.call(Request("POST", V1, {}, widget("v1", "a", size=1)))
        with pytest.raises(ApiError, match=r"conversion webhook for example.com, Kind=Widget failed"):
            await first

    server.run(watched())
    assert ask(server, "GET", f"{V1}/a")["spec"] == {"size": 1}


SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
RESOURCES = [
    {"name": "clouds", "singularName": "cloud", "namespaced": True, "kind": "Cloud", "verbs": ["get", "list"]}
]


def registration(**spec: Any) -> Object:
    service = {"namespace": "default", "name": "weather", "port": 443}
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.weather.example.com"},
        "spec": {
            "group": "weather.example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": service,
            **spec,
        },
    }


def test_an_aggregated_server_answers_for_its_group(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    seen: list[tuple[str, Any]] = []

    def weather(method: str, path: str, headers: Any, _: bytes) -> tuple[int, Any]:
        if path.partition("?")[0] == "/apis/weather.example.com/v1":
            group = {"groupVersion": "weather.example.com/v1", "resources": RESOURCES}
            return 200, {"kind": "APIResourceList", "apiVersion": "v1", **group}
        seen.append((path, headers))
        cloud = {"apiVersion": "weather.example.com/v1", "kind": "Cloud", "metadata": {"name": "cirrus"}}
        return 200, {
            "apiVersion": "weather.example.com/v1",
            "kind": "CloudList",
            "metadata": {},
            "items": [cloud],
        }

    assert server.cluster.server is not None
    kubectl = Kubectl(server, tmp_path / "home", None)
    with program(authority, weather) as port:
        server.cluster.server.services.known["default/weather"] = ("127.0.0.1", port)
        kubectl.put(registration())
        kubectl("wait", "--for=condition=Available", "apiservice/v1.weather.example.com", "--timeout=20s")
        assert kubectl("get", "clouds", "-o", "name") == "cloud.weather.example.com/cirrus\n"
        path, headers = seen[-1]
        assert path.startswith("/apis/weather.example.com/v1/namespaces/default/clouds?")
        assert headers["X-Remote-User"] == "kubernetes-admin"
        assert "system:masters" in headers.get_all("X-Remote-Group")
        assert headers["Authorization"] is None
        assert "clouds" in kubectl("api-resources", "--api-group=weather.example.com", "-o", "name")
        refused = kubectl.refused("get", "clouds", "--as=guest")
        assert 'User "guest" cannot list resource "clouds" in API group "weather.example.com"' in refused
    kubectl("delete", "apiservice", "v1.weather.example.com")
    assert "weather" not in kubectl("api-versions")


def test_time_and_size_of_an_aggregated_servers_response_are_limited(
    server: RunningServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "REQUEST_TIME", 0.2)
    monkeypatch.setattr(aggregation, "RESPONSE_LIMIT", 10_000)
    end = threading.Event()

    def weather(_: str, path: str, __: Any, ___: bytes) -> tuple[int, Any]:
        if path.endswith("/slow"):
            end.wait(20)
        if path.endswith("/large"):
            return 200, b"x" * 20_000
        group = {"groupVersion": "weather.example.com/v1", "resources": RESOURCES}
        return 200, {"kind": "APIResourceList", "apiVersion": "v1", **group}

    assert server.cluster.server is not None
    kubectl = Kubectl(server, tmp_path / "home", None)
    clouds = "/apis/weather.example.com/v1/namespaces/default/clouds"
    with program(authority, weather) as port:
        server.cluster.server.services.known["default/weather"] = ("127.0.0.1", port)
        kubectl.put(registration())
        kubectl("wait", "--for=condition=Available", "apiservice/v1.weather.example.com", "--timeout=20s")
        assert "did not answer within" in kubectl.refused("get", "--raw", f"{clouds}/slow")
        end.set()
        assert "larger than 10000 bytes" in kubectl.refused("get", "--raw", f"{clouds}/large")


def test_openapi_documents_of_aggregated_servers_are_among_ours(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    kind = {"group": "weather.example.com", "version": "v1", "kind": "Cloud"}
    paths = {
        "/apis/weather.example.com/v1/namespaces/{namespace}/clouds": {
            "get": {"x-kubernetes-action": "list", "x-kubernetes-group-version-kind": kind}
        }
    }
    cloud = {
        "type": "object",
        "description": "Cloud is water in the air.",
        "x-kubernetes-group-version-kind": [
            {"group": "weather.example.com", "version": "v1", "kind": "Cloud"}
        ],
    }
    away = False

    def weather(_: str, path: str, headers: Any, ___: bytes) -> tuple[int, Any]:
        if away:
            return 503, {}
        match path.partition("?")[0]:
            case "/openapi/v3":
                place = "/openapi/v3/apis/weather.example.com/v1?hash=7"
                return 200, {"paths": {"apis/weather.example.com/v1": {"serverRelativeURL": place}}}
            case "/openapi/v3/apis/weather.example.com/v1":
                return 200, {"openapi": "3.0.0", "paths": paths, "components": {"schemas": {"Cloud": cloud}}}
            case "/openapi/v2" if "protobuf" in headers["Accept"]:
                return 200, b"\n\x032.0B\x05\x12\x03\n\x01/"
            case "/openapi/v2":
                return 200, {
                    "swagger": "2.0",
                    "paths": {"/apis/weather": {}},
                    "definitions": {"Cloud": cloud},
                }
        group = {"groupVersion": "weather.example.com/v1", "resources": RESOURCES}
        return 200, {"kind": "APIResourceList", "apiVersion": "v1", **group}

    assert server.cluster.server is not None
    kubectl = Kubectl(server, tmp_path / "home", None)
    with program(authority, weather) as port:
        server.cluster.server.services.known["default/weather"] = ("127.0.0.1", port)
        kubectl.put(registration())
        kubectl("wait", "--for=condition=Available", "apiservice/v1.weather.example.com", "--timeout=20s")
        index = json.loads(kubectl("get", "--raw", "/openapi/v3"))["paths"]
        assert index["apis/weather.example.com/v1"]["serverRelativeURL"].endswith("hash=7")
        assert "api/v1" in index
        assert "Cloud is water in the air." in kubectl("explain", "clouds")
        old = json.loads(kubectl("get", "--raw", "/openapi/v2"))
        assert "/apis/weather" in old["paths"]
        assert "Cloud" in old["definitions"]
        away = True
        refused = kubectl.refused("get", "--raw", "/openapi/v3/apis/weather.example.com/v1")
        assert "unable to handle the request" in refused
        groups = server.cluster.server.pipeline.discovery.aggregated(False, "v2")["items"]
        (found,) = (one for one in groups if one["metadata"]["name"] == "weather.example.com")
        assert found["versions"][0]["freshness"] == "Current"
    kubectl("delete", "apiservice", "v1.weather.example.com")
    assert "apis/weather.example.com/v1" not in json.loads(kubectl("get", "--raw", "/openapi/v3"))["paths"]


def test_an_aggregated_server_that_is_away_is_said_to_be(server: RunningServer, tmp_path: Path) -> None:
    kubectl = Kubectl(server, tmp_path / "home", None)
    kubectl.put(registration())
    kubectl("wait", "--for=condition=Available=False", "apiservice/v1.weather.example.com", "--timeout=20s")
    assert kubectl.rows("get", "apiservice")[1][:3] == [
        "v1.weather.example.com",
        "default/weather",
        "False (ServiceNotFound)",
    ]
    refused = kubectl.refused("get", "--raw", "/apis/weather.example.com/v1/clouds")
    assert "ServiceUnavailable" in refused or "unable to handle the request" in refused
    assert "configmaps" in kubectl.run("api-resources", "-o", "name")[1]
    assert "weather.example.com" not in kubectl("get", "--raw", "/openapi/v3")
    assert server.cluster.server is not None
    groups = server.cluster.server.pipeline.discovery.aggregated(False, "v2")["items"]
    (found,) = (one for one in groups if one["metadata"]["name"] == "weather.example.com")
    assert found["versions"] == [{"version": "v1", "resources": [], "freshness": "Stale"}]
