"""What queries answer: queues, cohorts, workloads and reservations in figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pykueue.api import kueue
from pykueue.api.quantity import Quantity


@dataclass(slots=True)
class Amount:
    """Use of one resource in one flavor."""

    flavor: str
    resource: str
    total: Quantity
    borrowed: Quantity


class PendingReservation(NamedTuple):
    """The reservation of a pending workload."""

    key: str
    cluster_queue: str
    start: float
    """In seconds since 1970."""
    end: float
    declared: bool
    """The times follow from declared run times alone."""
    policy: str
    """The BackfillPolicy."""
    amounts: tuple[tuple[str, str, int], ...]
    """(flavor, resource, amount in quota units)."""
    probability: int = 0
    """Where none was assumed and some were fitted: with what probability each is kept, in percent."""


@dataclass(slots=True)
class QueueView:
    """A ClusterQueue or LocalQueue in figures."""

    name: str
    pending: int
    active: int
    """Of the pending ones, those in line; the others are inadmissible until something changes."""
    reserving: int
    admitted: int
    reservation: list[Amount]
    usage: list[Amount]
    problems: tuple[tuple[str, str], ...] = ()
    """(reason, text) of everything that keeps the queue from admitting; the first reason is that of the
    condition."""
    weighted_share: int = 0
    """Share in thousandths, rounded up; 9223372036854775807 if infinite. 0 for a LocalQueue."""
    consumed: dict[str, Quantity] = field(default_factory=dict)
    """Past usage of a LocalQueue under admission fair sharing."""
    sampled: float | None = None
    """When that was last computed, in seconds since 1970."""


@dataclass(slots=True)
class CohortView:
    """A cohort and everything below it in figures."""

    name: str
    subtree_quota: list[tuple[str, str, Quantity | None]]
    """(flavor, resource, amount) that the subtree has; None: without bound."""
    reservation: list[Amount]
    """What workloads of all its queues hold."""
    admitted: int
    weighted_share: int
    """Share in thousandths, rounded up; 9223372036854775807 if infinite."""


@dataclass(slots=True)
class WorkloadView:
    """Where a workload stands."""

    key: str
    state: str
    """`active` (in line), `inadmissible`, `reserved` (holds quota), or `out` (in no queue)."""
    cluster_queue: str
    admission: kueue.Admission | None
    """What it holds."""
    admitted: bool
    assumed: bool
    """It holds quota by a decision that the API does not show yet."""
    evicted: bool
    reason: str
    """Why it waits: the reason of the last decision, or that of a workload like it which did not fit."""
    bypassed: bool
    """It became inadmissible without being looked at, because one like it did not fit."""
    problem: str
    """What is wrong with its requests, or empty."""
    requests: tuple[tuple[str, dict[str, Quantity]], ...]
    """What it asks for, by pod set."""
