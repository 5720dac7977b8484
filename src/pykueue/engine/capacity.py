"""What workloads compete for: quota, and capacities that trees of cohorts share (licences, budgets).

A demand is what one workload needs of one capacity, in a form that only the capacity reads. `reserve` and
`release` are exact inverses and have no other effect, so that a search may release the demand of a candidate
and reserve it again, and a fork is undone through the undo log of the moves (see `places`).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from pykueue.api import kueue

D = TypeVar("D", contravariant=True)


class Capacity(Protocol[D]):
    """A bounded amount that workloads reserve while they run."""

    def fits(self, demand: D) -> bool:
        """Whether the demand could be reserved now."""

    def reserve(self, demand: D) -> None:
        """Count the demand as used."""

    def release(self, demand: D) -> None:
        """The exact inverse of `reserve`."""

    def explain(self, demand: D) -> str:
        """Why the demand does not fit, as a sentence without a full stop."""


class SharedCapacity(Capacity[Any], Protocol):
    """A capacity beside quota. Trees whose workloads demand it are woken and cycled together."""

    @property
    def name(self) -> str:
        """The name, unique in an engine."""

    def demand(self, workload: kueue.Workload) -> Any:
        """What a workload needs; None if nothing. Depends on the object alone."""


#: What one workload needs of shared capacities.
Demands = tuple[tuple[SharedCapacity, Any], ...]


def fit(demands: Demands) -> bool:
    """Whether each of the demands could be reserved now."""
    return all(capacity.fits(demand) for capacity, demand in demands)


def reserve(demands: Demands) -> None:
    """Count all demands as used."""
    for capacity, demand in demands:
        capacity.reserve(demand)


def release(demands: Demands) -> None:
    """The exact inverse of `reserve`."""
    for capacity, demand in demands:
        capacity.release(demand)
