"""Credentials of kubeconfigs: which of a user's are used, and when they are read again."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from cryptography.x509.oid import ExtendedKeyUsageOID

from pykueue.clock import Clock
from pykueue.kube.certificates import Issued, distinguished_name, issue, new_authority
from pykueue.kube.credentials import Credential, Credentials, credentials_of, token_file
from pykueue.kube.kubeconfig import ConfigError

V1 = "client.authentication.k8s.io/v1"
START = 1_767_225_600.0


class SetClock(Clock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.at = START

    def time(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def header(user: Mapping[str, Any], cluster: Mapping[str, Any] | None = None) -> str | None:
    """The Authorization header of a user."""

    async def read() -> str | None:
        return await (await credentials_of(user, cluster or {}, SetClock())).authorization()

    return asyncio.run(read())


def plugin(folder: Path, status: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An exec plugin that prints a status, and counts its runs in the file `runs`."""
    answer = folder / "answer.json"
    answer.write_bytes(orjson.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}))
    program = folder / "plugin"
    program.write_text(
        f'#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" > {folder}/info\n'
        f'echo "$1 $EXTRA" >> {folder}/runs\ncat {answer}\n'
    )
    program.chmod(0o755)
    return {"exec": {"apiVersion": V1, "command": str(program), **more}}


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@pytest.fixture(scope="module")
def authority() -> Issued:
    return new_authority(distinguished_name("ca"), datetime.now(UTC), timedelta(days=1))


def client_certificate(authority: Issued, name: str) -> Issued:
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    return issue(authority, distinguished_name(name), usage, datetime.now(UTC), timedelta(days=1))


def test_credential_of_a_user_is_the_one_that_kubectl_uses(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    basic = {"username": "ann", "password": "secret"}
    assert header({}) is None
    assert header({"token": "abc"}) == "Bearer abc"
    assert header({"token": "abc", "tokenFile": str(file)}) == "Bearer from-file"
    assert header(basic) == "Basic " + base64.b64encode(b"ann:secret").decode()
    assert header({**plugin(tmp_path, {"token": "from-plugin"}), **basic}) == "Bearer from-plugin"
    assert header({**plugin(tmp_path, {"token": "from-plugin"}), "token": "abc"}) == "Bearer abc"


def test_plugin_gets_arguments_environment_and_the_cluster(tmp_path: Path) -> None:
    user = plugin(
        tmp_path,
        {"token": "t"},
        args=["login"],
        env=[{"name": "EXTRA", "value": "more"}],
        provideClusterInfo=True,
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    authority = base64.b64encode(b"pem").decode()
    cluster = {
        "server": "https://a",
        "certificate-authority-data": authority,
        "extensions": [extension],
    }
    assert header(user, cluster) == "Bearer t"
    assert (tmp_path / "runs").read_text() == "login more\n"
    info = orjson.loads((tmp_path / "info").read_bytes())
    assert info["spec"]["cluster"] == {
        "server": "https://a",
        "certificate-authority-data": authority,
        "config": {"audience": "x"},
    }


def test_plugin_runs_again_before_its_credential_expires(tmp_path: Path) -> None:
    clock = SetClock()

    async def main() -> None:
        user = plugin(tmp_path, {"token": "a", "expirationTimestamp": time_text(START + 600)})
        credentials = await credentials_of(user, {}, clock)
        clock.at = START + 500
        assert await credentials.authorization() == "Bearer a"
        assert runs(tmp_path) == 1
        plugin(tmp_path, {"token": "b", "expirationTimestamp": time_text(START + 1200)})
        clock.at = START + 590
        assert await credentials.authorization() == "Bearer b"
        assert runs(tmp_path) == 2

    asyncio.run(main())


def test_failing_plugin_leaves_the_old_credential(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()

    async def main() -> None:
        credentials = await credentials_of(plugin(tmp_path, {"token": "a"}), {}, clock)
        (tmp_path / "plugin").write_text("#!/bin/sh\necho no network >&2\nexit 3\n")
        clock.at += 61
        with caplog.at_level(logging.WARNING):
            assert await credentials.authorization() == "Bearer a"
        assert "ended with exit code 3: no network" in caplog.text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "more", "message"),
    [
        ({}, {}, "neither a token nor a certificate"),
        ({"clientCertificateData": "x"}, {}, "a certificate without its key"),
        ({"token": "t"}, {"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "accepted: "),
        ({"token": "t"}, {"command": "pykueue-no-such-program", "installHint": "get it"}, "get it"),
        ({"token": "t\nX: y"}, {}, "more than one line"),
        ({"token": "t"}, {"interactiveMode": "Always"}, "needs a terminal"),
        ({"token": "t", "expirationTimestamp": "soon"}, {}, "RFC 3339"),
    ],
)
def test_unusable_plugin_is_refused_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: dict[str, Any],
    more: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises((ConfigError, ValueError), match=message):
        header(plugin(tmp_path, status, **more))


def test_plugin_must_answer_in_the_version_it_was_called_with(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "t"}, apiVersion="client.authentication.k8s.io/v1beta1")
    with pytest.raises(ConfigError, match=r"printed no ExecCredential of .*v1beta1"):
        header(user)


def test_token_in_a_file_is_read_again_each_minute(tmp_path: Path) -> None:
    clock = SetClock()
    file = tmp_path / "token"
    file.write_text("one")

    async def main() -> None:
        credentials = await token_file(file, clock)
        file.write_text("two")
        assert await credentials.authorization() == "Bearer one"
        clock.at += 61
        assert await credentials.authorization() == "Bearer two"
        file.write_text("")
        clock.at += 61
        assert await credentials.authorization() == "Bearer two"

    asyncio.run(main())


def test_new_certificate_of_a_plugin_is_used_for_new_connections(tmp_path: Path, authority: Issued) -> None:
    """The server sees the name in the certificate that is presented."""
    clock = SetClock()

    def status(name: str) -> dict[str, str]:
        issued = client_certificate(authority, name)
        return {
            "clientCertificateData": issued.certificate_pem.decode(),
            "clientKeyData": issued.key_pem.decode(),
        }

    async def main() -> None:
        credentials = await credentials_of(plugin(tmp_path, status("first")), {}, clock)
        context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        context.check_hostname = False
        credentials.use_in(context)
        async with _naming_server(authority) as address:
            assert await _name_seen(address, context) == "first"
            plugin(tmp_path, status("second"))
            clock.at += 61
            assert await credentials.authorization() is None
            assert await _name_seen(address, context) == "second"

    asyncio.run(main())


@asynccontextmanager
async def _naming_server(authority: Issued) -> AsyncIterator[tuple[str, int]]:
    """A server that answers with the common name of the client's certificate."""
    usage = ExtendedKeyUsageOID.SERVER_AUTH
    served = issue(authority, distinguished_name("server"), usage, datetime.now(UTC), timedelta(days=1))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate_pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, served)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ((((_key, name),),)) = writer.get_extra_info("peercert")["subject"]
        writer.write(name.encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()


def _load(context: ssl.SSLContext, issued: Issued) -> None:
    """Load a certificate the way the program does."""
    Credentials(Credential(None, issued.certificate_pem + issued.key_pem), None, Clock()).use_in(context)


async def _name_seen(address: tuple[str, int], context: ssl.SSLContext) -> str:
    reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="server")
    name = (await reader.read()).decode()
    writer.close()
    return name


def jwt(expires: float) -> str:
    claims = base64.urlsafe_b64encode(orjson.dumps({"exp": int(expires)})).decode().rstrip("=")
    return f"e30.{claims}.x"


def test_oidc_token_is_refreshed_when_it_expires() -> None:
    clock = SetClock()
    posted: list[tuple[str | None, str]] = []

    async def discovery(request: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"http://{request.host}/token"})

    async def token(request: web.Request) -> web.Response:
        form = await request.post()
        posted.append((request.headers.get("Authorization"), str(form["refresh_token"])))
        return web.json_response({"id_token": jwt(START + 7200), "refresh_token": "r2"})

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", discovery)
        app.router.add_post("/token", token)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        config = {
            "client-id": "me",
            "client-secret": "s",
            "idp-issuer-url": f"http://127.0.0.1:{port}/",
            "id-token": jwt(START + 3600),
            "refresh-token": "r1",
        }
        credentials = await credentials_of({"auth-provider": {"name": "oidc", "config": config}}, {}, clock)
        assert await credentials.authorization() == f"Bearer {jwt(START + 3600)}"
        assert posted == []
        clock.at += 3590
        assert await credentials.authorization() == f"Bearer {jwt(START + 7200)}"
        assert posted == [("Basic " + base64.b64encode(b"me:s").decode(), "r1")]
        await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ({"name": "gcp"}, "auth-provider gcp is not supported; use an exec plugin"),
        ({"name": "oidc", "config": {"id-token": "x"}}, "not a JWT"),
        ({"name": "oidc", "config": {}}, "refresh-token to renew it is missing"),
    ],
)
def test_unusable_auth_provider_is_refused_with_the_reason(provider: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        header({"auth-provider": provider})
