"""Cron schedules: five fields, names, steps, the usual @ words and `@every`, in a time zone.

A day matches when both the day of the month and the day of the week do; when both are restricted, either will
do. Times that a change of clocks skips are skipped; of those it repeats the first counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from pykueue.api.durations import parse_duration

#: Years ahead a next time is looked for: 29 February may be eight years away.
HORIZON_YEARS = 9

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
#: (name, least, most, words)
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
#: Seconds in the longest duration of Go, 2^63 nanoseconds.
_LONGEST = 2**63 / 1e9


class ScheduleError(ValueError):
    """A schedule or time zone cannot be understood; the text says which part."""


def time_zone(name: str | None) -> tzinfo:
    """The time zone of that name, UTC for None. Raises ScheduleError."""
    if name is None or name in ("UTC", "Etc/UTC"):
        return UTC
    if name.lower() == "local" or name.startswith(("/", ".")):
        raise ScheduleError(f"unknown time zone {name}")
    from zoneinfo import ZoneInfo  # few name one

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ScheduleError(f"unknown time zone {name}") from error


class Schedule:
    """When something is due. Raises ScheduleError when `text` is no schedule."""

    def __init__(self, text: str, zone: tzinfo = UTC) -> None:
        if "TZ=" in text:
            raise ScheduleError("TZ or CRON_TZ is not supported in schedule, use timeZone instead")
        self._zone = zone
        self._every = 0.0
        text = text.strip()
        if text.startswith("@every "):
            self._every = _duration(text.removeprefix("@every "))
            return
        if text.startswith("@"):
            if text not in _WORDS:
                raise ScheduleError(f"unrecognized descriptor: {text}")
            text = _WORDS[text]
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise ScheduleError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
        values = [_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
        self._minutes, self._hours, self._days, self._months, self._weekdays = values
        self._any_day, self._any_weekday = parts[2][0] in "*?", parts[4][0] in "*?"

    def next(self, after: float) -> float | None:
        """The first time later than `after` (both in seconds since 1970), None when there is none."""
        if self._every:
            return float(int(after)) + self._every
        start = datetime.fromtimestamp(after, self._zone).replace(tzinfo=None)
        day = start.date()
        while day.year <= start.year + HORIZON_YEARS:
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._matches(day):
                first = start.time() if day == start.date() else time.min
                moment = next((one for one in self._moments(day, first) if one > after), None)
                if moment is not None:
                    return moment
            day += timedelta(days=1)
        return None

    def latest(self, after: float, until: float) -> tuple[float | None, int]:
        """The last time after `after` and up to `until`, and how many there are (counted up to 101)."""
        found, count, at = None, 0, after
        while count <= 100:
            due = self.next(at)
            if due is None or due > until:
                return found, count
            found, at, count = due, due, count + 1
        # Many were missed: only the last one matters, so look for it from behind, in growing steps.
        span = max(60.0, (at - after) / count)
        while True:
            due = self.next(max(at, until - span))
            if due is not None and due <= until:
                break
            span *= 2
        while due is not None and due <= until:
            found, due = due, self.next(due)
        return found, count

    def _matches(self, day: date) -> bool:
        in_month = day.day in self._days
        in_week = day.isoweekday() % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return in_month and in_week
        return in_month or in_week

    def _moments(self, day: date, first: time) -> Iterator[float]:
        """The times of a day, in order, from local time `first` on."""
        for hour in sorted(self._hours):
            if hour < first.hour:
                continue
            for minute in sorted(self._minutes):
                if hour == first.hour and minute < first.minute:
                    continue
                local = datetime.combine(day, time(hour, minute), self._zone)
                moment = local.timestamp()
                shown = datetime.fromtimestamp(moment, self._zone)
                if (shown.hour, shown.minute) == (hour, minute):
                    yield moment


def _field(text: str, name: str, least: int, most: int, words: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, name, {}) if slash else 1
        if step < 1:
            raise ScheduleError(f"step of range should be a positive number: {part}")
        if span in ("*", "?"):
            first, last = least, most
        else:
            first_text, dash, last_text = span.partition("-")
            first = _number(first_text, name, words)
            if dash:
                last = _number(last_text, name, words)
            else:
                last = most if slash else first
        if first < least:
            raise ScheduleError(f"beginning of range ({first}) below minimum ({least}): {part}")
        if last > most:
            raise ScheduleError(f"end of range ({last}) above maximum ({most}): {part}")
        if first > last:
            raise ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(text: str, name: str, words: dict[str, int]) -> int:
    found = words.get(text.lower())
    if found is not None:
        return found
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ScheduleError(f"failed to parse int from {text!r} in {name}")
    return int(text)


def _duration(text: str) -> float:
    text = text.strip()
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise ScheduleError(f"failed to parse duration @every {text}") from None
    if seconds > _LONGEST:
        raise ScheduleError(f"the duration @every {text} is too long")
    return max(1.0, float(int(seconds)))
