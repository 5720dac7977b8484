"""The kubeconfig of a worker cluster: what is read of it, and what is refused.

A kubeconfig comes from a Secret that others may write, so it may not run programs, read files of the manager
or skip the verification of the server. Source: docs/reference/admission-checks.md 14.3.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import ssl as tls
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

from pykueue.clock import Clock
from pykueue.kube.certificate_file import certificate_file
from pykueue.kube.credentials import Credentials, credentials_of
from pykueue.kube.http import HttpTransport
from pykueue.kube.kubeconfig import ConfigError
from pykueue.kube.transport import Transport

BAD, INSECURE, BAD_REST = "BadKubeConfig", "InsecureKubeConfig", "BadRestConfig"

log = logging.getLogger(__name__)

#: Fields of a user that are refused, with what they would do.
_REFUSED_OF_USER = {
    "tokenFile": "reads a file of the manager",
    "exec": "runs a program",
    "auth-provider": "runs an authentication plug-in",
    "username": "uses basic authentication",
    "password": "uses basic authentication",
    "as": "impersonates a user",
}


class KubeConfigError(Exception):
    """A kubeconfig that is not used; `reason` is that of the condition Active.

    The message never has a value of the kubeconfig in it, except for names and the server.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Target:
    """Where a worker cluster is, and the credentials for it, which no representation shows."""

    server: str
    #: PEM; empty: the system's authorities.
    authority: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    server_name: str = ""
    #: How a program is run that gives the credentials, and what it receives of the cluster.
    plugin: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cluster: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Changes with every change of the kubeconfig.
    fingerprint: str = ""


def parse(content: str) -> Target:
    """The current context of a kubeconfig. Raises KubeConfigError."""
    try:
        config = yaml.load(content, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        # The error's own text quotes the document.
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"
        raise KubeConfigError(BAD, f"the kubeconfig is not YAML{place}") from error
    if not isinstance(config, dict):
        raise KubeConfigError(BAD, "the kubeconfig is not a map")
    selected = config.get("current-context")
    if not selected:
        raise KubeConfigError(BAD, "the kubeconfig has no current-context")
    context = _named(config, "contexts", "context", selected)
    cluster = _named(config, "clusters", "cluster", context.get("cluster"))
    user = _named(config, "users", "user", context.get("user")) if context.get("user") else {}
    for name, effect in _REFUSED_OF_USER.items():
        if user.get(name):
            raise KubeConfigError(INSECURE, f"users[].user.{name} is not allowed: it {effect}")
    if cluster.get("insecure-skip-tls-verify"):
        text = "clusters[].cluster.insecure-skip-tls-verify is not allowed: the server would not be verified"
        raise KubeConfigError(INSECURE, text)
    if cluster.get("certificate-authority"):
        text = "clusters[].cluster.certificate-authority is not allowed: it reads a file of the manager"
        raise KubeConfigError(INSECURE, text)
    for name in ("client-certificate", "client-key"):
        if user.get(name):
            raise KubeConfigError(INSECURE, f"users[].user.{name} is not allowed: it reads a file")
    return Target(
        _server(cluster.get("server")),
        _decoded(cluster, "certificate-authority-data"),
        _decoded(user, "client-certificate-data"),
        _decoded(user, "client-key-data"),
        str(user.get("token") or ""),
        str(cluster.get("tls-server-name") or ""),
        fingerprint=hashlib.sha256(content.encode()).hexdigest(),
    )


def of_profile(cluster: Mapping[str, Any], plugin: Mapping[str, Any]) -> Target:
    """The cluster of a ClusterProfile, with credentials from an exec plugin of the manager's configuration.

    Raises KubeConfigError.
    """
    try:
        server = _server(cluster.get("server"))
        authority = _decoded(cluster, "certificate-authority-data")
    except KubeConfigError as error:
        raise KubeConfigError(BAD_REST, str(error)) from error
    if cluster.get("insecure-skip-tls-verify") or cluster.get("certificate-authority"):
        text = "the cluster of the profile skips verification or names a file of the manager"
        raise KubeConfigError(BAD_REST, text)
    described = orjson.dumps([cluster, plugin], option=orjson.OPT_SORT_KEYS)
    return Target(
        server,
        authority,
        server_name=str(cluster.get("tls-server-name") or ""),
        plugin={**plugin, "interactiveMode": "Never"},
        cluster=cluster,
        fingerprint=hashlib.sha256(described).hexdigest(),
    )


class _Plugin:
    """Credentials of a program, which is run when they are first needed and before they expire."""

    def __init__(self, target: Target, context: tls.SSLContext | None) -> None:
        self._target = target
        self._context = context
        self._credentials: Credentials | None = None

    async def authorization(self) -> str | None:
        """The Authorization header. Raises ConnectionError, without what the program has printed."""
        if self._credentials is None:
            try:
                user = {"exec": self._target.plugin}
                found = await credentials_of(user, self._target.cluster, Clock())
                if self._context is not None:
                    found.use_in(self._context)
            except (ConfigError, OSError, ValueError, LookupError, TypeError) as error:
                name = self._target.plugin.get("command")
                log.debug("access provider %s: %s", name, type(error).__name__)
                raise ConnectionError(f"the program {name} gives no credentials") from error
            self._credentials = found
        return await self._credentials.authorization()


def _server(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise KubeConfigError(INSECURE, "clusters[].cluster.server is missing")
    try:
        parts = urlsplit(value)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise KubeConfigError(INSECURE, "clusters[].cluster.server is not a URL") from error
    if parts.scheme not in ("https", "http") or not host:
        raise KubeConfigError(INSECURE, "clusters[].cluster.server has no host or is not a URL of http(s)")
    if parts.username or parts.password:
        raise KubeConfigError(INSECURE, "clusters[].cluster.server is not allowed to have credentials in it")
    return value


def _named(config: Mapping[str, Any], plural: str, singular: str, name: Any) -> Mapping[str, Any]:
    for entry in config.get(plural) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(singular)
            if isinstance(found, dict):
                return found
    raise KubeConfigError(BAD, f"{plural} has no entry {name!r}")


def _decoded(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not value:
        return ""
    try:
        return base64.b64decode(str(value), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise KubeConfigError(BAD, f"{name} is not base64") from error


def connect(target: Target) -> Transport:
    """A transport to the worker cluster. Raises KubeConfigError for certificates that cannot be used."""
    context = None
    if target.server.startswith("https"):
        try:
            context = tls.create_default_context(cadata=target.authority or None)
            if target.certificate:
                with certificate_file(f"{target.certificate}\n{target.key}\n".encode()) as path:
                    context.load_cert_chain(path)
        except (tls.SSLError, ValueError, OSError) as error:
            raise KubeConfigError(BAD_REST, "the certificates cannot be used") from error
    return HttpTransport(
        target.server,
        ssl=context,
        token=target.token or None,
        authorization=_Plugin(target, context).authorization if target.plugin else None,
        server_name=target.server_name or None,
        http2=True,
    )
