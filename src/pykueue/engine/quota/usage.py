"""What the nodes of the trees have and use of one (flavor, resource) pair; `quota.capacity` changes it.

A `FlavorUsage` is what one node of the tree (a ClusterQueue or a cohort) has and uses of one pair; those
of the same pair are linked to that of the parent node, so every question walks a chain of at most the height
of the tree. All amounts are exact integers; `UNLIMITED` stands for no bound. Source of the rules:
docs/reference/kueue-semantics.md 2.2 and 3.

It keeps these sums true at all times, for a cohort from its children c:

    subtree = nominal + sum(c.subtree - c.local)        usage = sum(max(0, c.usage - c.local))
    local   = what the lending limit keeps at home      potential = the most the node could ever use
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pykueue.api.quantity import MAX_INT64, Quantity

if TYPE_CHECKING:
    from pykueue.engine.quota.tree import Node

#: Larger than any sum of 64-bit amounts, so that no bounded amount reaches it.
UNLIMITED: Final = 1 << 100
_BOUNDED: Final = 1 << 99
#: Resources counted in bytes, besides huge pages.
BYTES: Final = ("memory", "ephemeral-storage")
_MEBI: Final = 1 << 20
_GIBI: Final = 1 << 30


def is_unlimited(amount: int) -> bool:
    """Whether an amount of quota (even after some of it is used) has no bound."""
    return amount >= _BOUNDED


def units(resource: str, quantity: Quantity) -> int:
    """The amount as quota counts it: thousandths of a cpu, base units of anything else, rounded up."""
    return quantity.milli() if resource == "cpu" else quantity.value()


@lru_cache(maxsize=4096)
def quota_units(resource: str, quantity: Quantity) -> int:
    """Like `units`, for a field of a quota: the largest amounts mean no bound (2.2)."""
    amount = quantity.value()
    if amount >= (MAX_INT64 // 1000 if resource == "cpu" else MAX_INT64):
        return UNLIMITED
    return quantity.milli() if resource == "cpu" else amount


def is_bytes(resource: str) -> bool:
    """Whether amounts of the resource are sizes in bytes."""
    return resource in BYTES or resource.startswith("hugepages-")


def in_gibi(resource: str, amount: float) -> float:
    """An amount in base units; sizes in bytes as Gi."""
    return amount / _GIBI if is_bytes(resource) else amount


def to_quantity(resource: str, amount: int) -> Quantity:
    """The amount as people and manifests write it: sizes in bytes with binary suffixes.

    Counters and capacities of devices are sizes, too, and their resources have any name: whole mebibytes are
    shown as such.
    """
    if resource == "cpu":
        return Quantity.of_milli(amount)
    if is_bytes(resource) or (amount and amount % _MEBI == 0):
        return Quantity.of(amount, "BinarySI")
    return Quantity.of(amount)


class FlavorUsage:
    """What a node has and uses of one (flavor, resource) pair."""

    __slots__ = (
        "borrowing_limit",
        "cap",
        "flavor_resource",
        "lending_limit",
        "local",
        "node",
        "nominal",
        "parent",
        "potential",
        "resource",
        "subtree",
        "usage",
        "withheld",
    )

    def __init__(self, node: Node, flavor_resource: int, resource: str) -> None:
        self.node = node
        self.flavor_resource = flavor_resource
        self.resource = resource
        self.nominal = 0
        self.borrowing_limit: int | None = None
        self.lending_limit: int | None = None
        self.parent: FlavorUsage | None = None
        self.subtree = 0
        #: Capacity never lent upwards.
        self.local = 0
        #: subtree - local + borrowing limit: what the node may take from above while its own is unused.
        self.cap: int | None = None
        self.potential = 0
        #: Sum of `local` over the children: what lending limits keep from this node.
        self.withheld = 0
        self.usage = 0

    def finish(self) -> None:
        """Derives `local` and `cap` once `subtree` is known."""
        subtree = self.subtree = min(self.subtree, UNLIMITED)
        limit = self.lending_limit
        self.local = 0 if limit is None or limit >= subtree else subtree - limit
        bound = self.borrowing_limit
        self.cap = None if bound is None or bound >= UNLIMITED else subtree - self.local + bound

    def reach(self) -> int:
        """The potential, the parent's being known."""
        parent = self.parent
        if parent is None:
            return self.subtree
        potential = min(self.local + parent.potential, UNLIMITED)
        if self.cap is not None:
            potential = min(potential, self.cap + self.local)
        return potential
