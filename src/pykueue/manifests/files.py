"""Texts of files that people write. Apart from the checks of manifests, which take long to load."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

#: Endings of the files that are read in a directory.
SUFFIXES = frozenset({".yaml", ".yml", ".json"})


class InputError(ValueError):
    """Manifests are wrong; one line for each error."""


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of a file, of each file in a directory, or (`-`) of standard input. Raises InputError."""
    if str(path) == "-":
        yield "<stdin>", _text("<stdin>", sys.stdin.read)
        return
    if not path.is_dir():
        yield str(path), read_text(path)
        return
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{path}: no file ends in {', '.join(sorted(SUFFIXES))}")
    for file in files:
        yield str(file), read_text(file)


def read_text(file: Path) -> str:
    """The text of a file. Raises InputError that names it."""
    return _text(file, partial(file.read_text, encoding="utf-8"))


def _text(source: Path | str, read: Callable[[], str]) -> str:
    """What is read. Raises InputError that names the source."""
    try:
        return read()
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8 text: byte {error.start} is {error.reason}") from None
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}") from None
