"""Stored objects and the events of their lives.

A `Record` is one version of one object, kept as a dict, as JSON bytes, or both; each form is made from the
other when first asked for, so nothing is encoded that no client reads and cold objects cost only their bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from pykueue.api.json_bytes import encode_kept
from pykueue.api.objects import Key, Object


class Shelf:
    """Remembers which records hold a decoded dict, and drops the oldest dicts when there are too many."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._decoded: deque[Record] = deque()

    def add(self, record: Record) -> None:
        """Note that the record holds a dict; the oldest one drops its own when there are too many."""
        self._decoded.append(record)
        if len(self._decoded) > self._size:
            self._decoded.popleft().shrink()


class Record:
    """One version of one object. The dict is shared and must never be changed."""

    __slots__ = ("_data", "_object", "_shelf", "key", "revision")

    def __init__(
        self,
        key: Key,
        revision: int,
        obj: Object | None = None,
        data: bytes | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        self.key = key
        self.revision = revision
        self._object = obj
        self._data = data
        self._shelf = shelf
        if shelf is not None and obj is not None:
            shelf.add(self)

    @property
    def object(self) -> Object:
        """The decoded object, kept for the next reader."""
        obj = self._object
        if obj is None:
            obj = self._object = orjson.loads(self._data or b"null")
            if self._shelf is not None:
                self._shelf.add(self)
        return obj

    def peek(self) -> Object:
        """The decoded object, not kept: for scans over everything."""
        return self._object if self._object is not None else orjson.loads(self._data or b"null")

    @property
    def data(self) -> bytes:
        """The object as JSON."""
        data = self._data
        if data is None:
            data = self._data = encode_kept(self._object or {})
        return data

    def shrink(self) -> None:
        """Keep only the bytes, if there are any."""
        if self._data is not None:
            self._object = None


def encoded(records: Iterable[Record]) -> list[bytes]:
    """The objects as JSON: `Record.data` of many, most of which have been encoded before."""
    return [one._data or one.data for one in records]


class Event(NamedTuple):
    """One change. `previous` is the version before it (None for ADDED).

    A DELETED event's record is the last state carrying the deletion's own revision.
    """

    type: str
    record: Record
    previous: Record | None

    @property
    def revision(self) -> int:
        """The revision of the write."""
        return self.record.revision


class Batch:
    """Events of one table that became durable together, oldest first.

    `cache` lets watchers that want the same form of the events share one encoding; it lives as long as the
    delivery does.
    """

    __slots__ = ("cache", "events", "first", "last")

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.first = events[0].record.revision
        self.last = events[-1].record.revision
        self.cache: dict[Any, Any] = {}
