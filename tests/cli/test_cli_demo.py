"""`pykueue demo` as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cli_processes import PATIENCE, Up


def test_demo_that_gets_sigterm_stops_its_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pykueue.cli.main", "demo", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert any("quick-job: Running" in line for line in demo.stdout)
        demo.terminate()
        _, told = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, told.strip()) == (1, "Aborted!")
    again = Up(tmp_path).start()
    assert again.stop() == 0
