"""Certificates by cert-manager (cert-manager.io/v1) instead of the manager's own: an option.

The serving certificate is signed by an authority that outlives it, not by itself. One that is its own
authority is trusted as soon as it is renewed but served only when the kubelets have brought the Secret to the
pods, a minute or so later; until then the API server would refuse every guarded write. And clients built on
OpenSSL refuse a certificate whose issuer has no name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from pykueue.api.objects import Object
from pykueue.manager.certificates.lifetimes import (
    AUTHORITY_NAME,
    AUTHORITY_RENEWAL,
    AUTHORITY_VALIDITY,
    SERVING_RENEWAL,
    SERVING_VALIDITY,
)

from .base import labelled
from .options import Options

_API_VERSION = "cert-manager.io/v1"
#: Names the Certificate whose authority cert-manager writes into webhooks, definitions and APIServices.
_INJECT = "cert-manager.io/inject-ca-from"
#: Of the definitions all, for Kueue's chart has every kind converted, and taking over leaves that so.
_INJECTED = frozenset(
    {
        "APIService",
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    }
)


def certificates(options: Options) -> Iterable[Object]:
    """An authority, signed by itself, and the one certificate that all servers show, signed by it."""
    if not options.cert_manager:
        return
    names = options.names
    selfsigned, signing = f"{names.base}-selfsigned-issuer", f"{names.base}-ca-issuer"
    authority = f"{names.base}-ca"
    yield _object(options, "Issuer", selfsigned, {"selfSigned": {}})
    yield _object(
        options,
        "Certificate",
        authority,
        {
            "isCA": True,
            "commonName": AUTHORITY_NAME,
            "issuerRef": {"kind": "Issuer", "name": selfsigned},
            "secretName": authority,
            **_life(AUTHORITY_VALIDITY, AUTHORITY_RENEWAL),
        },
    )
    yield _object(options, "Issuer", signing, {"ca": {"secretName": authority}})
    yield _object(
        options,
        "Certificate",
        _name(options),
        {
            "dnsNames": list(names.dns_names),
            "usages": ["digital signature", "server auth"],
            "issuerRef": {"kind": "Issuer", "name": signing},
            "secretName": names.webhook_secret,
            **_life(SERVING_VALIDITY, SERVING_RENEWAL),
        },
    )


def _object(options: Options, kind: str, name: str, spec: dict[str, Any]) -> Object:
    metadata = {"name": name, "namespace": options.names.namespace}
    return labelled(options, {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})


def _life(validity: timedelta, renewal: timedelta) -> dict[str, Any]:
    """How long it is valid, how long before its end it is renewed, each time with a new key."""
    return {
        "duration": _hours(validity),
        "renewBefore": _hours(renewal),
        # Spelt out: releases before 1.18 kept the key.
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
    }


def _hours(span: timedelta) -> str:
    return f"{span // timedelta(hours=1)}h"


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
