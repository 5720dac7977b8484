"""The server and the cluster as Python, and compiled where it was asked for: the same history."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pykueue
from pykueue.extras import engine_is_compiled

ROOT = Path(__file__).parents[2]


def histories(source: Path) -> tuple[str, list[str]]:
    """What `python -m bench.workloads.digests` says with the package in this directory."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.workloads.digests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stderr.strip(), done.stdout.splitlines()


@pytest.mark.skipif(not engine_is_compiled(), reason="the server is not compiled here: make test-compiled")
def test_compiled_cluster_stores_the_same_changes_as_python() -> None:
    form, compiled = histories(Path(pykueue.__path__[0]).parent)
    plain_form, plain = histories(ROOT / "src")
    assert (form, plain_form) == ("compiled", "Python")
    assert compiled == plain
    assert len(plain) > 5
