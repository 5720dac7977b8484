"""The Containerfile: it fits the sources, the command line and what the Deployment demands of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pykueue.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_what_is_copied_exists_and_is_not_ignored(instructions: list[tuple[str, str]]) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for name, rest in instructions
        if name == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / source).exists() for source in copied)


def test_it_runs_as_a_numbered_user_that_is_not_root(instructions: list[tuple[str, str]]) -> None:
    (user,) = (rest for name, rest in instructions if name == "USER")
    assert all(int(part) > 0 for part in user.split(":"))


def test_the_command_of_the_deployment_is_understood(
    instructions: list[tuple[str, str]], tmp_path: Path
) -> None:
    (entry,) = (json.loads(rest) for name, rest in instructions if name == "ENTRYPOINT")
    assert entry == ["pykueue"]
    runner = CliRunner()
    objects = [obj for obj in yaml.safe_load_all(runner.invoke(main, ["manifests"]).output) if obj]
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


def test_the_interpreter_is_one_that_the_package_takes(instructions: list[tuple[str, str]]) -> None:
    wanted = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert wanted is not None
    stages = [re.match(r"python:(\d+)\.(\d+)-slim", rest) for name, rest in instructions if name == "FROM"]
    versions = {tuple(map(int, stage.groups())) for stage in stages if stage is not None}
    assert len(stages) == 2
    assert len(versions) == 1
    assert min(versions) >= tuple(map(int, wanted.groups()))
