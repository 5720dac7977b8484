"""What is measured: short runs of the benchmarks, and commands that must start fast."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

#: Figure -> arguments of the Python interpreter. Each takes a few seconds; its CPU time and peak memory are
#: those of the process and of all that it starts.
FIGURES: Final[dict[str, tuple[str, ...]]] = {
    "help": ("-m", "pykueue", "--help"),
    "schedule": ("-m", "pykueue", "schedule", "-f", "examples/team-queue.yaml"),
    "engine-baseline": ("-m", "bench.engine", "--one", "baseline", "0.25"),
    "engine-large": ("-m", "bench.engine", "--one", "large", "0.2"),
    "engine-contended": ("-m", "bench.engine", "--one", "contended", "100"),
    "engine-backlogged": ("-m", "bench.engine", "--one", "backlogged", "30"),
    "engine-deep": ("-m", "bench.engine", "--one", "deep", "10000"),
    "engine-topology": ("-m", "bench.engine", "--one", "topology", "0.1"),
    "engine-packed": ("-m", "bench.engine", "--one", "packed", "0.25"),
    "simulate": ("-m", "bench.simulate", "--shape", "quota", "--jobs", "3000"),
    "questions": ("-m", "bench.questions", "--pending", "500", "--queues", "10", "--sample", "20"),
    "kinds": ("-m", "bench.kinds", "--scale", "0.02"),
    "manager": ("-m", "bench.manager", "--workloads", "500"),
    "elastic": ("-m", "bench.elastic", "--jobs", "50", "--seconds", "60"),
    "multikueue": ("-m", "bench.multikueue", "--jobs", "20", "--workers", "3"),
    "startup": ("-m", "bench.startup", "--workloads", "5000"),
    "end-to-end": ("-m", "bench.end_to_end", "large", "--scale", "0.02"),
    "jobs": ("-m", "bench.workloads", "--only", "jobs-virtual", "--jobs", "200", "--nodes", "50"),
}
