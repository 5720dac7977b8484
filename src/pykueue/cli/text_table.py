"""Tables of plain text, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Spaces between two columns.
_GAP = 3


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, columns aligned on the left."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        cells = (cell.ljust(width + _GAP) for cell, width in zip(row, widths, strict=True))
        yield "".join(cells).rstrip()
