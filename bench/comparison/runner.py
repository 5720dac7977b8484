"""Kueue's own load runner as the load."""

from __future__ import annotations

import csv
import datetime
import os
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from bench import usage
from bench.engine import shapes

#: Requests per second of the runner, and how many may come at once: those of Kueue's Makefile.
QPS, BURST = 1000, 2000
#: Seconds after which a run is given up.
PATIENCE = 3600


def runner_load(
    kubeconfig: Path,
    folder: Path,
    shape: str,
    scale: float,
    program: Path,
    file: Path | None = None,
    slower: int = 1,
) -> dict[str, Any]:
    """Have the runner play a shape, so many times as slowly, or a file of its generator; what it recorded."""
    configuration = folder / "generator.yaml"
    configuration.write_text(file.read_text() if file else yaml.safe_dump(generator(shape, scale, slower)))
    summary, states = folder / "summary.yaml", folder / "wlStates.csv"
    command = [str(program), "--o", str(folder), "--generatorConfig", str(configuration)]
    command += ["--qps", str(QPS // slower), "--burst", str(BURST // slower), "--timeout", f"{PATIENCE}s"]
    with (folder / "runner.log").open("wb") as log:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            # What follows the summary is the removal of all objects. The last file is complete once its size
            # does not change any more.
            size = 0
            while not size or states.stat().st_size != size:
                size = states.stat().st_size if states.exists() else 0
                if not size and process.poll() is not None:
                    tail = (folder / "runner.log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"the runner ended with {process.returncode}: {tail}")
                time.sleep(0.5)
            cpu = usage.cpu(process.pid)
        finally:
            process.kill()
            process.wait()
    groups = yaml.safe_load(summary.read_text())["clusterQueueClasses"].values()
    begun = min(_time(each["firstEventTime"]) for each in groups)
    ended = max(_time(each["lastEventTime"]) for each in groups)
    waits: dict[str, list[int]] = defaultdict(list)
    evictions = 0
    with states.open(newline="") as file:
        for each in csv.DictReader(file):
            waits[each["class name"]].append(int(each["ms to admitted"]))
            evictions += int(each["num evictions"])
    return {
        "wall": ended - begun,
        "cpu": cpu,
        "evictions": evictions,
        "waits": {kind: {"last admission": fmean(some) / 1000} for kind, some in sorted(waits.items())},
    }


def generator(shape: str, scale: float, slower: int = 1) -> dict[str, Any]:
    """The runner's configuration of a shape, scaled as `bench.engine.shapes` scales and slows it."""
    if shape == "baseline":
        cohorts, queues, classes = 5, 6, shapes.scaled(scale)
    else:
        cohorts, queues, classes = max(1, round(10 * scale)), 100, list(shapes.LARGE)
    sets = [
        {
            "count": count,
            "creationIntervalMs": every * slower,
            "workloads": [
                {"className": kind, "runtimeMs": runs * slower, "priority": priority, "request": str(cpu)}
            ],
        }
        for kind, count, every, cpu, runs, priority in classes
    ]
    queue = {
        "className": "cq",
        "count": queues,
        "nominalQuota": "20",
        "borrowingLimit": "100",
        "reclaimWithinCohort": "Any",
        "withinClusterQueue": "LowerPriority",
        "workloadsSets": sets,
    }
    return {"cohorts": [{"className": "cohort", "count": cohorts, "queuesSets": [queue]}]}


def _time(value: str | datetime.datetime) -> float:
    """Seconds since 1970 of a time as YAML reads it."""
    time_read = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(value)
    return time_read.timestamp()
