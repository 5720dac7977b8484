"""One cluster with a dashboard for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard_world import World, running_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("dashboard")) as found:
        yield found
