"""The CustomResourceDefinition from the types. Names and columns: docs/reference/cluster-workloads.md 2.5."""

from __future__ import annotations

from typing import Any

from pykueue.api.crds.schema import object_schema
from pykueue.api.resources import JOB_SETS
from pykueue.embedded.jobset.types import JobSet


def generate() -> dict[str, Any]:
    """The definition as the types say it."""
    schema = object_schema(JobSet)
    # Of a spelling that camel case does not give.
    network = schema["properties"]["spec"]["properties"]["network"]["properties"]
    network["enableDNSHostnames"] = network.pop("enableDnsHostnames")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{JOB_SETS.plural}.{JOB_SETS.group}"},
        "spec": {
            "group": JOB_SETS.group,
            "names": {
                "kind": JOB_SETS.kind,
                "listKind": f"{JOB_SETS.kind}List",
                "plural": JOB_SETS.plural,
                "singular": JOB_SETS.kind.lower(),
            },
            "scope": "Namespaced",
            "conversion": {"strategy": "None"},
            "versions": [
                {
                    "name": JOB_SETS.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        _column("TerminalState", ".status.terminalState", "string", "How the set ended"),
                        _column("Restarts", ".status.restarts", "string", "Restarts so far"),
                        _column(
                            "Completed",
                            '.status.conditions[?(@.type=="Completed")].status',
                            "string",
                            "Whether the set is complete",
                        ),
                        _column("Suspended", ".spec.suspend", "string", "Whether no pod may run"),
                        _column(
                            "Age", ".metadata.creationTimestamp", "date", "Time since this set was created"
                        ),
                    ],
                }
            ],
        },
    }


def _column(name: str, path: str, type: str, description: str) -> dict[str, Any]:
    return {"name": name, "jsonPath": path, "type": type, "description": description}
