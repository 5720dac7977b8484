"""`python -m bench.baseline`: short runs of all benchmarks beside the stored figures of this machine class.

Every figure is the CPU time of a process and of all that it starts, divided by the CPU time of a fixed
program that runs right before and after it: what slows the whole machine down slows both. The figures are
taken in turn, several times; their medians are compared. A figure is called slower if its median is above the
stored one by more than the noise of both: three times the quartiles' distance from the median, and at least
5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from .figures import FIGURES, ROOT
from .reference import reference

STORED = Path(__file__).parent / "stored"
#: Differences below it are never reported.
LEAST = 0.05


@dataclass(frozen=True)
class Figure:
    """Runs of one figure."""

    median: float
    """CPU time in units of the reference program's."""
    noise: float
    """Larger distance of a quartile from the median, as a part of the median."""
    seconds: float
    """Median CPU time in seconds."""
    peak_mb: float
    """Largest resident set of any process in any run."""


def machine_class() -> str:
    """What figures may be compared across: processor, number of cores, minor version of Python."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    name = f"{model} {os.cpu_count()} cores Python {sys.version_info.major}.{sys.version_info.minor}"
    return "-".join("".join(each if each.isalnum() or each == "." else " " for each in name).lower().split())


def _reference() -> float:
    before = time.process_time()
    reference()
    return time.process_time() - before


def _run(name: str) -> tuple[float, float, float]:
    """CPU seconds, the same in units of the reference program, and peak memory in MB of one run."""
    around = _reference()
    process = subprocess.Popen(
        [sys.executable, *FIGURES[name]],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: a bar of the benchmark, which says nothing about a short run
        raise SystemExit(f"{name}: exit code {process.returncode}\n{errors}")
    around = (around + _reference()) / 2
    seconds = usage.ru_utime + usage.ru_stime
    return seconds, seconds / around, usage.ru_maxrss / 1024


def measure(names: list[str], runs: int) -> dict[str, Figure]:
    """All figures, taken in turn `runs` times."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for number in range(runs):
        for name in names:
            print(f"\rrun {number + 1} of {runs}: {name:24}", end="", file=sys.stderr, flush=True)
            found[name].append(_run(name))
    print(f"\r{'':50}\r", end="", file=sys.stderr)
    figures = {}
    for name, taken in found.items():
        relative = sorted(each[1] for each in taken)
        median = statistics.median(relative)
        low, _, high = statistics.quantiles(relative, n=4) if len(relative) > 1 else (median,) * 3
        noise = max(median - low, high - median) / median
        seconds = statistics.median(each[0] for each in taken)
        figures[name] = Figure(median, noise, seconds, max(each[2] for each in taken))
    return figures


def verdict(figure: Figure, stored: Figure) -> str:
    """Whether a figure differs from the stored one by more than noise."""
    bound = max(LEAST, 3 * max(figure.noise, stored.noise))
    ratio = figure.median / stored.median
    return "SLOWER" if ratio > 1 + bound else "faster" if ratio < 1 - bound else "same"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.baseline", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"which of {', '.join(FIGURES)}")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--store", action="store_true", help="store the figures for this class of machine")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.figures if name not in FIGURES]
    if unknown:
        parser.error(f"no such figure: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    file = STORED / f"{machine_class()}.json"
    stored = json.loads(file.read_text())["figures"] if file.exists() else {}
    figures = measure(arguments.figures or list(FIGURES), arguments.runs)
    slower = []
    print(f"{'figure':20}{'CPU s':>9}{'peak MB':>9}{'noise':>8}{'stored':>9}{'now':>9}{'ratio':>8}")
    for name, figure in figures.items():
        line = f"{name:20}{figure.seconds:9.2f}{figure.peak_mb:9.0f}{figure.noise:8.1%}"
        if name in stored:
            before = Figure(**stored[name])
            found = verdict(figure, before)
            line += f"{before.median:9.3f}{figure.median:9.3f}{figure.median / before.median:8.2f}  {found}"
            if found == "SLOWER":
                slower.append(name)
        else:
            line += f"{'-':>9}{figure.median:9.3f}"
        print(line)
    if arguments.store:
        STORED.mkdir(exist_ok=True)
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
        ).stdout.strip()
        kept = stored | {name: asdict(figure) for name, figure in figures.items()}
        text = json.dumps({"commit": commit, "runs": arguments.runs, "figures": kept}, indent=2)
        file.write_text(text + "\n")
        print(f"stored in {file.relative_to(ROOT)}")
        return 0
    if not stored:
        print(
            f"nothing is stored for this class of machine ({file.stem}): `python -m bench.baseline --store`"
        )
    if slower:
        print(f"slower by more than noise: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
