"""Conditions in manifests: new lists of them, for writing back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.times import format_time


def new_condition(
    old: Mapping[str, Any] | None,
    type: str,
    status: str,
    reason: str | None,
    message: str | None,
    now: float,
    **fields: Any,
) -> dict[str, Any]:
    """A condition (manifest) that takes the place of `old`.

    lastTransitionTime is `now` (seconds since 1970), or that of `old` if its status is the same. `fields` are
    further fields of the condition's kind; a reason or message of None is left out.
    """
    since = old.get("lastTransitionTime") if old is not None and old.get("status") == status else None
    condition: dict[str, Any] = {
        "type": type,
        "status": status,
        "lastTransitionTime": since or format_time(now),
    }
    if reason is not None:
        condition["reason"] = reason
    if message is not None:
        condition["message"] = message
    condition.update(fields)
    return condition


def set_condition(
    conditions: Iterable[Mapping[str, Any]],
    type: str,
    status: str,
    reason: str | None,
    message: str | None,
    now: float,
    observed_generation: int = 0,
    **fields: Any,
) -> list[dict[str, Any]]:
    """New list (of manifests, for writing back) with that condition set, in its old place or at the end.

    The other conditions are shared with the old list. lastTransitionTime moves to `now` (seconds since 1970)
    only when the status changes; `fields` are further fields of the condition's kind.
    """
    if observed_generation:
        fields["observedGeneration"] = observed_generation
    result: list[Any] = []
    placed = False
    for condition in conditions:
        if condition.get("type") != type:
            result.append(condition)
            continue
        placed = True
        result.append(new_condition(condition, type, status, reason, message, now, **fields))
    if not placed:
        result.append(new_condition(None, type, status, reason, message, now, **fields))
    return result


def remove_condition(conditions: Iterable[Mapping[str, Any]], type: str) -> list[dict[str, Any]]:
    """New list (of manifests) without that condition; the others are shared with the old list."""
    result: list[Any] = [condition for condition in conditions if condition.get("type") != type]
    return result
