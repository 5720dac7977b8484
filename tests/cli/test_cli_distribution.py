"""The source distribution and the wheel have all that the program needs, and need no compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")


def build(folder: Path, what: str) -> Path:
    """Build the sdist or the wheel of the project in a folder, without fetching anything or a compiler."""
    program = f"from setuptools import build_meta\nprint(build_meta.build_{what}('dist'))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={**{key: value for key, value in os.environ.items() if key != "PYKUEUE_COMPILE"}, "CC": "false"},
    )
    return folder / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the source distribution, as package indexes and distributions do it."""
    clone = tmp_path_factory.mktemp("clone")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, clone / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, clone)
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(build(clone, "sdist")) as archive:
        archive.extractall(unpacked, filter="data")
    return build(unpacked / f"pykueue-{version('pykueue')}", "wheel")


def test_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src"
    files = {
        path.relative_to(package).as_posix()
        for path in (package / "pykueue").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        assert files <= set(archive.namelist())
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_wheel_is_for_every_platform(wheel: Path) -> None:
    assert wheel.name == f"pykueue-{version('pykueue')}-py3-none-any.whl"


def test_program_of_the_wheel_decides(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "from pykueue.cli.main import __file__ as found, program\n"
        f"assert found.startswith({str(tmp_path)!r}), found\n"
        "program('pykueue')\n"
    )
    example = ROOT / "examples" / "all-or-nothing"
    arguments = [sys.executable, "-c", program, "schedule", "-f", str(example)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "job1" in done.stdout
