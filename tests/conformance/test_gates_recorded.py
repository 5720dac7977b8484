"""Gates that the table of feature gates says a recorded scenario shows: flipped, its result is another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import recordings
import replay
import sequences

TABLE = Path(__file__).parents[2] / "docs" / "use" / "feature-gates.md"
ROW = re.compile(r"\| (\w+) \| \w+ \| .* \| recorded in `([\w-]+)`: (.*) \|")
SHOWN = [match.groups() for match in map(ROW.fullmatch, TABLE.read_text().splitlines()) if match]


@pytest.mark.parametrize(("gate", "file", "name"), SHOWN, ids=[gate for gate, _, _ in SHOWN])
def test_recorded_scenario_has_another_result_if_the_gate_is_flipped(gate: str, file: str, name: str) -> None:
    (scenario,) = [one for one in recordings.load(f"{file}.jsonl") if one["name"].replace("`", "'") == name]
    outcome = sequences.outcome if scenario["kind"] == "steps" else replay.outcome
    got, recorded = outcome(scenario)
    assert got == recorded
    gates = scenario["featureGates"]
    flipped, _ = outcome({**scenario, "featureGates": {**gates, gate: not gates[gate]}})
    assert flipped != recorded
