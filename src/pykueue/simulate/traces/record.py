"""One recorded job, and what is wrong with a line of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo


class TraceError(ValueError):
    """A trace cannot be read; the text names file, line and column."""

    def __init__(self, file: Path, line: int, column: str, why: str) -> None:
        """`line` is 0 for the file as a whole."""
        place = f"{file}:{line}" if line else str(file)
        super().__init__(f"{place}: {column}: {why}" if column else f"{place}: {why}")


@dataclass(slots=True)
class Record:
    """A job as a trace recorded it."""

    name: str
    submitted: float
    """Seconds since 1970."""
    run_time: float | None
    """Seconds; None where it never ran or its end was not recorded."""
    pods: int = 1
    cpu: float = 0.0
    """Cores of each pod."""
    memory: float = 0.0
    """Bytes of each pod."""
    gpus: float = 0.0
    """Accelerators of each pod."""
    gpu_model: str = ""
    user: str = ""
    queue: str = ""
    group: str = ""
    cluster: str = ""
    job_class: str = ""
    limit: float | None = None
    """Seconds it was allowed to run."""
    waited: float | None = None
    """Seconds it waited where it was recorded."""
    failed: bool = False
    line: int = 0
    """Of the file, from 1; of Philly's list, the number of the job."""


#: Reads the records of a file; times without a zone are of the one that is given.
Reader = Callable[[Path, ZoneInfo], Iterator[Record]]
