"""`python -m bench.engine.digests`: a digest of all decisions of each load at a small size, one line each.

Two versions of the engine that print the same decide the same in these runs, explanations included.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Any

from pykueue.extras import engine_is_compiled

from .harness import run
from .loads import LOADS

SIZES: dict[str, Any] = {
    "baseline": 0.1,
    "fair": 0.1,
    "large": 0.02,
    "contended": 30,
    "backlogged": 12,
    "deep": 1000,
    "wide": 60,
    "flavors": 150,
    "storm": 300,
    "topology": 0.02,
    "balanced": 0.02,
    "packed": 0.1,
    "node-storm": 200,
    "nodes": 40,
}


def digest(load: str, size: Any) -> str:
    """Of the decisions of one run, in their order."""
    found = sha256()
    run(LOADS[load][0](size), lambda now, decisions: found.update(repr((now, decisions)).encode()))
    return found.hexdigest()


def main() -> None:
    print(f"the engine is {'compiled' if engine_is_compiled() else 'Python'}", file=sys.stderr)
    for load, size in SIZES.items():
        print(load, size, digest(load, size), flush=True)


if __name__ == "__main__":
    main()
