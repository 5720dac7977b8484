"""Pods that need each other: when did enough pods of one owner run at the same time?

A pod that has succeeded counts from then on as if it ran: its owner does not replace it, so the last pods of
a job would wait for it forever. The answer follows from the times at which pods ran, so it comes out the same
when it is asked again after a restart, up to the whole seconds in which the API keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable


class Interval:
    """When a pod ran, in seconds since 1970; `end` is None while it does."""

    __slots__ = ("end", "gone", "start", "succeeded")

    def __init__(self, start: float, end: float | None = None, succeeded: bool = False) -> None:
        self.start = start
        self.end = end
        self.succeeded = succeeded
        #: Whether the pod's object is no longer there.
        self.gone = False


def gathered(start: float, intervals: Iterable[Interval], wanted: int) -> float | None:
    """The first instant from `start` on at which `wanted` pods ran or had succeeded; None: not yet.

    A pod counts at the very instant of its end too: in whole seconds the order within one is lost.
    """
    running = 0
    later: list[tuple[float, int]] = []
    for interval in intervals:
        end = None if interval.succeeded else interval.end
        if end is not None and end < start:
            continue
        if interval.start <= start:
            running += 1
        else:
            later.append((interval.start, -1))
        if end is not None:
            later.append((end, 1))
    if running >= wanted:
        return start
    # Starts come before ends of the same instant.
    for at, change in sorted(later):
        running -= change
        if running >= wanted:
            return at
    return None


class Families:
    """The pods of each owner, by the owner's uid."""

    def __init__(self) -> None:
        self._families: dict[str, dict[str, Interval]] = {}

    def started(self, owner: str, uid: str, start: float) -> bool:
        """A pod runs; whether that is news."""
        family = self._families.setdefault(owner, {})
        if uid in family:
            return False
        family[uid] = Interval(start)
        return True

    def ended(self, owner: str, uid: str, start: float, end: float, succeeded: bool) -> None:
        """A pod ran, and no longer does."""
        interval = self._families.setdefault(owner, {}).setdefault(uid, Interval(start))
        if interval.end is None:
            interval.end = end
            interval.succeeded = succeeded

    def forget(self, owner: str, uid: str, now: float) -> None:
        """A pod's object is gone. What it meant for others stays known while any of them runs."""
        family = self._families.get(owner)
        if family is None or uid not in family:
            return
        family[uid].gone = True
        if family[uid].end is None:
            family[uid].end = now
        if any(interval.end is None for interval in family.values()):
            return
        for gone in [one for one, interval in family.items() if interval.gone]:
            del family[gone]
        if not family:
            del self._families[owner]

    def shift(self, seconds: float) -> None:
        """Move all times after a jump of the wall clock."""
        for family in self._families.values():
            for interval in family.values():
                interval.start += seconds
                if interval.end is not None:
                    interval.end += seconds

    def gathered(self, owner: str, start: float, wanted: int) -> float | None:
        """As `gathered`, among the pods of one owner."""
        return gathered(start, self._families.get(owner, {}).values(), wanted)

    def members(self, owner: str) -> list[str]:
        """The uids of the pods of one owner that ran."""
        return list(self._families.get(owner, ()))
