"""The domains of one level by how much they hold, kept in order as their numbers change.

Choosing a domain looks at a few of them, however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from pykueue.engine.topology.tree import Domain

#: (slices, pods, values of the levels, domain).
_Entry = tuple[int, int, tuple[str, ...], Domain]


class RoomIndex:
    """Domains by the slices they hold; of equals those with fewer pods first, then by values."""

    __slots__ = ("_entries", "_order", "total")

    def __init__(self, domains: Iterable[tuple[Domain, int, int]]) -> None:
        """`domains` are (domain, slices, pods)."""
        #: What each domain is filed under: its numbers have changed already when its entry is replaced.
        self._entries: dict[Domain, _Entry] = {
            domain: (slices, pods, domain.values, domain) for domain, slices, pods in domains
        }
        self._order = sorted(self._entries.values())
        #: Slices of all domains together.
        self.total = sum([entry[0] for entry in self._order])

    def __len__(self) -> int:
        return len(self._order)

    def put(self, domain: Domain, slices: int, pods: int) -> None:
        """A domain holds this much now."""
        known = self._entries.get(domain)
        if known is not None:
            if known[0] == slices and known[1] == pods:
                return
            self.drop(domain)
        entry = self._entries[domain] = slices, pods, domain.values, domain
        insort(self._order, entry)
        self.total += slices

    def drop(self, domain: Domain) -> None:
        """A domain is gone, if it was there."""
        entry = self._entries.pop(domain, None)
        if entry is None:
            return
        del self._order[bisect_left(self._order, entry)]
        self.total -= entry[0]

    def _first(self, slices: int) -> int:
        """The position of the first domain that holds at least so many slices."""
        return bisect_left(self._order, (slices,))

    @property
    def largest(self) -> int:
        """The most slices that one domain holds; 0 if there is none."""
        return self._order[-1][0] if self._order else 0

    def roomiest(self) -> Domain | None:
        """The first of the domains that hold the most; None if there is none."""
        return self.tightest(self.largest)

    def tightest(self, needed: int) -> Domain | None:
        """The first of the domains with the fewest slices, of those that hold `needed`; None if none does."""
        at = self._first(needed)
        return self._order[at][3] if at < len(self._order) else None

    def in_order(self, largest_first: bool) -> Iterator[tuple[Domain, int]]:
        """Domains that hold anything, with their slices."""
        order, empty, end = self._order, self._first(1), len(self._order)
        if not largest_first:
            for at in range(empty, end):
                yield order[at][3], order[at][0]
            return
        while end > empty:
            slices = order[end - 1][0]
            start = self._first(slices)
            for at in range(start, end):
                yield order[at][3], slices
            end = start
