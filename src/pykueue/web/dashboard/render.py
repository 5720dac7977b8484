"""Templates: every text is escaped, and what templates may call is listed here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from pykueue.api.ages import duration_text
from pykueue.api.meta import format_time
from pykueue.api.quantity import Quantity, QuantityError, parse

from .charts.bars import usage_bar
from .pages.base import link

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


def amount(value: str) -> str:
    """A quantity as short as it can be read: bytes in the largest unit, with one digit after the point."""
    try:
        quantity: Quantity = parse(value)
    except QuantityError:
        return value
    number = float(str(quantity.value())) if abs(quantity.value()) >= 1 << 20 else None
    if number is None or (value[-1:].isdigit() and abs(number) < 1 << 30):
        return value
    for unit, size in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.4g}{unit}"
    return value


def percent(fraction: float) -> str:
    """A fraction in percent; one above 1 is not rounded down to it."""
    return f"{math.ceil(fraction * 100) if fraction > 1 else round(fraction * 100)}%"


def yaml_text(value: Any) -> str:
    """An object as YAML."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def tone(state: str) -> str:
    """The class of a state."""
    return _TONES.get(state, "done")


def time_tag(seconds: float, now: float) -> Markup:
    """How long ago something was, with the time itself."""
    if not seconds:
        return Markup("–")
    text = format_time(int(seconds))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        text, text, duration_text(max(0.0, now - seconds))
    )


def environment() -> Environment:
    """The environment of all templates."""
    found = Environment(
        loader=PackageLoader("pykueue.web.dashboard", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"amount": amount, "percent": percent, "yaml": yaml_text, "tone": tone}
    found.globals |= {"usage_bar": usage_bar, "link": link, "ago": time_tag, "duration": duration_text}
    return found


class Renderer:
    """Makes pages of templates."""

    def __init__(self) -> None:
        self._environment = environment()

    def page(self, template: str, context: Mapping[str, Any]) -> str:
        """A whole page."""
        return self._environment.get_template(template).render({**context, "frame": "_frame.html"})

    def content(self, template: str, context: Mapping[str, Any]) -> str:
        """What a page has inside its frame."""
        return self._environment.get_template(template).render({**context, "frame": "_content.html"})
