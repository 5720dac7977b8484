"""Where in a scenario file a field is, so that errors name the line and column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from .reading import ScenarioError

#: A field's path, and what is wrong with it: `arrivals[0].generator.every: required`.
_PROBLEM: Final = re.compile(r"(?P<path>[A-Za-z]\w*(?:\[\d+\])?(?:\.[^:\s]+)?): .")
_INDEX: Final = re.compile(r"\[(\d+)\]")


@contextmanager
def placed(file: Path) -> Iterator[None]:
    """ScenarioErrors that leave it name file, line and column of the fields that they are about."""
    try:
        yield
    except ScenarioError as error:
        raise ScenarioError("\n".join(_placed(str(error).splitlines(), file))) from None


def _placed(problems: list[str], file: Path) -> Iterator[str]:
    try:
        root = yaml.compose(file.read_text(), Loader=yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        root = None
    for problem in problems:
        text = problem.removeprefix(f"{file}: ")
        found = _PROBLEM.match(text)
        place = None
        if found is not None and isinstance(root, yaml.MappingNode):
            place = _place(root, found["path"])
        yield problem if place is None else f"{file}:{place[0]}:{place[1]}: {text}"


def _place(root: yaml.Node, path: str) -> tuple[int, int] | None:
    """Line and column of a field, or of the innermost one around it that is there; None for another text."""
    node, rest, known = root, path, False
    while rest:
        inner = _step(node, rest)
        if inner is None:
            break
        node, rest = inner
        known = True
    return (node.start_mark.line + 1, node.start_mark.column + 1) if known else None


def _step(node: yaml.Node, path: str) -> tuple[yaml.Node, str] | None:
    """The value of the first field of a path, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode):
        found = _INDEX.match(path)
        if found is None or int(found[1]) >= len(node.value):
            return None
        return node.value[int(found[1])], path[found.end() :].removeprefix(".")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            rest = path.removeprefix(key.value)
            if rest != path and (not rest or rest[0] in ".["):
                return value, rest.removeprefix(".")
    return None
