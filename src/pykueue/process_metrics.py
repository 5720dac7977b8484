"""What a process uses, as metrics under the names that dashboards know from every Python process."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pykueue.prometheus import Family, Kind

_PROCESS = Path("/proc/self")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()


class ProcessMetrics:
    """Time, memory and files of this process, where the system tells them, and its Python."""

    def __init__(self) -> None:
        #: Once: the system computes it from a clock that may be set.
        self._booted = _boot_time()

    def collect(self) -> Iterator[Family]:
        """The metrics as they are now."""
        with suppress(OSError):  # not Linux
            yield from _usage(self._booted)
        with suppress(OSError):
            yield from _files()
        yield _python()


class GarbageMetrics:
    """What the garbage collector of this process did, by generation."""

    def collect(self) -> Iterator[Family]:
        """The metrics as they are now."""
        for name, text, field in (
            ("objects_collected", "Objects collected during gc", "collected"),
            ("objects_uncollectable", "Uncollectable objects found during GC", "uncollectable"),
            ("collections", "Number of times this generation was collected", "collections"),
        ):
            family = Family("counter", f"python_gc_{name}", text, ("generation",))
            for generation, stats in enumerate(gc.get_stats()):
                family.add((str(generation),), stats[field])
            yield family


def _boot_time() -> float | None:
    """When the system started, in seconds since 1970; None where it does not tell."""
    with suppress(OSError):
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    return None


def _usage(booted: float | None) -> Iterator[Family]:
    # From the third field on: the second is a name, which may have spaces in it.
    fields = (_PROCESS / "stat").read_text().rpartition(")")[2].split()
    user, system, started, size, resident = (float(fields[at]) for at in (11, 12, 19, 20, 21))
    yield _one("gauge", "virtual_memory_bytes", "Virtual memory size in bytes.", size)
    yield _one("gauge", "resident_memory_bytes", "Resident memory size in bytes.", resident * _PAGE)
    if booted is not None:
        text = "Start time of the process since unix epoch in seconds."
        yield _one("gauge", "start_time_seconds", text, booted + started / _TICK)
    text = "Total user and system CPU time spent in seconds."
    yield _one("counter", "cpu_seconds", text, (user + system) / _TICK)


def _files() -> Iterator[Family]:
    files = len(list((_PROCESS / "fd").iterdir()))
    yield _one("gauge", "open_fds", "Number of open file descriptors.", files)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "Maximum number of open file descriptors."
    yield _one("gauge", "max_fds", text, float("inf") if most == resource.RLIM_INFINITY else most)


def _one(kind: Kind, name: str, text: str, value: float) -> Family:
    family = Family(kind, f"process_{name}", text)
    family.add((), value)
    return family


def _python() -> Family:
    major, minor, patch = (str(part) for part in sys.version_info[:3])
    labels = {
        "implementation": sys.implementation.name.replace("cpython", "CPython"),
        "major": major,
        "minor": minor,
        "patchlevel": patch,
        "version": sys.version.split()[0],
    }
    family = Family("gauge", "python_info", "Python platform information", tuple(labels))
    family.add(labels.values(), 1)
    return family
