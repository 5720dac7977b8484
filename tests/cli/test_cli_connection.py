"""Commands that read a cluster: what they print when they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykueue.cli.main import main
from pykueue.testing import RunningServer, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(seed=1) as running:
        yield running


def line(*arguments: str, code: int = 1) -> str:
    """The one line of error output of a command that fails."""
    result = CliRunner().invoke(main, list(arguments))
    assert (result.exit_code, result.stdout) == (code, "")
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", [["dump"], ["story", "w"]])
def test_a_file_that_is_no_kubeconfig_is_named_with_what_is_wrong(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("just text")
    problem = f"kubeconfig {path} cannot be used: expected a mapping, found a string"
    assert line(*command, "--kubeconfig", str(path)) == f"Error: {problem}"


def test_story_without_a_manager_names_the_workload_that_does_not_exist(server: RunningServer) -> None:
    message = line("story", "w", "--kubeconfig", str(server.kubeconfig))
    assert message == "Error: there is no Workload default/w"


def test_story_takes_the_name_as_kubectl_prints_it(server: RunningServer) -> None:
    for name in ("workload.kueue.x-k8s.io/w", "workloads/w", "kwl/w", "wl/w"):
        message = line("story", name, "--kubeconfig", str(server.kubeconfig))
        assert message == "Error: there is no Workload default/w"
    message = line("story", "job/w", "--kubeconfig", str(server.kubeconfig))
    assert message == "Error: no Workload of job w in namespace default"
