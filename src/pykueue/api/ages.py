"""Ages and durations as kubectl prints them: docs/reference/kubernetes-api-machinery.md, section 21."""

from __future__ import annotations

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 31536000


def _pair(whole: int, unit: str, rest: int, rest_unit: str) -> str:
    return f"{whole}{unit}{rest}{rest_unit}" if rest else f"{whole}{unit}"


def duration_text(seconds: float) -> str:
    """A duration in the two largest units that matter: `90s`, `5m30s`, `3h`, `2d4h`, `400d`."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total <= 0:
        return "0s"
    if total < 2 * _MINUTE:
        return f"{total}s"
    if total < 10 * _MINUTE:
        return _pair(total // _MINUTE, "m", total % _MINUTE, "s")
    if total < 3 * _HOUR:
        return f"{total // _MINUTE}m"
    if total < 8 * _HOUR:
        return _pair(total // _HOUR, "h", total % _HOUR // _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    if total < 8 * _DAY:
        return _pair(total // _DAY, "d", total % _DAY // _HOUR, "h")
    if total < 2 * _YEAR:
        return f"{total // _DAY}d"
    if total < 8 * _YEAR:
        return _pair(total // _YEAR, "y", total % _YEAR // _DAY, "d")
    return f"{total // _YEAR}y"
