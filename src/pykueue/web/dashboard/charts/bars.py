"""Bars of usage."""

from __future__ import annotations

from markupsafe import Markup

from .texts import decimal

_WIDTH = 200


def usage_bar(fraction: float, admitted: float | None = None) -> Markup:
    """How much of a quota is reserved, and of that held by admitted workloads; above 1 it is borrowed.

    Decoration: the amounts stand beside it as text.
    """
    scale = _WIDTH / max(1.0, fraction)
    full = min(1.0, fraction) * scale
    inside = min(1.0, fraction if admitted is None else admitted) * scale
    parts = [
        _rect("track", 0, scale),
        _rect("reserved", 0, full),
        _rect("used", 0, inside),
    ]
    if fraction > 1:
        parts.append(_rect("borrowed", scale, _WIDTH - scale))
        parts.append(
            Markup('<rect class="mark" x="{}" y="0" width="2" height="10"/>').format(decimal(scale - 1))
        )
    return Markup(
        '<svg class="bar" viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(_WIDTH, Markup("").join(parts))


def _rect(kind: str, x: float, width: float) -> Markup:
    return Markup('<rect class="{}" x="{}" y="1" width="{}" height="8" rx="2"/>').format(
        kind, decimal(x), decimal(width)
    )
