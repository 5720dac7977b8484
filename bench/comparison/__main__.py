"""`python -m bench.comparison SHAPE`: pykueue's manager and Kueue's own in turn.

Each run has a new embedded API server. PYKUEUE_KUEUE names the directory with Kueue's manager
(docs/develop/testing.md). The load is that of `bench.end_to_end`, or with `--runner` Kueue's own load runner,
a program built from its `test/performance/scheduler/runner`. With `--minimal` Kueue's manager is that of its
performance tests, `minimalkueue` in that directory, with its own limit of requests. Prints each run, the
medians and the ratios.
CPU times say more than wall times wherever other programs share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench.apiserver.server import ServerProcess
from bench.end_to_end.load import SHAPES
from bench.end_to_end.run import (
    Load,
    Manager,
    kueue_manager,
    minimal_kueue_manager,
    own_load,
    own_manager,
    play,
)

from .answers import answers
from .runner import runner_load

#: What is compared: key, and how it is called in the table.
FIGURES = {
    "wall": "wall s",
    "manager_cpu": "manager CPU s",
    "manager_peak": "manager MB",
    "server_cpu": "server CPU s",
    "server_peak": "server MB",
    "cpu": "load CPU s",
    "longest": "longest request s",
    "failed": "answers 5xx",
    "connections": "connections",
}


def run(manager: Manager, load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """One run on a new server."""
    with ServerProcess(options.in_memory, plain=options.plain_http) as server:

        def looked_at(kubeconfig: Path, folder: Path, shape: str, scale: float) -> dict[str, Any]:
            figures = load(kubeconfig, folder, shape, scale)
            return {**figures, **answers(server)}

        return play(server.kubeconfig, [server.pid], manager, options.shape, options.scale, looked_at)


def row(name: str, figures: dict[str, Any]) -> str:
    """The compared figures of a run, or of several."""
    return f"{name:16}" + "".join(
        f"{figures[key]:>{max(10, len(title) + 2)}.{0 if key in ('failed', 'connections') else 1}f}"
        for key, title in FIGURES.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.comparison", description=__doc__)
    parser.add_argument("shape", choices=list(SHAPES), nargs="?", default="baseline")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the workloads of the shape")
    parser.add_argument("--runs", type=int, default=3, help="of each manager")
    parser.add_argument("--qps", type=float, default=300, help="requests per second of Kueue's client")
    parser.add_argument("--only", choices=("pykueue", "kueue"), help="one of the managers")
    parser.add_argument("--minimal", action="store_true", help="Kueue's program minimalkueue as its manager")
    parser.add_argument("--runner", type=Path, help="the program of Kueue's load runner")
    parser.add_argument("--load-qps", type=float, help="writes per second of the load; the runner has 1000")
    parser.add_argument(
        "--slower",
        type=int,
        choices=range(1, 11),
        metavar="TIMES",
        default=1,
        help="1 to 10: multiply the load's times and divide its limits of requests, so that each request has "
        "so many times as much of the cores",
    )
    parser.add_argument("--generator", type=Path, help="a file of its generator, which it plays instead")
    parser.add_argument("--in-memory", action="store_true", help="a server without its durable store")
    parser.add_argument("--plain-http", action="store_true", help="a server without TLS")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    if options.only != "pykueue" and not os.environ.get("PYKUEUE_KUEUE"):
        print("skipped: PYKUEUE_KUEUE is not set (docs/develop/testing.md)", file=sys.stderr)
        return 0
    if options.runner is not None and options.shape == "topology":
        parser.error("Kueue's runner has no nodes: it plays baseline and large")
    if options.generator is not None and options.slower > 1:
        parser.error("--slower: the times in a file of the generator stay as they are")
    own = partial(own_load, slower=options.slower)
    if options.load_qps is not None:
        own = partial(own, qps=options.load_qps / options.slower)
    managers: dict[str, tuple[Manager, Load]] = {
        "pykueue": (own_manager, own),
        "kueue": (
            partial(kueue_manager, qps=options.qps),
            partial(own, releases=True),
        ),
    }
    if options.minimal:
        managers["kueue"] = (minimal_kueue_manager, managers["kueue"][1])
    if options.only:
        managers = {options.only: managers[options.only]}
    if options.runner is not None:
        runner = partial(runner_load, program=options.runner, file=options.generator, slower=options.slower)
        managers = {name: (manager, runner) for name, (manager, _) in managers.items()}
    print(" " * 16 + "".join(f"{title:>{max(10, len(title) + 2)}}" for title in FIGURES.values()), flush=True)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in managers}
    for number in range(options.runs):
        for name, (manager, load) in managers.items():
            figures = run(manager, load, options)
            found[name].append(figures)
            print(row(f"{name} {number + 1}", figures), flush=True)
    medians = {
        name: {key: statistics.median(each[key] for each in runs) for key in FIGURES}
        for name, runs in found.items()
    }
    for name, figures in medians.items():
        print(row(f"{name}, median", figures))
        for kind in found[name][0]["waits"]:
            values = [each["waits"][kind]["last admission"] for each in found[name]]
            print(f"  {kind}: {statistics.median(values):.1f} s from creation to the last admission")
    if len(medians) == 2:
        ratios = {
            key: medians["pykueue"][key] / medians["kueue"][key]
            for key in ("wall", "manager_cpu", "manager_peak", "server_cpu", "server_peak")
        }
        print("ratios: " + ", ".join(f"{FIGURES[key]} {value:.2f}" for key, value in ratios.items()))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
