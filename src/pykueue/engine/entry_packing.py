"""Entries of a decision log as bytes, for workloads to which nothing more is expected to happen.

Packed, the entries of a workload take a small part of the memory, and the garbage collector does not visit
them.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

#: The fastest level: entries that were packed are rarely read.
_LEVEL = 1


def pack(entries: Iterable[T]) -> bytes:
    """The entries as bytes, for this process alone."""
    return zlib.compress(pickle.dumps(list(entries), pickle.HIGHEST_PROTOCOL), _LEVEL)


def unpack(packed: bytes) -> list[T]:
    """What `pack` was given, equal in every field."""
    found: list[T] = pickle.loads(zlib.decompress(packed))
    return found
