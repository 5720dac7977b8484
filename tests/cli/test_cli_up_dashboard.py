"""The dashboard of `pykueue up`: it is loaded when it is first opened, and then serves as any other."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path

from cli_processes import PATIENCE, Up

OPTIONS = ("--only", "apiserver", "--in-memory")


def link_in(up: Up) -> str:
    """The sign-in link that it printed."""
    (link,) = (line.split()[1] for line in up.output if line.startswith("  dashboard: "))
    return link


def test_link_signs_in_and_shows_the_cluster(start_up: Callable[..., Up]) -> None:
    up = start_up(*OPTIONS, "--dashboard-port", "0")
    url, _, code = link_in(up).partition("/sign-in#")
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with browser.open(f"{url}/sign-in", timeout=PATIENCE) as page:
        assert "Sign in" in page.read().decode()
    form = urllib.parse.urlencode({"code": code, "next": "/"}).encode()
    request = urllib.request.Request(f"{url}/sign-in", form, {"Origin": url})
    with browser.open(request, timeout=PATIENCE) as page:
        assert page.status == 200
        assert 'class="error"' not in page.read().decode()
        assert page.url == f"{url}/"


def test_cluster_whose_dashboard_is_not_opened_stops(start_up: Callable[..., Up]) -> None:
    assert start_up(*OPTIONS, "--dashboard-port", "0").stop() == 0


def test_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "pykueue.cli.main", "up", *OPTIONS, "--port", "0"]
        done = subprocess.run(
            [*command, "--data-dir", str(tmp_path), "--dashboard-port", str(port)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    assert done.returncode == 1
    assert f"--dashboard-port {port}: address already in use; choose another" in done.stderr


def test_two_clusters_have_a_dashboard_each(start_up: Callable[..., Up]) -> None:
    links = [link_in(start_up(*OPTIONS)).partition("#")[0] for _ in range(2)]
    assert links[0] != links[1]
