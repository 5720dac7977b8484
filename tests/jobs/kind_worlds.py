"""Clusters that serve the kinds of other projects; their operators are played by the tests."""

from __future__ import annotations

from typing import Any

from manager_stack import Stack

from pykueue.api.resources import CRDS, Resource

Object = dict[str, Any]
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def frameworks(*names: str) -> str:
    """A configuration that enables these job kinds beside batch Jobs."""
    return f"integrations: {{frameworks: [batch/job, {', '.join(names)}]}}\n"


def definition(resource: Resource) -> Object:
    """A definition of the kind that accepts whatever is written."""
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}
        },
    }
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


async def serve(stack: Stack, *resources: Resource) -> None:
    """Define kinds, and wait until the manager has seen them."""
    for resource in resources:
        await stack.client.create(CRDS, definition(resource))
    await stack.settle(15)
