"""What the API server asks the manager: admission and conversion, from the manager's own registrations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pykueue.api.crds import crds_with_webhook
from pykueue.jobs.objects import Object
from pykueue.manager.install_names import CONVERT_PATH, SERVICE_PORT
from pykueue.manager.manager import registry
from pykueue.manager.webhooks import Lookups, Registration, webhooks

from .base import labelled
from .options import Options


def definitions(options: Options) -> Iterable[Object]:
    """The kinds, converted by the manager."""
    for definition in crds_with_webhook(_client_config(options, CONVERT_PATH)):
        yield labelled(options, definition)


def webhook_configurations(options: Options) -> Iterable[Object]:
    """The configurations, without certificate authority: it is put there once there is one."""
    names = options.names
    # Nothing is reviewed here, so nothing is looked up.
    found = webhooks(options.configuration, cast(Lookups, None), registry(options.configuration))
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
                "webhooks": [_webhook(options, one) for one in found if one.mutating == mutating],
            },
        )


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
