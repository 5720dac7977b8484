"""Budgets and Reservations: what is used and what is left, and what is kept free when."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from pykueue.api import DecodeError, decode_as
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS, Budget, BudgetLedger
from pykueue.api.meta import format_time, parse_time
from pykueue.api.model import Model
from pykueue.api.reservations import RESERVATIONS, Reservation, amounts_text, state_of, windows
from pykueue.api.validation.reservations import reservation_errors
from pykueue.engine.budgets.rules import hours_text
from pykueue.questions.budgets import HOUR, BudgetState, LedgerState, Use, budgets, hours_in_order
from pykueue.web.dashboard.charts.trend import trend

from .base import Page, View, everywhere, part_of

#: Budgets on one page, and ledgers of each: those with the highest use.
BUDGETS_SHOWN: Final = 20
LEDGERS_SHOWN: Final = 10
#: Windows shown of a Reservation.
WINDOWS_SHOWN: Final = 3


async def _budgets(view: View) -> Mapping[str, Any]:
    view.require("list", BUDGETS)
    ledgers = _decoded(view, BudgetLedger) if view.grants.lists(BUDGET_LEDGERS) else []
    found = budgets(_decoded(view, Budget), ledgers).budgets
    part = part_of(found, view, "/budgets", BUDGETS_SHOWN)
    return {"part": part, "rows": [_row(each, view.now) for each in part.items]}


def _decoded(view: View, kind: type[Model]) -> list[Any]:
    """Objects of a kind; one that cannot be read is left out."""
    found: list[Any] = []
    for obj in view.board.objects(kind.__name__):
        with contextlib.suppress(DecodeError):
            found.append(decode_as(kind, obj))
    return found


def _row(budget: BudgetState, now: float) -> dict[str, Any]:
    ledgers = budget.ledgers[:LEDGERS_SHOWN]
    return {
        "budget": budget,
        "ledgers": [_ledger(each, now) for each in ledgers],
        "more": budget.ledger_count - len(ledgers),
    }


def _ledger(ledger: LedgerState, now: float) -> dict[str, Any]:
    return {
        "value": ledger.value,
        "action": ledger.action,
        "running": ledger.running,
        "forecast": [(name[1:], time) for name, time in sorted(ledger.forecast.items())],
        "uses": [
            {
                "resource": use.resource,
                "fraction": use.used / use.limit if use.limit else 1.0,
                "used": hours_text(use.resource, use.used),
                "reserved": hours_text(use.resource, use.reserved) if use.reserved else "",
                "left": hours_text(use.resource, use.remaining),
                "limit": hours_text(use.resource, use.limit),
                "percent": use.percent,
                "chart": burn_down(use, ledger.value, now),
            }
            for use in ledger.resources
        ],
    }


def burn_down(use: Use, value: str, now: float) -> Markup | None:
    """What was left after each of the last hours; None where use by hour is not known.

    What is reserved is not subtracted: it may come back.
    """
    hours = hours_in_order(use)
    if not hours:
        return None
    left = use.limit - use.used
    times, values = [now], [left]
    for stamp, amount in reversed(hours):
        left += amount
        times.insert(0, float(parse_time(stamp)))
        values.insert(0, left)
    if times[-1] - times[-2] > HOUR:
        # Nothing was used since the last hour with any use.
        times.insert(-1, times[-2] + HOUR)
        values.insert(-1, values[-1])
    unit = " Gi·h" if hours_text(use.resource, 0.0).endswith("Gi·h") else " h"
    scale = float(2**30) if unit == " Gi·h" else 1.0
    whose = f" for {value}" if value else ""
    shown = hours_text(use.resource, values[-1])
    text = f"Hours of {use.resource} that were left{whose} over time, now {shown}"
    lines = [("reserved", "Left", [max(0.0, each / scale) for each in values])]
    return trend(times, lines, now, text, unit)


# --- reservations -------------------------------------------------------------------------------------------


async def _reservations(view: View) -> Mapping[str, Any]:
    view.require("list", RESERVATIONS)
    found: Sequence[Reservation] = _decoded(view, Reservation)
    rows = [_reservation(each, view.now) for each in found]
    order = ("Open", "Upcoming", "Invalid", "Over")
    rows.sort(key=lambda row: (order.index(row["state"]), *row["windows"][:1], row["name"]))
    return {"part": part_of(rows, view, "/reservations")}


def _reservation(obj: Reservation, now: float) -> dict[str, Any]:
    spec = obj.spec
    errors = reservation_errors(obj)
    ahead = [] if errors else windows(spec, now)
    return {
        "name": obj.metadata.name,
        "cluster_queue": spec.cluster_queue or "",
        "cohort": spec.cohort or "",
        "purpose": spec.purpose,
        "state": "Invalid" if errors else state_of(ahead, now),
        "problem": "; ".join(map(str, errors)),
        "schedule": f"{spec.schedule} ({spec.time_zone})" if spec.schedule is not None else "",
        "reserved": amounts_text(spec),
        "windows": [format_time(each.start) for each in ahead[:WINDOWS_SHOWN]],
        "duration": spec.duration,
    }


PAGES = (
    Page(
        "/budgets",
        "Budgets",
        "budgets.html",
        _budgets,
        lambda params: everywhere(BUDGETS, BUDGET_LEDGERS),
        section="Budgets",
        seconds=5.0,
    ),
    Page(
        "/reservations",
        "Reservations",
        "reservations.html",
        _reservations,
        lambda params: everywhere(RESERVATIONS),
        parent="/budgets",
        seconds=5.0,
    ),
)
