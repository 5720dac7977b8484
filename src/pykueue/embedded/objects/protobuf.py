"""Objects of built-in kinds from Kubernetes' protobuf encoding, as kubectl and Go controllers send them.

Field numbers come from data/kubernetes-protobuf-fields.json: message, field number, then [JSON name, type,
flags]. Go writes scalars even when they are zero; those are dropped here unless the field is a pointer (`*`)
or always written in JSON (`!`), so that the object is the one its JSON form would have given.

Source: docs/reference/kubernetes-api-machinery.md, section 5.
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from pykueue.api.objects import Object
from pykueue.api.protobuf_wire import LENGTH, varint, wire_fields

#: What the encoding starts with.
MAGIC: Final = b"k8s\0"
#: Messages within messages; the deepest real ones need about 15.
_MAX_DEPTH: Final = 64
#: Fields that a body may have, at all levels together: each takes about a microsecond to read.
MAX_FIELDS: Final = 60_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Field(NamedTuple):
    """One field: its JSON name (empty: its fields belong to the message around), and how it is read."""

    name: str
    #: `[` repeated, `{` map from string, or empty.
    container: str
    #: `s b i d y M Q I T U R F V`.
    type: str
    #: Name of the nested message.
    message: str
    #: Whether a zero value is kept.
    keeps_zero: bool


class _Budget:
    """How many fields may still be read."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def spend(self, fields: int = 1) -> None:
        """ValueError when there are too many."""
        self._left -= fields
        if self._left < 0:
            raise ValueError(f"the protobuf message has more than {MAX_FIELDS} fields")


@cache
def _messages() -> dict[str, dict[int, _Field]]:
    text = (Path(__file__).parent / "data" / "kubernetes-protobuf-fields.json").read_bytes()
    return {
        message: {int(number): _field(*row) for number, row in fields.items()}
        for message, fields in orjson.loads(text)["messages"].items()
    }


def _field(name: str, code: str, flags: str = "") -> _Field:
    container = code[0] if code[0] in "[{" else ""
    kind, _, message = code[len(container) :].partition(":")
    return _Field(name, container, kind, message, bool(flags))


def decode(body: bytes) -> Object:
    """The object in an envelope.

    ValueError when it is none, is damaged, holds an unknown kind, or has more than MAX_FIELDS fields.
    """
    return _decode(body, 0, _Budget())


def _decode(body: bytes, depth: int, budget: _Budget) -> Object:
    if not body.startswith(MAGIC):
        raise ValueError("the body does not start as Kubernetes protobuf does")
    api_version = kind = content_type = ""
    raw = b""
    for number, _, value in wire_fields(memoryview(body)[len(MAGIC) :], budget):
        match number:
            case 1:
                for inner, _, part in wire_fields(_bytes(value), budget):
                    if inner == 1:
                        api_version = _text(part)
                    elif inner == 2:
                        kind = _text(part)
            case 2:
                raw = bytes(_bytes(value))
            case 3 if _text(value):
                raise ValueError(f"the content encoding {_text(value)!r} is not supported")
            case 4:
                content_type = _text(value)
    obj: Any
    if content_type == "application/json":
        obj = orjson.loads(raw)
        if not isinstance(obj, dict):
            raise ValueError("the body holds no object")
    else:
        obj = _message(memoryview(raw), _message_name(api_version, kind), depth, budget)
    return {"apiVersion": api_version, "kind": kind, **obj}


def _message_name(api_version: str, kind: str) -> str:
    """The message of a kind. Options carry the group of the resource they are about."""
    group, _, version = api_version.rpartition("/")
    name = f"{group.split('.')[0] or 'core'}.{version}.{kind}"
    messages = _messages()
    if name in messages:
        return name
    if f"meta.v1.{kind}" in messages:
        return f"meta.v1.{kind}"
    raise ValueError(f"{kind!r} of {api_version!r} cannot be read from protobuf")


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("the protobuf message has a number where bytes belong")
    return value


def _text(value: int | memoryview) -> str:
    return str(_bytes(value), "utf-8")


def _integer(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("the protobuf message has bytes where a number belongs")
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


# Messages


def _message(data: memoryview, name: str, depth: int, budget: _Budget) -> Object:
    if depth > _MAX_DEPTH:
        raise ValueError("the protobuf message is nested too deeply")
    fields = _messages()[name]
    out: Object = {}
    for number, wire, value in wire_fields(data, budget):
        field = fields.get(number)
        if field is None:
            continue
        if not field.name:
            out.update(_message(_bytes(value), field.message, depth + 1, budget))
        elif field.container == "[":
            items = out.setdefault(field.name, [])
            if wire == LENGTH and field.type in "ib":
                items.extend(_packed(_bytes(value), field.type, budget))
            else:
                items.append(_value(value, field, depth, budget))
        elif field.container == "{":
            key, inner = _entry(_bytes(value), field, depth, budget)
            out.setdefault(field.name, {})[key] = inner
        else:
            read = _value(value, field, depth, budget)
            if read or field.keeps_zero:
                out[field.name] = read
            else:
                out.pop(field.name, None)
    return out


def _entry(data: memoryview, field: _Field, depth: int, budget: _Budget) -> tuple[str, Any]:
    key = ""
    value: Any = None
    for number, _, part in wire_fields(data, budget):
        if number == 1:
            key = _text(part)
        elif number == 2:
            value = _value(part, field, depth, budget)
    if value is None and field.type not in "TU":
        value = _value(memoryview(b"") if field.type not in "ib" else 0, field, depth, budget)
    return key, value


def _packed(data: memoryview, kind: str, budget: _Budget) -> list[Any]:
    values, at = [], 0
    while at < len(data):
        budget.spend()
        value, at = varint(data, at)
        values.append(value != 0 if kind == "b" else _integer(value))
    return values


def _value(value: int | memoryview, field: _Field, depth: int, budget: _Budget) -> Any:
    match field.type:
        case "s":
            return str(value, "utf-8") if type(value) is memoryview else _text(value)
        case "M":
            return _message(_bytes(value), field.message, depth + 1, budget)
        case "i":
            return _integer(value)
        case "b":
            return _integer(value) != 0
        case "Q":
            return _first_text(value, budget) or "0"
        case "I":
            return _int_or_string(_bytes(value), budget)
        case "T":
            return _time(_bytes(value), "seconds", budget)
        case "U":
            return _time(_bytes(value), "microseconds", budget)
        case "y":
            return base64.b64encode(_bytes(value)).decode()
        case "R" | "F":
            return _embedded(_bytes(value), depth, budget)
        case "V":
            return [_text(part) for number, _, part in wire_fields(_bytes(value), budget) if number == 1]
        case "d":
            number = _bytes(value)
            if len(number) != 8:
                raise ValueError("the protobuf message has a fraction of the wrong size")
            return struct.unpack("<d", number)[0]
    raise ValueError(f"the protobuf table has the unknown type {field.type!r}")


def _first_text(value: int | memoryview, budget: _Budget) -> str:
    text = ""
    for number, _, part in wire_fields(_bytes(value), budget):
        if number == 1:
            text = _text(part)
    return text


def _int_or_string(data: memoryview, budget: _Budget) -> int | str:
    is_text, number_value, text = False, 0, ""
    for number, _, part in wire_fields(data, budget):
        if number == 1:
            is_text = _integer(part) == 1
        elif number == 2:
            number_value = _integer(part)
        elif number == 3:
            text = _text(part)
    return text if is_text else number_value


def _time(data: memoryview, precision: str, budget: _Budget) -> str | None:
    """RFC 3339 in UTC. An empty message is the time that was never set."""
    seconds = nanos = 0
    for number, _, part in wire_fields(data, budget):
        if number == 1:
            seconds = _integer(part)
        elif number == 2:
            nanos = _integer(part)
    if not data:
        return None
    try:
        at = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise ValueError(f"{seconds} seconds after 1970 is no time that can be written") from None
    return at.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _embedded(data: memoryview, depth: int, budget: _Budget) -> Any:
    """JSON inside a message; an object there may be in an envelope of its own."""
    for number, _, part in wire_fields(data, budget):
        if number == 1:
            raw = bytes(_bytes(part))
            if raw.startswith(MAGIC):
                return _decode(raw, depth + 1, budget)
            return orjson.loads(raw) if raw else None
    return None
