"""The README of each example of a job kind: its shell lines, run in order against a real `pykueue up`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import PATIENCE, ROOT, Up, kubectl_program

pytestmark = pytest.mark.kubectl

EXAMPLES = ROOT / "examples"
#: Those whose README has lines to run.
READMES = sorted(EXAMPLES.glob("*/README.md"))
_SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environment(start_up: Callable[..., Up], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where kubectl finds the cluster and itself."""
    home = tmp_path_factory.mktemp("home")
    path = os.pathsep.join((str(Path(kubectl_program()).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "HOME": str(home), "KUBECONFIG": str(start_up().kubeconfig)}


def test_every_family_of_kinds_has_an_example() -> None:
    found = {path.parent.name for path in READMES}
    assert found >= {"appwrapper", "kubeflow", "leaderworkerset", "mpi", "ray", "spark", "trainjob"}


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_lines_of_the_readme_run(readme: Path, environment: dict[str, str]) -> None:
    (lines,) = _SHELL.findall(readme.read_text())
    ended = subprocess.run(
        ["bash", "-ec", lines],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "team" in ended.stdout
