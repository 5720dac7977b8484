"""A graph of preemptions: queues of preemptors on the left, queues of their targets on the right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from markupsafe import Markup

from .texts import decimal, shortened

#: Queues on each side; the rest is left out.
SIDE_MAX: Final = 24
_WIDTH, _BOX, _ROW, _TOP = 720, 220, 40, 24
#: Over the columns.
_TITLES: Final = ("Preempted for", "Preempted")
#: Characters of a name that fit.
_NAME_MAX = 23


def flow(counts: Mapping[tuple[str, str], int], text: str) -> Markup:
    """The graph of numbers of preemptions by (preemptor's queue, target's queue)."""
    left = _sums(counts, 0)
    right = _sums(counts, 1)
    height = max(len(left), len(right), 1) * _ROW + _TOP
    most = max(counts.values(), default=1)
    parts = []
    for (source, target), count in sorted(counts.items()):
        if source not in left or target not in right:
            continue
        y1, y2 = (
            list(side).index(name) * _ROW + _TOP + 16 for side, name in ((left, source), (right, target))
        )
        width = 1.5 + 8 * count / most
        parts.append(
            Markup(
                '<path class="flow" stroke-width="{}" d="M{} {}C{} {} {} {} {} {}">'
                "<title>{} to {}: {}</title></path>"
            ).format(
                decimal(width),
                _BOX,
                y1,
                _WIDTH / 2,
                y1,
                _WIDTH / 2,
                y2,
                _WIDTH - _BOX,
                y2,
                source,
                target,
                count,
            )
        )
    for side, x, title in zip((left, right), (0, _WIDTH - _BOX), _TITLES, strict=True):
        parts.append(Markup('<text class="detail" x="{}" y="14">{}</text>').format(x, title))
        for row, (name, count) in enumerate(side.items()):
            parts.append(
                Markup(
                    '<rect class="box" x="{}" y="{}" width="{}" height="32" rx="7"/>'
                    '<text class="name" x="{}" y="{}">{}<title>{}</title></text>'
                    '<text class="detail" x="{}" y="{}" text-anchor="end">{}</text>'
                ).format(
                    x,
                    row * _ROW + _TOP,
                    _BOX,
                    x + 10,
                    row * _ROW + _TOP + 21,
                    shortened(name, _NAME_MAX),
                    name,
                    x + _BOX - 10,
                    row * _ROW + _TOP + 21,
                    count,
                )
            )
    return Markup('<svg class="flows" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, height, text, Markup("").join(parts)
    )


def _sums(counts: Mapping[tuple[str, str], int], side: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for pair, count in counts.items():
        found[pair[side]] = found.get(pair[side], 0) + count
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0]))[:SIDE_MAX])
