"""`pykueue up` that cannot start names the cause and disturbs no other process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import PATIENCE, Up
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat


def refused(*options: str, file_limit: int | None = None) -> str:
    """The one line that `pykueue up` ends with; with a limit to the bytes of every file it writes."""
    command = [sys.executable, "-m", "pykueue.cli.main", "up", *options]
    if file_limit is not None:
        command = ["prlimit", f"--fsize={file_limit}", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_data_directory_in_use_is_not_opened_by_a_second_process(start_up: Callable[..., Up]) -> None:
    owner = start_up("--only", "apiserver")
    kubeconfig = owner.kubeconfig.read_text()
    for options in ((), ("--in-memory",)):
        line = refused("--data-dir", str(owner.folder), "--port", "0", *options)
        assert line.endswith(
            "state.db is in use by another process; stop it or choose another data directory"
        )
    assert owner.kubeconfig.read_text() == kubeconfig


def test_a_port_in_use_is_named(start_up: Callable[..., Up], tmp_path: Path) -> None:
    url = start_up("--only", "apiserver").output[0].split("; ")[0]
    port = url.rpartition(":")[2]
    line = refused("--data-dir", str(tmp_path), "--port", port, "--only", "apiserver")
    assert line == f"Error: --port {port}: address already in use; choose another, or 0 for any that is free"


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit of util-linux is not installed")
@pytest.mark.parametrize("limit", [0, 4096, 100_000, 400_000, 1_000_000])
def test_disk_that_takes_no_more_while_starting_is_reported_in_one_line(tmp_path: Path, limit: int) -> None:
    line = refused("--data-dir", str(tmp_path / "data"), "--port", "0", file_limit=limit)
    assert line.startswith(f"Error: {tmp_path}/data/state.db")
    assert "disk I/O error" in line or "cannot be opened: File too large" in line


def test_damaged_key_is_reported_with_the_remedy(start_up: Callable[..., Up]) -> None:
    up = start_up("--only", "apiserver", "--in-memory")
    assert "its state is in memory only" in up.output[0]
    assert up.stop() == 0
    encrypted = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    for name, content in (("ca.key", encrypted), ("ca.crt", b"nonsense"), ("ca.key", b"nonsense")):
        whole = (up.folder / "pki" / name).read_bytes()
        (up.folder / "pki" / name).write_bytes(content)
        line = refused("--data-dir", str(up.folder), "--port", "0", "--only", "apiserver")
        assert f"{up.folder}/pki/{name} is damaged" in line
        assert f"remove the directory {up.folder}/pki" in line
        (up.folder / "pki" / name).write_bytes(whole)
