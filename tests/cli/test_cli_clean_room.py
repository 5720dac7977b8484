"""Installation into empty environments, with pip, pipx and uv, without a compiler.

It downloads packages, so it is skipped unless PYKUEUE_CLEAN_ROOM names a directory for the environments; pipx
and uv are used where they are on the PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "why"
#: Megabytes that an environment without extras may take.
LIMIT = 90

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        "PYKUEUE_CLEAN_ROOM" not in os.environ, reason="PYKUEUE_CLEAN_ROOM names no directory"
    ),
]


@pytest.fixture(params=["pip", "pipx", "uv"])
def installer(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """The name of an installer, and an empty directory."""
    name = request.param
    if name != "pip" and shutil.which(name) is None:
        pytest.skip(f"{name} is not on the PATH")
    folder = Path(os.environ["PYKUEUE_CLEAN_ROOM"]) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield name, folder
    shutil.rmtree(folder)


def install(name: str, folder: Path, what: str) -> tuple[Path, Path]:
    """Install the project; the program, and the environment that it is in."""
    # A compiler that fails: every package must come as a wheel.
    environment = {
        **os.environ,
        "CC": "/bin/false",
        "PIPX_HOME": str(folder / "home"),
        "PIPX_BIN_DIR": str(folder / "bin"),
        "UV_TOOL_DIR": str(folder / "home"),
        "UV_TOOL_BIN_DIR": str(folder / "bin"),
    }
    source = shutil.copytree(
        ROOT,
        folder / "source",
        ignore=shutil.ignore_patterns(".*", "build", "__pycache__", "*.egg-info", "tests", "docs"),
    )
    match name:
        case "pipx":
            commands = [["pipx", "install", f"{source}{what}"]]
            program, place = folder / "bin" / "pykueue", folder / "home" / "venvs" / "pykueue"
        case "uv":
            commands = [["uv", "tool", "install", f"{source}{what}"]]
            program, place = folder / "bin" / "pykueue", folder / "home" / "pykueue"
        case _:
            place = folder / "environment"
            program = place / "bin" / "pykueue"
            pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")]
            commands = [
                [sys.executable, "-m", "venv", "--without-pip", str(place)],
                [*pip, "install", "--quiet", f"{source}{what}"],
            ]
    for command in commands:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return program, place


def test_light_installation_decides_and_is_small(installer: tuple[str, Path]) -> None:
    program, place = install(*installer, "")
    done = subprocess.run(
        [str(program), "why", "job/training", "-f", str(EXAMPLE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Any one of these changes admits it" in done.stdout
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    assert size <= LIMIT * 1e6


def test_embedded_cluster_starts_from_an_installation(installer: tuple[str, Path], tmp_path: Path) -> None:
    program, _ = install(*installer, "[cluster]")
    command = [str(program), "up", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert up.stderr is not None
        started = any("KUBECONFIG=" in line for line in up.stdout)
        up.terminate()
        assert started, up.stderr.read()
