"""The page of limits says what the constants say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "use" / "limits.md"
UNITS = {"": 1, "s": 1, "KiB": 1024, "MiB": 1024 * 1024}
ROW = re.compile(r"\| .+ \| ([0-9]+)(?: ([A-Za-z]+))? \| .+ \| `([\w.]+)\.(\w+)` \|")


def rows() -> list[tuple[str, str, int]]:
    return [
        (match[3], match[4], int(match[1]) * UNITS[match[2] or ""])
        for match in map(ROW.fullmatch, PAGE.read_text().splitlines())
        if match is not None
    ]


def test_every_row_names_a_figure_and_a_constant() -> None:
    written = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    headings = [line for line in written if line.startswith("| what ")]
    assert len(rows()) == len(written) - len(headings)


@pytest.mark.parametrize(("module", "name", "value"), rows())
def test_figures_of_the_page_are_those_of_the_constants(module: str, name: str, value: int) -> None:
    assert getattr(importlib.import_module(f"pykueue.{module}"), name) == value
