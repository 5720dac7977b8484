"""Kueue's own manager beside an API server without a manager of pykueue. Needs PYKUEUE_KUEUE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from besidekueue_cluster import Beside
from besidekueue_manager import KueueManager, folder
from cli_processes import Up
from realcluster_plane import Kubectl, Plane, assets

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.besidekueue)
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session", params=["embedded", "real"])
def beside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """A cluster that Kueue manages: on the embedded API server, and on kube-apiserver where there is one."""
    kueue, scratch = folder(), tmp_path_factory.mktemp("kueue")
    if request.param == "embedded":
        up = Up(tmp_path_factory.mktemp("up"), "--only", "apiserver,kube", "--in-memory").start()
        kubeconfig, stop = up.kubeconfig, up.kill
    else:
        plane = Plane(assets(), tmp_path_factory.mktemp("plane"))
        plane.start()
        kubeconfig = plane.kubeconfig("beside", certificate=plane.admin)
        stop = plane.stop
    manager = None
    try:
        manager = KueueManager(kueue, kubeconfig, scratch)
        manager.start()
        yield Beside(kubeconfig, Kubectl(kubeconfig, scratch))
    finally:
        if manager is not None:
            manager.stop()
        stop()
