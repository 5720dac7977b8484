"""Durations in the syntax of Go, as Kubernetes writes them: `5m`, `1h30m`, `250ms`."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d)")
_WHOLE = re.compile(rf"[+-]?(?:{_PART.pattern})+|[+-]?0")


def parse_duration(text: str, *, days: bool = False) -> float:
    """Seconds; with `days` the unit `d` is accepted too. Raises ValueError naming the text."""
    if not _WHOLE.fullmatch(text) or ("d" in text and not days):
        raise ValueError(f"{text!r} is not a duration")
    total = sum((Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    return float(-total if text.startswith("-") else total)


def format_duration(seconds: float) -> str:
    """In hours, minutes and seconds, as Kubernetes prints them: `1h30m0s`, `250ms`."""
    sign = "-" if seconds < 0 else ""
    nanoseconds = round(abs(seconds) * 10**9)
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 10**9:
        for unit, size in (("ms", 10**6), ("µs", 10**3), ("ns", 1)):
            if nanoseconds >= size:
                return f"{sign}{_decimal(nanoseconds, size)}{unit}"
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 10**9)}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def _decimal(amount: int, size: int) -> str:
    whole, rest = divmod(amount, size)
    if rest == 0:
        return str(whole)
    digits = len(str(size)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
