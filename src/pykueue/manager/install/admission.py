"""What the API server asks the manager: admission and conversion, from the manager's own registrations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pykueue.api.crds import crds_with_webhook
from pykueue.api.objects import Object
from pykueue.jobs.kinds import BUILT_IN
from pykueue.manager.install_names import CONVERT_PATH, SERVICE_PORT
from pykueue.manager.webhooks import Lookups, Registration, webhooks

from .base import labelled
from .options import Options

#: Seconds that the API server waits for an answer about an object that may pass without one.
PATIENCE = 3


def definitions(options: Options) -> Iterable[Object]:
    """The kinds, converted by the manager."""
    for definition in crds_with_webhook(_client_config(options, CONVERT_PATH)):
        yield labelled(options, definition)


def webhook_configurations(options: Options) -> Iterable[Object]:
    """The configurations, without certificate authority: it is put there once there is one."""
    names = options.names
    # Nothing is reviewed here, so nothing is looked up.
    configuration = options.configuration
    kinds = BUILT_IN.enabled(configuration.integrations.frameworks, configuration.feature_gates)
    found = webhooks(options.configuration, cast(Lookups, None), kinds)
    for kind, name, mutating in (
        ("MutatingWebhookConfiguration", names.mutating_configuration, True),
        ("ValidatingWebhookConfiguration", names.validating_configuration, False),
    ):
        yield labelled(
            options,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": name},
                "webhooks": [
                    webhook
                    for one in found
                    if one.mutating == mutating
                    for webhook in _webhooks(options, one)
                ],
            },
        )


def _webhooks(options: Options, registration: Registration) -> Iterable[Object]:
    """One entry; two where some objects may pass while no replica answers."""
    webhook = _webhook(options, registration)
    if registration.required is None:
        yield webhook
        return
    conditions = webhook.get("matchConditions", [])
    required = {"name": "names-queue", "expression": registration.required}
    yield {**webhook, "matchConditions": [*conditions, required]}
    name, _, domain = registration.name.partition(".")
    others = {"name": "names-no-queue", "expression": f"!({registration.required})"}
    yield {
        **webhook,
        "name": f"{name}-without-queue.{domain}",
        "failurePolicy": "Ignore",
        "timeoutSeconds": PATIENCE,
        "matchConditions": [*conditions, others],
    }


def _webhook(options: Options, registration: Registration) -> Object:
    webhook: Object = {
        "name": registration.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": _client_config(options, registration.path),
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "rules": registration.rules,
    }
    if not registration.mutating:
        # The manager need not ask itself: its work goes on while a replica that is gone is still called.
        account = f"system:serviceaccount:{options.names.namespace}:{options.names.service_account}"
        webhook["matchConditions"] = [
            {"name": "by-others", "expression": f'request.userInfo.username != "{account}"'}
        ]
    if registration.namespace_selector is not None:
        webhook["namespaceSelector"] = dict(registration.namespace_selector)
    if registration.object_selector is not None:
        webhook["objectSelector"] = dict(registration.object_selector)
    return webhook


def _client_config(options: Options, path: str) -> Object:
    names = options.names
    return {
        "service": {
            "name": names.webhook_service,
            "namespace": names.namespace,
            "path": path,
            "port": SERVICE_PORT,
        }
    }
