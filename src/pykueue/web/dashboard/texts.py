"""Texts of pages: amounts, times, objects as YAML."""

from __future__ import annotations

from typing import Any

import yaml
from markupsafe import Markup

from pykueue.api.ages import duration_text
from pykueue.api.meta import format_time, parse_time
from pykueue.api.quantity import QuantityError, parse

_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))

#: States and their class; what a state means is in its text, never in its colour alone.
_TONES = {
    "Pending": "wait",
    "QuotaReserved": "wait",
    "Admitted": "good",
    "Running": "good",
    "Evicted": "warn",
    "Finished": "done",
    "Failed": "bad",
    "Inactive": "done",
}


def amount(text: str) -> str:
    """A quantity as short as it can be read: one of at least 1Mi in the largest unit, with four digits."""
    try:
        value = parse(text).value()
    except QuantityError:  # "unlimited", or nothing
        return text
    if abs(value) < 1 << 20:
        return text
    unit, size = next((unit, size) for unit, size in _UNITS if abs(value) >= size)
    return f"{value / size:.4g}{unit}"


def yaml_text(value: Any) -> str:
    """An object as YAML."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def sentence(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def tone(state: str) -> str:
    """The class of a state."""
    return _TONES.get(state, "done")


def time_tag(seconds: float, now: float) -> Markup:
    """How long ago something was, with the time itself."""
    if not seconds:
        return Markup("–")
    return _tag(format_time(int(seconds)), now - seconds)


def until_tag(text: str, now: float) -> Markup:
    """How long it is until a time (RFC 3339), with the time itself."""
    return _tag(text, parse_time(text) - now)


def _tag(text: str, seconds: float) -> Markup:
    """A duration, not less than 0, with the time (RFC 3339) that it begins or ends at."""
    shown = duration_text(max(0.0, float(seconds)))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, text, shown)
