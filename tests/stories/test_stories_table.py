"""docs/develop/acceptance.md names for every scenario the tests that play it: they exist, none is missing."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = TESTS.parent / "docs" / "develop" / "acceptance.md"
REFERENCE = TESTS.parent / "docs" / "reference" / "cluster-workloads.md"

ROW = re.compile(r"^\| ([A-Z]\d+[a-e]?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
NODE = re.compile(r"`([\w/]+\.py)::([\w:]+)`")


def rows() -> dict[str, tuple[str, str]]:
    """What and which tests, by id."""
    found = ROW.findall(TABLE.read_text().replace("\\|", "/"))
    assert len(found) == len({row for row, _, _ in found}), "a row stands in the table twice"
    return {row: (what, tests) for row, what, tests in found}


@cache
def functions_in(path: str) -> set[str]:
    """The tests of a file as pytest names them, without parameters."""
    found = set()
    for node in ast.parse((TESTS / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (child.name for child in node.body if isinstance(child, ast.FunctionDef))
            found |= {f"{node.name}::{name}" for name in inner}
    return found


@pytest.mark.parametrize("row", rows())
def test_every_row_names_tests_that_exist_or_says_why_not(row: str) -> None:
    what, tests = rows()[row]
    assert what
    named = NODE.findall(tests)
    for path, name in named:
        assert (TESTS / path).exists(), path
        assert name in functions_in(path), f"{path} has no {name}"
        assert name.rpartition("::")[2].startswith("test_")
    assert named or tests.startswith(("not yet: ", "no scenario: ")), tests


def test_no_scenario_is_missing() -> None:
    text = REFERENCE.read_text()
    section = text[text.index("\n## 5. ") : text.index("\n## 6. ")]
    wanted = set(re.findall(r"^\| ([WCTFB]\d+[a-e]?) \|", section, re.MULTILINE))
    wanted |= set(re.findall(r"(?:Scenario |\b)(H\d)[: ]", section))
    invariants = section[section.index("### 5.10") : section.index("### 5.11")]
    wanted |= {f"I{number}" for number in re.findall(r"^(\d+)\. ", invariants, re.MULTILINE)}
    commands = re.findall(r"^\| `", section[section.index("### 5.11") :], re.MULTILINE)
    wanted |= {f"K{number + 1}" for number in range(len(commands))}
    corners = (REFERENCE.parent / "kueue-semantics.md").read_text().partition("\n### Lifecycle\n")[2]
    wanted |= {f"L{number}" for number in re.findall(r"^\| (\d+) \|", corners, re.MULTILINE)}
    # The rows on nodes are ours: that section has none of its own.
    assert wanted == {row for row in rows() if not row.startswith("N")}
