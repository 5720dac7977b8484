"""The example of docs/use/python.md runs and decides what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "use" / "python.md"


def test_example_admits_the_first_workload_and_says_what_the_second_lacks() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(PAGE), "exec"), {})
    first, second = output.getvalue().splitlines()
    assert first.startswith("Admit team/first ")
    assert second.endswith("insufficient unused quota for cpu in flavor default, 2 more needed")
