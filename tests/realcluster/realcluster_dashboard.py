"""The dashboard as a process beside a cluster, and browsers without scripts that sign in to it."""

from __future__ import annotations

import contextlib
import http.cookiejar
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from realcluster_plane import Process, until


@contextlib.contextmanager
def running_dashboard(kubeconfig: Path, log: Path) -> Iterator[str]:
    """Address of a dashboard that reads the cluster with a kubeconfig, until the body ends."""
    command = [sys.executable, "-m", "pykueue.cli.main", "dashboard", "--port", "0"]
    process = Process([*command, "--kubeconfig", str(kubeconfig)], log)
    process.start()

    def address() -> str | None:
        process.check()
        found = re.search(r"is up at (http://\S+?)\.\s", process.text())
        return found[1] if found else None

    try:
        yield until(address, "the dashboard's address")
    finally:
        process.stop()


class User:
    """A browser of a ServiceAccount, signed in with its token."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        )
        self.post("/sign-in", token=token)

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page."""
        return self._open(path, None)

    def post(self, path: str, **form: str) -> tuple[int, str]:
        """Status and text of the page to which a form leads."""
        return self._open(path, urllib.parse.urlencode(form).encode())

    def stream(self, path: str) -> str:
        """Name of the first event of the stream of a page."""
        target = f"{self.url}/stream?{urllib.parse.urlencode({'path': path})}"
        with self._opener.open(target, timeout=60) as answer:
            for line in answer:
                if line.startswith(b"event: "):
                    return str(line[7:].decode().strip())
        raise AssertionError(f"the stream of {path} ended")

    def _open(self, path: str, form: bytes | None) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, form, {"Accept": "text/html"})
        try:
            with self._opener.open(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
