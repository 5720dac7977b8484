"""One source: as Python, and compiled where it was asked for, with the same decisions."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import pykueue
from pykueue.extras import engine_is_compiled

ROOT = Path(__file__).parents[2]
MODULES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pykueue"]["compiled"]


@pytest.mark.parametrize("name", MODULES)
def test_listed_modules_exist_and_are_all_compiled_or_none(name: str) -> None:
    assert (ROOT / "src" / f"{name.replace('.', '/')}.py").is_file()
    file = import_module(name).__file__
    assert file is not None
    assert file.endswith(tuple(EXTENSION_SUFFIXES)) == engine_is_compiled()


def test_list_is_sorted_and_names_each_module_once() -> None:
    assert sorted(set(MODULES)) == MODULES


def digests(source: Path) -> Iterator[str]:
    """What `python -m bench.engine.digests` prints with the package in this directory."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine.digests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
        text=True,
    )
    yield done.stderr.strip()
    yield from done.stdout.splitlines()


@pytest.mark.skipif(not engine_is_compiled(), reason="the engine is not compiled here: make test-compiled")
def test_compiled_engine_decides_the_same_as_python() -> None:
    compiled = list(digests(Path(pykueue.__path__[0]).parent))
    python = list(digests(ROOT / "src"))
    assert compiled[0] == "the engine is compiled"
    assert python[0] == "the engine is Python"
    assert compiled[1:] == python[1:]
    assert len(python) > 10
