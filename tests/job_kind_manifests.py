"""Manifests of JobKinds, for tests in all folders."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def job_kind(**spec: Any) -> Object:
    """A JobKind of widgets.example.com with one pod set; fields of the spec are added or replaced."""
    return {
        "apiVersion": "pykueue.io/v1alpha1",
        "kind": "JobKind",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "version": "v1",
            "kind": "Widget",
            "podSets": [{"name": "main", "template": ".spec.template", "count": ".spec.size"}],
            **spec,
        },
    }
