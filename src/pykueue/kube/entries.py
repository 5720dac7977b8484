"""What a watch cache keeps of each object. Not compiled: a native class takes up two thirds more."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Entry(Struct, gc=False):
    """An object as the cache has it. It refers to nothing that refers to it."""

    uid: str
    version: int | str
    """Its version, as a number if it is one."""
    kept: Any
    """The object, or what it is packed into."""
    dictionary: bytes | None = None
    """What it is compressed with; None where it is not."""
