"""Bodies on the wire: JSON, YAML and protobuf of a value, and damage done to them."""

from __future__ import annotations

import base64
import binascii
import json
import random
import struct
from typing import Any

from pykueue.embedded.objects.protobuf import MAGIC, _message_name, _messages

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


def varint(value: int) -> bytes:
    """A number of at most 64 bits, as protobuf writes it."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str) -> bytes:
    """One field: a varint, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = _text(value) if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def _text(value: Any) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


def as_json(value: Any) -> bytes:
    """JSON that keeps lone surrogates, which only escapes can express."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        return b'{"a":' * 2000 + b"1" + b"}" * 2000


def as_yaml(value: Any) -> bytes:
    """YAML in block style; plain scalars only where they are letters."""
    lines: list[str] = []
    _write_yaml(value, "", "", lines)
    return "\n".join(lines).encode()


def _write_yaml(value: Any, indent: str, start: str, lines: list[str]) -> None:
    if isinstance(value, dict) and value and len(indent) < 200:
        if start:
            lines.append(start)
        for key, inner in value.items():
            _write_yaml(inner, indent + "  ", f"{indent}{_scalar(key)}:", lines)
    elif isinstance(value, list) and value and len(indent) < 200:
        if start:
            lines.append(start)
        for inner in value:
            _write_yaml(inner, indent + "  ", f"{indent}-", lines)
    else:
        lines.append(f"{start} {_scalar(value)}")


def _scalar(value: Any) -> str:
    if isinstance(value, str) and value.isascii() and value.isalpha():
        return value
    return json.dumps(value)


def as_protobuf(value: Any) -> bytes:
    """The envelope and message of an object. ValueError when its kind has none, or a value does not fit."""
    api_version, kind = str(value.get("apiVersion")), str(value.get("kind"))
    message = _message(value, _message_name(api_version, kind))
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, message) + field(3, b"")


def _message(value: Any, name: str) -> bytes:
    if not isinstance(value, dict):
        return _text(value)
    out = []
    for number, described in _messages()[name].items():
        if not described.name:
            out.append(field(number, _message(value, described.message)))
        elif described.name in value:
            inner = value[described.name]
            if described.container == "[":
                items = inner if isinstance(inner, list) else [inner]
                out += [field(number, _value(one, described)) for one in items]
            elif described.container == "{":
                entries = inner.items() if isinstance(inner, dict) else [("", inner)]
                out += [
                    field(number, field(1, _text(key)) + field(2, _value(one, described)))
                    for key, one in entries
                ]
            elif inner is not None:
                out.append(field(number, _value(inner, described)))
    return b"".join(out)


def _value(value: Any, described: Any) -> int | bytes:
    match described.type:
        case "M":
            return _message(value, described.message)
        case "i" | "b" if isinstance(value, int | bool):
            return int(value)
        case "Q":
            return field(1, _text(value))
        case "I":
            if isinstance(value, int):
                return field(1, 0) + field(2, value)
            return field(1, 1) + field(3, _text(value))
        case "T" | "U":
            return field(1, value if isinstance(value, int) else 1_700_000_000) + field(2, 5)
        case "y":
            try:
                return base64.b64decode(value)
            except (binascii.Error, ValueError, TypeError):
                return _text(value)
        case "R" | "F":
            return field(1, as_json(value))
        case "V":
            return b"".join(field(1, _text(one)) for one in (value if isinstance(value, list) else [value]))
        case "d" if isinstance(value, int | float):
            return struct.pack("<d", min(float(value), 1e300))
    return _text(value)


_INSERTED = [
    b"\0",
    b"\xff\xfe",
    b"{",
    b"[",
    b'"',
    b",",
    b":",
    b"\\u0000",
    b"\\ud800",
    b"&a *a",
    b"<<: ",
    b"!!int ",
    b"\r\n---\r\n",
]


def damage(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one piece cut, doubled, changed or inserted."""
    if not data:
        return data
    at = rng.randrange(len(data))
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 2:
            end = min(len(data), at + rng.randint(1, 200))
            return data[:end] + data[at:end] * rng.choice([1, 2, 1000]) + data[end:]
        case 3:
            return data[:at] + rng.choice(_INSERTED) * rng.choice([1, 3, 2000]) + data[at:]
        case 4:
            return data[:at] + data[min(len(data), at + rng.randint(1, 50)) :]
        case _:
            # The same key twice, with another value.
            comma = data.find(b",", at)
            return data if comma < 0 else data[:comma] + b',"metadata":{"name":"n2"},"spec":1' + data[comma:]
