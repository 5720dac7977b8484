"""Completion indexes as Job statuses write them: ascending, runs of three or more as `a-b`, such as
`0-4,6,8,9`.

Source: docs/reference/cluster-workloads.md, 1.9.
"""

from __future__ import annotations

from collections.abc import Iterable


def parse_indexes(text: str, completions: int | None = None) -> set[int]:
    """The indexes of a range text. Raises ValueError saying what is wrong.

    With `completions` every index must be below it.
    """
    indexes: set[int] = set()
    last = -1
    for part in text.split(",") if text else ():
        first_text, dash, end_text = part.partition("-")
        if not _is_number(first_text) or (dash and not _is_number(end_text)):
            raise ValueError(f"cannot convert string to integer for index: {part!r}")
        first = int(first_text)
        end = int(end_text) if dash else first
        if first <= last or end < first or (dash and end == first):
            raise ValueError(f"non-increasing order, previous: {last}, current: {part}")
        if completions is not None and end >= completions:
            raise ValueError(f"too large index: {end}, completions: {completions}")
        indexes.update(range(first, end + 1))
        last = end
    return indexes


def lenient_indexes(text: str | None, completions: int) -> set[int]:
    """The indexes below `completions` of a text accepted when there may have been more."""
    try:
        indexes = parse_indexes(text or "")
    except ValueError:
        return set()
    return {index for index in indexes if index < completions}


def format_indexes(indexes: Iterable[int]) -> str:
    """The range text of some indexes."""
    parts: list[str] = []
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    for first, last in runs:
        if last - first >= 2:
            parts.append(f"{first}-{last}")
        else:
            parts.extend(str(index) for index in range(first, last + 1))
    return ",".join(parts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12
