"""Opening the server to the network: TLS, credentials, kubeconfig.

Authentication is always on. Keys and tokens live in the data directory, readable by the owner only; without a
data directory they live in a temporary one and go with the server.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import shutil
import socket
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from pykueue.embedded.apiserver.authentication import Authenticator
from pykueue.embedded.apiserver.call import User
from pykueue.embedded.apiserver.certificates import Authority, now_utc, write_private
from pykueue.embedded.apiserver.connection import GOODBYE_TIME, HEAD_TIME
from pykueue.embedded.apiserver.http import HttpFront

if TYPE_CHECKING:
    from pykueue.embedded.apiserver.server import Server

#: The user of the generated kubeconfig.
ADMIN = User("kubernetes-admin", ("system:masters",))


class Address(NamedTuple):
    """Where a server listens and how to reach it."""

    host: str
    port: int
    url: str
    #: PEM.
    ca: bytes
    token: str
    #: A kubeconfig for the administrator, as text.
    kubeconfig: str


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def kubeconfig_text(url: str, ca: bytes, certificate: bytes, key: bytes, token: str) -> str:
    """A kubeconfig with one cluster and one user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "pykueue",
                "cluster": {"server": url, "certificate-authority-data": base64.b64encode(ca).decode()},
            }
        ],
        "users": [
            {
                "name": "pykueue-admin",
                "user": {
                    "client-certificate-data": base64.b64encode(certificate).decode(),
                    "client-key-data": base64.b64encode(key).decode(),
                    "token": token,
                },
            }
        ],
        "contexts": [{"name": "pykueue", "context": {"cluster": "pykueue", "user": "pykueue-admin"}}],
        "current-context": "pykueue",
    }
    return yaml.safe_dump(document, sort_keys=False)


class Listener:
    """The open port of a server."""

    def __init__(self, server: Server, directory: Path | None) -> None:
        self._server = server
        self._temporary = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="pykueue-"))
        self._front: HttpFront | None = None
        self._socket_server: asyncio.Server | None = None

    def _secret(self, name: str) -> str:
        """A secret kept in a file, made when first asked for."""
        path = self._directory / name
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode())
        return path.read_text().strip()

    async def open(self, host: str, port: int) -> Address:
        """Listen; port 0 takes a free one. OSError when the address cannot be had."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = Authority(self._directory / "pki", now_utc(self._server.clock.time()))
        token = self._secret("admin.token")
        key = self._secret("service-account.key").encode()
        authenticator = Authenticator(self._server.core, key, {token: ADMIN})
        self._server.use_authenticator(authenticator)
        await self._server.aggregation.identify(authority, self._directory)
        self._server.publish_authority(authority.certificate.decode())
        self._front = HttpFront(self._server, authenticator)
        names = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default.svc",
            socket.gethostname(),
        ]
        if host not in ("0.0.0.0", "::"):
            names.append(host)
        context: ssl.SSLContext = authority.server_context(names)
        loop = asyncio.get_running_loop()
        self._socket_server = await loop.create_server(
            self._front.connect,
            host,
            port,
            ssl=context,
            backlog=1024,
            reuse_address=True,
            ssl_handshake_timeout=HEAD_TIME,
            ssl_shutdown_timeout=GOODBYE_TIME,
        )
        port = self._socket_server.sockets[0].getsockname()[1]
        reach = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host
        url = f"https://{_url_host(reach)}:{port}"
        certificate, client_key = authority.client(ADMIN.name, ADMIN.groups)
        text = kubeconfig_text(url, authority.certificate, certificate, client_key, token)
        write_private(self._directory / "kubeconfig", text.encode())
        return Address(host, port, url, authority.certificate, token, text)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._socket_server is not None:
            self._socket_server.close()
        if self._front is not None:
            await self._front.close()
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)
