"""The API server to use, and the credentials: kubeconfig files and the service account of a pod."""

from __future__ import annotations

import logging
import os
import ssl as tls
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pykueue.clock import Clock
from pykueue.kube.credentials import Credentials, authority_of, credentials_of, token_file
from pykueue.kube.http import HttpTransport, RequestOptions
from pykueue.kube.kubeconfig import ConfigError, Overrides, default_files, effective, impersonation

#: Where a pod finds its service account.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Requests of the user of one token under way at the same time.
ENDPOINT_CONCURRENT: Final = 16

log = logging.getLogger(__name__)


#: ConfigError is part of the interface of `load`.
__all__ = ["ConfigError", "load"]


async def load(
    kubeconfig: str | Path | None = None,
    *,
    overrides: Overrides | None = None,
    on_warning: Callable[[str], None] | None = None,
    keep_managed_fields: bool = False,
    clock: Clock | None = None,
    user_agent: str = "pykueue",
    max_concurrent: int | None = None,
    http2: bool = False,
) -> HttpTransport:
    """A transport to the configured cluster.

    The file given, else the service account when run in a pod, else `$KUBECONFIG`, else `~/.kube/config`.
    With `overrides` the service account of a pod is not used. `http2` is for clients with many requests at
    the same time. `on_warning` gets the text of warnings that the server sends. Raises ConfigError.
    """
    chosen = overrides or Overrides()
    clock = clock or Clock()
    headers: tuple[tuple[str, str], ...] = ()
    cluster: Mapping[str, Any]
    if kubeconfig is None and chosen == Overrides() and os.environ.get("KUBERNETES_SERVICE_HOST"):
        cluster, credentials = await _in_cluster(SERVICE_ACCOUNT, clock)
    else:
        found = str(kubeconfig or default_files())
        content = effective(found, chosen)
        headers = tuple(impersonation(content, chosen))
        cluster = content["clusters"][0]["cluster"]
        try:
            credentials = await credentials_of(content["users"][0]["user"], cluster, clock)
        except (ConfigError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"kubeconfig {found} cannot be used: {error}") from error
    options: dict[str, Any] = {} if max_concurrent is None else {"max_concurrent": max_concurrent}
    return HttpTransport(
        str(cluster["server"]),
        ssl=_tls_context(cluster, credentials),
        authorization=credentials.authorization,
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
        user_agent=user_agent,
        keep_managed_fields=keep_managed_fields,
        requests=RequestOptions(headers, chosen.request_timeout or None, on_warning),
        http2=http2,
        **options,
    )


class Endpoint(NamedTuple):
    """Where an API server is, and how it is trusted, without any credentials."""

    url: str
    ssl: tls.SSLContext | None
    server_name: str | None
    proxy: str | None

    def transport(self, token: str) -> HttpTransport:
        """A transport with the rights of a bearer token and no others."""
        return HttpTransport(
            self.url,
            ssl=self.ssl,
            token=token,
            server_name=self.server_name,
            proxy=self.proxy,
            max_concurrent=ENDPOINT_CONCURRENT,
        )


async def endpoint(kubeconfig: str | Path | None = None) -> Endpoint:
    """The API server that `load` connects to. Raises ConfigError.

    Nothing of the configured user is in it: a client certificate would come before the token of a request.
    """
    cluster: Mapping[str, Any]
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        cluster, _ = await _in_cluster(SERVICE_ACCOUNT, Clock())
    else:
        cluster = effective(str(kubeconfig or default_files()), Overrides())["clusters"][0]["cluster"]
    return Endpoint(
        str(cluster["server"]),
        _tls_context(cluster, None),
        cluster.get("tls-server-name"),
        cluster.get("proxy-url"),
    )


async def bearer_token(transport: HttpTransport) -> str:
    """The bearer token of a transport's user; empty where it has none."""
    scheme, _, token = (await transport.authorization() or "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _tls_context(cluster: Mapping[str, Any], credentials: Credentials | None) -> tls.SSLContext | None:
    """TLS as configured: the cluster's authority (else the system's), the user's certificate.

    None for a server without TLS. Raises ConfigError.
    """
    host = str(cluster["server"])
    if not host.startswith("https"):
        return None
    try:
        context = tls.create_default_context(cadata=authority_of(cluster))
        if credentials is not None:
            credentials.use_in(context)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"the certificates for {host} cannot be used: {error}") from error
    if cluster.get("insecure-skip-tls-verify"):
        log.warning("%s is not verified: its kubeconfig says insecure-skip-tls-verify", cluster["server"])
        context.check_hostname = False
        context.verify_mode = tls.CERT_NONE
    return context


async def _in_cluster(account: Path, clock: Clock) -> tuple[Mapping[str, Any], Credentials]:
    """The cluster that a pod runs in, and the token of its service account, which is renewed in its file."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    authority = account / "ca.crt"
    try:
        credentials = await token_file(account / "token", clock)
        authority.stat()
    except (ConfigError, OSError) as error:
        raise ConfigError(f"the pod's service account cannot be used: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return {"server": server, "certificate-authority": str(authority)}, credentials
