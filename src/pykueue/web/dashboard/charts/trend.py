"""Lines over time."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from .texts import decimal

#: Units of the drawing, which is stretched to its place; texts stand beside it at their own size.
_WIDTH, _HEIGHT = 600, 100
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
    least = 100.0 if unit == "%" else 4.0
    top = _ceiling(max((max(values, default=0.0) for _, _, values in lines), default=0.0), least)

    def x(at: float) -> float:
        return (at - start) / max(1.0, end - start) * _WIDTH

    def y(value: float) -> float:
        return _HEIGHT * (1 - value / top)

    parts = [
        Markup('<line class="grid" x1="0" y1="{0}" x2="{1}" y2="{0}"/>').format(
            decimal(y(top * share)), _WIDTH
        )
        for share in (0.0, 0.5, 1.0)
    ]
    for kind, title, values in lines:
        points = " ".join(f"{decimal(x(at))},{decimal(y(value))}" for at, value in _thinned(times, values))
        parts.append(
            Markup('<polyline class="{}" points="{}"><title>{}</title></polyline>').format(
                kind, points, title
            )
        )
    numbers = [f"{_short(top * share)}{unit}" for share in (1.0, 0.5, 0.0)]
    ages = [_ago(now - start - (end - start) * share) for share in (0.0, 0.5, 1.0)]
    return Markup(
        '<div class="trend" role="img" aria-label="{}">'
        '<div class="scale">{}</div>'
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
        '<div class="times">{}</div></div>'
    ).format(text, _spans(numbers), _WIDTH, _HEIGHT, Markup("").join(parts), _spans(ages))


def _spans(texts: Sequence[str]) -> Markup:
    return Markup("").join(Markup("<span>{}</span>").format(text) for text in texts)


def _thinned(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    step = max(1, -(-len(times) // POINTS_MAX))
    found = [
        max(zip(times[at : at + step], values[at : at + step], strict=True), key=lambda one: one[1])
        for at in range(0, len(times), step)
    ]
    return [*found, (times[-1], values[-1])]


def _ceiling(value: float, least: float) -> float:
    """The least of 1, 2, 4, 5, 10, 20, ... that is not below a value, and at least `least`."""
    value, scale = max(value, least), 1.0
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
