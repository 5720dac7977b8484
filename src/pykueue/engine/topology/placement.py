"""Placing one unit, the pods of a pod set or of a leader with its workers, in a tree of domains.

First the level and the domains are chosen, from the numbers of `Counts`; then the pods are distributed level
by level down to the leaves. Nothing is changed. Source of the rules:
docs/reference/topology-aware-scheduling.md 9.4 to 9.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from pykueue.engine.topology.counts import Counts
from pykueue.engine.topology.requests import Layout
from pykueue.engine.topology.room_index import RoomIndex
from pykueue.engine.topology.tree import Domain

_BY_VALUES: Final = attrgetter("values")

#: Numbers by the slot of a domain.
Numbers = Sequence[int] | Mapping[int, int]


class Placed(NamedTuple):
    """Where the pods of a unit go."""

    workers: tuple[tuple[Domain, int], ...]
    """Leaves with so many pods each, in the order of their values."""
    leader: Domain | None


class Shortage(NamedTuple):
    """Why a unit cannot be placed."""

    level: int
    """Of the domains that were looked at last."""
    needed: int
    """Slices, or pods where slices have one pod."""
    fitting: int
    """How many of them fit, the leader left out."""
    together: bool
    """All were to be in one domain."""


class Share(NamedTuple):
    """What a domain gets."""

    domain: Domain
    units: int
    leader: int


class Placer:
    """Places a unit by the numbers of its spec."""

    def __init__(self, counts: Counts, layout: Layout, by_affinity: bool = False) -> None:
        self.counts = counts
        self.layout = layout
        self._by_affinity = by_affinity
        #: The leader that goes with the workers: 1 or 0.
        self.leader = 1 if counts.spec.leader else 0
        #: Domains are in the orders of `RoomIndex`, unless a leader or preferred node affinity decides.
        self._indexed = not (self.leader or by_affinity)

    def place(self, pods: int) -> Placed | Shortage:
        """Places so many workers, rounded down to whole slices, and the leader."""
        slices = pods // self.layout.slice_size
        chosen = self._choose(slices)
        if isinstance(chosen, Shortage):
            return chosen
        return self.descend(chosen, slices)

    # --- orders -----------------------------------------------------------------------------------------

    def in_choice_order(self, domains: Sequence[Domain], largest_first: bool) -> list[Domain]:
        """Domains in the order in which they are chosen (O1); given in the order of their values."""
        counts = self.counts
        leads, scores, led, pods = counts.leads, counts.scores, counts.slices_led, counts.pods_led
        sign = -1 if largest_first else 1
        if self._by_affinity:
            return sorted(
                domains,
                key=lambda each: (
                    -leads[each.slot],
                    -scores[each.slot],
                    sign * led[each.slot],
                    pods[each.slot],
                ),
            )
        if not self.leader:
            return sorted(domains, key=lambda each: (sign * led[each.slot], pods[each.slot]))
        return sorted(domains, key=lambda each: (-leads[each.slot], sign * led[each.slot], pods[each.slot]))

    def in_descent_order(
        self, domains: Sequence[Domain], slices: Numbers, largest_first: bool
    ) -> list[Domain]:
        """Domains in the order in which they are filled (O2); given in the order of their values."""
        scores, pods = self.counts.scores, self.counts.pods
        sign = -1 if largest_first else 1
        if self._by_affinity:
            return sorted(
                domains, key=lambda each: (-scores[each.slot], sign * slices[each.slot], pods[each.slot])
            )
        return sorted(domains, key=lambda each: (sign * slices[each.slot], pods[each.slot]))

    def tightest(
        self, domains: Sequence[Domain], needed: int, leader: int, room: Numbers, room_led: Numbers
    ) -> Domain:
        """Of the domains that hold what is needed the one with the least room; the first if none does."""
        numbers, leads, scores = room_led if leader else room, self.counts.leads, self.counts.scores
        best, least = domains[0], -1
        score: int | None = None
        for domain in domains:
            slot = domain.slot
            if leads[slot] < leader:
                continue
            if self._by_affinity:
                if score is None:
                    score = scores[slot]
                elif scores[slot] != score:
                    break
            count = numbers[slot]
            if count >= needed and (least < 0 or count < least):
                best, least = domain, count
        return best

    def _leader_first(
        self, domains: list[Domain], needed: int, room: Numbers, room_led: Numbers
    ) -> list[Domain]:
        """The first domain in which the leader leaves enough for the rest, moved to the front."""
        if not self.leader or len(domains) < 2:
            return domains
        spare = sum(room[each.slot] for each in domains) - needed
        for at, each in enumerate(domains):
            if self.counts.leads[each.slot] and room[each.slot] - room_led[each.slot] <= spare:
                return [each, *domains[:at], *domains[at + 1 :]]
        return domains

    # --- choosing the level and the domains (9.5) -------------------------------------------------------

    def _choose(self, needed: int) -> list[Domain] | Shortage:
        if not self._indexed:
            return self._choose_sorted(needed)
        layout, level = self.layout, self.layout.level
        while True:
            index = self.counts.index(level)
            found = index.tightest(needed)
            if found is not None:
                return [found]
            if not index:
                return Shortage(level, needed, 0, layout.required)
            if layout.required:
                return Shortage(level, needed, index.largest, True)
            if not layout.climbs or level == 0:
                if index.total < needed:
                    return Shortage(level, needed, index.total, False)
                return self._collect_indexed(index, needed)
            level -= 1

    def _collect_indexed(self, index: RoomIndex, needed: int) -> list[Domain]:
        """Domains that hold everything together, without a leader; all together they hold it."""
        best_fit = not self.layout.least_free_first
        chosen: list[Domain] = []
        missing = needed
        for each, slices in index.in_order(best_fit):
            if best_fit and slices >= missing:
                tightest = index.tightest(missing)
                # Domains that hold as much as this one may be chosen already.
                assert tightest is not None
                same = self.counts.slices[tightest.slot] == slices
                return [*chosen, each if same else tightest]
            chosen.append(each)
            missing -= slices
            if missing <= 0:
                break
        return chosen

    def _choose_sorted(self, needed: int) -> list[Domain] | Shortage:
        """The same, in orders that are made for one unit: by the leader, or by preferred node affinity."""
        counts, layout, leader = self.counts, self.layout, self.leader
        slices, led, leads = counts.slices, counts.slices_led, counts.leads
        level = layout.level
        best_fit = not layout.least_free_first
        while True:
            domains = self.in_choice_order(counts.domains(level), best_fit)
            if not domains:
                return Shortage(level, needed, 0, layout.required)
            top = domains[0].slot
            if not best_fit:
                room = led if leader else slices
                for each in domains:
                    if leads[each.slot] >= leader and room[each.slot] >= needed:
                        return [each]
                return self._collect(domains, needed, level)
            if led[top] >= needed and leads[top] >= leader:
                return [self.tightest(domains, needed, leader, slices, led)]
            if layout.required:
                if self._by_affinity:
                    for each in domains:
                        if led[each.slot] >= needed and leads[each.slot] >= leader:
                            return [each]
                return Shortage(level, needed, max([slices[each.slot] for each in domains]), True)
            if layout.climbs and level > 0:
                level -= 1
                continue
            return self._collect(domains, needed, level)

    def _collect(self, domains: list[Domain], needed: int, level: int) -> list[Domain] | Shortage:
        """Several domains of a level that hold everything together."""
        counts = self.counts
        slices, led, leads = counts.slices, counts.slices_led, counts.leads
        best_fit = not self.layout.least_free_first
        domains = self._leader_first(domains, needed, slices, led)
        chosen: list[Domain] = []
        missing, leader = needed, self.leader
        if leader and leads[domains[0].slot]:
            first = domains[0]
            if best_fit and led[first.slot] >= missing:
                first = self.tightest(domains, missing, leader, slices, led)
            chosen.append(first)
            missing, leader = missing - led[first.slot], 0
        # In the order of values again, which decides between equals.
        rest = sorted((each for each in domains if each not in chosen), key=lambda each: each.values)
        rest = self.in_descent_order(rest, slices, best_fit)
        for at, each in enumerate(rest):
            if missing <= 0:
                break
            if best_fit and slices[each.slot] >= missing:
                each = self.tightest(rest[at:], missing, 0, slices, led)
            chosen.append(each)
            missing -= slices[each.slot]
        if missing > 0 or leader:
            return Shortage(level, needed, sum([slices[each.slot] for each in domains]), False)
        return chosen

    # --- distributing the pods (9.6) --------------------------------------------------------------------

    def descend(self, domains: list[Domain], slices: int) -> Placed | Shortage:
        """Distributes so many slices, and the leader, over the leaves below the chosen domains."""
        counts, layout = self.counts, self.layout
        size = layout.slice_size
        level = domains[0].level
        shares = self.distribute(domains, slices, self.leader, counts.slices, counts.slices_led)
        while shares is not None and level < layout.slice_level:
            if self._indexed and len(shares) == 1:
                pool = self._collect_indexed(counts.index_within(shares[0].domain), slices)
            else:
                pool = [child for share in shares for child in share.domain.children]
                pool.sort(key=_BY_VALUES)
                pool = self.in_descent_order(pool, counts.slices, not layout.least_free_first)
            shares = self.distribute(pool, slices, self.leader, counts.slices, counts.slices_led)
            level += 1
        if shares is not None:
            shares = [share._replace(units=share.units * size) for share in shares]
        return self.spread(shares, level, slices)

    def spread(self, shares: list[Share] | None, level: int, slices: int) -> Placed | Shortage:
        """Distributes the pods of each domain over the leaves below it, parent by parent."""
        while shares is not None and level < len(self.layout.units) - 1:
            level += 1
            below: list[Share] = []
            for share in shares:
                found = self._below(share, level)
                if found is None:
                    return self._inconsistent(level, slices)
                below += found
            shares = below
        if shares is None:
            return self._inconsistent(level, slices)
        pods = [(share.domain, share.units) for share in shares if share.units > 0]
        pods.sort(key=lambda each: each[0].values)
        leader = next((share.domain for share in shares if share.leader), None)
        return Placed(tuple(pods), leader)

    def _inconsistent(self, level: int, slices: int) -> Shortage:
        """The domains chosen do not hold what they seemed to: counted as not fitting at all."""
        return Shortage(level, slices, 0, False)

    def _below(self, share: Share, level: int) -> list[Share] | None:
        """Distributes the pods of one domain over its children."""
        counts, layout = self.counts, self.layout
        children = share.domain.children
        unit = layout.units[level] or 1
        room: Numbers = counts.pods
        room_led: Numbers = counts.pods_led
        if unit > 1:
            room = {each.slot: counts.pods[each.slot] // unit for each in children}
            room_led = {each.slot: counts.pods_led[each.slot] // unit for each in children}
        order = self.in_descent_order(children, counts.slices, not layout.least_free_first)
        found = self.distribute(order, share.units // unit, share.leader, room, room_led)
        if found is None or unit == 1:
            return found
        return [each._replace(units=each.units * unit) for each in found]

    def distribute(
        self, domains: list[Domain], units: int, leader: int, room: Numbers, room_led: Numbers
    ) -> list[Share] | None:
        """Units, and the leader, for domains in their order; None if they do not hold them."""
        leads = self.counts.leads
        best_fit = not self.layout.least_free_first
        if leader:
            domains = self._leader_first(domains, units, room, room_led)
        shares: list[Share] = []
        for at, each in enumerate(domains):
            if not units and not leader:
                break
            slot = each.slot
            if leader and leads[slot]:
                if best_fit and room_led[slot] >= units:
                    shares.append(Share(self.tightest(domains[at:], units, 1, room, room_led), units, 1))
                    return shares
                taken = min(units, room_led[slot])
                shares.append(Share(each, taken, 1))
                leader = 0
            else:
                if best_fit and not leader and room[slot] >= units:
                    shares.append(Share(self.tightest(domains[at:], units, 0, room, room_led), units, 0))
                    return shares
                taken = min(units, room[slot])
                if taken:
                    shares.append(Share(each, taken, 0))
            units -= taken
        return shares if not units and not leader else None
