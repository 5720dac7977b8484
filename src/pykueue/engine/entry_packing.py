"""Entries of a decision log as bytes, for workloads to which nothing more is expected to happen.

Packed, the entries of a workload take a small part of the memory, and the garbage collector does not visit
them. Those of many workloads are packed together, as they say much the same: in a third of the time and a
sixth of the memory that they take one by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from msgspec import Raw, Struct, msgpack

from pykueue.api.quantity import Format, Quantity

from .log_entries import Entry

#: The fastest level: entries that were packed are rarely read.
_LEVEL: Final = 1


class Packed(NamedTuple):
    """The entries of one of the workloads that were packed together."""

    data: bytes
    place: int

    def entries(self) -> list[Entry]:
        """What was packed, equal in every field."""
        return _ENTRIES.decode(_WORKLOADS.decode(zlib.decompress(self.data))[self.place])


class ObjectEntries(Struct, gc=False):
    """The entries of one object, and what it was like last. Nothing in it refers to it."""

    key: str
    """`namespace/name` of a Workload, `Kind name` of another object."""
    kept: Entry | list[Entry] | Packed | None = None
    """The entries: as bytes while nothing more is expected to happen, a single one without a list."""
    dropped: int = 0
    queue: str = ""
    """The LocalQueue of a Workload."""
    shown: Any = None
    """What else is observed of a Workload, the same tuple for all that are alike; the spec of a queue, as
    encoded; None of what does not exist."""
    closed: bool = False
    """Whether the entries are to be packed with the next ones."""


def pack(together: Sequence[list[Entry]]) -> list[Packed]:
    """The entries of several workloads as bytes; none where one of them has a number beyond 64 bits."""
    try:
        data = zlib.compress(_ENCODER.encode(together), _LEVEL)
    except OverflowError:
        return []
    return [Packed(data, place) for place in range(len(together))]


def _encoded(value: Any) -> str:
    """A quantity, with its family of suffixes; its number may be larger than msgpack has."""
    if isinstance(value, Quantity):
        return f"{value.nanos} {value.format}"
    raise NotImplementedError(type(value))


def _decoded(type_: type, value: str) -> Any:
    if type_ is Quantity:
        nanos, _, format_ = value.partition(" ")
        return Quantity(int(nanos), cast(Format, format_))
    raise NotImplementedError(type_)


_ENCODER: Final = msgpack.Encoder(enc_hook=_encoded)
_WORKLOADS: Final = msgpack.Decoder(list[Raw])
_ENTRIES: Final = msgpack.Decoder(list[Entry], dec_hook=_decoded)
