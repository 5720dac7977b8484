"""How long hostile requests are sent, and which."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hostile", "hostile requests")
    group.addoption("--hostile-seconds", type=float, help="send requests for this long, whatever they find")
    group.addoption("--hostile-rights", type=int, help="requests compared with the model of RBAC (20000)")
    group.addoption("--hostile-seed", type=int, help="the seed of the first run (0)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs of a given length have no timeout."""
    given = [config.getoption(name, None) for name in ("--hostile-seconds", "--hostile-rights")]
    if any(one is not None for one in given):
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
