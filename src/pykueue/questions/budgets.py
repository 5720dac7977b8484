# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""How much of Budgets is used: from their status, and from the ledgers where these may be read."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.budgets import Budget, BudgetLedger, BudgetSelector, BudgetUse, LedgerSummary, Span
from pykueue.api.meta import format_time, parse_time
from pykueue.questions.answers import Answer

HOUR = 3600
_NANO = 10**9


class Use(Answer, kw_only=True):
    """One resource of one ledger, in resource-hours."""

    resource: str
    limit: float
    used: float
    reserved: float
    """What running workloads may still use, under reservation Declared."""
    remaining: float
    percent: int
    by_hour: dict[str, float] = {}
    """By the hours of the last two days with any use, where the ledger was read."""


class Past(Answer, kw_only=True):
    """A window that is over, in resource-hours by resource."""

    start: str
    end: str
    used: dict[str, float]
    limit: dict[str, float]


class LedgerState(Answer, kw_only=True):
    """One ledger."""

    value: str = ""
    """Value of the label; empty for jobs without it, and for Budgets of another selector."""
    action: str = ""
    """The strictest action that is in force."""
    running: int = 0
    """Number of workloads that use it now."""
    resources: list[Use] = []
    forecast: dict[str, str] = {}
    """When the first resource is used up with a probability of 10, 50 and 90 percent: p10, p50 and p90."""
    past: list[Past] = []
    """Windows that are over, where the ledger was read."""


class BudgetState(Answer, kw_only=True):
    """One Budget."""

    name: str
    selector: str
    window_start: str | None = None
    window_end: str | None = None
    complete_since: str | None = None
    ledgers: list[LedgerState] = []
    ledger_count: int = 0
    """Number of ledgers, of which those with the highest use are listed."""


class Budgets(Answer, kw_only=True):
    """Budgets, by name."""

    budgets: list[BudgetState]
    unread: list[str] = []
    notes: list[str] = []


def budgets(objects: Iterable[Budget], ledgers: Iterable[BudgetLedger], name: str | None = None) -> Budgets:
    """All Budgets, or the one of that name."""
    by_name = {each.metadata.name: each for each in ledgers}
    found = [each for each in objects if name is None or each.metadata.name == name]
    found.sort(key=lambda each: each.metadata.name)
    return Budgets(budgets=[_state(each, by_name) for each in found])


def _state(budget: Budget, ledgers: dict[str, BudgetLedger]) -> BudgetState:
    status = budget.status
    return BudgetState(
        name=budget.metadata.name,
        selector=selector_text(budget.spec.selector),
        window_start=status.window_start,
        window_end=status.window_end,
        complete_since=status.complete_since,
        ledgers=[_ledger(each, ledgers.get(each.ledger)) for each in status.ledgers],
        ledger_count=status.ledger_count,
    )


def _ledger(summary: LedgerSummary, ledger: BudgetLedger | None) -> LedgerState:
    forecast = summary.forecast
    times = {} if forecast is None else {"p10": forecast.p10, "p50": forecast.p50, "p90": forecast.p90}
    past = ledger.spec.past if ledger is not None else []
    hours = ledger.spec.hours if ledger is not None else []
    return LedgerState(
        value=summary.value,
        action=summary.action,
        running=summary.running,
        resources=[_use(each, hours) for each in summary.resources],
        forecast={name: time for name, time in times.items() if time is not None},
        past=[
            Past(
                start=each.start,
                end=each.end,
                used={name: amount.nanos / _NANO / HOUR for name, amount in each.used.items()},
                limit={name: amount.nanos / _NANO / HOUR for name, amount in each.limit.items()},
            )
            for each in past
        ],
    )


def _use(use: BudgetUse, hours: Iterable[Span]) -> Use:
    return Use(
        resource=use.name,
        limit=use.limit.nanos / _NANO,
        used=use.used.nanos / _NANO,
        reserved=use.reserved.nanos / _NANO,
        remaining=use.remaining.nanos / _NANO,
        percent=use.percent,
        by_hour={
            each.start: each.used[use.name].nanos / _NANO / HOUR for each in hours if use.name in each.used
        },
    )


def selector_text(selector: BudgetSelector) -> str:
    """Whose workloads a Budget is for."""
    if selector.local_queue is not None:
        return f"LocalQueue {selector.local_queue.namespace}/{selector.local_queue.name}"
    if selector.cluster_queue is not None:
        return f"ClusterQueue {selector.cluster_queue}"
    if selector.cohort is not None:
        return f"cohort {selector.cohort}"
    if selector.namespace is not None:
        return f"namespace {selector.namespace}"
    return f"label {selector.label}"


def hours_in_order(use: Use) -> list[tuple[str, float]]:
    """Use of each hour from the first to the last one with any, hours without use included."""
    if not use.by_hour:
        return []
    times = sorted(int(parse_time(each)) for each in use.by_hour)
    stamps = [format_time(time) for time in range(times[0], times[-1] + 1, HOUR)]
    return [(stamp, use.by_hour.get(stamp, 0.0)) for stamp in stamps]
