"""What the mutating webhooks of the group fill in. docs/reference/kueue-api.md 1.0."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api.defaults import default_on_create

_FINALIZER = "kueue.x-k8s.io/resource-in-use"


@pytest.mark.parametrize("kind", ["ClusterQueue", "ResourceFlavor"])
def test_objects_that_are_used_by_others_get_a_finalizer(kind: str) -> None:
    manifest = {"kind": kind, "metadata": {"name": "x", "finalizers": ["other"]}}
    result = default_on_create(manifest)
    assert result == {"kind": kind, "metadata": {"name": "x", "finalizers": ["other", _FINALIZER]}}
    assert manifest["metadata"] == {"name": "x", "finalizers": ["other"]}, "a manifest is never changed"
    assert default_on_create(result) is result
    assert default_on_create({"kind": kind})["metadata"] == {"finalizers": [_FINALIZER]}


def test_other_kinds_stay_as_they_are() -> None:
    for kind in ("Cohort", "LocalQueue", "Workload"):
        manifest: dict[str, Any] = {"kind": kind, "spec": {"podSets": [{"minCount": 1}]}}
        assert default_on_create(manifest) is manifest


def test_workloads_lose_their_least_counts_where_partial_admission_is_off() -> None:
    off = {"PartialAdmission": False}
    manifest = {"kind": "Workload", "spec": {"podSets": [{"minCount": 1, "count": 2}, {}], "priority": 1}}
    assert default_on_create(manifest, off) == {
        "kind": "Workload",
        "spec": {"podSets": [{"count": 2}, {}], "priority": 1},
    }
    plain: dict[str, Any] = {"kind": "Workload", "spec": {"podSets": [{}]}}
    assert default_on_create(plain, off) is plain
    assert default_on_create({"kind": "Workload"}, off) == {"kind": "Workload"}
