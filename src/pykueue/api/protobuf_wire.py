"""The wire format of protobuf messages: fields by number, without knowing the message.

Read from request bodies and from compiled CEL expressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

_VARINT, _FIXED64, LENGTH, _FIXED32 = 0, 1, 2, 5


class Budget(Protocol):
    """How many fields may still be read."""

    def spend(self, fields: int = 1) -> None:
        """Count fields. Raises ValueError when there are too many."""
        ...


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """A variable-length integer and where the next field begins. Raises ValueError for damaged bytes."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the protobuf message is damaged")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def wire_fields(
    data: memoryview, budget: Budget | None = None
) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of every field: an integer, or the bytes of a longer one.

    Raises ValueError for damaged bytes, and what `budget` raises when there are too many fields.
    """
    at, end = 0, len(data)
    while at < end:
        if budget is not None:
            budget.spend()
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = varint(data, at)
        wire = key & 7
        if wire == LENGTH:
            size, at = varint(data, at)
            if size > end - at:
                raise ValueError("the protobuf message is cut short")
            yield key >> 3, wire, data[at : at + size]
            at += size
        elif wire == _VARINT:
            value, at = varint(data, at)
            yield key >> 3, wire, value
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            if size > end - at:
                raise ValueError("the protobuf message is cut short")
            yield key >> 3, wire, data[at : at + size]
            at += size
        else:
            raise ValueError(f"the protobuf message has a field of the unknown wire type {wire}")
