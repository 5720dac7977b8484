"""Write generated files, or check that they are up to date."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec


def write_or_check(program: str, path: Path, generate: Callable[[], Any]) -> int:
    """`python -m PROGRAM --write` or `--check` for one file of JSON; see `write_or_check_files`."""
    fresh = msgspec.json.format(msgspec.json.encode(generate(), order="deterministic"), indent=1) + b"\n"
    return write_or_check_files(program, {path: fresh})


def write_or_check_files(program: str, files: Mapping[Path, bytes]) -> int:
    """`python -m PROGRAM --write` or `--check`: 0 when the files are up to date, 1 when one is stale."""
    description = "Write the generated files, or fail when they are stale."
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail when a file is stale")
    action.add_argument("--write", action="store_true", help="write the files")
    arguments = parser.parse_args()
    stale = [path for path, fresh in files.items() if not path.exists() or path.read_bytes() != fresh]
    if arguments.write:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[path])
        return 0
    for path in stale:
        print(f"{path} is stale: run python -m {program} --write", file=sys.stderr)
    return 1 if stale else 0


def with_table(page: str, begin: str, rows: Iterable[str]) -> str:
    """The text of a page with these rows between the line `begin` and the next `<!-- end -->`.

    Raises ValueError when the page has no such place.
    """
    table = "\n".join(rows)
    pattern = f"(?<={re.escape(begin)}).*?(?=<!-- end -->\n)"
    filled, places = re.subn(pattern, lambda _: f"\n{table}\n\n", page, count=1, flags=re.DOTALL)
    if not places:
        raise ValueError(f"no place for a table: {begin.strip()} and <!-- end --> are missing")
    return filled
