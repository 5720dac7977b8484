"""CustomResourceDefinitions of kinds that this project describes in code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.resources import Resource

#: The printer column with the age of an object.
AGE: Object = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def custom_resource_definition(
    resource: Resource, versions: Sequence[Object], metadata: Mapping[str, Any], **names: Sequence[str]
) -> Object:
    """A definition with these versions; `metadata` besides its name, `names` such as `shortNames`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}", **metadata},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **{field: list(given) for field, given in names.items() if given},
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": list(versions),
        },
    }
