# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""What is reserved, and when: the windows of Reservations, and the reservations of pending workloads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from pykueue.api import kueue
from pykueue.api.meta import format_time
from pykueue.api.reservations import Reservation, ReservationSpec, Window, state_of, windows
from pykueue.api.validation.reservations import reservation_errors
from pykueue.engine import Engine
from pykueue.engine.explain.render import amount
from pykueue.engine.explain.views import PendingReservation
from pykueue.engine.quota.usage import units
from pykueue.questions.answers import Answer

#: Pending workloads that are tried for what a Reservation holds back.
EXPLAINED_MAX: Final = 1000


class Amount(Answer, kw_only=True):
    """What is reserved of one resource in one flavor."""

    flavor: str
    resource: str
    quantity: str
    used: str = ""
    """What the workloads use that it is for; empty for Maintenance, which is for none."""
    kept_free: str = ""
    """What is kept free of others now; empty while no window is open."""


class Opening(Answer, kw_only=True):
    """One window."""

    start: str
    end: str


class ReservationAnswer(Answer, kw_only=True):
    """One Reservation."""

    name: str
    cluster_queue: str = ""
    cohort: str = ""
    purpose: str
    state: str
    """Upcoming, Open, Over or Invalid."""
    message: str = ""
    """What is wrong with it."""
    schedule: str = ""
    time_zone: str = ""
    amounts: list[Amount] = []
    windows: list[Opening] = []
    """The current window and those after it, at most 16."""
    held_back: list[str] = []
    """Pending workloads that fit and are not admitted because of it, where one Reservation is asked for."""


class Pending(Answer, kw_only=True):
    """The reservation of a pending workload, under a BackfillPolicy."""

    workload: str
    cluster_queue: str
    start: str
    end: str
    declared: bool
    """The times follow from declared run times alone."""
    probability: int = 0
    """Where none was assumed and some were fitted: with what probability each is kept, in percent."""
    policy: str
    """The BackfillPolicy."""
    amounts: list[Amount] = []


class ReservationsAnswer(Answer, kw_only=True):
    """Everything that is reserved."""

    reservations: list[ReservationAnswer] = []
    pending: list[Pending] = []
    """In order of their times."""
    unread: list[str] = []
    notes: list[str] = []


def reservations(
    engine: Engine,
    objects: Iterable[Reservation],
    workloads: Iterable[kueue.Workload],
    now: float,
    name: str | None = None,
) -> ReservationsAnswer:
    """All that is reserved at `now` (seconds since 1970), or the Reservation of that name alone."""
    found = [each for each in objects if name is None or each.metadata.name == name]
    found.sort(key=lambda each: each.metadata.name)
    pending = [] if name is not None else [_pending(each) for each in engine.pending_reservations(now)]
    answers = [_answer(engine, each, now) for each in found]
    if name is not None:
        for answer in answers:
            answer.held_back = _held_back(engine, workloads, answer.name, now)
    return ReservationsAnswer(
        reservations=answers,
        pending=sorted(pending, key=lambda each: (each.start, each.workload)),
    )


def _answer(engine: Engine, obj: Reservation, now: float) -> ReservationAnswer:
    spec = obj.spec
    errors = reservation_errors(obj)
    opening = [] if errors else windows(spec, now)
    return ReservationAnswer(
        name=obj.metadata.name,
        cluster_queue=spec.cluster_queue or "",
        cohort=spec.cohort or "",
        purpose=spec.purpose,
        state="Invalid" if errors else state_of(opening, now),
        message="; ".join(map(str, errors)),
        schedule=spec.schedule or "",
        time_zone=spec.time_zone if spec.schedule is not None else "",
        amounts=_amounts(engine, spec, opening, now),
        windows=[Opening(start=format_time(each.start), end=format_time(each.end)) for each in opening],
    )


def _held_back(engine: Engine, workloads: Iterable[kueue.Workload], name: str, now: float) -> list[str]:
    """Pending workloads that fit and would run into a window of a Reservation."""
    pending = (each for each in workloads if not each.condition_is("QuotaReserved"))
    found = []
    for each in islice(pending, EXPLAINED_MAX):
        explanation = engine.explain(each.metadata.key, now)
        proof = explanation.backfill if explanation is not None else None
        if proof is not None and proof.kind == "RunsIntoReservation" and proof.policy == name:
            found.append(each.metadata.key)
    return sorted(found)


def _amounts(engine: Engine, spec: ReservationSpec, opening: list[Window], now: float) -> list[Amount]:
    node = engine.node(spec.cohort or spec.cluster_queue or "", "Cohort" if spec.cohort else "ClusterQueue")
    reserved = (
        {(each.flavor, each.resource): each.reserved for each in node.quotas} if node is not None else {}
    )
    is_open = state_of(opening, now) == "Open"
    found = []
    for flavor in spec.flavors:
        for resource in flavor.resources:
            name, whole = resource.name, units(resource.name, resource.quantity)
            used = 0 if spec.purpose == "Maintenance" else reserved.get((flavor.name, name), 0)
            found.append(
                Amount(
                    flavor=flavor.name,
                    resource=name,
                    quantity=amount(name, whole),
                    used="" if spec.purpose == "Maintenance" else amount(name, used),
                    kept_free=amount(name, max(0, whole - used)) if is_open else "",
                )
            )
    return found


def _pending(each: PendingReservation) -> Pending:
    return Pending(
        workload=each.key,
        cluster_queue=each.cluster_queue,
        start=format_time(each.start),
        end=format_time(each.end),
        declared=each.declared,
        probability=each.probability,
        policy=each.policy,
        amounts=[
            Amount(flavor=flavor, resource=resource, quantity=amount(resource, taken))
            for flavor, resource, taken in each.amounts
        ],
    )
