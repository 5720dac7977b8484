"""The status of a Budget: use by ledger, the window, and when the budget will be used up."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from pykueue.api import encode
from pykueue.api.budgets import (
    HOURS_MAX,
    SHOWN_MAX,
    BudgetStatus,
    BudgetUse,
    Forecast,
    LedgerSummary,
    PrintedUse,
    ledger_name,
)
from pykueue.api.meta import format_time
from pykueue.api.quantity import Quantity
from pykueue.engine.budgets.rules import hours_text

from .books import Books
from .ledger import HOUR, Ledger

#: The 10th percentile of the normal distribution, in standard deviations.
_P10 = 1.2816
#: Hours of use from which on a forecast has an interval.
_SAMPLES = 4
#: Forecasts further away are not made, in hours.
_HORIZON = 365 * 24


def budget_status(ledgers: Sequence[Ledger], books: Books) -> dict[str, Any]:
    """The status that follows from the ledgers of a Budget, as an object has it."""
    shown = sorted(ledgers, key=lambda each: (-_highest(each), each.value))[:SHOWN_MAX]
    window = next((each.window for each in ledgers if each.window is not None), None)
    since = min((each.complete_since for each in ledgers), default=None)
    status = BudgetStatus(
        window_start=format_time(window[0]) if window is not None else None,
        window_end=format_time(window[1]) if window is not None else None,
        complete_since=format_time(since) if since is not None else None,
        ledgers=[_summary(each, books) for each in shown],
        ledger_count=len(ledgers),
        printed=_printed(shown[0], books) if shown else None,
    )
    found: dict[str, Any] = encode(status)
    return found


def _highest(ledger: Ledger) -> int:
    return max((ledger.percent(name) for name in ledger.limit), default=0)


def _printed(ledger: Ledger, books: Books) -> PrintedUse | None:
    """The resource of a ledger that is used most, the first of its Budget among several."""
    use = max(_resources(ledger, books), key=lambda each: each.percent, default=None)
    if use is None:
        return None
    return PrintedUse(
        resource=use.name,
        used=_text(use, use.used),
        reserved=_text(use, use.reserved),
        left=_text(use, use.remaining),
        limit=_text(use, use.limit),
        percent=f"{use.percent}%",
    )


def _text(use: BudgetUse, hours: Quantity) -> str:
    return hours_text(use.name, float(hours))


def _resources(ledger: Ledger, books: Books) -> list[BudgetUse]:
    terms = books.terms((ledger.budget, ledger.value))
    return [_use(ledger, name) for name in (terms.base if terms is not None else ledger.limit)]


def _summary(ledger: Ledger, books: Books) -> LedgerSummary:
    return LedgerSummary(
        value=ledger.value,
        ledger=ledger_name(ledger.budget, ledger.value),
        resources=_resources(ledger, books),
        running=len(ledger.running),
        action=ledger.action,
        forecast=forecast(ledger),
    )


def _use(ledger: Ledger, name: str) -> BudgetUse:
    limit, used, reserved = ledger.limit.get(name, 0), ledger.used.get(name, 0), ledger.reserved(name)
    return BudgetUse(
        name=name,
        limit=in_hours(limit),
        used=in_hours(used),
        reserved=in_hours(reserved),
        remaining=in_hours(max(0, limit - used - reserved)),
        percent=ledger.percent(name),
    )


def in_hours(nanos: int) -> Quantity:
    """Nanos of resource-seconds as resource-hours, in thousandths, rounded down."""
    return Quantity.of_milli(nanos // (HOUR * 1_000_000))


def forecast(ledger: Ledger) -> Forecast | None:
    """When the first resource is used up, if use goes on as in the last hours; None: not within a year.

    Use of an hour is taken for a random number with the mean and the variance of the last 48 hours, or of
    those since the first use. The sum of n such hours is close to a normal distribution.
    """
    found = [each for name in ledger.limit if (each := _forecast(ledger, name)) is not None]
    return min(found, key=lambda each: (each.p50 or "~", each.p10 or "~"), default=None)


def _forecast(ledger: Ledger, name: str) -> Forecast | None:
    if not ledger.hours:
        return None
    this = ledger.now - ledger.now % HOUR
    count = min(HOURS_MAX, max(1, (this - ledger.hours[0][0]) // HOUR))
    by_hour = dict(ledger.hours)
    samples = [by_hour.get(this - HOUR * (number + 1), {}).get(name, 0) for number in range(count)]
    if not any(samples):
        samples = [sum(run.rates.get(name, 0) for run in ledger.running.values()) * HOUR]
    mean = sum(samples) / len(samples)
    left = ledger.limit[name] - ledger.used.get(name, 0)
    if mean <= 0 or left <= 0:
        return None
    deviation = sqrt(sum((each - mean) ** 2 for each in samples) / len(samples))

    def after(z: float) -> str | None:
        root = (-z * deviation + sqrt((z * deviation) ** 2 + 4 * mean * left)) / (2 * mean)
        hours = root * root
        end = ledger.now + int(hours * HOUR)
        if hours > _HORIZON or (ledger.window is not None and end >= ledger.window[1]):
            return None
        return format_time(end)

    if count < _SAMPLES:
        return Forecast(resource=name, p50=after(0.0)) if after(0.0) is not None else None
    if after(_P10) is None:
        return None
    return Forecast(resource=name, p10=after(_P10), p50=after(0.0), p90=after(-_P10))
