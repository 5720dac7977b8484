"""`python -m bench.end_to_end`: shapes played in real time through an API server.

Three processes: an API server (the embedded one with its durable store, or with `--kubeconfig` any other),
the manager without a client limit, and the load. The makespan in virtual time, by the engine alone, is the
least a run can take; the ratio says how near it came. Prints a table, and writes JSON with `--json`.

With `--recording` the manager records, and the recorded arrivals are simulated: the last lines say how many
admissions are equal and in the same order, and what the others began with.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bench.apiserver.server import ServerProcess
from bench.end_to_end.load import SHAPES
from bench.end_to_end.run import own_manager, play
from bench.engine import harness
from bench.recorded.fidelity import described, fidelity

#: The bars: seconds of wall, CPU seconds of the manager, its MB. Topology may take 1.3 times the baseline.
BARS = {"baseline": (90, 60, 200), "large": (80, 100, 600), "topology": (117, 78, 260)}


def table(shape: str, figures: dict[str, Any], virtual: harness.Result) -> str:
    """The figures of one run for people."""
    count = figures["workloads"]
    wall, cpu, memory = BARS[shape]
    lines = [
        f"{shape}: {count:,} workloads, {figures['admissions']:,} admissions",
        f"  wall {figures['wall']:.1f} s (bar {wall}), {figures['wall'] / virtual.virtual:.2f} of the "
        f"virtual makespan of {virtual.virtual:.1f} s; queues used {figures['utilisation']:.0%}; "
        f"creations at most {figures['behind']:.1f} s late",
        f"  manager {figures['manager_cpu']:.1f} s CPU (bar {cpu}), {figures['manager_peak']:.0f} MB "
        f"(bar {memory}); server {figures['server_cpu']:.1f} s CPU, {figures['server_peak']:.0f} MB; "
        f"load {figures['cpu']:.1f} s CPU, {figures['peak']:.0f} MB",
        f"  writes per workload {figures['writes'] / count:.2f}, of them the load's "
        f"{figures['own_writes'] / count:.2f} and events {figures['events'] / count:.2f}",
        f"  {'seconds from creation to':<26}{'first admission':>17}{'last admission':>17}{'finish':>9}"
        f"{'last, virtual':>15}",
    ]
    for kind, waits in figures["waits"].items():
        lines.append(
            f"  {kind:<26}{waits['first admission']:>17.1f}{waits['last admission']:>17.1f}"
            f"{waits['finish']:>9.1f}{virtual.waits.get(kind, 0.0):>15.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.end_to_end", description=__doc__)
    parser.add_argument(
        "shapes", nargs="*", choices=[*SHAPES, []], help="baseline, large, topology; all by default"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="part of the workloads of the shape")
    parser.add_argument("--kubeconfig", type=Path, help="another API server, empty but for the CRDs")
    parser.add_argument("--server-pid", type=int, action="append", help="its processes, for their CPU")
    parser.add_argument(
        "--in-memory", action="store_true", help="the embedded server without its durable store"
    )
    parser.add_argument("--profile", type=Path, help="run the manager under cProfile and write this file")
    parser.add_argument("--recording", type=Path, help="directory of recordings, one for each shape and run")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    for shape, number in product(options.shapes or list(SHAPES), range(1, options.runs + 1)):
        virtual = harness.run(SHAPES[shape](options.scale))
        recording = None if options.recording is None else options.recording / f"{shape}-{number}"
        manager = partial(own_manager, profile=options.profile, recording=recording)
        if options.kubeconfig is not None:
            servers = options.server_pid or []
            figures = play(options.kubeconfig, servers, manager, shape, options.scale)
        else:
            with ServerProcess(options.in_memory) as server:
                figures = play(server.kubeconfig, [server.pid], manager, shape, options.scale)
        results.setdefault(shape, []).append(figures)
        print(table(shape, figures, virtual), flush=True)
        if recording is not None:
            figures["simulated"] = simulated = fidelity(recording)
            print(described(simulated), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
