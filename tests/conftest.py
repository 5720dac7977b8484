"""The garbage collector of a test session, set as in the processes of pykueue."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from pykueue.cli.process import collect_less_often


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live as long as the session: they are not searched for garbage again and again."""
    collect_less_often()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
