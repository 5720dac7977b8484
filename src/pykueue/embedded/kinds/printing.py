"""Pieces of printed rows: ages, images, selectors, as kubectl users know them.

Source: docs/reference/kubernetes-api-machinery.md, section 21.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pykueue.api.ages import duration_text


def seconds_of(text: Any) -> float | None:
    """An RFC 3339 time as seconds since 1970, or None when it is not one."""
    if not isinstance(text, str):
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def since(text: Any, now: float) -> str:
    """How long ago an RFC 3339 time was: `<unknown>` when absent, `<invalid>` in the future."""
    if text is None or text == "":
        return "<unknown>"
    at = seconds_of(text)
    return "<invalid>" if at is None else duration_text(now - at)


def age_cell(obj: dict[str, Any], now: float) -> str:
    """The Age column."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def containers_cell(pod_spec: dict[str, Any]) -> str:
    """Names of the containers, joined by commas."""
    return ",".join(one.get("name", "") for one in pod_spec.get("containers") or ())


def images_cell(pod_spec: dict[str, Any]) -> str:
    """Images of the containers, joined by commas."""
    return ",".join(one.get("image", "") for one in pod_spec.get("containers") or ())


def selector_cell(selector: dict[str, Any] | None) -> str:
    """A label selector (or plain map of labels) in kubectl's notation, `<none>` when empty."""
    if not selector:
        return "<none>"
    labels = (
        selector.get("matchLabels")
        if "matchLabels" in selector or "matchExpressions" in selector
        else selector
    )
    parts = [f"{key}={value}" for key, value in sorted((labels or {}).items())]
    for rule in selector.get("matchExpressions") or ():
        key, operator, values = rule.get("key"), rule.get("operator"), rule.get("values") or []
        match operator:
            case "Exists":
                parts.append(f"{key}")
            case "DoesNotExist":
                parts.append(f"!{key}")
            case _:
                parts.append(f"{key} {str(operator).lower()} ({','.join(sorted(values))})")
    return ",".join(parts) or "<none>"
