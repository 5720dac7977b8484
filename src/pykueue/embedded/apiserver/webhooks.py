"""Webhooks that stored configurations describe: asked over HTTPS.

Source: reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson

from pykueue.embedded.apiserver.admission import Webhook, WebhookFailedError
from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.core import Core
from pykueue.embedded.apiserver.match_conditions import match
from pykueue.embedded.apiserver.services import Services, UnreachableError

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"

#: Bytes a webhook's answer may have.
_ANSWER_LIMIT = 8 * 1024 * 1024


class Webhooks:
    """Keeps admission in step with the stored webhook configurations, and calls what they name."""

    def __init__(self, core: Core, services: Services) -> None:
        self._core = core
        self._services = services
        self._session: aiohttp.ClientSession | None = None
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
            try:
                url, certified = self._services.url(client)
            except UnreachableError as error:
                raise WebhookFailedError(str(error)) from error
            try:
                return await self._post(url, certified, request, client, timeout)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                text = (
                    f"context deadline exceeded after {timeout:g}s"
                    if isinstance(error, TimeoutError)
                    else error
                )
                raise WebhookFailedError(f'failed to call webhook: Post "{url}": {text}') from error

        return review

    async def _post(
        self, url: str, certified: str | None, body: Object, client: Object, seconds: float
    ) -> Object:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        separator = "&" if "?" in url else "?"
        async with (
            asyncio.timeout(seconds),
            self._session.post(
                f"{url}{separator}timeout={seconds:g}s",
                data=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
                ssl=self._services.context(client.get("caBundle") or ""),
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
                raise ValueError(
                    f"the webhook answered {response.status}: {data[:200].decode(errors='replace')}"
                )
        answer: Any = orjson.loads(data)
        if not isinstance(answer, dict) or answer.get("kind") != "AdmissionReview":
            raise ValueError("the answer is not an AdmissionReview")
        return answer
