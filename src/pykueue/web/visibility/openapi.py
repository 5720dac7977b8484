"""The OpenAPI v3 documents of the visibility API."""

from __future__ import annotations

from pykueue.api.objects import Object
from pykueue.manager.install_names import VISIBILITY_GROUP as GROUP

_REF = "#/components/schemas/"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PLACES = (
    f"/apis/{GROUP}/{{version}}/clusterqueues/{{name}}/pendingworkloads",
    f"/apis/{GROUP}/{{version}}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads",
)


def _number(text: str) -> Object:
    return {"type": "integer", "format": "int32", "default": 0, "description": text}


def _query(name: str, text: str) -> Object:
    schema = {"type": "integer", "format": "int64", "uniqueItems": True}
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _schemas(version: str) -> Object:
    prefix = f"io.x-k8s.kueue.visibility.{version}"
    item = {
        "type": "object",
        "description": "PendingWorkload is a pending workload and its position.",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": {"allOf": [{"$ref": _REF + _OBJECT_META}], "default": {}},
            "priority": _number("The workload's spec.priority."),
            "localQueueName": {
                "type": "string",
                "default": "",
                "description": "The LocalQueue it was submitted to.",
            },
            "positionInClusterQueue": _number("Position in the ClusterQueue, from 0."),
            "positionInLocalQueue": _number("Position in the LocalQueue, from 0."),
        },
    }
    items = {
        "type": "array",
        "items": {"allOf": [{"$ref": f"{_REF}{prefix}.PendingWorkload"}], "default": {}},
    }
    summary = {
        "type": "object",
        "description": "PendingWorkloadsSummary lists the pending workloads in the order of admission.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": _REF + _OBJECT_META}], "default": {}},
            "items": items,
        },
        "x-kubernetes-group-version-kind": [
            {"group": GROUP, "version": version, "kind": "PendingWorkloadsSummary"}
        ],
    }
    return {
        f"{prefix}.PendingWorkload": item,
        f"{prefix}.PendingWorkloadsSummary": summary,
        _OBJECT_META: {"type": "object", "description": "Standard object metadata."},
    }


def document(version: str) -> Object:
    """The document of one version."""
    answer = {"$ref": f"{_REF}io.x-k8s.kueue.visibility.{version}.PendingWorkloadsSummary"}
    paths: Object = {}
    for template in _PLACES:
        names = ["name", *(["namespace"] if "{namespace}" in template else [])]
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
        operation = {
            "parameters": [
                _query("offset", "Number of workloads to skip."),
                _query("limit", "Maximum number of workloads to list; 1000 by default."),
            ],
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}},
            "x-kubernetes-action": "connect",
            "x-kubernetes-group-version-kind": {
                "group": GROUP,
                "version": version,
                "kind": "PendingWorkloadsSummary",
            },
        }
        paths[template.replace("{version}", version)] = {"get": operation, "parameters": parameters}
    return {
        "openapi": "3.0.0",
        "info": {"title": "pykueue visibility", "version": version},
        "paths": paths,
        "components": {"schemas": _schemas(version)},
    }
