"""The examples of docs/use/python.md run and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "use" / "python.md"


def printed(number: int) -> list[str]:
    """What an example prints."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[number]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(PAGE), "exec"), {})
    return output.getvalue().splitlines()


def test_example_admits_the_first_workload_and_says_what_the_second_lacks() -> None:
    first, second = printed(0)
    assert first.startswith("Admit team/first ")
    assert second.endswith("insufficient unused quota for cpu in flavor default, 2 more needed")


def test_example_simulates_each_variant_of_the_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shared, separate = printed(1)
    assert re.fullmatch(r"shared \d+ s \d+%", shared)
    assert re.fullmatch(r"separate \d+ s \d+%", separate)
