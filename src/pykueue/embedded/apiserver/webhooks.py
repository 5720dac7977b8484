"""Webhooks that stored configurations describe: asked over HTTPS.

A `url` is called as it is. A `service` has no network here: it is looked up among the addresses the embedding
program registered, then in the Service's Endpoints, then in its external name.
Source: reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson

from pykueue.embedded.apiserver.admission import Webhook, WebhookFailedError
from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.core import Core
from pykueue.embedded.apiserver.match_conditions import match

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"

#: Bytes a webhook's answer may have.
_ANSWER_LIMIT = 8 * 1024 * 1024


class Webhooks:
    """Keeps admission in step with the stored webhook configurations, and calls what they name."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}
        #: Where services are reached: `namespace/name` to host and port.
        self.services: dict[str, tuple[str, int]] = {}
        for plural in (MUTATING, VALIDATING):
            core.on_stored(f"{GROUP}/{plural}", lambda *_: self.load())

    def load(self) -> None:
        """Take the stored configurations as they are now."""
        webhooks = []
        for plural in (MUTATING, VALIDATING):
            for configuration in self._core.all(GROUP, plural):
                for entry in configuration.get("webhooks") or ():
                    webhooks.append(self._webhook(entry, plural == MUTATING))
        self._core.admission.configure(webhooks)

    async def close(self) -> None:
        """Give back connections."""
        if self._session is not None:
            await self._session.close()

    def _webhook(self, entry: Object, mutating: bool) -> Webhook:
        return Webhook(
            name=entry["name"],
            mutating=mutating,
            rules=entry.get("rules") or [],
            review=self._reviewer(entry),
            namespace_selector=entry.get("namespaceSelector"),
            object_selector=entry.get("objectSelector"),
            ignore_failure=entry.get("failurePolicy") == "Ignore",
            side_effects=entry.get("sideEffects") not in ("None", "NoneOnDryRun"),
            exact=entry.get("matchPolicy") == "Exact",
            reinvoke=entry.get("reinvocationPolicy") == "IfNeeded",
            conditions=match(entry["matchConditions"]) if entry.get("matchConditions") else None,
        )

    def _reviewer(self, entry: Object) -> Callable[[Object], Awaitable[Object]]:
        client = entry.get("clientConfig") or {}
        timeout = float(entry.get("timeoutSeconds") or 10)

        async def review(request: Object) -> Object:
            url = self._url(client)
            try:
                return await self._post(url, request, client, timeout)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                text = (
                    f"context deadline exceeded after {timeout:g}s"
                    if isinstance(error, TimeoutError)
                    else error
                )
                raise WebhookFailedError(f'failed to call webhook: Post "{url}": {text}') from error

        return review

    async def _post(self, url: str, body: Object, client: Object, seconds: float) -> Object:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        service = client.get("service")
        name = f"{service['name']}.{service['namespace']}.svc" if service else None
        separator = "&" if "?" in url else "?"
        async with (
            asyncio.timeout(seconds),
            self._session.post(
                f"{url}{separator}timeout={seconds:g}s",
                data=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
                ssl=self._context(client.get("caBundle") or ""),
                server_hostname=name,
                allow_redirects=False,
            ) as response,
        ):
            data = bytearray()
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > _ANSWER_LIMIT:
                    raise ValueError(f"the answer is larger than {_ANSWER_LIMIT} bytes")
            if response.status != 200:
                raise ValueError(
                    f"the webhook answered {response.status}: {data[:200].decode(errors='replace')}"
                )
        answer: Any = orjson.loads(data)
        if not isinstance(answer, dict) or answer.get("kind") != "AdmissionReview":
            raise ValueError("the answer is not an AdmissionReview")
        return answer

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            data = base64.b64decode(bundle).decode() if bundle else None
            context = self._contexts[bundle] = ssl.create_default_context(cadata=data)
        return context

    def _url(self, client: Object) -> str:
        url = client.get("url")
        if url:
            if not url.startswith("https://"):
                raise WebhookFailedError(f'clientConfig.url must begin with "https://": {url}')
            return str(url)
        service = client.get("service") or {}
        namespace, name = service.get("namespace", ""), service.get("name", "")
        host, port = self._address(namespace, name, int(service.get("port") or 443))
        return f"https://{host}:{port}{service.get('path') or '/'}"

    def _address(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        known = self.services.get(f"{namespace}/{name}")
        if known is not None:
            return known
        endpoints = self._core.find("", "endpoints", namespace, name)
        for subset in (endpoints or {}).get("subsets") or ():
            addresses, ports = subset.get("addresses") or (), subset.get("ports") or ()
            if addresses:
                return addresses[0]["ip"], ports[0]["port"] if ports else port
        service = self._core.find("", "services", namespace, name)
        external = ((service or {}).get("spec") or {}).get("externalName")
        if external:
            return external, port
        if service is None:
            raise WebhookFailedError(f'service "{name}" not found in namespace "{namespace}"')
        raise WebhookFailedError(f'no endpoints available for service "{name}"')
