"""Tests of the engine run with it as Python and compiled (`make test-compiled`)."""

from __future__ import annotations

import pytest

from pykueue.extras import engine_is_compiled


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if engine_is_compiled():
        reason = "functions and classes of a compiled engine cannot be replaced"
        for item in items:
            if item.get_closest_marker("interpreted") is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
