"""The arithmetic of one ledger: use by running workloads, windows, and thresholds.

A ledger says up to which second the use of each running workload is in its amounts (`through`). Amounts and
that second change together, in one object, so that after a crash the next manager goes on from there and no
second is counted twice or lost. Times are whole seconds since 1970, amounts nanos of resource-seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pykueue.api.budgets import (
    HOURS_MAX,
    PARTS,
    PAST_MAX,
    BudgetLedgerSpec,
    BudgetSpec,
    PastWindow,
    RunningWorkload,
    Span,
    Threshold,
)
from pykueue.api.meta import format_time, parse_time
from pykueue.api.preemption_policies import seconds
from pykueue.api.quantity import Quantity

from .windows import bounds

HOUR = 3600
#: From the mildest to the strictest.
_ACTIONS = ("", "Warn", "NoBorrowing", "NoAdmission", "Evict")
_DEFAULT_THRESHOLDS = (Threshold(percent=100, action="NoAdmission"),)

Amounts = dict[str, int]


@dataclass
class Run:
    """A workload whose use is being counted."""

    uid: str
    workload: str
    since: int
    through: int
    rates: Amounts
    seconds: int = 0
    reserved_seconds: int = 0


@dataclass
class Terms:
    """What a Budget allows one ledger."""

    spec: BudgetSpec
    value: str

    @property
    def rolling(self) -> int:
        """Length of the rolling window in seconds; 0: it is none."""
        window = self.spec.window
        return int(seconds(window.rolling)) if window is not None else 0

    @property
    def thresholds(self) -> Iterable[Threshold]:
        """What happens at which percentage."""
        return self.spec.thresholds or _DEFAULT_THRESHOLDS

    @property
    def base(self) -> Amounts:
        """What a window allows by itself."""
        return {each.name: each.hours.nanos * HOUR for each in self.spec.resources}

    def window(self, now: int) -> tuple[int, int] | None:
        """The calendar window that a time is in; None where there is none."""
        window = self.spec.window
        return bounds(window, now) if window is not None and window.calendar is not None else None

    def limit(self, carried: Mapping[str, int], now: int) -> Amounts:
        """What is allowed, with the credits that count now."""
        found = {name: amount + carried.get(name, 0) for name, amount in self.base.items()}
        for credit in self.spec.credits:
            if credit.value is not None and credit.value != self.value:
                continue
            if credit.not_before and now < parse_time(credit.not_before):
                continue
            if credit.not_after and now >= parse_time(credit.not_after):
                continue
            if credit.resource in found:
                found[credit.resource] += credit.hours.nanos * HOUR
        return found

    def credit_times(self, now: int) -> Iterator[int]:
        """Times to come at which a credit begins or ceases to count."""
        for credit in self.spec.credits:
            for text in (credit.not_before, credit.not_after):
                if text and parse_time(text) > now:
                    yield int(parse_time(text))


@dataclass
class Ledger:
    """One ledger."""

    budget: str
    value: str
    complete_since: int
    now: int
    """The second up to which it is complete."""
    window: tuple[int, int] | None = None
    used: Amounts = field(default_factory=dict)
    total: Amounts = field(default_factory=dict)
    carried: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    action: str = ""
    action_since: int | None = None
    running: dict[str, Run] = field(default_factory=dict)
    parts: list[tuple[int, Amounts]] = field(default_factory=list)
    hours: list[tuple[int, Amounts]] = field(default_factory=list)
    past: list[PastWindow] = field(default_factory=list)

    # --- runs -------------------------------------------------------------------------------------------

    def open(self, run: Run) -> None:
        """Begin to count a workload, from `run.through` on."""
        self.running[run.uid] = run

    def set_rates(self, uid: str, rates: Amounts, now: int, terms: Terms) -> None:
        """Count the rest of a workload at other rates."""
        run = self.running[uid]
        self._count(run, max(now, run.since), terms)
        run.rates = rates

    def close(self, uid: str, end: int, terms: Terms) -> None:
        """A workload ended: what was counted beyond its end is returned."""
        run = self.running.pop(uid)
        self._count(run, max(end, run.since), terms)

    def _count(self, run: Run, until: int, terms: Terms) -> None:
        """Count a workload up to a second, which may be before the one it was counted to."""
        length = until - run.through
        if not length:
            return
        sign = 1 if length > 0 else -1
        start, end = min(run.through, until), max(run.through, until)
        run.seconds += length
        run.through = until
        begin = self.window[0] if self.window is not None else start
        for name, rate in run.rates.items():
            self.total[name] = self.total.get(name, 0) + rate * length
            inside = sign * max(0, end - max(start, begin))
            self.used[name] = self.used.get(name, 0) + rate * inside
        _spread(self.hours, start, end, HOUR, run.rates, sign)
        if terms.rolling:
            _spread(self.parts, start, end, _part(terms), run.rates, sign)

    # --- time -------------------------------------------------------------------------------------------

    def advance(self, now: int, terms: Terms) -> None:
        """Count everything up to `now`, through the ends of windows; does nothing for a time in the past."""
        self._take_over_window(now, terms)
        while self.window is not None and self.window[1] <= now:
            end = self.window[1]
            self._count_all(end, terms)
            self._roll(end, terms)
        self._count_all(now, terms)
        self.now = max(now, self.now)
        del self.hours[:-HOURS_MAX]
        if terms.rolling:
            size, oldest = _part(terms), now - terms.rolling
            self.parts = [part for part in self.parts if part[0] + size > oldest]
            self.used = _sum(self.parts)
        self.limit = terms.limit(self.carried, now)
        action = self._reached(terms)
        if action != self.action:
            self.action, self.action_since = action, now if action else None

    def _count_all(self, until: int, terms: Terms) -> None:
        for run in self.running.values():
            if run.through < until:
                self._count(run, until, terms)

    def shift(self, jump: int) -> None:
        """The wall clock was set by so many seconds: what follows is counted by the new time."""
        for run in self.running.values():
            run.since += jump
            run.through += jump
        self.now += jump

    def _roll(self, end: int, terms: Terms) -> None:
        """The window is over: the next one begins, with what is carried over."""
        assert self.window is not None
        limit = terms.limit(self.carried, end - 1)
        self.past.insert(
            0,
            PastWindow(
                start=format_time(self.window[0]),
                end=format_time(end),
                used=quantities(self.used),
                limit=quantities(limit),
            ),
        )
        del self.past[PAST_MAX:]
        rule = terms.spec.carry_over
        self.carried = {}
        if rule is not None:
            for name, base in terms.base.items():
                left = max(0, limit[name] - self.used.get(name, 0))
                self.carried[name] = min(left * rule.percent // 100, base * rule.max_percent // 100)
        self.used = {}
        self.window = terms.window(end)

    def _take_over_window(self, now: int, terms: Terms) -> None:
        """Take over a window that the Budget did not have before: what is known of its use counts."""
        window = terms.window(now)
        known = self.window
        if known is not None and window is not None and terms.window(known[0]) == known:
            if now >= known[0]:
                return
            # The clock was set back before the window began: the window before it goes on.
            if self.past and parse_time(self.past[0].start) == window[0]:
                back = self.past.pop(0)
                for name, amount in back.used.items():
                    self.used[name] = self.used.get(name, 0) + amount.nanos
                self.window = window
            return
        if known is None and window is None and bool(self.parts) == bool(terms.rolling):
            return
        if known is None and window is None and not self.hours:
            return
        begin = window[0] if window is not None else now - terms.rolling if terms.rolling else 0
        self.window, self.carried = window, {}
        if terms.rolling:
            self.parts = [(start, dict(used)) for start, used in self.hours if start + HOUR > begin]
        else:
            self.parts = []
        if begin > self.complete_since:
            self.used = _sum([part for part in self.hours if part[0] >= begin])
            if self.hours and self.hours[0][0] > begin:
                self.complete_since = self.hours[0][0]
        else:
            self.used = dict(self.total)

    # --- thresholds -------------------------------------------------------------------------------------

    def percent(self, name: str) -> int:
        """Used part of a resource, rounded down."""
        limit = self.limit.get(name, 0)
        return self.used.get(name, 0) * 100 // limit if limit > 0 else 100

    def _reached(self, terms: Terms) -> str:
        highest = max((self.percent(name) for name in terms.base), default=0)
        reached = [each.action for each in terms.thresholds if highest >= each.percent]
        return max(reached, key=_ACTIONS.index, default="")

    def next_change(self, terms: Terms) -> int | None:
        """When the action or the limit may change next if everything goes on as it does; None: never."""
        times = list(terms.credit_times(self.now))
        if self.window is not None:
            times.append(self.window[1])
        for name in terms.base:
            rate = sum(run.rates.get(name, 0) for run in self.running.values())
            for each in terms.thresholds if rate else ():
                left = -(-self.limit.get(name, 0) * each.percent // 100) - self.used.get(name, 0)
                if left > 0:
                    times.append(self.now - (-left // rate))
        if self.action == "Evict" and self.action_since is not None and self.running:
            times += [end for end in [self.action_since + grace(terms)] if end > self.now]
        if self.parts and terms.rolling:
            times.append(self.parts[0][0] + _part(terms) + terms.rolling)
        times += [
            run.through + run.reserved_seconds - run.seconds
            for run in self.running.values()
            if run.reserved_seconds > run.seconds
        ]
        return min(times, default=None)

    def reserved(self, name: str) -> int:
        """What running workloads may still use of what was set aside for them."""
        return sum(
            run.rates.get(name, 0) * max(0, run.reserved_seconds - run.seconds)
            for run in self.running.values()
        )

    # --- the object -------------------------------------------------------------------------------------

    @classmethod
    def read(cls, spec: BudgetLedgerSpec) -> Ledger:
        """The ledger that an object describes."""
        running = {
            each.uid: Run(
                each.uid,
                each.workload,
                int(parse_time(each.since)),
                int(parse_time(each.through)),
                _nanos(each.rates),
                each.seconds,
                each.reserved_seconds,
            )
            for each in spec.running
        }
        window = None
        if spec.window_start and spec.window_end:
            window = int(parse_time(spec.window_start)), int(parse_time(spec.window_end))
        since = int(parse_time(spec.complete_since))
        return cls(
            spec.budget,
            spec.value,
            since,
            max([since, *(run.through for run in running.values())]),
            window,
            _nanos(spec.used),
            _nanos(spec.total),
            _nanos(spec.carried),
            _nanos(spec.limit),
            spec.action,
            int(parse_time(spec.action_since)) if spec.action_since else None,
            running,
            [(int(parse_time(each.start)), _nanos(each.used)) for each in spec.parts],
            [(int(parse_time(each.start)), _nanos(each.used)) for each in spec.hours],
            list(spec.past),
        )

    def spec(self) -> BudgetLedgerSpec:
        """The object that describes the ledger."""
        return BudgetLedgerSpec(
            budget=self.budget,
            value=self.value,
            complete_since=format_time(self.complete_since),
            window_start=format_time(self.window[0]) if self.window is not None else None,
            window_end=format_time(self.window[1]) if self.window is not None else None,
            used=quantities(self.used),
            total=quantities(self.total),
            carried=quantities(self.carried),
            limit=quantities(self.limit),
            action=self.action,
            action_since=format_time(self.action_since) if self.action_since is not None else None,
            running=[
                RunningWorkload(
                    uid=run.uid,
                    workload=run.workload,
                    since=format_time(run.since),
                    through=format_time(run.through),
                    rates=quantities(run.rates),
                    seconds=run.seconds,
                    reserved_seconds=run.reserved_seconds,
                )
                for _, run in sorted(self.running.items())
            ],
            parts=[Span(start=format_time(start), used=quantities(used)) for start, used in self.parts],
            hours=[Span(start=format_time(start), used=quantities(used)) for start, used in self.hours],
            past=self.past,
        )


def grace(terms: Terms) -> int:
    """Seconds from the threshold of Evict to the eviction."""
    return max((int(seconds(each.grace)) for each in terms.thresholds if each.action == "Evict"), default=0)


def quantities(amounts: Mapping[str, int]) -> dict[str, Any]:
    """Amounts as an object has them, without zeros."""
    return {name: Quantity(amount) for name, amount in sorted(amounts.items()) if amount}


def _nanos(amounts: Mapping[str, Quantity]) -> Amounts:
    return {name: amount.nanos for name, amount in amounts.items()}


def _part(terms: Terms) -> int:
    """Seconds of a part of a rolling window."""
    return -(-terms.rolling // PARTS)


def _sum(parts: Iterable[tuple[int, Mapping[str, int]]]) -> Amounts:
    found: Amounts = {}
    for _, used in parts:
        for name, amount in used.items():
            found[name] = found.get(name, 0) + amount
    return found


def _spread(
    parts: list[tuple[int, Amounts]], start: int, end: int, size: int, rates: Mapping[str, int], sign: int
) -> None:
    """Add use at constant rates to the parts of that size that it falls into, in order of time."""
    by_start = dict(parts)
    # What is older than all parts that are kept is not spread.
    at = max(start, end - size * (PARTS + HOURS_MAX))
    while at < end:
        begin = at - at % size
        until = min(end, begin + size)
        used = by_start.setdefault(begin, {})
        for name, rate in rates.items():
            used[name] = used.get(name, 0) + sign * rate * (until - at)
        at = until
    parts[:] = sorted(by_start.items())
