"""The page of the reference's defects lists each of them with a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "develop" / "reference-defects.md"
SEMANTICS = ROOT / "docs" / "reference" / "kueue-semantics.md"
ROW = re.compile(r"\| (D\d+) \| .+ \| `([\w/]+\.py)::(\w+)` \|")


def test_every_defect_has_a_test() -> None:
    rows = [match.groups() for line in PAGE.read_text().splitlines() if (match := ROW.fullmatch(line))]
    listed = re.findall(r"^\| (D\d+)\b", SEMANTICS.read_text(), re.MULTILINE)
    assert [defect for defect, _, _ in rows] == listed
    for _, file, test in rows:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test
