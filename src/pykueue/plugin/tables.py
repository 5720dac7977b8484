"""Tables as kubectl prints them: columns at least six wide, three spaces apart, upper-case headers."""

from __future__ import annotations

from collections.abc import Sequence

MIN_WIDTH = 6
PADDING = 3


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The text of a table, without trailing spaces after the last column."""
    lines = [[header.upper() for header in headers], *([_cell(cell) for cell in row] for row in rows)]
    widths = [
        max(MIN_WIDTH, max(len(line[column]) for line in lines) + PADDING)
        for column in range(len(headers) - 1)
    ]
    return "".join(
        "".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)) + "\n"
        for line in lines
    )


def _cell(text: str) -> str:
    """One line: what follows a line break is cut, as kubectl cuts it."""
    first = text.splitlines()[0] if text else ""
    return first if first == text else f"{first}..."
