"""Certificates by cert-manager (cert-manager.io/v1) instead of the manager's own: an option."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.jobs.objects import Object

from .base import labelled
from .options import Options

_API_VERSION = "cert-manager.io/v1"
#: Names the Certificate whose authority cert-manager writes into webhooks, definitions and APIServices.
_INJECT = "cert-manager.io/inject-ca-from"
_INJECTED = frozenset(
    {
        "APIService",
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    }
)


def certificates(options: Options) -> Iterable[Object]:
    """A self-signed issuer and the one certificate that all servers show."""
    if not options.cert_manager:
        return
    names = options.names
    issuer = f"{names.base}-selfsigned-issuer"
    yield labelled(
        options,
        {
            "apiVersion": _API_VERSION,
            "kind": "Issuer",
            "metadata": {"name": issuer, "namespace": names.namespace},
            "spec": {"selfSigned": {}},
        },
    )
    yield labelled(
        options,
        {
            "apiVersion": _API_VERSION,
            "kind": "Certificate",
            "metadata": {"name": _name(options), "namespace": names.namespace},
            "spec": {
                "dnsNames": list(names.dns_names),
                "issuerRef": {"kind": "Issuer", "name": issuer},
                "secretName": names.webhook_secret,
            },
        },
    )


def injected(options: Options, obj: Object) -> Object:
    """The object with the request for an authority, if it is one that needs one."""
    if not options.cert_manager or obj["kind"] not in _INJECTED:
        return obj
    metadata = obj["metadata"]
    source = f"{options.names.namespace}/{_name(options)}"
    annotations = {**metadata.get("annotations", {}), _INJECT: source}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def _name(options: Options) -> str:
    return f"{options.names.base}-serving-cert"
