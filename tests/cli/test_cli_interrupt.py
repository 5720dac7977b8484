"""Ctrl-C, which a terminal sends to every process of a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from cli_processes import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"
COMMAND = [sys.executable, "-m", "pykueue.cli.main"]


def started(command: list[str]) -> subprocess.Popen[str]:
    """Start a command in its own session, with the default handling of SIGINT.

    Shells start background jobs with SIGINT ignored, and child processes inherit that.
    """
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def simulate(folder: Path) -> list[str]:
    scenario = str(EXAMPLES / "kueue-preempting.yaml")
    options = ["--seeds", "12", "--processes", "2", "-o", "csv"]
    return [*COMMAND, "simulate", scenario, *options, "--results", str(folder)]


def interrupted(command: list[str], after: Path) -> tuple[int, str]:
    """Exit status and errors of a command that gets Ctrl-C once a file is there."""
    with started(command) as process:
        while not after.exists() and process.poll() is None:
            os.sched_yield()
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
    return process.returncode, told


def test_simulations_that_are_interrupted_go_on_where_they_were(tmp_path: Path) -> None:
    first, whole = tmp_path / "first", tmp_path / "whole"
    assert interrupted(simulate(first), first / "outcome-baseline-0.msgpack") == (
        130,
        "Interrupted: runs that had not ended are left out.\n",
    )
    ended = {file.name for file in first.glob("outcome-*")}
    assert 1 <= len(ended) < 12
    kept = (first / "outcome-baseline-0.msgpack").stat().st_mtime_ns
    tables = [
        subprocess.run(simulate(folder), stdout=subprocess.PIPE, text=True, check=True).stdout
        for folder in (first, whole)
    ]
    assert tables[0] == tables[1]
    assert (first / "outcome-baseline-0.msgpack").stat().st_mtime_ns == kept
    names = {file.name for file in whole.glob("decisions-*")}
    assert len(names) == 12
    assert all((first / name).read_bytes() == (whole / name).read_bytes() for name in names)


def test_other_commands_end_without_a_traceback(tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    os.mkfifo(queues)  # the command waits for what never comes
    command = [*COMMAND, "when", "job/a", "-f", str(queues)]
    with started(command) as process, queues.open("w"):  # opens once the command reads it
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, told) == (130, ("", "Interrupted.\n"))
