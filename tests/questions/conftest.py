"""Options of the tests of questions."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("pykueue").addoption(
        "--rights-sets", type=int, default=25, help="random sets of rights that questions are asked with (25)"
    )
