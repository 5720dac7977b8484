"""The page of feature gates lists every gate, and for each the test that shows it on and off."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import gate_mutations
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
WITHOUT_EFFECT = "`manager/test_manager_gates_without_effect.py::test_gate_without_effect_changes_no_request`"


def test_every_gate_has_a_row_with_its_default() -> None:
    assert {gate: row[0] for gate, row in ROWS.items()} == {
        gate: "on" if value else "off" for gate, value in DEFAULTS.items()
    }


@pytest.mark.parametrize("gate", DEFAULTS)
def test_row_agrees_with_code_and_tests(gate: str) -> None:
    _, effect, shown = ROWS[gate]
    assert (gate in unsupported.GATES) == effect.startswith("None: ") == (shown == WITHOUT_EFFECT)
    if shown == "–":
        assert gate in LOCKED
        return
    if shown == WITHOUT_EFFECT:
        return  # the test has a case for each gate that the code lists as one without effect
    if RECORDED.fullmatch(shown):
        return  # tests/conformance/test_gates_recorded.py flips the gate of the scenario
    match = TEST.fullmatch(shown)
    assert match is not None, shown
    text = (ROOT / "tests" / match[1]).read_text()
    assert gate in text
    assert match[2] in {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}


def test_every_gate_with_an_effect_can_be_tried_without_it() -> None:
    assert set(gate_mutations.tests()) == set(DEFAULTS) - unsupported.GATES - LOCKED


@pytest.mark.parametrize(("gate", "fails"), [("QuotaCheckStrategy", True), ("PriorityBoost", False)])
def test_test_of_a_gate_fails_if_the_gate_is_ignored(gate: str, fails: bool) -> None:
    code = gate_mutations.run(gate, True, "engine/test_engine_gates.py::test_quota_check_strategy")
    assert code == (1 if fails else 0)


@pytest.mark.parametrize("gate", ["WorkloadRequestUseMergePatch", "NoSuchGate"])
def test_gate_without_a_test_is_named(gate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate_mutations.main([gate]) == 2
    assert capsys.readouterr().out.startswith(f"{gate}: ")
