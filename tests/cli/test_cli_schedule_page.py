"""The examples of docs/use/schedule.md, run in order as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykueue.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "use" / "schedule.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_of_the_page_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, ran = 0, 0
    for language, text in _BLOCK.findall(PAGE.read_text()):
        if language == "yaml":
            name = text.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
        elif language == "console":
            for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, expected = step.partition("\n")
                if command == "echo $?":
                    assert expected.strip() == str(status)
                    continue
                arguments = shlex.split(command)
                assert arguments[0] == "pykueue"
                result = CliRunner().invoke(main, arguments[1:])
                status, ran = result.exit_code, ran + 1
                printed = [line.rstrip() for line in result.output.rstrip().splitlines()]
                assert printed == expected.rstrip().splitlines(), command
    assert ran == 6
