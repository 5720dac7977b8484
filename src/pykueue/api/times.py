"""Times as the API writes them (RFC 3339) and as the program computes with them (seconds since 1970 UTC)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from pykueue.api.caching import cached_by_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


@cached_by_text(65536)
def parse_time(text: str) -> float:
    """Seconds since 1970 UTC of an RFC 3339 time. Raises ValueError naming the text."""
    try:
        if _RFC3339.fullmatch(text) is None:
            raise ValueError
        return (datetime.fromisoformat(text.upper()) - _EPOCH) / timedelta(seconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not an RFC 3339 time such as 2026-01-31T09:30:00Z") from None


def format_time(seconds: float) -> str:
    """RFC 3339 in UTC with whole seconds (the fraction is cut off), as metadata and conditions carry it."""
    return _format_second(seconds // 1)


@lru_cache(maxsize=1024)
def _format_second(second: float) -> str:
    whole = _EPOCH + timedelta(seconds=second)
    return f"{whole:%Y-%m-%dT%H:%M:%S}Z" if whole.year >= 1000 else f"{whole.isoformat()[:19]}Z"


def format_micro_time(seconds: float) -> str:
    """RFC 3339 in UTC with microseconds, as leases and events carry it."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat(timespec="microseconds")[:26] + "Z"
