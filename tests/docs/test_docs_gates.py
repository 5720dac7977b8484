"""The page of feature gates lists every gate, and for each the test that shows it on and off."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pykueue.api import unsupported
from pykueue.manager.configuration.gates import DEFAULTS, LOCKED

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "use" / "feature-gates.md"
ROWS = {
    cells[0]: cells[1:]
    for line in TABLE.read_text().splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split(" | ")]) == 4 and cells[0] in DEFAULTS
}
RECORDED = re.compile(r"recorded in `[\w-]+`: .+")
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
#: Gates that have an effect, and no separate test that sets them both ways. No gate is to be added.
NOT_SHOWN = frozenset(gate for gate, (_, _, shown) in ROWS.items() if shown == "no separate test")
NOT_SHOWN_MAX = 0


def test_every_gate_has_a_row_with_its_default() -> None:
    assert {gate: row[0] for gate, row in ROWS.items()} == {
        gate: "on" if value else "off" for gate, value in DEFAULTS.items()
    }


def test_fewer_and_fewer_gates_are_not_shown_by_a_test() -> None:
    assert len(NOT_SHOWN) <= NOT_SHOWN_MAX, sorted(NOT_SHOWN)


@pytest.mark.parametrize("gate", DEFAULTS)
def test_row_agrees_with_code_and_tests(gate: str) -> None:
    _, effect, shown = ROWS[gate]
    if gate in unsupported.GATES:
        assert effect == "Not built" or effect.startswith("None: ")
    if shown == "–":
        assert effect == "Not built" or effect.startswith("None: ") or gate in LOCKED
        return
    if gate in NOT_SHOWN or RECORDED.fullmatch(shown):
        return  # tests/conformance/test_gates_recorded.py flips the gate of the scenario
    match = TEST.fullmatch(shown)
    assert match is not None, shown
    text = (ROOT / "tests" / match[1]).read_text()
    assert gate in text
    assert match[2] in {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
