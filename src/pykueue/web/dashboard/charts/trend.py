"""Lines over time."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from .texts import decimal

_WIDTH, _HEIGHT = 640, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 12, 24
#: Points of one line; more are thinned out, the highest of each group is kept.
POINTS_MAX = 240


def trend(
    times: Sequence[float],
    lines: Sequence[tuple[str, str, Sequence[float]]],
    now: float,
    text: str,
    unit: str = "",
) -> Markup:
    """A chart of lines (class, title, values) at `times` (seconds since 1970), described by `text`."""
    if len(times) < 2:
        return Markup('<p class="empty">Not enough samples yet.</p>')
    start, end = times[0], max(now, times[-1])
    top = _ceiling(max((max(values, default=0.0) for _, _, values in lines), default=0.0))

    def x(at: float) -> float:
        return _LEFT + (at - start) / max(1.0, end - start) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for share in (0.0, 0.5, 1.0):
        at = y(top * share)
        parts.append(
            Markup('<line class="grid" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
                _LEFT, decimal(at), _WIDTH - _RIGHT, decimal(at)
            )
        )
        parts.append(
            Markup('<text class="axis" x="{}" y="{}" text-anchor="end">{}{}</text>').format(
                _LEFT - 6, decimal(at + 4), _short(top * share), unit
            )
        )
    for share in (0.0, 0.5, 1.0):
        at = start + (end - start) * share
        anchor = ("start", "middle", "end")[round(share * 2)]
        parts.append(
            Markup('<text class="axis" x="{}" y="{}" text-anchor="{}">{}</text>').format(
                decimal(x(at)), _HEIGHT - 6, anchor, _ago(now - at)
            )
        )
    for kind, title, values in lines:
        points = " ".join(f"{decimal(x(at))},{decimal(y(value))}" for at, value in _thinned(times, values))
        parts.append(
            Markup('<polyline class="{}" points="{}"><title>{}</title></polyline>').format(
                kind, points, title
            )
        )
    return Markup('<svg class="trend" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, text, Markup("").join(parts)
    )


def _thinned(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    step = max(1, -(-len(times) // POINTS_MAX))
    found = [
        max(zip(times[at : at + step], values[at : at + step], strict=True), key=lambda one: one[1])
        for at in range(0, len(times), step)
    ]
    return [*found, (times[-1], values[-1])]


def _ceiling(value: float) -> float:
    """The least of 1, 2, 4, 5, 10, 20, ... that is not below a value."""
    scale = 1.0
    while value > scale * 10:
        scale *= 10
    return next(scale * step for step in (1, 2, 4, 5, 10) if value <= scale * step)


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def _ago(seconds: float) -> str:
    if seconds < 30:
        return "now"
    if seconds < 5400:
        return f"{round(seconds / 60)} min ago"
    return f"{seconds / 3600:.1f} h ago"
