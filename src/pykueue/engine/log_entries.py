"""What a decision log consists of: data, one entry for each thing that happened."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pykueue.engine.decisions import Decision

#: Entries of an object that are kept whatever comes later.
FIRST_KEPT: Final = 8


class Change(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A difference between two versions of an object."""

    object: str
    """Kind and name, as in `Workload team/train` and `ClusterQueue a`. A log keeps none of a Workload."""
    field: str
    """`created`, `deleted`, a path (`spec.priority`), `condition TYPE` or `admissionCheck NAME`."""
    before: str = ""
    after: str = ""
    reason: str = ""
    message: str = ""


class Entry(Struct, array_like=True, gc=False):
    """One thing that happened; the same decision again is counted, not repeated."""

    number: int
    """Position among all entries of the engine."""
    at: float
    """Seconds since 1970."""
    cycle: int
    """Scheduling cycles that were complete, the one that decided this included."""
    what: Change | Decision
    count: int = 1
    last_at: float = 0.0
    """When it was decided for the last time, if `count` is more than 1."""


class Story(Struct):
    """Everything known to have happened to one workload."""

    workload: str
    """`namespace/name`."""
    entries: list[Entry]
    dropped: int
    """Entries after the first `FIRST_KEPT` that are not kept any more."""
