"""The CustomResourceDefinition of the cluster autoscaler's ProvisioningRequest.

Fields, limits and columns: docs/reference/admission-checks.md 9.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Object
from pykueue.api.resources import PROVISIONING_REQUESTS
from pykueue.embedded.objects.definitions import AGE, custom_resource_definition

_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def _texts(entries: int, length: int) -> Object:
    """A map of texts with at most so many entries and characters in each."""
    return {
        "type": "object",
        "maxProperties": entries,
        "additionalProperties": {"type": "string", "maxLength": length},
    }


_POD_SET: Object = {
    "type": "object",
    "required": ["count", "podTemplateRef"],
    "properties": {
        "count": {"type": "integer", "format": "int32", "minimum": 1},
        "podTemplateRef": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "maxLength": 253, "pattern": _NAME_PATTERN}},
        },
    },
}
_SPEC: Object = {
    "type": "object",
    "required": ["podSets", "provisioningClassName"],
    "properties": {
        "podSets": {
            "type": "array",
            "minItems": 1,
            "maxItems": 32,
            "x-kubernetes-list-type": "atomic",
            "items": _POD_SET,
        },
        "provisioningClassName": {"type": "string", "maxLength": 253, "pattern": _NAME_PATTERN},
        "parameters": _texts(100, 255),
    },
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
}
_CONDITION: Object = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {
            "type": "string",
            "maxLength": 316,
            "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        },
    },
}
_STATUS: Object = {
    "type": "object",
    "properties": {
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": _CONDITION,
        },
        "provisioningClassDetails": _texts(64, 32768),
    },
}


def _of_condition(name: str) -> dict[str, Any]:
    path = f'.status.conditions[?(@.type=="{name}")].status'
    return {"name": name, "type": "string", "jsonPath": path}


def definition() -> Object:
    """The CustomResourceDefinition."""
    version = PROVISIONING_REQUESTS.version
    return custom_resource_definition(
        PROVISIONING_REQUESTS,
        [_version(version), {**_version("v1beta1"), "storage": False, "deprecated": True}],
        # API servers require this in the groups of Kubernetes.
        {"annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"}},
        shortNames=["provreq", "provreqs"],
    )


def _version(name: str) -> Object:
    """A served version; all have one schema."""
    return {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": _SPEC,
                    "status": _STATUS,
                },
            }
        },
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            *(_of_condition(name) for name in ("Accepted", "Provisioned", "Failed")),
            AGE,
        ],
    }
