"""A user's credentials: tokens, client certificates, exec plugins, OIDC, the service account of a pod.

Source: docs/reference/kubernetes-api-machinery.md, section 21 (kubectl); the APIs kubeconfig v1 and
client.authentication.k8s.io (v1 and v1beta1).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import ssl as tls
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.kube.certificate_file import certificate_file
from pykueue.kube.kubeconfig import ConfigError
from pykueue.kube.openid import OpenId

#: How often tokens in files, and credentials of a plugin without a time of expiry, are read again (seconds).
REFRESH_INTERVAL: Final = 60.0
#: Credentials are renewed this long before they expire, in seconds.
EXPIRY_MARGIN: Final = 60.0

#: Versions of the API of plugins.
_PLUGIN_APIS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
#: Name of the extension of a cluster that plugins receive.
_PLUGIN_EXTENSION: Final = "client.authentication.k8s.io/exec"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Credential:
    """The proof of a user's identity: the value of the Authorization header, a certificate with its
    key in PEM, or both. `expires` is in seconds since 1970; None where it is not known."""

    authorization: str | None = None
    certificate: bytes = b""
    expires: float | None = None


class Source(Protocol):
    """Where credentials come from."""

    async def read(self) -> Credential:
        """The credential as it is now. Raises ConfigError or OSError."""
        ...


class Credentials:
    """The credential of one user, renewed before it expires.

    `source` is None where nothing renews it. A new client certificate is loaded into `context`.
    """

    def __init__(self, first: Credential, source: Source | None, clock: Clock) -> None:
        self._current = first
        self._source = source
        self._clock = clock
        self._context: tls.SSLContext | None = None
        self._read_at = clock.monotonic()

    def use_in(self, context: tls.SSLContext) -> None:
        """Load the client certificate, and those that follow it. Raises OSError, ssl.SSLError, ValueError."""
        self._context = context
        self._load_certificate()

    async def authorization(self) -> str | None:
        """The value of the Authorization header."""
        if self._source is not None and self._due():
            self._read_at = self._clock.monotonic()
            before = self._current
            try:
                self._current = await self._source.read()
                if self._current.certificate != before.certificate:
                    self._load_certificate()
            except (ConfigError, OSError, ValueError) as error:
                # The old credentials may still be accepted; if not, the server says so.
                log.warning("credentials cannot be renewed: %s", error)
        return self._current.authorization

    def _due(self) -> bool:
        if self._clock.monotonic() - self._read_at < REFRESH_INTERVAL:
            return False
        expires = self._current.expires
        return expires is None or self._clock.time() >= expires - EXPIRY_MARGIN

    def _load_certificate(self) -> None:
        if self._context is not None and self._current.certificate:
            with certificate_file(self._current.certificate) as path:
                self._context.load_cert_chain(path)


async def credentials_of(user: Mapping[str, Any], cluster: Mapping[str, Any], clock: Clock) -> Credentials:
    """The credentials of a user of an effective kubeconfig.

    As for kubectl, a certificate is used beside every other kind, a token before an exec plugin, and a plugin
    before a user name and password. Raises ConfigError, OSError and ValueError.
    """
    certificate = _data(user, "client-certificate")
    if certificate:
        key = _data(user, "client-key")
        if not key:
            raise ConfigError("client-certificate needs client-key")
        certificate += b"\n" + key
    source: Source
    if user.get("tokenFile"):
        source = _TokenFile(Path(_text(user, "tokenFile")), certificate)
    elif user.get("token"):
        return Credentials(Credential(_bearer(_text(user, "token")), certificate), None, clock)
    elif user.get("exec"):
        source = _Plugin(_mapping(user, "exec"), cluster, certificate)
    elif user.get("auth-provider"):
        source = _provider(_mapping(user, "auth-provider"), certificate, clock)
    else:
        authorization = None
        if user.get("username"):
            pair = f"{_text(user, 'username')}:{user.get('password') or ''}"
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return Credentials(Credential(authorization, certificate), None, clock)
    return Credentials(await source.read(), source, clock)


async def token_file(path: Path, clock: Clock) -> Credentials:
    """A bearer token that another program renews in a file. Raises ConfigError and OSError."""
    source = _TokenFile(path, b"")
    return Credentials(await source.read(), source, clock)


class _TokenFile:
    def __init__(self, path: Path, certificate: bytes) -> None:
        self._path = path
        self._certificate = certificate

    async def read(self) -> Credential:
        token = self._path.read_text(encoding="utf-8").strip()
        if not token:
            raise ConfigError(f"token file {self._path} is empty")
        return Credential(_bearer(token), self._certificate)


class _Plugin:
    """A program that prints an ExecCredential."""

    def __init__(self, plugin: Mapping[str, Any], cluster: Mapping[str, Any], certificate: bytes) -> None:
        version = plugin.get("apiVersion")
        if version not in _PLUGIN_APIS:
            raise ConfigError(f"exec.apiVersion is {version!r}; accepted: {', '.join(_PLUGIN_APIS)}")
        self._version = version
        self._plugin = plugin
        self._certificate = certificate
        self._command = [_text(plugin, "command"), *(str(one) for one in plugin.get("args") or ())]
        entries = plugin.get("env") or ()
        self._environment = {str(one["name"]): str(one["value"]) for one in entries}
        mode = plugin.get("interactiveMode") or "IfAvailable"
        if mode == "Always" and not sys.stdin.isatty():
            raise ConfigError(f"exec plugin {self._command[0]} needs a terminal (interactiveMode: Always)")
        self._interactive = mode != "Never" and sys.stdin.isatty()
        self._cluster = _plugin_cluster(cluster) if plugin.get("provideClusterInfo") else None

    async def read(self) -> Credential:
        spec: dict[str, Any] = {"interactive": self._interactive}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        request = {"apiVersion": self._version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **self._environment,
            "KUBERNETES_EXEC_INFO": orjson.dumps(request).decode(),
        }
        name = self._command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environment,
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self._interactive else asyncio.subprocess.PIPE,
            )
        except FileNotFoundError as error:
            hint = str(self._plugin.get("installHint") or "").strip()
            raise ConfigError(
                f"exec plugin {name} is not installed" + (f"; {hint}" if hint else "")
            ) from error
        output, errors = await process.communicate()
        if process.returncode:
            reason = " ".join((errors or b"").decode(errors="replace").split())
            raise ConfigError(f"exec plugin {name} ended with exit code {process.returncode}: {reason}")
        return self._decoded(name, output)

    def _decoded(self, name: str, output: bytes) -> Credential:
        try:
            answer = orjson.loads(output)
            if answer["kind"] != "ExecCredential" or answer["apiVersion"] != self._version:
                raise ConfigError(f"exec plugin {name} printed no ExecCredential of {self._version}")
            status = answer["status"]
            token, certificate = status.get("token"), status.get("clientCertificateData") or ""
            key, expires = status.get("clientKeyData") or "", status.get("expirationTimestamp")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"exec plugin {name} printed no ExecCredential") from error
        if bool(certificate) != bool(key):
            raise ConfigError(
                f"exec plugin {name} printed a certificate without its key, or a key without it"
            )
        if not token and not certificate:
            raise ConfigError(f"exec plugin {name} printed neither a token nor a certificate")
        return Credential(
            _bearer(str(token)) if token else None,
            f"{certificate}\n{key}\n".encode() if certificate else self._certificate,
            parse_time(expires) if expires else None,
        )


def _plugin_cluster(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as passed to a plugin with provideClusterInfo."""
    found = {
        name: cluster[name]
        for name in ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        if cluster.get(name)
    }
    if authority := _data(cluster, "certificate-authority"):
        found["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == _PLUGIN_EXTENSION:
            found["config"] = extension.get("extension")
    return found


def _provider(provider: Mapping[str, Any], certificate: bytes, clock: Clock) -> Source:
    """Credentials of an auth-provider: `oidc`, the one that kubectl still has."""
    name = provider.get("name")
    if name != "oidc":
        raise ConfigError(
            f"auth-provider {name} is not supported; use an exec plugin, as kubectl 1.26 and newer do"
        )
    return _OpenIdTokens(OpenId(_mapping(provider, "config"), clock), certificate)


class _OpenIdTokens:
    def __init__(self, provider: OpenId, certificate: bytes) -> None:
        self._provider = provider
        self._certificate = certificate

    async def read(self) -> Credential:
        token, expires = await self._provider.token()
        return Credential(_bearer(token), self._certificate, expires)


def authority_of(cluster: Mapping[str, Any]) -> str | None:
    """The certificate authority of a cluster, PEM; None for the system's. Raises OSError and ConfigError."""
    return _data(cluster, "certificate-authority").decode() or None


def _data(entry: Mapping[str, Any], name: str) -> bytes:
    """The field `NAME-data`, decoded, else the content of the file `NAME`; empty without either."""
    inline = entry.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error as error:
            raise ConfigError(f"{name}-data is not base64") from error
    return Path(_text(entry, name)).read_bytes() if entry.get(name) else b""


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be a text")
    return value


def _mapping(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = entry.get(name)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping")
    return value


def _bearer(token: str) -> str:
    if "\n" in token or "\r" in token:
        raise ConfigError("the token has more than one line")
    return f"Bearer {token}"
