"""JSON that is kept: in exactly the memory it needs."""

from __future__ import annotations

from typing import Any

import orjson


def exact(data: bytes) -> bytes:
    """The same bytes without the memory beyond them, which the encoder reserves and does not give back."""
    return memoryview(data).tobytes()


def encode_kept(value: Any) -> bytes:
    """The value as JSON to be kept for long."""
    return exact(orjson.dumps(value))
