"""Where programs that extend the server are reached: webhooks, converters, aggregated servers.

A `url` is called as it is. A `service` has no network here: it is looked up among the addresses the embedding
program registered, then in the Service's Endpoints, then in its external name.
"""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.core import Core


class UnreachableError(Exception):
    """There is no address to call; the text says why."""


class Services:
    """Finds the addresses of extending programs and keeps the TLS contexts to reach them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._contexts: dict[tuple[str, bool, Path | None], ssl.SSLContext] = {}
        #: PEM file with the key and certificate this server shows to aggregated servers, if it has one.
        self.identity: Path | None = None
        #: Where services are reached: `namespace/name` to host and port.
        self.known: dict[str, tuple[str, int]] = {}

    def url(self, client: Object) -> tuple[str, str | None]:
        """The URL of a clientConfig, and the name its certificate must carry. Raises UnreachableError."""
        url = client.get("url")
        if url:
            if not url.startswith("https://"):
                raise UnreachableError(f'clientConfig.url must begin with "https://": {url}')
            return str(url), None
        service = client.get("service") or {}
        host, port = self.address(service)
        name = f"{service.get('name', '')}.{service.get('namespace', '')}.svc"
        return f"https://{host}:{port}{service.get('path') or '/'}", name

    def address(self, service: Object) -> tuple[str, int]:
        """Host and port of a service reference. Raises UnreachableError."""
        namespace, name = service.get("namespace", ""), service.get("name", "")
        port = int(service.get("port") or 443)
        known = self.known.get(f"{namespace}/{name}")
        if known is not None:
            return known
        endpoints = self._core.find("", "endpoints", namespace, name)
        for subset in (endpoints or {}).get("subsets") or ():
            addresses, ports = subset.get("addresses") or (), subset.get("ports") or ()
            if addresses:
                return addresses[0]["ip"], ports[0]["port"] if ports else port
        found = self._core.find("", "services", namespace, name)
        external = ((found or {}).get("spec") or {}).get("externalName")
        if external:
            return external, port
        if found is None:
            raise UnreachableError(f'service "{name}" not found in namespace "{namespace}"')
        raise UnreachableError(f'no endpoints available for service "{name}"')

    def context(self, bundle: str, unchecked: bool = False, identified: bool = False) -> ssl.SSLContext:
        """TLS that trusts a base64 bundle of PEM certificates, or the system's authorities when empty.

        `unchecked` accepts any certificate (insecureSkipTLSVerify); `identified` shows our own. Raises
        ValueError or ssl.SSLError for a bundle that is none.
        """
        key = ("" if unchecked else bundle, unchecked, self.identity if identified else None)
        context = self._contexts.get(key)
        if context is None:
            data = base64.b64decode(bundle).decode() if bundle and not unchecked else None
            context = ssl.create_default_context(cadata=data)
            if unchecked:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if identified and self.identity is not None:
                context.load_cert_chain(self.identity)
            self._contexts[key] = context
        return context
