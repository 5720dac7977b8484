"""The domains of one level by how much they hold, kept in order as their numbers change.

Choosing a domain looks at a few of them, however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from pykueue.engine.topology.tree import Domain

#: (pods, values of the levels, domain): the order of domains that hold the same number of slices.
_Entry = tuple[int, tuple[str, ...], Domain]


class RoomIndex:
    """Domains by the slices they hold; of equals those with fewer pods first, then by values."""

    __slots__ = ("_entries", "_of_size", "_sizes", "total")

    def __init__(self, domains: Iterable[tuple[Domain, int, int]]) -> None:
        """`domains` are (domain, slices, pods)."""
        #: Slices, and the place among those that hold as many.
        self._entries: dict[Domain, tuple[int, _Entry]] = {}
        self._of_size: dict[int, list[_Entry]] = {}
        #: Slices of all domains together.
        self.total = 0
        for domain, slices, pods in domains:
            entry = (pods, domain.values, domain)
            self._entries[domain] = slices, entry
            self._of_size.setdefault(slices, []).append(entry)
            self.total += slices
        for entries in self._of_size.values():
            entries.sort()
        #: The numbers of slices that occur, in order.
        self._sizes = sorted(self._of_size)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, domain: Domain, slices: int, pods: int) -> None:
        """A domain holds this much now."""
        known = self._entries.get(domain)
        if known is not None:
            if known[0] == slices and known[1][0] == pods:
                return
            self.drop(domain)
        entry = (pods, domain.values, domain)
        self._entries[domain] = slices, entry
        self.total += slices
        entries = self._of_size.get(slices)
        if entries is None:
            self._of_size[slices] = [entry]
            insort(self._sizes, slices)
        else:
            insort(entries, entry)

    def drop(self, domain: Domain) -> None:
        """A domain is gone, if it was there."""
        known = self._entries.pop(domain, None)
        if known is None:
            return
        slices, entry = known
        self.total -= slices
        entries = self._of_size[slices]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._of_size[slices]
            del self._sizes[bisect_left(self._sizes, slices)]

    @property
    def largest(self) -> int:
        """The most slices that one domain holds; 0 if there is none."""
        return self._sizes[-1] if self._sizes else 0

    def roomiest(self) -> Domain | None:
        """The first of the domains that hold the most; None if there is none."""
        return self._of_size[self._sizes[-1]][0][2] if self._sizes else None

    def tightest(self, needed: int) -> Domain | None:
        """The first of the domains with the fewest slices, of those that hold `needed`; None if none does."""
        at = bisect_left(self._sizes, needed)
        return self._of_size[self._sizes[at]][0][2] if at < len(self._sizes) else None

    def in_order(self, largest_first: bool) -> Iterator[tuple[Domain, int]]:
        """Domains that hold anything, with their slices."""
        for slices in reversed(self._sizes) if largest_first else self._sizes:
            if slices:
                for _, _, domain in self._of_size[slices]:
                    yield domain, slices
