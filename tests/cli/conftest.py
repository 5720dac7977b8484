"""Fixtures: `pykueue up` processes that end with the module, and kubectl for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up


@pytest.fixture(scope="module")
def start_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Up]]:
    """Starts `pykueue up` with the given options on a fresh folder; ended with the module."""
    started: list[Up] = []

    def start(*options: str, log: Path | None = None) -> Up:
        up = Up(tmp_path_factory.mktemp("up"), *options, log=log)
        started.append(up)
        return up.start()

    yield start
    for up in started:
        if up.process is not None and up.process.poll() is None:
            up.stop()


@pytest.fixture(scope="module")
def kubectl_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Up], Kubectl]:
    return lambda up: Kubectl(up, tmp_path_factory.mktemp("home"))
