"""A control plane for the session, with pykueue installed from its manifests. Needs KUBEBUILDER_ASSETS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from realcluster_install import Installation, rendered
from realcluster_plane import Kubectl, Plane, assets

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What takes everything down comes last.
    items.sort(key=lambda item: "uninstall" in item.path.name)
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.realcluster)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """etcd and kube-apiserver, empty."""
    plane = Plane(assets(), tmp_path_factory.mktemp("plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A separate one for the module: other tests install nothing there."""
    plane = Plane(assets(), tmp_path_factory.mktemp("bare"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def installed(plane: Plane) -> Installation:
    """The manifests applied; no manager runs yet."""
    return Installation(plane, rendered())


@pytest.fixture(scope="session")
def running(installed: Installation) -> Iterator[Installation]:
    """With a manager that leads."""
    installed.start_replica()
    try:
        yield installed
    finally:
        installed.stop()


@pytest.fixture(scope="session")
def kubectl(installed: Installation) -> Kubectl:
    """An administrator's kubectl on the installed cluster."""
    return installed.plane.kubectl
