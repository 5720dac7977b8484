"""Webhooks that stored configurations describe: asked over HTTPS.

Source: docs/reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.cel.authorizer import Decide
from pykueue.embedded.kinds.admissionpolicies import GROUP

from .admission import Admission, Webhook, WebhookFailedError
from .match_conditions import match, spare
from .policies import BINDINGS, POLICIES, Policies
from .services import Services, UnreachableError

MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"


class Webhooks:
    """Keeps admission in step with the stored webhook configurations, and calls what they name."""

    def __init__(self, core: Core, admission: Admission, services: Services, decide: Decide) -> None:
        self._core = core
        self._admission = admission
        self._decide = decide
        self._services = services
        self._policies = Policies(core, decide)
        admission.enforce(self._policies)
        for plural in (MUTATING, VALIDATING):
            core.on_stored(f"{GROUP}/{plural}", lambda *_: self.load())
        for plural in (POLICIES, BINDINGS):
            core.on_stored(f"{GROUP}/{plural}", lambda *_: self.load_policies())

    def load(self) -> None:
        """Take the stored configurations as they are now."""
        webhooks = []
        for plural in (MUTATING, VALIDATING):
            for configuration in self._core.all_settled(GROUP, plural):
                for entry in configuration.get("webhooks") or ():
                    webhooks.append(self._webhook(entry, plural == MUTATING))
        self._admission.configure(webhooks)
        self.load_policies()

    def load_policies(self) -> None:
        """Take the stored policies as they are now."""
        self._policies.load()
        self._admission.policies_changed()

    def _webhook(self, entry: Object, mutating: bool) -> Webhook:
        conditions = entry.get("matchConditions") or ()
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
            conditions=match(conditions, self._decide) if conditions else None,
            spares=spare(conditions),
        )

    def _reviewer(self, entry: Object) -> Callable[[Object], Awaitable[Object]]:
        client = entry.get("clientConfig") or {}
        timeout = float(entry.get("timeoutSeconds") or 10)

        async def review(request: Object) -> Object:
            try:
                url, _ = self._services.url(client)
                return await self._services.review(client, request, timeout, f"timeout={timeout:g}s")
            except UnreachableError as error:
                raise WebhookFailedError(str(error)) from error
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                text = (
                    f"context deadline exceeded after {timeout:g}s"
                    if isinstance(error, TimeoutError)
                    else error
                )
                raise WebhookFailedError(f'failed to call webhook: Post "{url}": {text}') from error

        return review
