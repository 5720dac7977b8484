"""`python -m bench.engine`: the engine alone on every load, as a table and as JSON.

Each run is a separate process, so that peak memory is measured per run. Growth is the exponent of the time
from one size to the next: 1 means twice the work in twice the time.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import math
import pstats
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from .harness import run
from .loads import LOADS

#: What counts as the work of a load, for its growth.
WORK: dict[str, Callable[[dict[str, Any]], float]] = {
    # The queue grows, the work of a cycle must not.
    "deep": lambda result: result["cycle_seconds"] / max(1, result["cycles"]),
    # Each job that ends makes the heads of all queues be considered again: the decisions grow with the square
    # of the queues, a decision must not cost more.
    "backlogged": lambda result: _amount(result) / max(1, result["decisions"]),
}


def _amount(result: dict[str, Any]) -> float:
    """Calls of functions where they were counted, else CPU seconds."""
    return float(result.get("calls") or result["cpu"])


#: Collections of young objects are put off as the manager does: a large heap of live objects is walked less
#: often.
GC_THRESHOLD = (50_000, 20, 50)


def measure(load: str, size: Any, profile: bool = False, calls: bool = False) -> dict[str, Any]:
    """One run in this process; with `calls` under the profiler, which counts the calls of functions."""
    gc.set_threshold(*GC_THRESHOLD)
    shape = LOADS[load][0](size)
    if not (profile or calls):
        return asdict(run(shape)) | {"size": size}
    profiler = cProfile.Profile()
    profiler.enable()
    result = run(shape)
    profiler.disable()
    stats: Any = pstats.Stats(profiler, stream=sys.stderr)
    if profile:
        stats.sort_stats("tottime").print_stats(25)
    return asdict(result) | {"size": size, "calls": stats.total_calls}


def measure_apart(load: str, size: Any, calls: bool = False) -> dict[str, Any]:
    """One run in a separate process."""
    command = [sys.executable, "-m", "bench.engine", "--one", load, str(size)]
    command += ["--calls"] if calls else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def growth(results: list[dict[str, Any]], load: str) -> list[float]:
    """Exponents from each size to the next."""
    work = WORK.get(load, _amount)
    return [
        math.log(work(after) / work(before)) / math.log(after["size"] / before["size"])
        for before, after in pairwise(results)
    ]


def table(all_results: dict[str, list[dict[str, Any]]]) -> str:
    """The full sizes, one line each, and the growth."""
    columns = "load", "workloads", "admitted", "preempted", "cycles", "makespan", "wall s", "cpu s"
    head = (*columns, "decisions/s", "cycles/s", "peak MB", "slowest ms", "growth")
    rows = [head]
    for load, results in all_results.items():
        last = results[-1]
        rows.append(
            (
                last["shape"],
                str(last["workloads"]),
                str(last["admissions"]),
                str(last["preemptions"]),
                str(last["cycles"]),
                f"{last['virtual']:.1f} s",
                f"{last['wall']:.2f}",
                f"{last['cpu']:.2f}",
                f"{last['decisions'] / last['cpu']:.0f}",
                f"{last['cycles'] / last['cpu']:.0f}",
                f"{last['peak']:.0f}",
                f"{last['slowest_cycle'] * 1000:.0f}",
                " ".join(f"{exponent:.2f}" for exponent in growth(results, load)) or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for results in all_results.values():
        waits = ", ".join(f"{kind} {wait:.1f} s" for kind, wait in results[-1]["waits"].items())
        if results[-1]["node_event_seconds"]:
            events = ", ".join(f"{result['node_event_seconds'] * 1e6:.0f} µs" for result in results)
            lines.append(f"CPU time of an event of a node, by size of {results[-1]['shape']}: {events}")
        lines.append(f"mean time to admission, {results[-1]['shape']}: {waits}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("loads", nargs="*", help=f"which of {', '.join(LOADS)}; all by default")
    parser.add_argument("--full-only", action="store_true", help="only the full sizes, without growth")
    parser.add_argument("--json", metavar="FILE", help="write the figures there ('-': standard output)")
    parser.add_argument("--profile", metavar="LOAD", help="profile one load at full size")
    parser.add_argument(
        "--calls",
        action="store_true",
        help="growth by the number of calls of functions, which other programs on the machine do not change",
    )
    parser.add_argument("--one", nargs=2, metavar=("LOAD", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        load, size = arguments.one
        print(json.dumps(measure(load, float(size) if "." in size else int(size), calls=arguments.calls)))
        return
    if arguments.profile:
        measure(arguments.profile, LOADS[arguments.profile][1][-1], profile=True)
        return
    results: dict[str, list[dict[str, Any]]] = {}
    for load in arguments.loads or LOADS:
        sizes: tuple[Any, ...] = LOADS[load][1]
        if arguments.full_only:
            sizes = sizes[-1:]
        results[load] = [measure_apart(load, size, arguments.calls) for size in sizes]
    print(table(results))
    if arguments.json == "-":
        print(json.dumps(results, indent=2))
    elif arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2))


main()
