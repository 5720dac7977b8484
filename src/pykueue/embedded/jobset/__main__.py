"""Writes the data file anew (`--write`), or fails when it is not what the types say (`--check`)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from pykueue.embedded.jobset.definition import DATA
from pykueue.embedded.jobset.generate import generate


def main() -> int:
    """0 when the file is, or now is, what the types say."""
    parser = argparse.ArgumentParser(prog="python -m pykueue.embedded.jobset", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail when the file is stale")
    action.add_argument("--write", action="store_true", help="write the file")
    arguments = parser.parse_args()
    path = Path(__file__).with_name(DATA)
    fresh = msgspec.json.format(msgspec.json.encode(generate(), order="deterministic"), indent=1) + b"\n"
    if arguments.write:
        path.write_bytes(fresh)
    elif not path.exists() or path.read_bytes() != fresh:
        print(f"{path} is stale: run python -m pykueue.embedded.jobset --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
