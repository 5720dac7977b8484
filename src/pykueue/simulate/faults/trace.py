"""What happened in a run, to be read when it failed."""

from __future__ import annotations

import asyncio
import hashlib
from typing import NamedTuple


class Entry(NamedTuple):
    """One happening: seconds since the start, who (`fault`, `user`, `write`, ...), and what."""

    at: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.who:<9} {self.what}"


class Trace:
    """Happenings in the order in which they came, and the violations among them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.violations: list[str] = []
        self.stopped = asyncio.Event()

    def note(self, who: str, what: str) -> None:
        """Add an entry at the current virtual time."""
        self.entries.append(Entry(asyncio.get_running_loop().time(), who, what))

    def violate(self, what: str) -> None:
        """Something that must never happen has happened; the run is over."""
        self.note("VIOLATION", what)
        self.violations.append(what)
        self.stopped.set()

    def digest(self) -> str:
        """A fingerprint: equal for two runs that did the same at the same times."""
        text = "\n".join(map(str, self.entries))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
