"""Where programs that extend the server are reached: webhooks, converters, aggregated servers.

A `url` is called as it is. A `service` has no network here: it is looked up among the addresses the embedding
program registered, then in the Service's Endpoints, then in its external name.
"""

from __future__ import annotations

import base64
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.core import Core

from . import self_issued
from .turns import Turns

#: Addresses whose calls are remembered when none is under way.
REMEMBERED_ADDRESSES = 256
#: Bytes the answer to a review may have.
_ANSWER_LIMIT = 32 * 1024 * 1024


class UnreachableError(Exception):
    """There is no address to call; the text says why."""


def connection_fault(error: aiohttp.ClientConnectorError) -> str:
    """Why no connection was made, in the words of the operating system or of TLS."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: {error.certificate_error}"
    fault = error.os_error
    if isinstance(fault, ssl.SSLError):
        return f"tls: {fault}"
    reason = os.strerror(fault.errno).lower() if fault.errno is not None and fault.errno > 0 else str(fault)
    return f"dial tcp {error.host}:{error.port}: connect: {reason}"


class Services:
    """Finds the addresses of extending programs and keeps the TLS contexts to reach them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._contexts: dict[tuple[str, bool, Path | None], ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None
        #: The calls to each address.
        self._turns: dict[str, Turns] = {}
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
        endpoints = self._core.find_settled("", "endpoints", namespace, name)
        for subset in (endpoints or {}).get("subsets") or ():
            addresses, ports = subset.get("addresses") or (), subset.get("ports") or ()
            if addresses:
                return addresses[0]["ip"], ports[0]["port"] if ports else port
        found = self._core.find_settled("", "services", namespace, name)
        external = ((found or {}).get("spec") or {}).get("externalName")
        if external:
            return external, port
        if found is None:
            raise UnreachableError(f'service "{name}" not found in namespace "{namespace}"')
        raise UnreachableError(f'no endpoints available for service "{name}"')

    async def review(self, client: Object, review: Object, seconds: float, query: str = "") -> Object:
        """Post a review to a clientConfig; the answer is a review of the same kind.

        `seconds` begin when it is sent; before, it may wait for its turn (`Turns`). Raises UnreachableError,
        OSError, TimeoutError, aiohttp.ClientError or ValueError.
        """
        url, certified = self.url(client)
        address = urlsplit(url).netloc
        if query:
            url += ("&" if "?" in url else "?") + query
        bundle = client.get("caBundle") or ""

        async def send() -> Object:
            try:
                return await self._post_again(url, certified, self.context(bundle), review)
            except aiohttp.ClientConnectorCertificateError as error:
                found = await _pinned(error, certified, bundle)
                if found is None:
                    raise
                return await self._post_again(url, certified, found, review)

        turns = self._turns.get(address)
        if turns is None:
            if len(self._turns) >= REMEMBERED_ADDRESSES:
                self._turns = {one: known for one, known in self._turns.items() if known.busy}
            turns = self._turns[address] = Turns()
        try:
            return await turns.call(send, seconds)
        except aiohttp.ClientConnectorError as error:
            raise OSError(connection_fault(error)) from error

    async def _post_again(
        self, url: str, certified: str | None, trust: ssl.SSLContext | aiohttp.Fingerprint, review: Object
    ) -> Object:
        """Post a review, twice if the connection ends without an answer.

        Programs may end a connection that they have kept open at the moment in which a review is sent. A
        review only asks, so it can be sent again.
        """
        try:
            return await self._post(url, certified, trust, review)
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            return await self._post(url, certified, trust, review)

    async def _post(
        self, url: str, certified: str | None, trust: ssl.SSLContext | aiohttp.Fingerprint, review: Object
    ) -> Object:
        if self._session is None:
            # Bounded by the turns of each address.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        async with (
            self._session.post(
                url,
                data=orjson.dumps(review),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                ssl=trust,
                server_hostname=certified,
                allow_redirects=False,
            ) as response,
        ):
            data = bytearray()
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > _ANSWER_LIMIT:
                    raise ValueError(f"the answer is larger than {_ANSWER_LIMIT} bytes")
            if response.status != 200:
                shown = data[:200].decode(errors="replace")
                raise ValueError(f"the webhook answered {response.status}: {shown}")
        answer: Any = orjson.loads(data)
        if not isinstance(answer, dict) or answer.get("kind") != review["kind"]:
            article = "an" if review["kind"][0] in "AEIOU" else "a"
            raise ValueError(f"the answer is not {article} {review['kind']}")
        return answer

    async def close(self) -> None:
        """Give back connections."""
        if self._session is not None:
            await self._session.close()

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


async def _pinned(
    error: aiohttp.ClientConnectorCertificateError, certified: str | None, bundle: str
) -> aiohttp.Fingerprint | None:
    """The fingerprint to trust although the certificate was rejected; None: it was rejected rightly."""
    if not bundle or error.port is None or not self_issued.is_suspected(error):
        return None
    authorities = base64.b64decode(bundle)
    return await self_issued.pinned(error.host, error.port, certified or error.host, authorities)
