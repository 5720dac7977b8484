"""The HTTP transport and its configuration, against a small server on loopback."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote_plus

import orjson
import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pykueue.kube.config import ConfigError, load
from pykueue.kube.errors import ApiError
from pykueue.kube.http import HttpTransport
from pykueue.kube.transport import MERGE_PATCH, Request, WatchEvent

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server on a free port; its base address."""
    application = web.Application(client_max_size=2**26)
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def status(code: int, reason: str, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)


def test_requests_go_out_as_asked_and_answers_come_back_without_managed_fields() -> None:
    async def main() -> None:
        seen: list[tuple[object, ...]] = []

        async def handler(request: web.Request) -> web.StreamResponse:
            headers = request.headers
            seen.append((request.method, request.path_qs, headers.get("Content-Type"), await request.text()))
            assert headers["Authorization"] == "Bearer secret"
            metadata = {"name": "x", "managedFields": [1]}
            return web.json_response({"metadata": metadata, "items": [{"metadata": dict(metadata)}]})

        async with serving(handler) as address:
            transport = HttpTransport(address, token="secret")
            query = {"labelSelector": "a in (b,c),d!=e"}
            answer = await transport.call(Request("PATCH", "/api/v1/x", query, {"a": 1}, MERGE_PATCH))
            assert answer == {"metadata": {"name": "x"}, "items": [{"metadata": {"name": "x"}}]}
            await transport.call(Request("GET", "/api/v1/x"))
            await transport.close()
        (method, target, kind, body), (_, _, no_kind, no_body) = seen
        assert (method, kind, body) == ("PATCH", MERGE_PATCH, '{"a":1}')
        assert unquote_plus(str(target)) == "/api/v1/x?labelSelector=a in (b,c),d!=e"
        assert (no_kind, no_body) == (None, "")

    asyncio.run(main())


def test_refusals_are_api_errors_and_broken_connections_connection_errors() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            match request.path:
                case "/busy":
                    return status(429, "TooManyRequests", "later", **{"Retry-After": "3"})
                case "/proxy":
                    return web.Response(status=502, text="<html>bad gateway")
                case "/log":
                    return web.Response(text="line\n")
            assert request.transport is not None
            request.transport.close()
            return web.Response()

        async with serving(handler) as address:
            transport = HttpTransport(address)
            with pytest.raises(ApiError, match="later") as busy:
                await transport.call(Request("GET", "/busy"))
            assert (busy.value.code, busy.value.retry_after) == (429, 3.0)
            with pytest.raises(ApiError, match="bad gateway") as proxy:
                await transport.call(Request("GET", "/proxy"))
            assert proxy.value.code == 502
            with pytest.raises(ConnectionError):
                await transport.call(Request("POST", "/drop", body={}))
            assert await transport.call(Request("GET", "/log")) == "line\n"
        with pytest.raises(ConnectionError):
            await transport.call(Request("GET", "/gone"))
        await transport.close()

    asyncio.run(main())


def test_a_watch_yields_events_however_long_and_however_cut_into_pieces() -> None:
    frames = [
        {"type": "ADDED", "object": {"metadata": {"name": "small"}}},
        {"type": "MODIFIED", "object": {"metadata": {"name": "large"}, "data": "x" * 3_000_000}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}},
    ]

    async def main() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            assert request.query["timeoutSeconds"] == "300"
            response = web.StreamResponse()
            await response.prepare(request)
            stream = b"".join(orjson.dumps(frame) + b"\n" for frame in frames)
            for start in range(0, len(stream), 100_003):
                await response.write(stream[start : start + 100_003])
            return response

        async with serving(handler) as address:
            transport = HttpTransport(address)
            seen: list[WatchEvent] = []

            async def follow() -> None:
                async with aclosing(transport.watch(Request("GET", "/w", {"watch": "true"}))) as events:
                    async for event in events:
                        seen.append(event)

            with pytest.raises(ApiError, match="old") as error:
                await follow()
            assert error.value.expired
            assert [tuple(event) for event in seen] == [(f["type"], f["object"]) for f in frames[:3]]
            await transport.close()

    asyncio.run(main())


def test_what_a_write_returned_is_not_decoded_again_when_the_watch_shows_it() -> None:
    """Only the same text stands for the same object: another version is decoded."""
    own = orjson.dumps({"metadata": {"name": "own", "resourceVersion": "7"}, "text": '","object":{}'})
    other = own.replace(b'"7"', b'"8"')
    lines = [
        b'{"type":"MODIFIED","object":' + other + b"}",
        b'{"type":"MODIFIED","object":' + own + b"}",
        b'{"type":"DELETED","object":' + own + b"}",
        b'{"object":' + own + b',"type":"ADDED"}',
    ]

    async def main() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            if request.method != "GET":
                return web.Response(body=own + b"\n", content_type="application/json")
            return web.Response(body=b"\n".join([*lines, b""]))

        async with serving(handler) as address:
            transport = HttpTransport(address)
            written = await transport.call(Request("PATCH", "/x", body={}))
            async with aclosing(transport.watch(Request("GET", "/x"))) as events:
                seen = [event async for event in events]
            await transport.close()
        assert [event.type for event in seen] == ["MODIFIED", "MODIFIED", "DELETED", "ADDED"]
        assert [event.object["metadata"]["resourceVersion"] for event in seen] == ["8", "7", "7", "7"]
        assert [event.object is written for event in seen] == [False, True, False, False]
        assert all(event.object == written for event in seen[1:])

    asyncio.run(main())


def test_a_watch_that_breaks_is_a_connection_error_and_one_that_ends_just_ends() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"type":"ADDED","object":{"metadata":{}}}\n{"type":"MOD')
            if request.path == "/breaks":
                assert request.transport is not None
                request.transport.close()
            return response

        async def names(transport: HttpTransport, path: str) -> list[str]:
            async with aclosing(transport.watch(Request("GET", path))) as events:
                return [event.type async for event in events]

        async with serving(handler) as address:
            transport = HttpTransport(address)
            with pytest.raises(ConnectionError):
                await names(transport, "/breaks")
            assert await names(transport, "/ends") == ["ADDED"]
            await transport.close()

    asyncio.run(main())


def test_open_watches_do_not_keep_requests_waiting() -> None:
    async def main() -> None:
        opened = asyncio.Event()

        async def handler(request: web.Request) -> web.StreamResponse:
            if request.path != "/watch":
                return web.json_response({})
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"type":"ADDED","object":{"metadata":{}}}\n')
            opened.set()
            await asyncio.Event().wait()
            return response

        async with serving(handler) as address:
            transport = HttpTransport(address, max_concurrent=1)
            watch = transport.watch(Request("GET", "/watch"))
            await anext(watch)
            assert opened.is_set()
            assert await transport.call(Request("GET", "/x")) == {}
            await watch.aclose()
            await transport.close()

    asyncio.run(main())


# TLS and configuration


def certificate(folder: Path) -> ssl.SSLContext:
    """A server context for 127.0.0.1 whose own certificate, in folder/ca.crt, is its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    return context


def kubeconfig(folder: Path, server: str, user: dict[str, object], **cluster: object) -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def _whoami(request: web.Request) -> web.StreamResponse:
    return web.json_response({"authorization": request.headers.get("Authorization")})


def test_kubeconfig_gives_address_authority_and_credentials(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(_whoami, certificate(tmp_path)) as address:
            path = kubeconfig(tmp_path, address, {"token": "abc"}, **{"certificate-authority": "ca.crt"})
            transport = await load(path)
            assert await transport.call(Request("GET", "/")) == {"authorization": "Bearer abc"}
            await transport.close()
            untrusting = HttpTransport(address)
            with pytest.raises(ConnectionError, match="certificate"):
                await untrusting.call(Request("GET", "/"))
            await untrusting.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("a: [", "cannot be used"),
        ("{}", "cannot be used"),
        ("current-context: nope\ncontexts: []\nclusters: []\n", "nope"),
    ],
)
def test_an_unusable_kubeconfig_says_what_is_wrong(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        asyncio.run(load(path))


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigError, match="service account"):
        asyncio.run(load())
