"""Keeps a generated data file true to the types it is made from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


def keep(program: str, path: Path, generate: Callable[[], Any]) -> int:
    """`python -m PROGRAM --write` or `--check`: 0 when the file is, or now is, what the types say."""
    description = "Writes the data file anew, or fails when it is not what the types say."
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail when the file is stale")
    action.add_argument("--write", action="store_true", help="write the file")
    arguments = parser.parse_args()
    fresh = msgspec.json.format(msgspec.json.encode(generate(), order="deterministic"), indent=1) + b"\n"
    if arguments.write:
        path.write_bytes(fresh)
    elif not path.exists() or path.read_bytes() != fresh:
        print(f"{path} is stale: run python -m {program} --write", file=sys.stderr)
        return 1
    return 0
