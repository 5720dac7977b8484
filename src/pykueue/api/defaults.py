"""What the mutating webhooks of the group fill in at creation. Source: docs/reference/kueue-api.md 1.0.

Defaults a schema can say are in the CRDs, and every type has them when a manifest is decoded.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from pykueue.api.validation.gates import Gates, on

Manifest = dict[str, Any]


def default_on_create(manifest: Manifest, gates: Gates | None = None) -> Manifest:
    """The manifest with its defaults, or the same object where nothing is missing.

    `gates` says which feature gates are not at their default.
    """
    match manifest.get("kind"):
        case "ClusterQueue" | "ResourceFlavor":
            return _with_finalizer(manifest)
        case "Workload" if not on(gates or {}, "PartialAdmission"):
            return _without_min_counts(manifest)
    return manifest


def _with_finalizer(manifest: Manifest) -> Manifest:
    """Keeps the object until nothing uses it."""
    metadata = manifest.get("metadata") or {}
    finalizers = metadata.get("finalizers") or []
    if RESOURCE_IN_USE_FINALIZER in finalizers:
        return manifest
    return {**manifest, "metadata": {**metadata, "finalizers": [*finalizers, RESOURCE_IN_USE_FINALIZER]}}


def _without_min_counts(manifest: Manifest) -> Manifest:
    spec = manifest.get("spec") or {}
    pod_sets = spec.get("podSets") or []
    if not any("minCount" in pod_set for pod_set in pod_sets):
        return manifest
    kept = [{key: value for key, value in pod_set.items() if key != "minCount"} for pod_set in pod_sets]
    return {**manifest, "spec": {**spec, "podSets": kept}}
