"""CPU and memory limits of containers by control groups, version 2.

Groups are made below the nearest group above this process that hands the cpu and memory controllers down and
may be written to. A user to whom the session manager delegates a group has one; so has root on most systems.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: Microseconds over which a container's CPU time is counted.
PERIOD = 100_000
_NEEDED = {"cpu", "memory"}
_PREFIX = "pykueue-"


class NoLimitsError(Exception):
    """Control groups cannot be used here; the text says why."""


class Limits:
    """The control groups of one agent's containers."""

    def __init__(self, base: Path) -> None:
        self._base = base

    @classmethod
    def open(cls, mount: Path, own: str) -> Limits:
        """`mount` is where the hierarchy is, `own` the path of this process's group in it. NoLimitsError."""
        if not (mount / "cgroup.controllers").exists():
            raise NoLimitsError(f"control groups of version 2 are not mounted at {mount}")
        here = mount / own.strip("/")
        for group in (here, *here.parents):
            with contextlib.suppress(OSError):
                handed = (group / "cgroup.subtree_control").read_text().split()
                if set(handed) >= _NEEDED and os.access(group, os.W_OK):
                    _sweep(group)
                    base = group / f"{_PREFIX}{os.getpid()}"
                    base.mkdir()
                    (base / "cgroup.subtree_control").write_text("+cpu +memory")
                    return cls(base)
            if group == mount:
                break
        raise NoLimitsError(
            "no writable control group above this process delegates the cpu and memory controllers"
        )

    def add(self, name: str, memory: int | None, cpu: float | None) -> Path:
        """The group of one container: at most so many bytes and CPUs; None for as much as there is."""
        group = self._base / name
        group.mkdir()
        if memory is not None:
            (group / "memory.max").write_text(str(memory))
            for file, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                with contextlib.suppress(OSError):
                    (group / file).write_text(value)
        if cpu is not None:
            (group / "cpu.max").write_text(f"{max(1000, round(cpu * PERIOD))} {PERIOD}")
        return group

    @staticmethod
    def out_of_memory(group: Path) -> bool:
        """Whether a process of the group was killed for want of memory."""
        with contextlib.suppress(OSError):
            for line in (group / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return count.strip() != "0"
        return False

    @staticmethod
    def remove(group: Path) -> None:
        """The group's container is over."""
        with contextlib.suppress(OSError):
            group.rmdir()

    def close(self) -> None:
        """Nothing runs any more."""
        _remove_tree(self._base)


def _sweep(group: Path) -> None:
    """Remove what agents that were killed left behind."""
    for left in group.glob(f"{_PREFIX}[0-9]*"):
        if not Path(f"/proc/{left.name.removeprefix(_PREFIX)}").exists():
            _remove_tree(left)


def _remove_tree(group: Path) -> None:
    with contextlib.suppress(OSError):
        for child in group.iterdir():
            if child.is_dir():
                Limits.remove(child)
        group.rmdir()


def own_group(text: str) -> str:
    """The path of a process's group, from its /proc/PID/cgroup."""
    for line in text.splitlines():
        hierarchy, _, path = line.split(":", 2)
        if hierarchy == "0":
            return path
    return "/"
