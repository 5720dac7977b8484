"""The Containerfile: it fits the sources, the command line and what the Deployment demands of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import pykueue.cli.main as main_module
from pykueue.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_copied_files_of_the_image_exist_and_are_not_ignored(instructions: list[tuple[str, str]]) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for name, rest in instructions
        if name == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / source).exists() for source in copied)


def test_image_runs_as_a_numeric_user_other_than_root(instructions: list[tuple[str, str]]) -> None:
    (user,) = (rest for name, rest in instructions if name == "USER")
    assert all(int(part) > 0 for part in user.split(":"))


def test_the_command_of_the_deployment_is_understood(
    instructions: list[tuple[str, str]], tmp_path: Path
) -> None:
    (entry,) = (json.loads(rest) for name, rest in instructions if name == "ENTRYPOINT")
    assert entry == ["pykueue"]
    runner = CliRunner()
    rendered = runner.invoke(main, ["manifests"]).output
    objects = [obj for obj in yaml.load_all(rendered, Loader=yaml.CSafeLoader) if obj]
    (deployment,) = (obj for obj in objects if obj["kind"] == "Deployment")
    (config_map,) = (obj for obj in objects if obj["kind"] == "ConfigMap")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "config")
    file = tmp_path / "config.yaml"
    file.write_text(config_map["data"][mount["subPath"]])
    arguments = [one.replace(mount["mountPath"], str(file)) for one in container["args"]]
    done = runner.invoke(main, [*arguments, "--print-config"])
    assert done.exit_code == 0, done.output
    assert "kind: Configuration" in done.output


def test_image_has_a_supported_python_version(instructions: list[tuple[str, str]]) -> None:
    wanted = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert wanted is not None
    stages = [
        re.match(r"docker.io/library/python:(\d+)\.(\d+)-slim", rest)
        for name, rest in instructions
        if name == "FROM"
    ]
    versions = {tuple(map(int, stage.groups())) for stage in stages if stage is not None}
    assert len(stages) == 2
    assert len(versions) == 1
    assert min(versions) >= tuple(map(int, wanted.groups()))


def test_image_is_labelled_with_name_and_version(instructions: list[tuple[str, str]]) -> None:
    (rest,) = (rest for name, rest in instructions if name == "LABEL")
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', rest))
    assert set(labels) >= {"title", "description", "licenses"}
    assert labels["version"] == version("pykueue")


def test_container_that_is_still_starting_ends_on_sigterm() -> None:
    """The first process of a container has no default for SIGTERM: the program must have set what it does."""
    begun = (
        "import os, signal\n"
        "from pykueue.cli import main\n"
        "main.main = lambda prog_name: os.kill(os.getpid(), signal.SIGTERM)\n"
        "main.program()\n"
    )
    done = subprocess.run([sys.executable, "-c", begun], check=False)
    # Of itself; by the signal's default it would be minus the number.
    assert done.returncode == 128 + signal.SIGTERM


def test_without_the_sources_the_demo_says_what_it_needs(tmp_path: Path) -> None:
    package = Path(main_module.__file__).parents[1]
    shutil.copytree(package, tmp_path / "lib" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}
    done = subprocess.run(
        [sys.executable, "-m", "pykueue", "demo"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "examples/all-or-nothing of the project's source code" in " ".join(done.stderr.split())
