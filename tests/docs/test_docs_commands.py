"""Commands in code blocks of pages and examples: each exists with its options, and names files that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pykueue.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Words that end a command in a line of a shell.
_END = frozenset({"|", ">", ">>", "<", "&&", "||", ";", "&", "2>&1", "2>", "done", "then"})
#: Commands that take what kubectl takes.
_PASSED_ON = frozenset({"get", "describe", "edit", "patch", "delete"})


def commands() -> Iterator[tuple[str, str]]:
    """The invocations of pykueue in code blocks, by page."""
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text()):
            joined = re.sub(r"\\\n\s*", " ", block)
            shows_output = any(line.startswith("$ ") for line in joined.splitlines())
            for line in joined.splitlines():
                if shows_output and not line.startswith("$ "):
                    continue
                for found in re.finditer(r"(?:^(?:\$ )?|[;(|&] *)((?:pykueue|kubectl kueue) [a-z-].*)", line):
                    yield page.relative_to(ROOT).as_posix(), found[1]


COMMANDS = list(dict.fromkeys(commands()))


def words(text: str) -> list[str]:
    """The words of the first command of a line."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    found = []
    for word in lexer:
        if word in _END or re.fullmatch(r"[|&;<>()]+", word):
            break
        found.append(word)
    return found


def test_code_blocks_have_commands() -> None:
    assert len(COMMANDS) > 60


@pytest.mark.parametrize(("page", "text"), COMMANDS, ids=[f"{page}: {text}" for page, text in COMMANDS])
def test_command_of_a_page_exists_with_its_options(page: str, text: str) -> None:
    rest = words(text)[2 if text.startswith("kubectl") else 1 :]
    command: click.Command = main
    context = click.Context(main, info_name="pykueue")
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        below = command.get_command(context, rest[0])
        assert below is not None, f"there is no command {rest[0]}"
        command, context = below, click.Context(below, info_name=rest.pop(0), parent=context)
    if context.info_name in _PASSED_ON or (context.parent and context.parent.info_name in _PASSED_ON):
        return
    known = {name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)}
    known |= {"--help", "-h", "--version"}
    for word in rest:
        if word == "--":
            break
        if word.startswith("-") and word != "-" and not re.match(r"-\d", word):
            assert word.partition("=")[0] in known, f"{context.command_path} has no option {word}"
