"""Numbers and texts of pictures."""

from __future__ import annotations


def decimal(value: float) -> str:
    """A coordinate or length, with one decimal."""
    return f"{value:.1f}"


def shortened(text: str, length: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
