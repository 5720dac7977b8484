"""`python -m bench.simulate`: lives of workloads that are simulated in a minute of CPU time, decision log on.

Four queues of one cohort, each with a Poisson process of jobs at 90 % of the capacity, which borrow and
reclaim: with quota only, and with a topology of 640 nodes. Several numbers of jobs show how time and memory
grow; each run is a separate process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path

from .loads import measured

#: The bars: lives in a minute of CPU time.
LIVES_A_MINUTE_MIN = {"quota": 250_000, "topology": 40_000}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__)
    parser.add_argument("--shape", choices=sorted(LIVES_A_MINUTE_MIN), action="append")
    parser.add_argument("--jobs", type=int, nargs="+", default=[50_000, 100_000, 200_000, 400_000])
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    found = []
    print(f"{'shape':<10}{'lives':>10}{'preempted':>10}{'CPU s':>8}{'lives/min':>11}{'bar':>9}{'peak MB':>9}")
    for shape in options.shape or LIVES_A_MINUTE_MIN:
        for jobs in options.jobs:
            with context.Pool(1) as pool:
                each = pool.apply(measured, (shape, jobs))
            found.append(each)
            print(
                f"{shape:<10}{each['finished']:>10,}{each['preemptions']:>10,}{each['cpu_seconds']:>8.1f}"
                f"{each['lives_a_minute']:>11,.0f}{LIVES_A_MINUTE_MIN[shape]:>9,}{each['peak_mb']:>9.0f}",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
