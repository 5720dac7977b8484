"""Balanced placement: a preferred request is spread evenly over few domains of one parent.

Domains with little room are left out as far as the rest holds everything, so that each gets about the same.
Where that is not possible, the request is placed as any other. Source of the rules:
docs/reference/topology-aware-scheduling.md 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Final, NamedTuple

from pykueue.engine.topology.counts import Counts
from pykueue.engine.topology.placement import Placed, Placer, Share, Shortage
from pykueue.engine.topology.requests import Layout
from pykueue.engine.topology.tree import Domain

#: The search for the subset with the least room left over is not tried beyond so many steps.
_STEPS_MAX: Final = 2_000_000


class _Greedy(NamedTuple):
    """What taking the largest domains first comes to."""

    domains: int
    last_led: Domain | None
    """The domain of the leader."""
    last: Domain | None
    """The last domain without it."""


class _Candidate(NamedTuple):
    """Domains of one parent that could be filled evenly."""

    threshold: int
    """Slices that each domain gets at least."""
    domains: int
    siblings: list[Domain]
    counts: Counts
    """Without the domains that hold less than the threshold."""


def place_unit(counts: Counts, layout: Layout, pods: int, by_affinity: bool) -> Placed | Shortage:
    """Place so many workers, rounded down to whole slices, and the leader: evenly if the layout says so."""
    if layout.balanced:
        even = _Balanced(counts, layout, pods // layout.slice_size, by_affinity).place()
        if even is not None:
            return even
    return Placer(counts, layout, by_affinity).place(pods)


class _Balanced:
    def __init__(self, counts: Counts, layout: Layout, slices: int, by_affinity: bool) -> None:
        self._counts = counts
        self._layout = layout
        self._needed = slices
        self._by_affinity = by_affinity
        self._leader = 1 if counts.spec.leader else 0
        #: The evaluated domains are one level below those of the request.
        self._below = layout.level < layout.slice_level

    def place(self) -> Placed | None:
        counts, level = self._counts, self._layout.level
        # Of domains outside the region that counts all numbers are 0.
        parents = [each.children for each in counts.domains(level - 1)] if level else [counts.domains(0)]
        best: _Candidate | None = None
        for siblings in parents:
            found = self._candidate(siblings)
            if found is not None and (
                best is None or (-found.threshold, found.domains) < (-best.threshold, best.domains)
            ):
                best = found
        return self._fill(best) if best is not None else None

    def _placer(self, counts: Counts) -> Placer:
        return Placer(counts, self._layout, self._by_affinity)

    def _evaluated(self, siblings: Sequence[Domain]) -> list[Domain]:
        if not self._below:
            return list(siblings)
        return [child for each in siblings for child in each.children]

    # --- the threshold ----------------------------------------------------------------------------------

    def _candidate(self, siblings: Sequence[Domain]) -> _Candidate | None:
        evaluated = self._evaluated(siblings)
        greedy = self._greedy(self._counts, evaluated)
        if greedy is None:
            return None
        counts = self._counts
        threshold = self._needed // greedy.domains
        if greedy.last_led is not None:
            threshold = min(threshold, counts.slices_led[greedy.last_led.slot])
        if greedy.last is not None:
            threshold = min(threshold, counts.slices[greedy.last.slot])
        tried = [threshold]
        if greedy.last_led is not None and greedy.last is not None:
            tried.append(min(threshold, counts.slices_led[greedy.last.slot]))
        for least in tried:
            if least < 1:
                return None
            pruned = self._pruned(siblings, evaluated, least)
            left = self._greedy(pruned, siblings)
            if left is not None:
                return _Candidate(least, left.domains, list(siblings), pruned)
        return None

    def _greedy(self, counts: Counts, domains: Sequence[Domain]) -> _Greedy | None:
        """Takes domains from the largest on; None if they do not hold everything."""
        placer = self._placer(counts)
        missing, leader, used = self._needed, self._leader, 0
        last_led: Domain | None = None
        last: Domain | None = None
        rest = list(domains)
        if leader:
            first = placer.in_choice_order(domains, largest_first=True)[:1]
            if not first or not counts.leads[first[0].slot]:
                return None
            last_led = first[0]
            missing, used = missing - counts.slices_led[last_led.slot], 1
            rest.remove(last_led)
        for each in placer.in_descent_order(rest, counts.slices, largest_first=True):
            if missing <= 0:
                break
            last, missing, used = each, missing - counts.slices[each.slot], used + 1
        return _Greedy(used, last_led, last) if missing <= 0 and used else None

    def _pruned(self, siblings: Sequence[Domain], evaluated: Sequence[Domain], least: int) -> Counts:
        """The numbers without domains that hold fewer than `least` slices."""
        counts = self._counts.copy()
        for each in evaluated:
            _prune(counts, each.slot, least)
        if self._below:
            for each in siblings:
                counts.count_inner(each)
                _prune(counts, each.slot, least)
        return counts

    # --- filling ----------------------------------------------------------------------------------------

    def _fill(self, found: _Candidate) -> Placed | None:
        counts, level, domains = found.counts, self._layout.level, found.siblings
        if self._below:
            chosen = self._subset(counts, self._by_entropy(counts, domains))
            if chosen is None:
                return None
            domains = [child for each in chosen for child in each.children]
            level += 1
        chosen = self._subset(counts, sorted(domains, key=lambda each: each.values))
        shares = self._even(counts, chosen, found.threshold) if chosen is not None else None
        return self._descend(counts, shares, level) if shares is not None else None

    def _by_entropy(self, counts: Counts, domains: Sequence[Domain]) -> list[Domain]:
        leads, led = counts.leads, counts.slices_led
        return sorted(
            domains,
            key=lambda each: (
                -leads[each.slot],
                -led[each.slot],
                -_entropy([counts.slices[child.slot] for child in each.children]),
                each.values,
            ),
        )

    def _subset(self, counts: Counts, domains: Sequence[Domain]) -> list[Domain] | None:
        """Of as few domains as possible those with the least room left over; of equals the first."""
        greedy = self._greedy(counts, sorted(domains, key=lambda each: each.values))
        if greedy is None:
            return None
        usable = [each for each in domains if counts.slices[each.slot] or counts.leads[each.slot]]
        size, needed = greedy.domains, self._needed
        if len(usable) * size * needed > _STEPS_MAX:
            return None
        #: By (domains, leader taken): what they hold -> which they are.
        reached: dict[tuple[int, int], dict[int, tuple[Domain, ...]]] = {(0, 0): {0: ()}}
        for each in usable:
            slot = each.slot
            for used in range(size - 1, -1, -1):
                for led in (self._leader, 0) if self._leader else (0,):
                    for room, chosen in list(reached.get((used, led), {}).items()):
                        steps = [(led, counts.slices[slot])]
                        if self._leader and not led and counts.leads[slot]:
                            steps.append((1, counts.slices_led[slot]))
                        for then, more in steps:
                            found = reached.setdefault((used + 1, then), {})
                            found.setdefault(room + more, (*chosen, each))
        final = reached.get((size, self._leader), {})
        enough = [room for room in final if room >= needed]
        return list(final[min(enough)]) if enough else None

    def _even(self, counts: Counts, domains: Sequence[Domain], least: int) -> list[Share] | None:
        """The threshold for each domain; the first ones get all that is left."""
        order = self._placer(counts).in_choice_order(
            sorted(domains, key=lambda each: each.values), largest_first=True
        )
        extra = self._needed - least * len(order)
        if extra < 0:
            return None
        shares = []
        leader = self._leader
        for each in order:
            takes_leader = leader if counts.leads[each.slot] else 0
            room = counts.slices_led[each.slot] if takes_leader else counts.slices[each.slot]
            leader -= takes_leader
            more = min(extra, room - least)
            if more < 0:
                return None
            extra -= more
            shares.append(Share(each, least + more, takes_leader))
        return shares if not extra and not leader else None

    def _descend(self, counts: Counts, shares: list[Share], level: int) -> Placed | None:
        """Down to the leaves, parent by parent."""
        placer, layout = self._placer(counts), self._layout
        while level < layout.slice_level:
            below: list[Share] = []
            for share in shares:
                order = placer.in_descent_order(share.domain.children, counts.slices, largest_first=True)
                found = placer.distribute(order, share.units, share.leader, counts.slices, counts.slices_led)
                if found is None:
                    return None
                below += found
            shares, level = below, level + 1
        shares = [share._replace(units=share.units * layout.slice_size) for share in shares]
        placed = placer.spread(shares, level, self._needed)
        return placed if isinstance(placed, Placed) else None


def _prune(counts: Counts, slot: int, least: int) -> None:
    if counts.slices[slot] < least:
        counts.clear(slot)
    elif counts.spec.leader and counts.slices_led[slot] < least:
        counts.leads[slot] = 0
        counts.pods_led[slot] = counts.slices_led[slot] = 0


def _entropy(amounts: Sequence[int]) -> float:
    """How evenly amounts are spread, in bits."""
    total = sum(amounts)
    shares = [amount / total for amount in amounts if amount] if total else []
    return -sum(share * log2(share) for share in shares)
