"""Changes of Budgets, of Reservations and of run times, for a workload that has quota and may not start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pykueue.api import kueue
from pykueue.api.budgets import Budget
from pykueue.api.quantity import Quantity
from pykueue.engine import Engine, Explanation
from pykueue.engine.budgets.capacity import BudgetShortage
from pykueue.engine.budgets.rules import HOUR
from pykueue.engine.explanation import BackfillProof
from pykueue.engine.quota.usage import to_quantity, units
from pykueue.questions import mutations
from pykueue.questions.candidates import Candidate
from pykueue.questions.mutations import Mutations
from pykueue.questions.smallest import Amounts

#: A thousandth of a resource-hour, in nanos of resource-seconds: the smallest part that is proposed.
_MILLI = HOUR * 10**6


def policy_candidates(
    engine: Engine, workload: kueue.Workload, explanation: Explanation | None, now: float
) -> Iterator[Candidate]:
    """The changes to try, given how the workload fares at `now` (seconds since 1970)."""
    short = engine.budget_shortages(workload.metadata.key, now)
    if short:
        yield from _budgets(engine, workload, short)
    proof = explanation.backfill if explanation is not None else None
    if proof is not None:
        yield from _reservations(engine, workload, proof, now)


# --- budgets ------------------------------------------------------------------------------------------------


def _budgets(
    engine: Engine, workload: kueue.Workload, short: Sequence[BudgetShortage]
) -> Iterator[Candidate]:
    """A shorter declared run time, more hours, or a credit, of all Budgets that lack any."""
    fewer = [_fewer_seconds(each) for each in short]
    limit = workload.spec.maximum_execution_time_seconds
    if limit is not None and all(each is not None and 0 < each < limit for each in fewer):
        most = max(each for each in fewer if each is not None)
        yield _shorter(workload, limit, limit, most)
    budgets = {each.key[0]: engine.budget_object(each.key[0]) for each in short}
    known = {name: budget for name, budget in budgets.items() if budget is not None}
    lacking = [each for each in short if each.key[0] in known]
    guesses = [
        tuple(_lacking_hours(each, known[each.key[0]], strict) for each in lacking)
        for strict in (False, True)
    ]
    ceiling = tuple(max(amounts) for amounts in zip(*guesses, strict=True))
    if not any(ceiling):
        return
    for kind, make, text in (
        ("BudgetHours", _more_hours, _hours_text),
        ("BudgetCredit", partial(_credit, workload), _credit_text),
    ):
        yield Candidate(
            kind,  # type: ignore[arg-type]
            partial(make, lacking, known),
            partial(text, lacking, known),
            guesses,
            ceiling,
        )


def _fewer_seconds(short: BudgetShortage) -> int | None:
    """By how much its run time is too long for what is left; None: no run time would do."""
    if short.closed or not short.seconds or not short.requested:
        return None
    rate = short.requested // short.seconds
    return -(-(short.requested - short.left) // rate)


def _lacking_hours(short: BudgetShortage, budget: Budget, strict: bool) -> int:
    """Thousandths of hours that are lacking; `strict`: to get below the lowest of all thresholds as well."""
    lack = max(0, short.requested - short.left)
    if short.closed or strict:
        percents = [each.percent for each in budget.spec.thresholds if each.action != "Warn"] or [100]
        percent = min(percents) if strict else max(percents)
        lack = max(lack, short.used * 100 // percent + 1 - short.limit)
    return -(-lack // _MILLI)


def _more_hours(short: Sequence[BudgetShortage], known: dict[str, Budget], amounts: Amounts) -> Mutations:
    return tuple(
        mutations.budget_hours(known[each.key[0]], each.resource, by)
        for each, by in zip(short, amounts, strict=True)
        if by
    )


def _credit(
    workload: kueue.Workload, short: Sequence[BudgetShortage], known: dict[str, Budget], amounts: Amounts
) -> Mutations:
    return tuple(
        mutations.budget_credit(known[each.key[0]], each.key[1], each.resource, by, workload)
        for each, by in zip(short, amounts, strict=True)
        if by
    )


def _hours_text(short: Sequence[BudgetShortage], known: dict[str, Budget], amounts: Amounts) -> str:
    parts = []
    for each, by in zip(short, amounts, strict=True):
        if by:
            base = next(one.hours for one in known[each.key[0]].spec.resources if one.name == each.resource)
            more = base + Quantity.of_milli(by)
            parts.append(
                f"{_hours(by)} hours of {each.resource} of Budget {each.key[0]} "
                f"(from {_hours(base.milli())} to {_hours(more.milli())})"
            )
    return f"add {' and '.join(parts)}"


def _credit_text(short: Sequence[BudgetShortage], known: dict[str, Budget], amounts: Amounts) -> str:
    parts = [
        f"{_hours(by)} hours of {each.resource} in Budget {each.key[0]}"
        + (f" to {each.key[1]}" if each.key[1] else "")
        for each, by in zip(short, amounts, strict=True)
        if by
    ]
    return f"grant a credit of {' and '.join(parts)}"


def _hours(milli: int) -> str:
    return f"{milli / 1000:.15g}"


# --- reservations -------------------------------------------------------------------------------------------


def _reservations(
    engine: Engine, workload: kueue.Workload, proof: BackfillProof, now: float
) -> Iterator[Candidate]:
    """A run time that ends before the reservation begins, or less that is reserved."""
    limit = workload.spec.maximum_execution_time_seconds
    past = workload.status.accumulated_past_execution_time_seconds or 0
    length = round(proof.end - now) + past
    # The trial decides a second from now.
    fewer = round(proof.end - proof.start) + 1
    if 0 < fewer < length - past:
        yield _shorter(workload, limit, length, fewer)
    if proof.kind != "RunsIntoReservation":
        return
    reservation = engine.reservation_object(proof.policy)
    if reservation is None:
        return
    parts = [
        (flavor.name, each.name, units(each.name, each.quantity))
        for flavor in reservation.spec.flavors
        for each in flavor.resources
    ]

    def make(amounts: Amounts) -> Mutations:
        return tuple(
            mutations.reserved_less(reservation, flavor, resource, by)
            for (flavor, resource, _), by in zip(parts, amounts, strict=True)
            if by
        )

    def text(amounts: Amounts) -> str:
        changed = [
            f"{to_quantity(resource, by)} {resource} of flavor {flavor} "
            f"(from {to_quantity(resource, whole)} to {to_quantity(resource, whole - by)})"
            for (flavor, resource, whole), by in zip(parts, amounts, strict=True)
            if by
        ]
        return f"lower what Reservation {proof.policy} keeps free by {' and '.join(changed)}"

    grid = tuple(engine.granularity(workload_queue(engine, workload), resource) for _, resource, _ in parts)
    yield Candidate("Reservation", make, text, [], tuple(whole for _, _, whole in parts), grid=grid)


def workload_queue(engine: Engine, workload: kueue.Workload) -> str:
    """Name of the ClusterQueue of a workload; empty for none."""
    view = engine.workload(workload.metadata.key)
    return view.cluster_queue if view is not None else ""


def _shorter(workload: kueue.Workload, limit: int | None, length: int, fewer: int) -> Candidate:
    """A run time declared `fewer` seconds shorter than `length`; `limit`: as it is declared now."""

    def make(amounts: Amounts) -> Mutations:
        return (mutations.maximum_execution_time(workload, length - amounts[0]),) if amounts[0] else ()

    def text(amounts: Amounts) -> str:
        now = f"{limit} s" if limit is not None else "none"
        return f"declare a maximum execution time of {length - amounts[0]} s (now {now})"

    return Candidate("MaximumExecutionTime", make, text, [(fewer,)], (length - 1,))
