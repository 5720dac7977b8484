"""Where `pykueue up` keeps its data, and the line it prints for the shell."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_processes import PATIENCE, ROOT, Up

from pykueue.cli import up as module
from pykueue.cli.up import STATE, data_folder


def _export(up: Up) -> str:
    (line,) = [line.strip() for line in up.output if "KUBECONFIG=" in line]
    return line


def test_export_line_works_in_a_shell_for_a_directory_with_blanks_and_quotes(tmp_path: Path) -> None:
    up = Up(tmp_path / "it's a 'new' $HOME", "--only", "apiserver").start()
    try:
        shell = subprocess.run(
            ["bash", "-euc", f'{_export(up)}; cat "$KUBECONFIG"'],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert shell.returncode == 0, shell.stderr
        assert shell.stdout == up.kubeconfig.read_text()
    finally:
        up.stop()


def test_export_line_is_absolute_for_a_relative_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    up = Up(Path("data"), "--only", "apiserver").start()
    try:
        assert _export(up) == f"export KUBECONFIG={shlex.quote(str(tmp_path / 'data' / 'kubeconfig'))}"
    finally:
        up.stop()


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The default data directory and the former one, both empty."""
    new, old = tmp_path / "state", tmp_path / "config"
    for name, folder in (("DEFAULT_FOLDER", new), ("OLD_DEFAULT_FOLDER", old)):
        folder.mkdir()
        monkeypatch.setattr(module, name, folder)
    return new, old


def test_new_data_is_kept_in_the_state_directory_of_the_platform(folders: tuple[Path, Path]) -> None:
    new, _ = folders
    assert data_folder(None) == new
    assert data_folder(Path("/elsewhere")) == Path("/elsewhere")


def test_data_in_the_former_default_directory_is_used_and_named(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    new, old = folders
    (old / STATE).touch()
    assert data_folder(None) == old
    message = capsys.readouterr().err
    assert str(old) in message
    assert f"the default is now {new}" in message
    assert data_folder(new) == new
    (new / STATE).touch()
    assert data_folder(None) == new
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="XDG directories are those of Linux")
def test_default_directory_follows_xdg_state_home() -> None:
    code = "from pykueue.cli.up import DEFAULT_FOLDER; print(DEFAULT_FOLDER)"
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/home/someone"}
    for extra, expected in (
        ({}, "/home/someone/.local/state/pykueue"),
        ({"XDG_STATE_HOME": "/state"}, "/state/pykueue"),
    ):
        found = subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, **extra},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == expected
