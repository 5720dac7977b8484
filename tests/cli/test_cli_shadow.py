"""`pykueue shadow`: options, output and exit status; what it compares is in tests/questions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from pykueue.api.crds import crds
from pykueue.cli.main import main
from pykueue.testing import RunningServer, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["shadow", *arguments])


def test_report_follows_the_printed_schema(server: RunningServer) -> None:
    kubeconfig = str(server.kubeconfig)
    server.install_definitions(*crds())
    options = ["--kubeconfig", kubeconfig, "--for", "1s", "-o", "json", "--metrics-port", "0"]
    command = [sys.executable, "-m", "pykueue.cli.main", "shadow", *options]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    jsonschema_rs.validate(json.loads(run("--print-schema").output), report)
    assert (report["decisions"], report["shareEqual"], report["unread"]) == (0, 1.0, [])
    assert "the defaults of Kueue's configuration are assumed" in report["notes"][0]
    assert f"note: {report['notes'][0]}\n" in found.stderr


def test_log_of_the_manager_is_read_from_standard_input(server: RunningServer) -> None:
    """One that has no cycles: nothing is compared, and lines of other programs are skipped."""
    server.install_definitions(*crds())
    options = ["--kubeconfig", str(server.kubeconfig), "--for", "1s", "--manager-log", "-", "-o", "json"]
    command = [sys.executable, "-m", "pykueue.cli.main", "shadow", *options]
    found = subprocess.run(command, input="text\n{}\n", capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert (report["decisions"], report["cycles"]) == (0, 0)


def test_log_that_does_not_exist_is_status_2() -> None:
    result = run("--manager-log", "missing.log")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "File 'missing.log' does not exist" in result.stderr


@pytest.mark.parametrize("value", ["0s", "soon", "-1m"])
def test_wrong_durations_are_status_2(value: str) -> None:
    result = run(f"--for={value}")
    assert result.exit_code == 2
    assert "--for" in result.stderr
