"""Entries of a decision log as bytes, for workloads to which nothing more is expected to happen.

Packed, the entries of a workload take a small part of the memory, and the garbage collector does not visit
them. Those of many workloads are packed together, as they say much the same: in a third of the time and a
sixth of the memory that they take one by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from msgspec import Raw, Struct, msgpack

from pykueue.api.quantity import Format, Quantity

from .decisions import Admit, Assign, Delay, Evict, Preempt, Requeue
from .log_entries import Change, Entry

#: The fastest level: entries that were packed are rarely read.
_LEVEL: Final = 1
#: What an entry can be about. Packed, it is the place of its type here.
_TYPES: Final[tuple[type[Struct], ...]] = (Change, Admit, Preempt, Requeue, Assign, Evict, Delay)
_PLACES: Final = {type_: place for place, type_ in enumerate(_TYPES)}

#: An entry: number, time, cycle, count, last time, type, what.
_Row = tuple[int, float, int, int, float, int, Raw]


class Packed(NamedTuple):
    """The entries of one of the workloads that were packed together."""

    data: bytes
    place: int

    def entries(self) -> list[Entry]:
        """What was packed, equal in every field."""
        rows = _DECODER.decode(zlib.decompress(self.data))[self.place]
        return [
            Entry(number, at, cycle, _what(type_, what), count, last_at)
            for number, at, cycle, count, last_at, type_, what in rows
        ]


def pack(together: Sequence[Iterable[Entry]]) -> list[Packed]:
    """The entries of several workloads as bytes; none where one of them has a number beyond 64 bits."""
    lists = [
        [(e.number, e.at, e.cycle, e.count, e.last_at, _PLACES[type(e.what)], e.what) for e in entries]
        for entries in together
    ]
    try:
        data = zlib.compress(_ENCODER.encode(lists), _LEVEL)
    except OverflowError:
        return []
    return [Packed(data, place) for place in range(len(lists))]


def _what(type_: int, packed: Raw) -> Any:
    return msgpack.decode(packed, type=_TYPES[type_], dec_hook=_decoded)


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
_DECODER: Final = msgpack.Decoder(list[list[_Row]])
