"""The API server to use, and the credentials: kubeconfig files and the service account of a pod.

Reading them is left to kubernetes_asyncio, which knows exec plugins, OIDC refresh and the rest. It is
imported only here, only when needed, and without its generated client: that takes half a second and 42 MB,
and the memory does not come back when the modules go.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.machinery
import importlib.util
import logging
import os
import ssl as tls
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pykueue.clock import Clock
from pykueue.kube.http import Authorization, HttpTransport, RequestOptions
from pykueue.kube.kubeconfig import ConfigError, Overrides, default_files, effective, impersonation

#: How often credentials of a plugin are looked at for renewal, in seconds.
REFRESH_INTERVAL = 60.0

log = logging.getLogger(__name__)


#: ConfigError is part of the interface of `load`.
__all__ = ["ConfigError", "load", "renewable", "tls_context"]


async def load(
    kubeconfig: str | Path | None = None,
    *,
    overrides: Overrides | None = None,
    on_warning: Callable[[str], None] | None = None,
    keep_managed_fields: bool = False,
    clock: Clock | None = None,
    user_agent: str = "pykueue",
    max_concurrent: int | None = None,
) -> HttpTransport:
    """A transport to the configured cluster.

    The file given, else the service account when run in a pod, else `$KUBECONFIG`, else `~/.kube/config`.
    With `overrides` the service account of a pod is not used. `on_warning` gets the text of warnings that the
    server sends. Raises ConfigError.
    """
    with _borrowed_library():
        from kubernetes_asyncio.client.configuration import Configuration

        settings = Configuration()
        settings.retries = None
        chosen = overrides or Overrides()
        in_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
        headers: tuple[tuple[str, str], ...] = ()
        in_cluster = kubeconfig is None and chosen == Overrides() and in_pod
        if in_cluster:
            authorization = _in_cluster(settings)
        else:
            found = str(kubeconfig or default_files())
            content = effective(found, chosen)
            headers = tuple(impersonation(content, chosen))
            authorization = await _from_content(settings, found, content, clock or Clock())
        host = str(settings.host)
        ssl = tls_context(settings) if host.startswith("https") else None
    options: dict[str, Any] = {} if max_concurrent is None else {"max_concurrent": max_concurrent}
    return HttpTransport(
        host,
        ssl=ssl,
        authorization=authorization,
        server_name=settings.tls_server_name,
        proxy=settings.proxy,
        user_agent=user_agent,
        keep_managed_fields=keep_managed_fields,
        requests=RequestOptions(headers, chosen.request_timeout or None, on_warning),
        **options,
    )


@contextmanager
def _borrowed_library() -> Iterator[None]:
    """The library's readers of configuration, importable inside; afterwards it is as if they never were.

    What renews credentials keeps what it needs. The files the library writes keys and certificates to go at
    once, not when the process ends.
    """
    if "kubernetes_asyncio" in sys.modules:
        yield
        return
    _lay_out_packages()
    try:
        yield
    finally:
        if reader := sys.modules.get("kubernetes_asyncio.config.kube_config"):
            reader._cleanup_temp_files()
            atexit.unregister(reader._cleanup_temp_files)
        for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes_asyncio"]:
            del sys.modules[name]


def _lay_out_packages() -> None:
    """Packages that know where their modules are and import none: the library's own import all of them."""
    found = importlib.util.find_spec("kubernetes_asyncio")
    roots = list(found.submodule_search_locations or ()) if found else []
    for name, folders in (
        ("kubernetes_asyncio", roots),
        ("kubernetes_asyncio.client", [str(Path(root, "client")) for root in roots]),
    ):
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = folders
        sys.modules[name] = importlib.util.module_from_spec(spec)
    client = sys.modules["kubernetes_asyncio.client"]
    settings = importlib.import_module("kubernetes_asyncio.client.configuration")
    # What the readers import from the client. They name ApiClient in signatures only.
    vars(client).update(Configuration=settings.Configuration, ApiClient=object)


def tls_context(settings: Any) -> tls.SSLContext:
    """TLS as configured: the cluster's authority (else the system's), the user's certificate."""
    context = tls.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl:
        log.warning("%s is not verified: its kubeconfig says insecure-skip-tls-verify", settings.host)
        context.check_hostname = False
        context.verify_mode = tls.CERT_NONE
    return context


def _in_cluster(settings: Any) -> Authorization:
    from kubernetes_asyncio.config import ConfigException, load_incluster_config

    try:
        load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise ConfigError(f"the pod's service account cannot be used: {error}") from error

    async def authorization() -> str | None:
        # Reads the token file again once a minute: tokens of service accounts expire.
        value: str | None = await settings.get_api_key_with_prefix("BearerToken")
        return value

    return authorization


async def _from_content(settings: Any, files: str, content: dict[str, Any], clock: Clock) -> Authorization:
    """Credentials of an effective kubeconfig; `files` for errors."""
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.kube_config import load_kube_config_from_dict

    try:
        loader = await load_kube_config_from_dict(content, None, settings)
    except (
        ConfigException,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AssertionError,
    ) as error:
        # The library checks little: a wrong shape shows up as whatever it stumbles over.
        raise ConfigError(f"kubeconfig {files} cannot be used: {error}") from error
    # Not kept without need: it holds on to the library.
    renewing = loader if renewable(loader) else None
    checked_at = clock.monotonic()

    async def authorization() -> str | None:
        nonlocal checked_at
        if renewing is not None and clock.monotonic() - checked_at >= REFRESH_INTERVAL:
            checked_at = clock.monotonic()
            try:
                await renewing.load_and_set(settings)
            except Exception as error:
                # The old credentials may still work; if not, the server says so.
                log.warning("credentials cannot be renewed: %s", error)
        value: str | None = settings.api_key.get("BearerToken")
        return value

    return authorization


def renewable(loader: Any) -> bool:
    """Whether the user's credentials come from something that renews them."""
    user = loader._user
    return user is not None and ("exec" in user or "auth-provider" in user or "tokenFile" in user)
