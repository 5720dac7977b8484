"""Quota as a capacity. Source of the rules: docs/reference/kueue-semantics.md 3."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.quota.usage import FlavorUsage, add, available, remove, to_quantity

#: Amounts at nodes of a tree, in quota units.
QuotaDemand = Iterable[tuple[FlavorUsage, int]]


class Quota:
    """The quota of all trees; what a demand counts at a node counts above it as far as it is borrowed."""

    __slots__ = ("_flavor_resources",)

    def __init__(self, flavor_resources: FlavorResources) -> None:
        self._flavor_resources = flavor_resources

    def fits(self, demand: QuotaDemand) -> bool:
        """Whether each amount is available at its node now."""
        for flavor_usage, amount in demand:  # noqa: SIM110 (on the path of every entry: twice as fast)
            if amount > available(flavor_usage):
                return False
        return True

    def reserve(self, demand: QuotaDemand) -> None:
        """Count the amounts as used."""
        for flavor_usage, amount in demand:
            add(flavor_usage, amount)

    def release(self, demand: QuotaDemand) -> None:
        """The exact inverse of `reserve`."""
        for flavor_usage, amount in demand:
            remove(flavor_usage, amount)

    def explain(self, demand: QuotaDemand) -> str:
        """What is missing at the first node that has too little; empty if the demand fits."""
        for flavor_usage, amount in demand:
            missing = amount - max(0, available(flavor_usage))
            if missing > 0:
                flavor, resource = self._flavor_resources.names[flavor_usage.flavor_resource]
                return (
                    f"insufficient unused quota for {resource} in flavor {flavor}, "
                    f"{to_quantity(resource, missing)} more needed"
                )
        return ""
