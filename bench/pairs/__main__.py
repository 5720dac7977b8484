"""`python -m bench.pairs LOAD SIZE --beside ../other-clone`: CPU time of one load in two clones, in turn.

Two processes, one of each clone, run the load in turn, so that what slows the machine down slows both. The
median of the ratios of all pairs is the figure; on a shared machine the least times show what the code needs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Loads of `bench.simulate`; others are those of `bench.engine`, by the names of their functions.
SIMULATED = ("quota", "topology")

_CHILD = """
import gc, sys
load, size = sys.argv[1], sys.argv[2]
if load in {simulated!r}:
    from bench.simulate.loads import measured
    def once():
        return measured(load, int(size))["cpu_seconds"]
else:
    from bench.engine import shapes
    from bench.engine.harness import run
    gc.set_threshold(50_000, 20, 50)
    def once():
        return run(getattr(shapes, load)(float(size) if "." in size else int(size))).cpu
once()
for _ in sys.stdin:
    print(once(), flush=True)
"""


def process(clone: Path, load: str, size: str) -> subprocess.Popen[str]:
    """A process of one clone that runs the load once for each line it reads, and prints the CPU seconds."""
    paths = os.pathsep.join((str(clone), str(clone / "src")))
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(simulated=SIMULATED), load, size],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=clone,
        env={**os.environ, "PYTHONPATH": paths},
    )


def once(child: subprocess.Popen[str]) -> float:
    """CPU seconds of one more run."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("load", help=f"{', '.join(SIMULATED)}, or a load of bench.engine such as large")
    parser.add_argument("size", help="workloads of a simulation; else the size as in bench.engine")
    parser.add_argument("--beside", type=Path, required=True, metavar="CLONE", help="the other clone")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    children = [process(clone.resolve(), options.load, options.size) for clone in (options.beside, ROOT)]
    pairs = [tuple(once(child) for child in children) for _ in range(options.runs)]
    for child in children:
        child.communicate()
    ratios = sorted(here / there for there, here in pairs)
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    there, here = (min(each) for each in zip(*pairs, strict=True))
    print(f"least CPU seconds: {there:.3f} there, {here:.3f} here")
    print(f"ratio here to there: median {middle:.2f}, quartiles {low:.2f} to {high:.2f}, {len(ratios)} pairs")


if __name__ == "__main__":
    main()
