"""`pykueue top`, `share` and `used` on manifests: text, data, exit status, and the examples of their page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner, Result

from pykueue.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "why")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("command", ["top", "share", "used"])
def test_data_follows_the_printed_schema(command: str) -> None:
    schema = json.loads(run(command, "--print-schema").output)
    result = run(command, "-f", EXAMPLE, "-o", "json")
    assert result.exit_code == 0
    jsonschema_rs.validate(schema, json.loads(result.output))
    in_yaml = yaml.safe_load(run(command, "-f", EXAMPLE, "-o", "yaml").output)
    assert in_yaml.keys() == json.loads(result.output).keys()


def test_wrong_groups_and_windows_are_status_2() -> None:
    result = run("used", "-f", EXAMPLE, "--by", "team")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: --by: 'team' is no group; accepted: ")
    for value, message in (("-1h", "must be greater than 0"), ("soon", "'soon' is not a duration")):
        result = run("used", "-f", EXAMPLE, f"--since={value}")
        assert (result.exit_code, message in result.stderr) == (2, True)


def test_examples_of_the_page_print_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "use" / "shares.md").read_text()
    blocks = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for command, shown in blocks:
        assert run(*shlex.split(command)[1:]).output == shown, command
