"""The calendar windows of Budgets, from one local midnight to another."""

from __future__ import annotations

from datetime import date, datetime, timedelta, tzinfo
from typing import Final

from pykueue.api.budgets import BudgetWindow

_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: Months of a window, by the calendar.
_MONTHS: Final = {"Monthly": 1, "Quarterly": 3, "Yearly": 12}


def bounds(window: BudgetWindow, now: int) -> tuple[int, int]:
    """Begin and end (exclusive) of the calendar window that a time is in, in seconds since 1970."""
    from zoneinfo import ZoneInfo  # few Budgets have such a window

    zone = ZoneInfo(window.time_zone)
    today = datetime.fromtimestamp(now, zone).date()
    first = _first_day(window, today)
    last = _next_first_day(window, first)
    return _midnight(first, zone), _midnight(last, zone)


def _first_day(window: BudgetWindow, day: date) -> date:
    match window.calendar:
        case "Daily":
            return day
        case "Weekly":
            return day - timedelta(days=(day.weekday() - _WEEKDAYS.index(window.first_weekday)) % 7)
        case calendar:
            assert calendar is not None
            months = _MONTHS[calendar]
            # Months since year 0, in the calendar that begins with the first month of a window.
            since = day.year * 12 + day.month - 1 - (day.day < window.first_day)
            offset = window.first_month - 1 if months > 1 else 0
            begin = (since - offset) // months * months + offset
            return date(begin // 12, begin % 12 + 1, window.first_day)


def _next_first_day(window: BudgetWindow, first: date) -> date:
    match window.calendar:
        case "Daily":
            return first + timedelta(days=1)
        case "Weekly":
            return first + timedelta(days=7)
        case calendar:
            assert calendar is not None
            month = first.year * 12 + first.month - 1 + _MONTHS[calendar]
            return date(month // 12, month % 12 + 1, first.day)


def _midnight(day: date, zone: tzinfo) -> int:
    """The first moment of a day; where midnight does not exist, the moment at which the clock skips it."""
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())
