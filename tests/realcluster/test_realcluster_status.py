"""The status of new objects on a real server: what the embedded one is tested against."""

from __future__ import annotations

import urllib.error

import pytest
from realcluster_plane import Plane
from status_manifests import CASES, Case, shown

#: No webhook of an installed manager asks about it.
NAMESPACE = "kube-system"


@pytest.fixture(scope="module", autouse=True)
def _default_account(plane: Plane) -> None:
    """Pods are refused without one, and there is no controller that makes it."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    try:
        plane.call("POST", path, body)
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.body['kind']}-{case.body['metadata']['name']}"
)
def test_new_object_has_the_status_that_the_embedded_server_gives(plane: Plane, case: Case) -> None:
    path = case.path.replace("/namespaces/default/", f"/namespaces/{NAMESPACE}/")
    try:
        created = plane.call("POST", f"{path}?dryRun=All", case.body)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            pytest.skip(f"{case.path}: not served by this version")
        raise
    assert shown(created["status"]) == case.status
