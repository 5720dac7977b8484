"""Durations and ranges of them, as annotations and node pool files write them: `500ms`, `1m30s`, `1s-5s`."""

from __future__ import annotations

import math
import random
import re
from typing import NamedTuple

from pykueue.api import durations
from pykueue.api.caching import cached_by_text

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_FOREVER = ("forever", "infinity")


class Span(NamedTuple):
    """A range of seconds from which a value is drawn evenly; both ends may be the same."""

    low: float
    high: float

    def draw(self, rng: random.Random) -> float:
        """A duration between both bounds, in seconds; no random number is drawn where they are equal."""
        return self.low if self.low == self.high else rng.uniform(self.low, self.high)


def parse_duration(text: str) -> float:
    """Seconds; a bare number is seconds, `forever` is infinite. Raises ValueError naming the text."""
    if text in _FOREVER:
        return math.inf
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        seconds = durations.parse_duration(text, days=True)
    except ValueError:
        seconds = -1.0
    if seconds < 0 or text[:1] in ("+", "-"):
        raise ValueError(f"{text!r} is not a duration such as 10s, 500ms, 1m30s or forever")
    return seconds


@cached_by_text(1024)  # pods of one template say the same
def parse_span(text: str) -> Span:
    """A duration, or a range `LOW-HIGH`. Raises ValueError naming the text."""
    low, dash, high = text.partition("-")
    try:
        span = Span(parse_duration(low), parse_duration(high if dash else low))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a duration such as 10s, 500ms, 1m30s or forever, nor a range such as 1s-5s"
        ) from None
    if span.low > span.high or (dash and math.inf in span):
        raise ValueError(f"{text!r} is not a range: its ends must be finite and in order")
    return span


def format_duration(seconds: float) -> str:
    """The text `parse_duration` reads back."""
    if seconds == math.inf:
        return _FOREVER[0]
    return f"{seconds:g}s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:g}ms"


def format_span(span: Span) -> str:
    """The text `parse_span` reads back."""
    if span.low == span.high:
        return format_duration(span.low)
    return f"{format_duration(span.low)}-{format_duration(span.high)}"
