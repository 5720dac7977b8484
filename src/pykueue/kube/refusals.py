"""Errors made of answers of 400 and more."""

from __future__ import annotations

import orjson

from pykueue.kube.errors import ApiError
from pykueue.kube.exchange import Answer


def refusal(answer: Answer) -> ApiError:
    """The Status the server answered with, or the nearest thing to one."""
    retry_after = _seconds(answer.header(b"retry-after"))
    try:
        status = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return ApiError.from_status(status, answer.status, retry_after)
    text = answer.content[:200].decode(errors="replace").strip()
    return ApiError(
        answer.status, answer.reason, text or f"the server answered {answer.status}", None, retry_after
    )


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; the date form is not used by API servers."""
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        return None
