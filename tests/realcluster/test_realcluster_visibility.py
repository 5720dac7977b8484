"""The visibility API behind a real API server: registered, discovered, described, only for those who may."""

from __future__ import annotations

import json

import pytest
from realcluster_install import Installation
from realcluster_jobs import Queues
from realcluster_plane import Kubectl, until

GROUP = "visibility.kueue.x-k8s.io"


@pytest.fixture(scope="module")
def seen(running: Installation, kubectl: Kubectl) -> Kubectl:
    """Two jobs that wait, and both versions available."""
    queues = Queues(running.plane, "seen", cpu="1")
    for name in ("seen-a", "seen-b"):
        queues.submit(name, cpu="2")
    for version in ("v1beta1", "v1beta2"):
        kubectl("wait", "--for=condition=Available", f"apiservice/{version}.{GROUP}", "--timeout=60s")
    return kubectl


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_those_who_wait_are_listed(seen: Kubectl, version: str) -> None:
    base = f"/apis/{GROUP}/{version}"

    def both() -> list[dict[str, object]] | None:
        found = json.loads(seen("get", "--raw", f"{base}/clusterqueues/seen/pendingworkloads"))["items"]
        return found if len(found) == 2 else None

    items = until(both, "two jobs that wait")
    # Both may have been created in the same second: then a cluster's random UIDs order them.
    assert {one["metadata"]["ownerReferences"][0]["name"] for one in items} == {"seen-a", "seen-b"}  # type: ignore[index]
    assert [one["positionInClusterQueue"] for one in items] == [0, 1]
    path = f"{base}/namespaces/default/localqueues/seen/pendingworkloads?limit=1&offset=1"
    assert json.loads(seen("get", "--raw", path))["items"] == items[1:]


def test_it_is_discovered_and_described(seen: Kubectl) -> None:
    until(lambda: f"{GROUP}/v1beta2" in seen("api-versions"), "the group in discovery")
    assert f"apis/{GROUP}/v1beta2" in json.loads(seen("get", "--raw", "/openapi/v3"))["paths"]
    described = json.loads(seen("get", "--raw", f"/openapi/v3/apis/{GROUP}/v1beta2"))
    assert any(path.endswith("/pendingworkloads") for path in described["paths"])
    assert seen("get", "clusterqueues", "seen", "-o", "name") == "clusterqueue.kueue.x-k8s.io/seen\n"


def test_roles_decide(seen: Kubectl) -> None:
    path = f"/apis/{GROUP}/v1beta2/clusterqueues/seen/pendingworkloads"
    assert "Forbidden" in seen.refused("get", "--raw", path, "--as=guest")
    queue = f"/apis/{GROUP}/v1beta2/namespaces/default/localqueues/seen/pendingworkloads"
    assert "Forbidden" in seen.refused("get", "--raw", queue, "--as=lin")
    seen("create", "rolebinding", "lin", "--clusterrole=kueue-batch-user-role", "--user=lin")
    until(lambda: seen.run("get", "--raw", queue, "--as=lin").returncode == 0, "told to who may know")
    assert "Forbidden" in seen.refused("get", "--raw", path, "--as=lin")
