"""The tutorial and the project page: their shell lines run, in order, against a real `pykueue up`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import PATIENCE, ROOT, Up, kubectl_program

pytestmark = pytest.mark.kubectl

PAGE = ROOT / "docs" / "use" / "tutorial.md"
_BLOCK = re.compile(r"^```(sh|text|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What differs from run to run: ages and the ends of the names of Workloads.
_AGE = re.compile(r"(?<=\s)(?:\d+[dhms])+(?=\s|$)")
_HASH = re.compile(r"(?<=job-)(\w+)-[0-9a-f]{5}\b")


def plain(line: str) -> str:
    """A line without what differs, and with single spaces."""
    return " ".join(_HASH.sub(r"\1-HASH", _AGE.sub("AGE", line)).split())


@pytest.fixture(scope="module")
def environment(start_up: Callable[..., Up], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a terminal in which the line that `pykueue up` prints was typed."""
    programs = (str(Path(kubectl_program()).parent), str(Path(sys.executable).parent))
    return {
        **os.environ,
        "PATH": os.pathsep.join((*programs, os.environ["PATH"])),
        "HOME": str(tmp_path_factory.mktemp("home")),
        "KUBECONFIG": str(start_up().kubeconfig),
    }


def run(lines: str, environment: dict[str, str]) -> str:
    """The output of lines of a shell, none of which fails."""
    done = subprocess.run(
        ["bash", "-euc", lines],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, lines + done.stdout + done.stderr
    return done.stdout


def test_commands_of_the_tutorial_print_what_it_says(environment: dict[str, str]) -> None:
    blocks = _BLOCK.findall(PAGE.read_text())
    printed: list[str] = []
    for kind, text in blocks:
        if kind == "sh":
            output = run(text, environment)
            printed = [plain(line) for line in output.splitlines()]
        elif kind == "text":
            # In the page's order; the page may leave lines out.
            rest = iter(printed)
            for line in text.splitlines():
                assert any(plain(line) in one for one in rest), f"{line!r} is not printed:\n" + "\n".join(
                    printed
                )


def test_set_up_of_the_tutorial_is_a_target_of_make() -> None:
    (lines,) = (text for kind, text in _BLOCK.findall(PAGE.read_text()) if kind == "bash")
    assert lines.splitlines() == ["make venv", ". .venv/bin/activate", "pykueue up"]
    assert re.search(r"^venv: ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_commands_of_the_project_page_run(environment: dict[str, str]) -> None:
    section = (ROOT / "README.md").read_text().split("## Keep a cluster up")[1].split("\n## ")[0]
    lines = [text for kind, text in _BLOCK.findall(section) if kind == "sh" and "pykueue up" not in text]
    assert "job.batch/job1 condition met" in "".join(run(text, environment) for text in lines)
    for question in re.findall(r"`(pykueue [^`]+|kubectl kueue [^`]+)` work here", section):
        run(question, environment)
