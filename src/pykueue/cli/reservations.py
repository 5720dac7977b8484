"""`pykueue reservations`: what is reserved, when and by flavor."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pykueue.api.reservations import Reservation
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import conclude, read_source
from pykueue.plugin.tables import table
from pykueue.questions.reservations import Amount, ReservationAnswer, ReservationsAnswer
from pykueue.questions.reservations import Pending as PendingReservation
from pykueue.questions.reservations import reservations as answer_reservations


def run(source: SourceOptions, name: str | None, output: str) -> None:
    """Carry out the command, whose options `questions` describes."""
    found = read_source(source)
    reserved = found.objects(Reservation)
    answer = answer_reservations(found.engine, reserved, found.workloads, found.now, name)
    if name is not None and not answer.reservations:
        raise click.ClickException(f"there is no Reservation {name}")
    conclude(found, answer, output, lines if name is None else details)


def lines(answer: ReservationsAnswer) -> Iterator[str]:
    """All Reservations as a table, and the reservations of pending workloads as another."""
    titles = [
        "RESERVATION",
        "FOR",
        "PURPOSE",
        "FLAVOR",
        "RESOURCE",
        "QUANTITY",
        "STATE",
        "START",
        "END",
        "NEXT",
    ]
    rows = [
        [
            each.name,
            _subject(each),
            each.purpose,
            amount.flavor,
            amount.resource,
            amount.quantity,
            each.state,
            *_window(each, 0),
            _window(each, 1)[0],
        ]
        for each in answer.reservations
        for amount in each.amounts
    ]
    yield from table(titles, rows).splitlines() if rows else ["There is no Reservation."]
    if answer.pending:
        yield ""
        titles = ["PENDING WORKLOAD", "CLUSTERQUEUE", "RESERVED", "START", "END", "RUN TIMES", "POLICY"]
        rows = [
            [
                each.workload,
                each.cluster_queue,
                ", ".join(f"{_quantity(amount)} in {amount.flavor}" for amount in each.amounts),
                each.start,
                each.end,
                _basis(each),
                each.policy,
            ]
            for each in answer.pending
        ]
        yield from table(titles, rows).splitlines()


def details(answer: ReservationsAnswer) -> Iterator[str]:
    """Reservations in full."""
    for each in answer.reservations:
        yield from _details(each)


def _details(reservation: ReservationAnswer) -> Iterator[str]:
    purpose = "maintenance" if reservation.purpose == "Maintenance" else "its workloads"
    subject = _subject(reservation)
    yield f"Reservation {reservation.name} of quota of {subject}, for {purpose}: {reservation.state}"
    if reservation.message:
        yield reservation.message
    if reservation.schedule:
        yield f"Schedule {reservation.schedule} ({reservation.time_zone})"
    for amount in reservation.amounts:
        used = f", {amount.used} used by its workloads" if amount.used else ""
        kept = f", {amount.kept_free} kept free now" if amount.kept_free else ""
        yield f"{amount.flavor}: {_quantity(amount)}{used}{kept}"
    for number, window in enumerate(reservation.windows):
        is_open = number == 0 and reservation.state == "Open"
        yield f"{window.start} to {window.end}{' (open now)' if is_open else ''}"
    if reservation.held_back:
        yield f"Holds back {len(reservation.held_back)}: {', '.join(reservation.held_back)}"


def _subject(reservation: ReservationAnswer) -> str:
    if reservation.cohort:
        return f"Cohort {reservation.cohort}"
    return f"ClusterQueue {reservation.cluster_queue}"


def _window(reservation: ReservationAnswer, number: int) -> list[str]:
    if number >= len(reservation.windows):
        return ["-", "-"]
    return [reservation.windows[number].start, reservation.windows[number].end]


def _quantity(amount: Amount) -> str:
    return f"{amount.quantity} {amount.resource}"


def _basis(pending: PendingReservation) -> str:
    if pending.declared:
        return "declared"
    return f"fitted ({pending.probability} %)" if pending.probability else "assumed"
