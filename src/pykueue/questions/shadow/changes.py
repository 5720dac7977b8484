"""Changes of a cluster's objects, in the order of their resourceVersions.

Each kind has a separate watch, and watches are not synchronized: a change is released once it is older
than a settling time, in which changes with lower versions that are on their way arrive. Versions of all
kinds come from one counter where one etcd stores them; events, which some clusters store elsewhere, are not
followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from pykueue.api.model import Model
from pykueue.api.objects import Object
from pykueue.engine import Event, Removed, Upsert


class Change(NamedTuple):
    """An object was created, changed or deleted."""

    version: int
    """resourceVersion of the change; 0 where the server's versions are not numbers."""
    kind: str
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str
    before: Model | None
    after: Model | None
    received: float
    """When the watch delivered it, in seconds since 1970."""

    def event(self) -> Event:
        """It as the engine takes it."""
        return self._event(self.after)

    def reverse(self) -> Event:
        """What undoes it."""
        return self._event(self.before)

    def _event(self, obj: Model | None) -> Event:
        return Removed(self.kind, self.namespace, self.name) if obj is None else Upsert(obj)

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        if self.before is None:
            what = "created"
        else:
            what = "deleted" if self.after is None else "changed"
        return f"{self.kind} {name} {what} at resourceVersion {self.version}"


def version_of(obj: Object) -> int:
    """The resourceVersion as a number; 0 where it is none."""
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


class ChangeQueue:
    """Changes that are not settled yet."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Change]] = []
        self._count = 0
        self._released = 0
        self.late = 0
        """Changes that arrived after one with a higher version was released."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, change: Change) -> None:
        """A watch delivered it."""
        self._count += 1
        if 0 < change.version < self._released:
            self.late += 1
        heappush(self._heap, (change.version, self._count, change))

    def settled(self, before: float) -> Iterator[Change]:
        """Changes in order, up to the first that was received after a time (seconds since 1970)."""
        while self._heap and self._heap[0][2].received <= before:
            change = heappop(self._heap)[2]
            self._released = max(self._released, change.version)
            yield change

    def following(self) -> list[Change]:
        """Those that are not released yet, in order."""
        return [change for _, _, change in sorted(self._heap, key=lambda each: each[:2])]
