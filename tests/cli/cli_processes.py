"""`pykueue up` in a separate process, and real kubectl against it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "all-or-nothing"

#: A bound on how long a step may take before the test gives up; nothing is asserted about it.
PATIENCE = 120


class Up:
    """One `pykueue up` process on one data folder."""

    def __init__(self, folder: Path, *options: str, log: Path | None = None) -> None:
        """With `log`, what the process writes to its standard error is appended to that file."""
        self.folder = folder
        self.options = options
        self.log = log
        self.process: subprocess.Popen[str] | None = None
        self.output: list[str] = []

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def start(self) -> Up:
        command = [sys.executable, "-m", "pykueue.cli.main", "up", "--data-dir", str(self.folder)]
        with contextlib.nullcontext() if self.log is None else self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, "--port", "0", *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if "KUBECONFIG=" in line:
                return self
        raise AssertionError(f"pykueue up ended with {self.process.wait()}: {''.join(self.output)}")

    def kill(self) -> None:
        """As the machine's power switch would: no chance to say goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As Ctrl-C would; the exit code."""
        return self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


class Kubectl:
    """Runs kubectl against one cluster, with a separate discovery cache."""

    def __init__(self, up: Up, home: Path) -> None:
        self._up = up
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(up.kubeconfig),
            "HOME": str(home),
            "KUBECACHEDIR": str(home / "cache"),
        }
        self._program = kubectl_program()

    def popen(self, *arguments: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._program, *arguments],
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit code, output, error output."""
        with self.popen(*arguments) as process:
            out, err = process.communicate(stdin, timeout=PATIENCE)
            return process.returncode, out, err

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """The output of a command that must succeed."""
        code, out, err = self.run(*arguments, stdin=stdin)
        assert code == 0, f"kubectl {' '.join(arguments)} exited {code}:\n{out}{err}"
        return out

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """The error output of a command that must fail."""
        code, out, err = self.run(*arguments, stdin=stdin)
        assert code != 0, f"kubectl {' '.join(arguments)} should fail, but printed:\n{out}"
        return err


def helm_program() -> str:
    program = os.environ.get("HELM") or shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed: put it on PATH or name it in HELM")
    return program


def kubectl_program() -> str:
    program = shutil.which(os.environ.get("KUBECTL", "kubectl"))
    if program is None:
        pytest.skip("kubectl is not installed: put it on PATH or name it in KUBECTL")
    return program
