"""A parent with its variants, and a plan of changes to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pykueue.api import conditions, variants
from pykueue.api.conditions import Workload
from pykueue.api.kueue import ConcurrentAdmissionPolicy
from pykueue.api.objects import Key, Object, annotations_of


class Event(NamedTuple):
    """The event that a change emits."""

    reason: str
    note: str


class Change(NamedTuple):
    """A change of an existing Workload."""

    key: Key
    step: Callable[[Object], Object | None]
    """Returns the desired object for the newest one; None where no change is needed."""
    subresource: str = "status"
    event: Event | None = None


@dataclass
class Plan:
    """The next changes."""

    created: list[Object] = field(default_factory=list)
    deleted: list[Object] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    #: When to look again, in seconds since 1970; None: only when something changes.
    wake: float | None = None


@dataclass(frozen=True)
class Family:
    """A parent, its variants, and what decides about them."""

    parent: Object
    #: The most preferred first.
    members: Sequence[Object]
    #: The flavors of the ClusterQueue, the most preferred first.
    order: Sequence[str]
    policy: ConcurrentAdmissionPolicy | None
    now: float
    #: Longest name of a Workload.
    name_limit: int
    #: Whether the configuration waits for pods to be ready.
    waits: bool

    def of(self, flavor: str) -> Object | None:
        """The variant for a flavor, if there is one."""
        return next((each for each in self.members if flavor_of(each) == flavor), None)

    @property
    def admitted(self) -> Object | None:
        """The admitted variant; of several the most preferred."""
        return next((each for each in self.members if runs(each)), None)

    @property
    def is_active(self) -> bool:
        """Whether the variants may compete."""
        return conditions.is_active(self.parent) and not conditions.is_on_hold(self.parent)


def flavor_of(variant: Workload) -> str:
    """The flavor that a variant asks for."""
    return variants.flavor_of(annotations_of(variant))


def runs(variant: Workload) -> bool:
    """Whether a variant is admitted, and neither evicted nor finished."""
    return (
        conditions.may_run(variant)
        and not conditions.is_evicted(variant)
        and not conditions.is_finished(variant)
    )
