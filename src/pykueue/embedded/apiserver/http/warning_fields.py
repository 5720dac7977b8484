"""Warnings to the user as header fields, within the bounds clients accept.

Source: the warning recorder of kube-apiserver (k8s.io/apiserver/pkg/endpoints/filters/warning.go).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Characters all warnings of an answer may have; and one of them, once they have more together.
TOTAL_LIMIT: Final = 4096
ITEM_LIMIT: Final = 256
#: Warnings of an answer: clients accept 100 header fields in all.
COUNT_LIMIT: Final = 50


def warning_fields(warnings: Iterable[str]) -> bytes:
    """The header lines of an answer's warnings, each warning once.

    Warnings over TOTAL_LIMIT characters are shortened to ITEM_LIMIT; what still exceeds it, or COUNT_LIMIT,
    is counted in a last one.
    """
    kept = list(dict.fromkeys(warnings))
    if len(kept) > COUNT_LIMIT or sum(map(len, kept)) > TOTAL_LIMIT:
        kept = _within_limit(kept)
    return b"".join(f'Warning: 299 - "{_quoted(warning)}"\r\n'.encode() for warning in kept)


def _within_limit(warnings: list[str]) -> list[str]:
    kept: list[str] = []
    left = TOTAL_LIMIT
    for warning in warnings:
        text = warning[:ITEM_LIMIT]
        left -= len(text)
        if left < 0 or len(kept) == COUNT_LIMIT:
            kept.append(f"{len(warnings) - len(kept)} more warnings are not shown")
            break
        kept.append(text)
    return kept


def _quoted(warning: str) -> str:
    text = warning.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(char if char >= " " and char != "\x7f" else " " for char in text)
