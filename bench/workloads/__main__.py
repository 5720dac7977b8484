"""`python -m bench.workloads`: many Jobs and JobSets to their ends, and pods to their nodes.

In virtual time a whole cluster runs in this process, and seconds are those of computation alone; `real` is
`pykueue up` in a separate process. Pods run for a second; the Job controller has no request limit. CPU
seconds tell how much of the wall time other processes of the machine took.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from bench.workloads import real, virtual
from bench.workloads.virtual import Figures

from pykueue.cli.process import collect_less_often

#: The bars: wall seconds at most, pods per second at least, for the default sizes.
BARS = {
    "jobs-virtual": ("wall_seconds", 30),
    "jobs-real": ("wall_seconds", 120),
    "place": ("pods_per_second", 500),
    "place-coscheduling": ("pods_per_second", 500),
    "place-volcano": ("pods_per_second", 500),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--sets", type=int, default=100, help="JobSets of 64 pods")
    parser.add_argument("--pods", type=int, default=10_000, help="pods to place")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--group", type=int, default=64, help="pods that are placed as a group")
    parser.add_argument("--in-memory", action="store_true", help="jobs-real without the durable store")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="profile the server of jobs-real")
    parser.add_argument("--only", metavar="RUNS", help="some of the runs, separated by commas")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    arguments = parser.parse_args()
    collect_less_often()
    nodes, pods, group = arguments.nodes, arguments.pods, arguments.group
    runs: dict[str, Callable[[], Figures]] = {
        "jobs-virtual": lambda: virtual.jobs(arguments.jobs, nodes),
        "jobs-real": lambda: real.jobs(arguments.jobs, nodes, arguments.in_memory, arguments.profile),
        "jobsets-virtual": lambda: virtual.job_sets(arguments.sets, 64, nodes),
        "hour": lambda: virtual.hour(arguments.sets, 50, nodes),
        "place": lambda: virtual.scheduling(pods, nodes, "", group),
        "place-coscheduling": lambda: virtual.scheduling(pods, nodes, "coscheduling", group),
        "place-volcano": lambda: virtual.scheduling(pods, nodes, "volcano", group),
    }
    chosen = arguments.only.split(",") if arguments.only else list(runs)
    if unknown := [name for name in chosen if name not in runs]:
        parser.error(f"no such run: {', '.join(unknown)}; there are {', '.join(runs)}")
    figures: dict[str, Figures] = {}
    for name in chosen:
        figures[name] = runs[name]()
        bar = " ".join(map(str, BARS.get(name, ())))
        print(name, f"  (bar: {bar})" if bar else "", flush=True)
        for key, value in figures[name].items():
            print(f"  {key:24} {value:>12}", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
