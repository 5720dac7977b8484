"""The recorded scenarios: where they are, and how they are read (`data/README.md` has the format)."""

from __future__ import annotations

import json
import lzma
import os
from functools import cache
from pathlib import Path
from typing import Any

#: Scenarios that are part of the project: `NAME.jsonl.xz`.
DATA = Path(__file__).with_name("data")
#: A folder with more scenarios (`NAME.jsonl`); of two files of one name only the one in this folder is read.
ELSEWHERE = os.environ.get("PYKUEUE_CONFORMANCE", "")

Scenario = dict[str, Any]


@cache
def files() -> dict[str, Path]:
    """The path of each file, by its name without `.xz`."""
    found = {path.name.removesuffix(".xz"): path for path in DATA.glob("*.jsonl.xz")}
    if ELSEWHERE:
        found |= {path.name: path for path in Path(ELSEWHERE).glob("*.jsonl")}
    return dict(sorted(found.items()))


@cache
def _lines(file: str) -> list[bytes]:
    path = files()[file]
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as text:
        return list(text)


def load(file: str) -> list[Scenario]:
    """All scenarios of one file."""
    return [json.loads(line) for line in _lines(file)]


def scenario(file: str, number: int) -> Scenario:
    """One scenario of a file, by its position."""
    found: Scenario = json.loads(_lines(file)[number])
    return found
