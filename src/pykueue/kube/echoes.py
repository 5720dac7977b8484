"""The objects that the API server returned for a client's own writes: its watches deliver each of them again.

An event whose object has the same JSON, byte for byte, is not decoded a second time. For an event that the
cache has taken in already, from the answer to the write, decoding is most of the work.
"""

from __future__ import annotations

from typing import Any

#: Answers that are kept: some more than there are writes at the same time.
KEPT = 128
#: Bytes of the JSON of an object that is kept at most.
SIZE = 16 * 1024
#: Kinds of answers that no watch of a manager shows.
_UNWATCHED = frozenset({"Event", "Lease", "Status"})
#: Types of the events that show an object.
_TYPES = {b"ADDED": "ADDED", b"MODIFIED": "MODIFIED", b"DELETED": "DELETED"}
#: What comes before and after the type of an event.
_BEGIN, _BETWEEN = b'{"type":"', b'","object":'


class Echoes:
    """The objects of the last answers to writes, by their JSON."""

    def __init__(self) -> None:
        self._objects: dict[bytes, Any] = {}

    def expect(self, text: bytes, obj: Any) -> None:
        """A write was answered with this object."""
        if len(text) > SIZE or type(obj) is not dict or obj.get("kind") in _UNWATCHED:
            return
        objects = self._objects
        objects[text.removesuffix(b"\n")] = obj
        if len(objects) > KEPT:
            del objects[next(iter(objects))]

    def take(self, line: bytes) -> tuple[str, Any] | None:
        """The type and the object of an event, if the object was expected; it is not expected again."""
        if not self._objects or not line.startswith(_BEGIN):
            return None
        end = line.find(b'"', len(_BEGIN))
        type_ = _TYPES.get(line[len(_BEGIN) : end])
        begin = end + len(_BETWEEN)
        if type_ is None or line[end:begin] != _BETWEEN:
            return None
        obj = self._objects.pop(line[begin:-1], None)
        return None if obj is None else (type_, obj)
