"""`python -m bench`: every benchmark, one after the other; names of folders choose among them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    found = sorted(
        path.parent.name for path in FOLDER.glob("*/__main__.py") if path.parent.name != "baseline"
    )
    chosen = sys.argv[1:] or found
    unknown = [name for name in chosen if name not in found]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(found)}", file=sys.stderr)
        return 2
    failed = 0
    for name in chosen:
        print(f"\n== {name}\n", flush=True)
        failed |= subprocess.run(
            [sys.executable, "-m", f"bench.{name}"], cwd=FOLDER.parent, check=False
        ).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
