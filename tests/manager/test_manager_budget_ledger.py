"""The arithmetic of ledgers: every second once, windows of every kind, thresholds, forecasts."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.api import encode
from pykueue.api.budgets import BudgetLedgerSpec, BudgetSpec, BudgetWindow
from pykueue.api.decoding import decode_as
from pykueue.manager.budgets.ledger import HOUR, Ledger, Run, Terms
from pykueue.manager.budgets.status import forecast
from pykueue.manager.budgets.windows import bounds

NANO = 10**9
#: 2026-01-01 00:00:00 UTC, a Thursday.
START = 1767225600


def terms(hours: Any = 100, **spec: Any) -> Terms:
    found = {"selector": {"namespace": "ns"}, "resources": [{"name": "cpu", "hours": str(hours)}], **spec}
    return Terms(decode_as(BudgetSpec, found), "")


def ledger(now: int = START, given: Terms | None = None) -> Ledger:
    made = Ledger("b", "", now, now)
    made.advance(now, given or terms())
    return made


def run(uid: str, since: int, cpus: int = 1, reserved: int = 0) -> Run:
    return Run(uid, f"ns/{uid}", since, since, {"cpu": cpus * NANO}, 0, reserved)


def restarted(made: Ledger) -> Ledger:
    """The ledger as a manager reads it that starts now."""
    return Ledger.read(decode_as(BudgetLedgerSpec, encode(made.spec())))


def zone_time(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


@pytest.mark.parametrize(
    ("window", "now", "begin", "end"),
    [
        ({"calendar": "Daily"}, "2026-03-29T12:00", "2026-03-29", "2026-03-30"),
        ({"calendar": "Weekly"}, "2026-01-01T00:00", "2025-12-29", "2026-01-05"),
        ({"calendar": "Weekly", "firstWeekday": "Thursday"}, "2026-01-01T00:00", "2026-01-01", "2026-01-08"),
        ({"calendar": "Monthly"}, "2026-02-28T23:59", "2026-02-01", "2026-03-01"),
        ({"calendar": "Monthly", "firstDay": 15}, "2026-01-14T23:59", "2025-12-15", "2026-01-15"),
        ({"calendar": "Quarterly"}, "2026-05-05T00:00", "2026-04-01", "2026-07-01"),
        ({"calendar": "Quarterly", "firstMonth": 2}, "2026-01-31T00:00", "2025-11-01", "2026-02-01"),
        ({"calendar": "Yearly", "firstMonth": 4}, "2026-03-31T23:59", "2025-04-01", "2026-04-01"),
        (
            {"calendar": "Yearly", "firstMonth": 4, "firstDay": 6},
            "2026-04-06T00:00",
            "2026-04-06",
            "2027-04-06",
        ),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"])
def test_calendar_window_runs_from_midnight_to_midnight_of_its_zone(
    window: dict[str, Any], now: str, begin: str, end: str, zone: str
) -> None:
    found = bounds(decode_as(BudgetWindow, {**window, "timeZone": zone}), zone_time(now, zone))
    assert found == (zone_time(begin, zone), zone_time(end, zone))


def test_day_of_the_change_to_summer_time_has_23_hours() -> None:
    window = decode_as(BudgetWindow, {"calendar": "Daily", "timeZone": "Europe/Berlin"})
    begin, end = bounds(window, int(datetime(2026, 3, 29, 12, tzinfo=UTC).timestamp()))
    assert end - begin == 23 * HOUR


def test_use_across_midnight_is_split_between_the_windows_and_what_is_left_is_carried_over() -> None:
    daily = terms(10, window={"calendar": "Daily"}, carryOver={"percent": 50, "maxPercent": 20})
    made = ledger(START, daily)
    made.open(run("w", START + 20 * HOUR))
    made.advance(START + 26 * HOUR, daily)
    assert made.used == {"cpu": 2 * HOUR * NANO}
    assert made.past[0].used["cpu"].value() == 4 * HOUR
    assert made.limit == {"cpu": 12 * HOUR * NANO}, "half of 6 hours is 3, but 20 percent of 10 is the most"
    assert made.total == {"cpu": 6 * HOUR * NANO}


def test_end_that_becomes_known_late_returns_what_was_counted_beyond_it() -> None:
    made = ledger()
    made.open(run("w", START, 2))
    made.advance(START + 100, terms())
    made.close("w", START + 60, terms())
    made.advance(START + 200, terms())
    assert made.used == made.total == {"cpu": 120 * NANO}


def test_rolling_window_forgets_use_a_part_at_a_time() -> None:
    rolling = terms(10, window={"rolling": "60h"})
    made = ledger(START, rolling)
    made.open(run("w", START))
    made.close("w", START + 2 * HOUR, rolling)
    made.advance(START + 59 * HOUR, rolling)
    assert made.used == {"cpu": 2 * HOUR * NANO}
    made.advance(START + 61 * HOUR, rolling)
    assert made.used == {"cpu": HOUR * NANO}
    made.advance(START + 62 * HOUR, rolling)
    assert made.used == {}
    assert made.total == {"cpu": 2 * HOUR * NANO}


def test_credit_counts_between_its_times() -> None:
    credit = {"name": "c", "resource": "cpu", "hours": "5", "reason": "r", "grantedBy": "a"}
    times = {"notBefore": "2026-01-01T01:00:00Z", "notAfter": "2026-01-01T02:00:00Z"}
    with_credit = terms(10, credits=[{**credit, **times}])
    made = ledger(START, with_credit)
    limits = []
    for hour in range(3):
        made.advance(START + hour * HOUR, with_credit)
        limits.append(made.limit["cpu"] // NANO // HOUR)
    assert limits == [10, 15, 10]


def test_strictest_threshold_is_in_force_and_its_time_is_known_before() -> None:
    steps = terms(
        1,
        thresholds=[
            {"percent": 50, "action": "Warn"},
            {"percent": 80, "action": "NoBorrowing"},
            {"percent": 100, "action": "Evict", "grace": "1m"},
        ],
    )
    made = ledger(START, steps)
    made.open(run("w", START))
    seen = []
    for _ in range(4):
        at = made.next_change(steps)
        assert at is not None
        made.advance(at - 1, steps)
        before = made.action
        made.advance(at, steps)
        seen.append((at - START, before, made.action))
    assert seen == [
        (1800, "", "Warn"),
        (2880, "Warn", "NoBorrowing"),
        (3600, "NoBorrowing", "Evict"),
        (3660, "Evict", "Evict"),
    ]


def test_window_that_is_changed_takes_over_what_is_known_and_says_since_when() -> None:
    once, daily = terms(), terms(window={"calendar": "Daily"})
    made = ledger(START, once)
    made.open(run("w", START + HOUR))
    made.advance(START + 30 * HOUR, once)
    made.advance(START + 30 * HOUR, daily)
    assert made.used == {"cpu": 6 * HOUR * NANO}
    assert made.window == (START + 24 * HOUR, START + 48 * HOUR)
    made.advance(START + 30 * HOUR, once)
    assert made.used == made.total == {"cpu": 29 * HOUR * NANO}


def test_clock_set_back_before_the_window_goes_on_with_the_window_before() -> None:
    daily = terms(window={"calendar": "Daily"})
    made = ledger(START, daily)
    made.open(run("w", START + 23 * HOUR))
    made.advance(START + 24 * HOUR + 600, daily)
    made.shift(-1200)
    made.advance(START + 24 * HOUR - 600, daily)
    assert made.used == {"cpu": (HOUR + 600) * NANO}
    assert made.past == []


def test_forecast_has_an_interval_around_steady_use_and_none_without_use() -> None:
    made = ledger()
    assert forecast(made) is None
    made.open(run("w", START))
    made.advance(START + 10 * HOUR, terms())
    found = forecast(made)
    assert found is not None
    assert found.p10 == found.p50 == found.p90 == "2026-01-05T04:00:00Z"
    made.close("w", START + 10 * HOUR, terms())
    made.advance(START + 20 * HOUR, terms())
    found = forecast(made)
    assert found is not None
    assert (found.p10 or "") < (found.p50 or "") < (found.p90 or "")


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize(
    "window", [None, {"calendar": "Daily"}, {"rolling": "24h"}], ids=["once", "daily", "rolling"]
)
def test_total_is_the_sum_over_all_runs_whatever_restarts_and_clock_changes_come_between(
    window: dict[str, Any] | None, seed: int
) -> None:
    check_ledger(window, random.Random(seed), 40)


def check_ledger(window: dict[str, Any] | None, rng: random.Random, steps: int) -> None:
    """Random runs, changes of their rates, crashes between any two writes, and jumps of the clock."""
    given = terms(**({"window": window} if window else {}))
    real = now = START
    stored = made = ledger(START, given)
    #: Seconds times rate of runs that the ledger was told of, by the time that really passed.
    expected = 0
    active: dict[str, tuple[int, int]] = {}
    for step in range(steps):
        length = rng.choice((1, 59, 60, 3600, 40000))
        real, now = real + length, now + length
        expected += sum(length * rate for _, rate in active.values())
        action = rng.choice(("open", "close", "rates", "write", "crash", "jump", "late"))
        if action == "open":
            uid = f"w{step}"
            active[uid] = now, rng.randint(1, 4)
            made.open(run(uid, now, active[uid][1]))
            stored = restarted(made)
        elif action == "close" and active:
            uid = rng.choice(sorted(active))
            del active[uid]
            made.close(uid, now, given)
            stored = restarted(made)
        elif action == "late" and active:
            # The end is seen only after the ledger was counted further.
            uid = rng.choice(sorted(active))
            del active[uid]
            later = rng.randint(1, 30)
            made.advance(now + later, given)
            made.close(uid, now, given)
            real, now = real + later, now + later
            expected += sum(later * rate for _, rate in active.values())
            stored = restarted(made)
        elif action == "rates" and active:
            uid = rng.choice(sorted(active))
            active[uid] = active[uid][0], rng.randint(1, 4)
            made.set_rates(uid, {"cpu": active[uid][1] * NANO}, now, given)
            stored = restarted(made)
        elif action == "write":
            made.advance(now, given)
            stored = restarted(made)
        elif action == "crash":
            made = stored
        elif action == "jump":
            jump = rng.choice((-86400, -100, 100, 86400))
            made.advance(now, given)
            made.shift(jump)
            now += jump
            stored = restarted(made)
    made.advance(now, given)
    assert made.total.get("cpu", 0) == expected * NANO
    assert all(amount >= 0 for amount in made.used.values())
    assert made.used.get("cpu", 0) <= made.total.get("cpu", 0)
    assert restarted(made).spec() == made.spec()
