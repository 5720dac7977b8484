"""The server under test: `pykueue up`, by default its API server alone, in a separate process."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import yaml
from bench import usage


class ServerProcess:
    """A server on a fresh data folder, and what it uses of the machine.

    With `profile` it runs under cProfile, which slows it, and leaves its statistics in that file.
    With `plain` it serves plain HTTP (`bench.apiserver.plain`).
    """

    def __init__(
        self,
        in_memory: bool = False,
        profile: Path | None = None,
        options: Sequence[str] = ("--only", "apiserver"),
        plain: bool = False,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pykueue-bench-")
        folder = Path(self._folder.name)
        watched = ["-m", "cProfile", "-o", str(profile)] if profile is not None else []
        program = ["bench.apiserver.plain"] if plain else ["pykueue.cli.main", "up"]
        command = [sys.executable, *watched, "-m", *program, *options]
        command += ["--port", "0", "--data-dir", str(folder), *(["--in-memory"] if in_memory else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "KUBECONFIG=" in line:
                break
        else:
            raise RuntimeError(f"the server ended with {self._process.wait()}")
        self.kubeconfig = folder / "kubeconfig"
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.url: str = config["clusters"][0]["cluster"]["server"]
        self.host, _, port = self.url.partition("//")[2].rpartition(":")
        self.port = int(port)
        self.token: str = config["users"][0]["user"]["token"]
        self.context = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self, path: str) -> bytes:
        """The body of the answer to a GET."""
        request = urllib.request.Request(
            f"{self.url}{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, context=self.context) as answer:
            body: bytes = answer.read()
        return body

    def cpu(self) -> float:
        """Seconds of CPU time used so far, all threads."""
        return usage.cpu(self.pid)

    def memory(self) -> int:
        """Resident bytes."""
        return usage.memory(self.pid)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()
        self._folder.cleanup()
