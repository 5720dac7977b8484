"""The server over TLS: who gets in, which forms are spoken, and what hostile input gets."""

from __future__ import annotations

import asyncio
import base64
import datetime
import io
import random
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import policy_cases
import pytest
import yaml
from aiohttp import web
from apiserver_harness import CONFIG_MAPS, CRDS, PODS, WIDGETS, config_map, pod, widget, widget_definition

from pykueue.clock import Clock
from pykueue.embedded.apiserver.auth.certificates import Authority
from pykueue.embedded.apiserver.http.listening import Address
from pykueue.embedded.apiserver.server import Server
from pykueue.kube.transport import Request

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class Web:
    """A client that sees bytes and headers."""

    def __init__(self, server: Server, address: Address, session: aiohttp.ClientSession) -> None:
        self.server, self.address, self.session = server, address, session

    async def ask(
        self, method: str, path: str, data: Any = None, headers: dict[str, str] | None = None, **query: str
    ) -> tuple[int, Any, Any]:
        """Status, headers and the decoded (or plain) body."""
        if data is not None and not isinstance(data, bytes):
            data = orjson.dumps(data)
        sent = {"Authorization": f"Bearer {self.address.token}", **(headers or {})}
        skip = () if "Content-Type" in sent else ("Content-Type",)
        if data is not None and len(data) > 1_000_000:
            data = io.BytesIO(data)
        async with self.session.request(
            method, self.address.url + path, data=data, headers=sent, params=query, skip_auto_headers=skip
        ) as response:
            body = await response.read()
            kind = response.headers.get("Content-Type", "")
            return response.status, response.headers, orjson.loads(body) if "json" in kind else body


def over_tls(tmp_path: Path, story: Callable[[Web], Awaitable[None]], runs_pods: bool = False) -> None:
    """Tell a story against a listening server, alone or as one that has nodes."""

    async def main() -> None:
        server = Server(None, Clock(), random.Random(1))
        server.pipeline.runs_pods = runs_pods
        await server.start()
        try:
            address = await server.serve(directory=tmp_path / "data")
            context = ssl.create_default_context(cadata=address.ca.decode())
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector) as session:
                await story(Web(server, address, session))
        finally:
            await server.stop()

    asyncio.run(main())


def test_only_health_and_version_are_open_to_strangers(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        none = {"Authorization": ""}
        for path in ("/healthz", "/livez", "/readyz/ping", "/version"):
            async with client.session.get(client.address.url + path) as answer:
                assert answer.status == 200
        for path in ("/api", "/apis", CONFIG_MAPS, "/metrics", "/openapi/v3", "/nonsense"):
            async with client.session.get(client.address.url + path) as answer:
                assert answer.status == 401
                assert (await answer.json())["reason"] == "Unauthorized"
        code, _, body = await client.ask("GET", CONFIG_MAPS, headers={"Authorization": "Bearer wrong"})
        assert (code, body["reason"]) == (401, "Unauthorized")
        assert (await client.ask("GET", CONFIG_MAPS, headers=none))[0] == 401
        assert (await client.ask("GET", CONFIG_MAPS))[0] == 200

    over_tls(tmp_path, story)


def test_certificates_and_tokens_identify_the_user(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        authority = Authority(tmp_path / "data" / "pki", datetime.datetime.now(datetime.UTC))
        certificate, key = authority.client("ann", ["staff"])
        (tmp_path / "ann.pem").write_bytes(key + certificate)
        context = ssl.create_default_context(cadata=client.address.ca.decode())
        context.load_cert_chain(tmp_path / "ann.pem")
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with client.session.post(client.address.url + path, json={}, ssl=context) as answer:
            assert (await answer.json())["status"]["userInfo"] == {
                "username": "ann",
                "groups": ["staff", "system:authenticated"],
            }
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await client.ask("POST", accounts, {"metadata": {"name": "bot"}})
        _, _, issued = await client.ask("POST", f"{accounts}/bot/token", {"spec": {"expirationSeconds": 700}})
        token = issued["status"]["token"]
        as_bot = {"Authorization": f"Bearer {token}"}
        _, _, me = await client.ask("POST", path, {}, as_bot)
        assert me["status"]["userInfo"]["username"] == "system:serviceaccount:default:bot"
        review = {"spec": {"token": token}}
        _, _, known = await client.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert known["status"]["authenticated"] is True
        code, _, _ = await client.ask("POST", path, {}, {"Authorization": f"Bearer {token[:-3]}abc"})
        assert code == 401
        await client.ask("DELETE", f"{accounts}/bot")
        assert (await client.ask("POST", path, {}, as_bot))[0] == 401
        _, _, other = await client.ask(
            "POST", path, {}, {"Impersonate-User": "joe", "Impersonate-Group": "g"}
        )
        assert other["status"]["userInfo"]["username"] == "joe"
        assert (await client.ask("GET", CONFIG_MAPS, headers={"Impersonate-User": "joe"}))[0] == 403

    over_tls(tmp_path, story)


def test_the_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        files = [one for one in (tmp_path / "data").rglob("*") if one.is_file()]
        assert {one.name for one in files} >= {"kubeconfig", "admin.token", "ca.key", "server.pem"}
        assert {one.stat().st_mode & 0o077 for one in files} == {0}
        config = yaml.safe_load((tmp_path / "data" / "kubeconfig").read_text())
        assert config["clusters"][0]["cluster"]["server"] == client.address.url

    over_tls(tmp_path, story)


def test_every_accepted_body_type_is_read(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        as_json = orjson.dumps(config_map("x"))
        for number, (kind, data) in enumerate(
            (
                (None, as_json),
                ("application/json; charset=utf-8", as_json),
                ("text/plain", as_json),
                ("application/yaml", yaml.safe_dump(config_map("x")).encode()),
            )
        ):
            data = data.replace(b"x", f"x{number}".encode(), 1)
            headers = {"Content-Type": kind} if kind else {}
            code, _, body = await client.ask("POST", CONFIG_MAPS, data, headers)
            assert (code, body["metadata"]["name"]) == (201, f"x{number}")
        envelope = b"k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x07\n\x05\n\x03pb1"
        proto = {"Content-Type": "application/vnd.kubernetes.protobuf"}
        code, headers, body = await client.ask("POST", "/api/v1/namespaces", envelope, proto)
        assert (code, body["metadata"]["name"]) == (201, "pb1")
        assert headers["Content-Type"].startswith("application/json")
        for kind in ("application/cbor", "image/png"):
            code, _, body = await client.ask("POST", CONFIG_MAPS, as_json, {"Content-Type": kind})
            assert (code, body["reason"]) == (415, "UnsupportedMediaType")

    over_tls(tmp_path, story)


def test_answers_come_in_the_form_asked_for(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        await client.ask("POST", CONFIG_MAPS, config_map("a", k="v"))
        _, headers, table = await client.ask("GET", CONFIG_MAPS, headers={"Accept": TABLE})
        assert "as=Table" in headers["Content-Type"]
        assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Data", "Age"]
        assert table["rows"][0]["cells"][:2] == ["a", 1]
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        _, _, table = await client.ask("GET", CONFIG_MAPS, None, {"Accept": TABLE}, includeObject="Object")
        assert table["rows"][0]["object"]["data"] == {"k": "v"}
        _, _, meta = await client.ask("GET", f"{CONFIG_MAPS}/a", headers={"Accept": PARTIAL})
        assert (meta["kind"], meta["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert "data" not in meta
        _, headers, text = await client.ask("GET", f"{CONFIG_MAPS}/a", headers={"Accept": "application/yaml"})
        assert yaml.safe_load(text)["data"] == {"k": "v"}
        proto = "application/vnd.kubernetes.protobuf,application/json"
        assert (await client.ask("GET", f"{CONFIG_MAPS}/a", headers={"Accept": proto}))[0] == 200
        for accept in (
            "text/html",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Pie;v=v1;g=x",
        ):
            code, _, body = await client.ask("GET", f"{CONFIG_MAPS}/a", headers={"Accept": accept})
            assert (code, body["reason"]) == (406, "NotAcceptable")
        _, _, gone = await client.ask("GET", f"{CONFIG_MAPS}/b", headers={"Accept": TABLE})
        assert (gone["kind"], gone["code"]) == ("Status", 404)

    over_tls(tmp_path, story)


def test_discovery_is_served_in_both_forms_and_with_trailing_slashes(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        aggregated = (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,"
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        )
        _, headers, body = await client.ask("GET", "/apis", headers={"Accept": aggregated})
        assert (
            headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        )
        batch = next(one for one in body["items"] if one["metadata"]["name"] == "batch")
        jobs = next(one for one in batch["versions"][0]["resources"] if one["resource"] == "jobs")
        assert jobs["responseKind"] == {"group": "batch", "version": "v1", "kind": "Job"}
        assert "status" in [one["subresource"] for one in jobs["subresources"]]
        for path in ("/api/", "/apis/", "/version/", "/apis/batch/v1/", f"{CONFIG_MAPS}/"):
            assert (await client.ask("GET", path))[0] == 200
        _, _, pods = await client.ask("GET", "/api/v1")
        assert {"pods/eviction", "pods/log", "serviceaccounts/token"} <= {
            one["name"] for one in pods["resources"]
        }
        accept = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
        _, headers, _ = await client.ask("GET", "/openapi/v2", headers=accept)
        assert headers["Content-Type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        _, _, index = await client.ask("GET", "/openapi/v3")
        _, _, document = await client.ask("GET", index["paths"]["apis/batch/v1"]["serverRelativeURL"])
        assert "io.k8s.api.batch.v1.Job" in document["components"]["schemas"]
        for path in (
            "/apis/none/v1/things",
            "/api/v1/nothings",
            "/api/v2",
            "/apis/batch/v1/namespaces/d/cronjobs/x/y",
        ):
            code, _, text = await client.ask("GET", path)
            assert (code, text) == (404, b"404 page not found\n")

    over_tls(tmp_path, story)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"a": "\xff"}', 400),
        (b"[]", 400),
        (b"null", 400),
        (b'"text"', 400),
        (b"1", 400),
        (b"", 400),
        (b"{}", 422),
        (b'{"metadata": {"name": 5}}', 422),
        (b'{"metadata": [1]}', 422),
        (b'{"apiVersion": 5}', 400),
        (b'{"kind": {"a": 1}}', 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 400),
        (b'{"metadata": {"name": "x", "labels": ' + b'{"a":' * 200 + b"1" + b"}" * 202, 422),
        (b" " * (3 * 1024 * 1024 + 1), 413),
    ],
)
def test_hostile_bodies_are_refused_with_a_status(tmp_path: Path, data: bytes, code: int) -> None:
    async def story(client: Web) -> None:
        for path in (CONFIG_MAPS, PODS):
            answer, _, body = await client.ask("POST", path, data)
            assert (answer, body["kind"]) == (code, "Status")
            assert "Traceback" not in body["message"]
        assert (await client.ask("GET", CONFIG_MAPS))[0] == 200

    over_tls(tmp_path, story)


def test_yaml_whose_aliases_explode_is_refused(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
        code, _, body = await client.ask(
            "POST", CONFIG_MAPS, "\n".join(lines).encode(), {"Content-Type": "application/yaml"}
        )
        assert (code, body["kind"]) == (400, "Status")

    over_tls(tmp_path, story)


def test_duplicate_and_unknown_fields_are_reported(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        data = b'{"metadata": {"name": "a"}, "data": {"k": "1", "k": "2"}, "zzz": 1}'
        code, _, body = await client.ask("POST", CONFIG_MAPS, data, None, fieldValidation="Strict")
        assert code == 400
        assert 'duplicate field "k"' in body["message"]
        code, headers, _ = await client.ask("POST", CONFIG_MAPS, data, None, fieldValidation="Warn")
        assert code == 201
        assert headers.getall("Warning") == [
            '299 - "duplicate field \\"k\\""',
            '299 - "unknown field \\"zzz\\""',
        ]

    over_tls(tmp_path, story)


def test_a_policy_that_warns_answers_with_a_warning(tmp_path: Path) -> None:
    case = next(case for case in policy_cases.CASES if case["name"] == "warnings")
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"

    async def story(client: Web) -> None:
        for path, obj in (("ies", policy_cases.policy(case)), ("ybindings", policy_cases.binding(case))):
            code, _, _ = await client.ask("POST", base + path, orjson.dumps(obj), None)
            assert code == 201
        for request in case["requests"]:
            data = orjson.dumps(policy_cases.config_map(request))
            code, headers, _ = await client.ask("POST", CONFIG_MAPS, data, None, dryRun="All")
            assert code == 201
            found = headers.getall("Warning", [])
            assert found == [f'299 - "{text}"' for text in request.get("warnings", ())]

    over_tls(tmp_path, story)


async def _frames(response: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    frames = []
    async with asyncio.timeout(10):
        while len(frames) < count:
            frames.append(orjson.loads(await response.content.readline()))
    return frames


def test_watches_stream_frames(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        headers = {"Authorization": f"Bearer {client.address.token}"}
        await client.ask("POST", CONFIG_MAPS, config_map("a"))
        url = f"{client.address.url}{CONFIG_MAPS}?watch=true"
        async with (
            client.session.get(url, headers=headers) as plain,
            client.session.get(url, headers={**headers, "Accept": TABLE}) as table,
            client.session.get(f"{url}&resourceVersion=1", headers=headers) as late,
            client.session.get(f"{url}&resourceVersion=x", headers=headers) as wrong,
            client.session.get(f"{url}&timeoutSeconds=1", headers=headers) as short,
        ):
            assert wrong.status == 400
            assert [one["type"] for one in await _frames(late, 1)] == ["ADDED"]
            for number in range(5):
                await client.ask("POST", CONFIG_MAPS, config_map(f"b{number}"))
            await client.ask("DELETE", f"{CONFIG_MAPS}/a")
            frames = await _frames(plain, 7)
            names = [(one["type"], one["object"]["metadata"]["name"]) for one in frames]
            assert names == [
                ("ADDED", "a"),
                *(("ADDED", f"b{number}") for number in range(5)),
                ("DELETED", "a"),
            ]
            tables = await _frames(table, 7)
            assert [one["object"]["kind"] for one in tables] == ["Table"] * 7
            assert tables[0]["object"]["columnDefinitions"]
            assert [one["object"]["columnDefinitions"] for one in tables[1:]] == [None] * 6
            assert len((await short.read()).splitlines()) == 7

    over_tls(tmp_path, story)


def test_stopping_ends_watches(tmp_path: Path) -> None:
    ended: list[bytes] = []

    async def story(client: Web) -> None:
        headers = {"Authorization": f"Bearer {client.address.token}"}
        url = f"{client.address.url}{CONFIG_MAPS}?watch=true"
        response = await client.session.get(url, headers=headers)

        async def read() -> None:
            ended.append(await response.read())

        task = asyncio.create_task(read())
        await client.ask("GET", CONFIG_MAPS)
        await client.server.stop()
        async with asyncio.timeout(10):
            await task

    over_tls(tmp_path, story)
    assert ended == [b""]


def test_a_webhook_is_asked_over_https(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        asked: list[Any] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            review = orjson.loads(await request.read())
            asked.append((request.path_qs, review["request"]["operation"]))
            patch = base64.b64encode(orjson.dumps([{"op": "add", "path": "/data", "value": {"set": "yes"}}]))
            response = {
                "uid": review["request"]["uid"],
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": patch.decode(),
                "warnings": ["mind the gap"],
            }
            return web.json_response({**review, "response": response})

        authority = Authority(tmp_path / "hook", datetime.datetime.now(datetime.UTC))
        hook = web.Server(answer)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            hook, "127.0.0.1", 0, ssl=authority.server_context(["guard.default.svc"])
        )
        port = listening.sockets[0].getsockname()[1]
        client.server.services.known["default/guard"] = ("127.0.0.1", port)
        entry = {
            "name": "guard.example.com",
            "clientConfig": {
                "service": {"namespace": "default", "name": "guard", "path": "/check"},
                "caBundle": base64.b64encode(authority.certificate).decode(),
            },
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                }
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        }
        configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        code, _, _ = await client.ask(
            "POST", configurations, {"metadata": {"name": "g"}, "webhooks": [entry]}
        )
        assert code == 201
        code, headers, made = await client.ask("POST", CONFIG_MAPS, config_map("a"))
        assert (code, made["data"]) == (201, {"set": "yes"})
        assert headers["Warning"] == '299 - "mind the gap"'
        assert asked == [("/check?timeout=5s", "CREATE")]
        listening.close()
        await hook.shutdown(0.1)
        client.server.services.known["default/guard"] = ("127.0.0.1", 1)
        code, _, refusal = await client.ask("POST", CONFIG_MAPS, config_map("b"))
        assert (code, refusal["reason"]) == (500, "InternalError")
        assert 'failed calling webhook "guard.example.com"' in refusal["message"]
        await client.ask("DELETE", f"{configurations}/g")
        assert (await client.ask("POST", CONFIG_MAPS, config_map("b")))[0] == 201

    over_tls(tmp_path, story)


def test_custom_kinds_are_printed_by_their_columns(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        await client.ask("POST", CRDS, widget_definition())
        await client.ask("POST", WIDGETS, widget("w", size=8))
        _, _, table = await client.ask("GET", WIDGETS, headers={"Accept": TABLE})
        assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Size", "Age"]
        assert table["rows"][0]["cells"][:2] == ["w", 8]

    over_tls(tmp_path, story)


def test_logs_come_from_the_runtime_of_the_pod(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        await client.ask("POST", PODS, pod("p"))
        code, _, body = await client.ask("GET", f"{PODS}/p/log")
        assert code == 400
        assert body["message"] == 'container "main" in pod "p" is waiting to start: ContainerCreating'
        status = {
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "image": "i",
                    "imageID": "",
                    "state": {"running": {}},
                }
            ]
        }
        merge = {"Content-Type": "application/merge-patch+json"}
        await client.ask("PATCH", f"{PODS}/p/status", {"status": status}, merge)

        async def lines(pod: Any, container: str, query: Any) -> Any:
            yield f"{pod['metadata']['name']}/{container} {query.get('tailLines')}\n".encode()

        client.server.pipeline.log_source = lines
        code, headers, text = await client.ask("GET", f"{PODS}/p/log", None, None, tailLines="3")
        assert (code, text) == (200, b"p/main 3\n")
        assert headers["Content-Type"] == "text/plain"
        assert (await client.ask("GET", f"{PODS}/p/log", None, None, container="no"))[0] == 400

    over_tls(tmp_path, story)


def test_events_that_come_quickly_arrive_in_order_and_all_of_them(tmp_path: Path) -> None:
    async def story(client: Web) -> None:
        headers = {"Authorization": f"Bearer {client.address.token}"}
        url = f"{client.address.url}{CONFIG_MAPS}?watch=true"
        ended = f"{url}&timeoutSeconds=1&labelSelector=even=yes"
        async with (
            client.session.get(url, headers=headers) as all_of_them,
            client.session.get(ended, headers=headers) as some,
        ):
            api = client.server.transport()
            for number in range(300):
                labels = {"even": "no" if number % 2 else "yes"}
                await api.call(Request("POST", CONFIG_MAPS, {}, config_map(f"c{number}", labels)))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            frames = await _frames(all_of_them, 300)
            assert [one["object"]["metadata"]["name"] for one in frames] == [f"c{n}" for n in range(300)]
            lines = (await some.read()).splitlines()
            assert len(lines) == 150

    over_tls(tmp_path, story)
