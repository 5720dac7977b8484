"""The README of each example: its shell lines, run in order against a real `pykueue up`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import PATIENCE, ROOT, Up, kubectl_program

pytestmark = pytest.mark.kubectl

EXAMPLES = ROOT / "examples"
#: Examples whose README commands run here; test_cli_admission_check runs the controller of `admission-check`.
READMES = sorted(path for path in EXAMPLES.glob("*/README.md") if path.parent.name != "admission-check")
#: What starts the cluster.
_UP = re.compile(r"^```console\n.*?^pykueue up(.*?)$.*?^```", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environment(
    start_up: Callable[..., Up], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], dict[str, str]]:
    """Where kubectl finds itself and the cluster that a README starts; one for all with the same options."""
    home = tmp_path_factory.mktemp("home")
    programs = (str(Path(kubectl_program()).parent), str(Path(sys.executable).parent))
    path = os.pathsep.join((*programs, os.environ["PATH"]))
    started: dict[tuple[str, ...], Up] = {}

    def found(readme: Path) -> dict[str, str]:
        (line,) = _UP.findall(readme.read_text())
        words = shlex.split(line)
        options = tuple(str(ROOT / word) if word.startswith("examples/") else word for word in words)
        up = started.get(options) or started.setdefault(options, start_up(*options))
        return {**os.environ, "PATH": path, "HOME": str(home), "KUBECONFIG": str(up.kubeconfig)}

    return found


def test_every_family_of_kinds_has_an_example() -> None:
    found = {path.parent.name for path in READMES}
    assert found >= {"appwrapper", "kubeflow", "leaderworkerset", "mpi", "ray", "spark", "trainjob"}
    assert found >= {
        "argo-workflows",
        "cronjob",
        "devices",
        "flux",
        "fractional-devices",
        "spark-submit",
        "tekton",
    }


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_lines_of_the_readme_run(readme: Path, environment: Callable[[Path], dict[str, str]]) -> None:
    (lines,) = _SHELL.findall(readme.read_text())
    ended = subprocess.run(
        ["bash", "-ec", lines],
        cwd=ROOT,
        env=environment(readme),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "team" in ended.stdout
