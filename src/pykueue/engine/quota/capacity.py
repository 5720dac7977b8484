"""Quota as a capacity: the only arithmetic on what the nodes of the trees use.

A demand is amounts at ClusterQueues, in quota units. What it counts at a node counts above it as far as it is
borrowed. Source of the rules: docs/reference/kueue-semantics.md 3.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from pykueue.engine.explanation import Blocker, Level
from pykueue.engine.quota.usage import FlavorUsage

if TYPE_CHECKING:
    from pykueue.engine.workload import WorkloadInfo

#: Amounts at nodes of a tree; no node twice.
QuotaDemand = Collection[tuple[FlavorUsage, int]]


class Shortage(NamedTuple):
    """Why an amount is not available at a node."""

    blocker: Blocker
    """The limit that binds."""
    node: str
    """The node that it binds at."""
    levels: tuple[Level, ...]
    """What there was, from the node up to the root."""


# --- the contract -------------------------------------------------------------------------------------------


def fits(demand: QuotaDemand) -> bool:
    """Whether each amount is available at its node now."""
    for flavor_usage, amount in demand:  # noqa: SIM110 (on the path of every entry: twice as fast)
        if amount > available(flavor_usage):
            return False
    return True


def reserve(demand: QuotaDemand) -> None:
    """Count the amounts as used; what exceeds the local part of a node is counted above as well (3.2)."""
    for flavor_usage, amount in demand:
        while True:
            usage = flavor_usage.usage
            flavor_usage.usage = usage + amount
            parent = flavor_usage.parent
            if parent is None:
                break
            spare = flavor_usage.local - usage
            if spare > 0:
                amount -= spare
                if amount <= 0:
                    break
            flavor_usage = parent


def release(demand: QuotaDemand) -> None:
    """The exact inverse of `reserve`."""
    for flavor_usage, amount in demand:
        while True:
            usage = flavor_usage.usage
            flavor_usage.usage = usage - amount
            parent = flavor_usage.parent
            if parent is None:
                break
            lent = usage - flavor_usage.local
            if lent <= 0:
                break
            if lent < amount:
                amount = lent
            flavor_usage = parent


def explain(flavor_usage: FlavorUsage, amount: int) -> Shortage:
    """How much there is at each level of the tree for an amount that does not fit, and which limit binds."""
    levels = []
    blocker: Blocker = ""
    name = ""
    at: FlavorUsage | None = flavor_usage
    while at is not None:
        room = available(at)
        node = at.node
        levels.append(
            Level(node.name, "ClusterQueue" if node.is_queue else "Cohort", at.subtree, at.usage, room)
        )
        above = at.parent
        if not blocker:
            name = node.name
            if above is None:
                if at is flavor_usage:
                    blocker = "OwnQuota"
                else:
                    lent = at.withheld > 0 and room + at.withheld >= amount
                    blocker = "LendingLimit" if lent else "CohortExhausted"
            elif at.cap is not None and at.cap + min(at.local - at.usage, 0) <= available(above):
                blocker = "BorrowingLimit"
        at = above
    return Shortage(blocker, name, tuple(levels))


# --- what only quota is asked -------------------------------------------------------------------------------


def available(flavor_usage: FlavorUsage) -> int:
    """How much more the node could use now; may be negative where the tree is over-committed (3.3)."""
    parent = flavor_usage.parent
    if parent is None:
        return flavor_usage.subtree - flavor_usage.usage
    spare = flavor_usage.local - flavor_usage.usage
    room = parent.subtree - parent.usage if parent.parent is None else available(parent)
    cap = flavor_usage.cap
    if cap is not None:
        own = cap + spare if spare < 0 else cap
        if own < room:
            room = own
    return room + spare if spare > 0 else room


def available_without_borrowing(flavor_usage: FlavorUsage) -> int:
    """How much more the node could use now without borrowing."""
    return min(available(flavor_usage), flavor_usage.subtree - flavor_usage.usage)


def fits_without_borrowing(demand: QuotaDemand) -> bool:
    """Whether each amount is available, and within the quota of its node."""
    for flavor_usage, amount in demand:
        if amount > available(flavor_usage) or flavor_usage.usage + amount > flavor_usage.subtree:
            return False
    return True


def borrowing_level(flavor_usage: FlavorUsage, amount: int) -> tuple[int, bool]:
    """Height of the nearest cohort whose quota covers the amount, and whether a larger tree is around it
    (3.4)."""
    parent = flavor_usage.parent
    if parent is None or flavor_usage.usage + amount <= flavor_usage.subtree:
        return 0, parent is not None
    rest = amount
    while True:
        spare = flavor_usage.local - flavor_usage.usage
        if spare > 0:
            rest -= spare
        above = flavor_usage.parent
        if above is None:
            return flavor_usage.node.height, False
        flavor_usage = above
        if flavor_usage.usage + rest <= flavor_usage.subtree:
            return flavor_usage.node.height, flavor_usage.parent is not None


def reserved_by(info: WorkloadInfo) -> QuotaDemand:
    """What a workload reserves of its queue's quota; usage that the queue has no quota for is left out.

    Kept at the workload until its usage or the tree changes.
    """
    flavor_usages, usage = info.queue.flavor_usages, info.usage  # type: ignore[union-attr]
    if info.quota_of is not flavor_usages or info.quota_for is not usage:
        info.quota = [
            (flavor_usages[flavor_resource], amount)
            for flavor_resource, amount in usage
            if flavor_resource in flavor_usages
        ]
        info.quota_of, info.quota_for = flavor_usages, usage
    return info.quota
