"""`pykueue budget` on manifests: the table, one Budget in full, and as data."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from pykueue.cli.main import main

MANIFESTS = """
apiVersion: pykueue.io/v1alpha1
kind: Budget
metadata: {name: lab}
spec:
  selector: {label: team}
  resources: [{name: nvidia.com/gpu, hours: "100"}]
  window: {calendar: Monthly}
status:
  windowStart: "2026-01-01T00:00:00Z"
  windowEnd: "2026-02-01T00:00:00Z"
  completeSince: "2026-01-01T00:00:00Z"
  ledgerCount: 2
  ledgers:
  - value: vision
    ledger: lab-vision
    running: 1
    action: Warn
    resources:
    - {name: nvidia.com/gpu, limit: "100", used: "80", reserved: "5", remaining: "15", percent: 80}
    forecast:
      resource: nvidia.com/gpu
      p10: "2026-01-20T00:00:00Z"
      p50: "2026-01-21T00:00:00Z"
      p90: "2026-01-23T00:00:00Z"
---
apiVersion: pykueue.io/v1alpha1
kind: BudgetLedger
metadata: {name: lab-vision}
spec:
  budget: lab
  value: vision
  completeSince: "2026-01-01T00:00:00Z"
  hours:
  - {start: "2026-01-18T10:00:00Z", used: {nvidia.com/gpu: "3600"}}
  - {start: "2026-01-18T12:00:00Z", used: {nvidia.com/gpu: "7200"}}
  past:
  - start: "2025-12-01T00:00:00Z"
    end: "2026-01-01T00:00:00Z"
    used: {nvidia.com/gpu: "180000"}
    limit: {nvidia.com/gpu: "360000"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "all.yaml").write_text(MANIFESTS)
    return str(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["budget", *arguments])


def test_table_has_a_line_for_each_ledger_and_resource(folder: str) -> None:
    result = run("-f", folder)
    assert result.exit_code == 0, result.output
    titles, line = [text.split() for text in result.output.splitlines()]
    assert titles[:3] == ["BUDGET", "VALUE", "RESOURCE"]
    assert line[:3] == ["lab", "vision", "nvidia.com/gpu"]
    assert line[-3:] == ["80%", "Warn", "2026-01-21T00:00:00Z"]


def test_one_budget_is_shown_with_its_use_by_hour_its_past_and_its_forecast(folder: str) -> None:
    assert run("lab", "-f", folder).output.splitlines() == [
        "Budget lab for label team",
        "Window from 2026-01-01T00:00:00Z to 2026-02-01T00:00:00Z",
        "Complete since 2026-01-01T00:00:00Z",
        "",
        "vision:",
        "1 workload uses it now; action in force: Warn",
        "nvidia.com/gpu: 80.00 h of 100.00 h used (80%), 5.00 h reserved, 15.00 h left",
        "  ▄▁█  by hour since 2026-01-18T10:00:00Z, at most 2.00 h",
        "Used up by 2026-01-20T00:00:00Z (10%), 2026-01-21T00:00:00Z (50%), 2026-01-23T00:00:00Z (90%)",
        "2025-12-01T00:00:00Z to 2026-01-01T00:00:00Z: 50.00 h of 100.00 h of nvidia.com/gpu",
        "Ledgers with lower use: 1",
    ]
    missing = run("other", "-f", folder)
    assert (missing.exit_code, missing.output) == (1, "Error: there is no Budget other\n")


def test_data_follows_the_printed_schema(folder: str) -> None:
    data = json.loads(run("-f", folder, "-o", "json").output)
    jsonschema_rs.validate(json.loads(run("--print-schema").output), data)
