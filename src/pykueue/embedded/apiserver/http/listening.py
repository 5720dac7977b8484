"""Opening the server to the network: TLS, credentials, kubeconfig.

Authentication is always on. Keys and tokens live in the data directory, readable by the owner only; without a
data directory they live in a temporary one and go with the server.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import socket
import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple

import yaml

from pykueue.embedded.apiserver.auth.authentication import SHORTEST_KEY, SHORTEST_TOKEN, Authenticator
from pykueue.embedded.apiserver.auth.certificates import Authority, KeyFileError, now_utc, write_private
from pykueue.embedded.apiserver.pipeline import Pipeline
from pykueue.embedded.apiserver.registry.call import User
from pykueue.kube.validity import ValidityWatch

from .accepting import Acceptor, bind
from .front import HttpFront
from .versions import PROTOCOLS, Negotiated

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

    def __init__(self, pipeline: Pipeline, directory: Path | None) -> None:
        self._pipeline = pipeline
        self._temporary = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="pykueue-"))
        self._front: HttpFront | None = None
        self._acceptor: Acceptor | None = None
        self._validity: ValidityWatch | None = None

    def _secret(self, name: str, least: int) -> str:
        """A secret kept in a file, generated when there is none.

        KeyFileError when the file has fewer than `least` bytes, or not one line of printable ASCII.
        """
        path = self._directory / name
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode())
        text = path.read_bytes().strip().decode("latin-1")
        if len(text) < least or not text.isascii() or not text.isprintable() or " " in text:
            raise KeyFileError(
                f"{path} has {len(text)} bytes; accepted: {least} or more printable ASCII characters without "
                "spaces; remove the file to have one generated"
            )
        return text

    async def open(self, host: str, port: int) -> Address:
        """Listen; port 0 takes a free one. OSError when the address cannot be had, KeyFileError when
        a key or token in the directory cannot be used."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = Authority(self._directory / "pki", now_utc(self._pipeline.clock.time()))
        token = self._secret("admin.token", SHORTEST_TOKEN)
        key = self._secret("service-account.key", SHORTEST_KEY).encode()
        authenticator = Authenticator(self._pipeline.core, key, {token: ADMIN})
        self._pipeline.use_authenticator(authenticator)
        await self._pipeline.aggregation.identify(authority, self._directory)
        self._pipeline.publish_authority(authority.certificate.decode())
        self._front = front = HttpFront(self._pipeline, authenticator)
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
        context: ssl.SSLContext = authority.server_context(names, PROTOCOLS)
        listening = await bind(host, port)
        self._acceptor = Acceptor(listening, context, lambda: Negotiated(front))
        port = listening[0].getsockname()[1]
        reach = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host
        url = f"https://{_url_host(reach)}:{port}"
        certificate, client_key = authority.client(ADMIN.name, ADMIN.groups)
        text = kubeconfig_text(url, authority.certificate, certificate, client_key, token)
        write_private(self._directory / "kubeconfig", text.encode())
        self._validity = ValidityWatch(
            self._pipeline.clock, f"directory {self._directory / 'pki'}", *authority.validity
        )
        self._validity.start()
        return Address(host, port, url, authority.certificate, token, text)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._validity is not None:
            self._validity.close()
        if self._acceptor is not None:
            self._acceptor.close()
        if self._front is not None:
            await self._front.close()
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)
