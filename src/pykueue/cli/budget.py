"""`pykueue budget`: how much of Budgets is used, and when they will be used up."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pykueue.api.budgets import Budget, BudgetLedger
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import conclude, read_source
from pykueue.engine.budgets.rules import hours_text
from pykueue.plugin.tables import table
from pykueue.questions.budgets import Budgets, BudgetState, LedgerState, Use, hours_in_order
from pykueue.questions.budgets import budgets as answer_budgets

_BARS = "▁▂▃▄▅▆▇█"


def run(source: SourceOptions, name: str | None, output: str) -> None:
    """Carry out the command, whose options `questions` describes."""
    found = read_source(source)
    answer = answer_budgets(found.objects(Budget), found.objects(BudgetLedger), name)
    if name is not None and not answer.budgets:
        raise click.ClickException(f"there is no Budget {name}")
    conclude(found, answer, output, lines if name is None else details)


def lines(answer: Budgets) -> Iterator[str]:
    """All Budgets as a table."""
    titles = [
        "BUDGET",
        "VALUE",
        "RESOURCE",
        "USED",
        "RESERVED",
        "LEFT",
        "LIMIT",
        "PERCENT",
        "ACTION",
        "USED UP",
    ]
    rows = [
        [
            budget.name,
            ledger.value or "-",
            use.resource,
            *(hours_text(use.resource, each) for each in (use.used, use.reserved, use.remaining, use.limit)),
            f"{use.percent}%",
            ledger.action or "-",
            ledger.forecast.get("p50", "-"),
        ]
        for budget in answer.budgets
        for ledger in budget.ledgers
        for use in ledger.resources
    ]
    yield from table(titles, rows).splitlines() if rows else ["No Budget has a ledger yet."]


def details(answer: Budgets) -> Iterator[str]:
    """Budgets in full."""
    for budget in answer.budgets:
        yield from _details(budget)


def _details(budget: BudgetState) -> Iterator[str]:
    yield f"Budget {budget.name} for {budget.selector}"
    if budget.window_start is not None:
        yield f"Window from {budget.window_start} to {budget.window_end}"
    yield f"Complete since {budget.complete_since or 'it was created'}"
    for ledger in budget.ledgers:
        yield ""
        yield from _ledger(ledger)
    if budget.ledger_count > len(budget.ledgers):
        yield f"Ledgers with lower use: {budget.ledger_count - len(budget.ledgers)}"


def _ledger(ledger: LedgerState) -> Iterator[str]:
    if ledger.value:
        yield f"{ledger.value}:"
    running = "1 workload uses it now" if ledger.running == 1 else f"{ledger.running} workloads use it now"
    yield f"{running}; action in force: {ledger.action or 'none'}"
    for use in ledger.resources:
        used, limit, reserved, left = (
            hours_text(use.resource, each) for each in (use.used, use.limit, use.reserved, use.remaining)
        )
        yield f"{use.resource}: {used} of {limit} used ({use.percent}%), {reserved} reserved, {left} left"
        yield from _burn_down(use)
    if ledger.forecast:
        shown = [f"{time} ({name[1:]}%)" for name, time in sorted(ledger.forecast.items())]
        yield f"Used up by {', '.join(shown)}"
    for past in ledger.past:
        used = ", ".join(
            f"{hours_text(name, amount)} of {hours_text(name, past.limit.get(name, 0.0))} of {name}"
            for name, amount in sorted(past.used.items())
        )
        yield f"{past.start} to {past.end}: {used or 'no use'}"


def _burn_down(use: Use) -> Iterator[str]:
    """Use by hour, as bars."""
    hours = hours_in_order(use)
    highest = max((amount for _, amount in hours), default=0.0)
    if highest > 0:
        bars = "".join(_BARS[min(7, int(amount / highest * 7.999))] for _, amount in hours)
        yield f"  {bars}  by hour since {hours[0][0]}, at most {hours_text(use.resource, highest)}"
