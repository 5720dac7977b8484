"""`pykueue check`: exit statuses and outputs."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from pykueue.cli.check import check

EXAMPLES = Path(__file__).parents[2] / "examples" / "check"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(check, ["--runs", "20", *arguments])


def test_findings_set_the_exit_status() -> None:
    file = str(EXAMPLES / "starvation.yaml")
    found = invoke(file)
    assert found.exit_code == 1
    assert "warning: ClusterQueue batch: a large workload" in found.stdout
    assert found.stdout.endswith("1 warning\n")
    assert invoke(file, "--fail-on", "error").exit_code == 0
    assert invoke(file, "--fail-on", "never").exit_code == 0
    ignored = invoke(file, "--ignore", "starvation")
    assert (ignored.exit_code, ignored.stdout) == (0, "No findings\n")


def test_wrong_input_is_named_and_exits_with_2(tmp_path: Path) -> None:
    missing = invoke(str(tmp_path / "none"))
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "none: cannot be read" in missing.stderr
    (tmp_path / "queue.yaml").write_text("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueues\n")
    wrong = invoke(str(tmp_path))
    assert wrong.exit_code == 2
    assert "queue.yaml: document 1 (line 1): ClusterQueues" in wrong.stderr


def test_json_has_the_events_of_a_counterexample() -> None:
    [found] = json.loads(invoke(str(EXAMPLES / "starvation.yaml"), "-o", "json").stdout)["findings"]
    assert (found["rule"], found["severity"]) == ("starvation", "warning")
    assert found["file"].endswith("starvation.yaml")
    assert len(found["events"]) > 3


def test_configuration_is_read_from_its_own_file(tmp_path: Path) -> None:
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    configuration = tmp_path / "config.yaml"
    configuration.write_text(f"{head}fairSharing: {{preemptionStrategies: [x]}}\n")
    found = invoke(str(EXAMPLES / "starvation.yaml"), "--config", str(configuration))
    assert found.exit_code == 2
    assert "config.yaml: fairSharing.preemptionStrategies" in found.stderr
