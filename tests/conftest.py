"""The garbage collector of a test session, and tests of compiled modules."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from pykueue.extras import engine_is_compiled


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live as long as the session: they are not searched for garbage again and again.

    Unlike the processes of pykueue, each test leaves a whole cluster behind: all is searched sooner.
    """
    gc.set_threshold(50_000, 10, 10)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that replace modules are skipped where these are compiled (`make test-compiled`)."""
    if engine_is_compiled():
        reason = "functions and classes of compiled modules cannot be replaced"
        for item in items:
            if item.get_closest_marker("interpreted") is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
