"""`--node-taints` and `--tolerations` of a ResourceFlavor: `KEY[=VALUE][:EFFECT]`.

Source: docs/reference/kueue-api.md 8.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykueue.api.validation.syntax import label_value, qualified_name

from .errors import PluginError

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def taints(texts: Iterable[str]) -> list[dict[str, Any]]:
    """The taints of `KEY[=VALUE]:EFFECT` texts, one of each key and effect. Raises PluginError."""
    found: list[dict[str, Any]] = []
    for text in texts:
        key, value, effect = _parts("taint", text)
        if not effect:
            raise PluginError(f"invalid taint spec: {text}")
        _check_effect(effect)
        _check_label("taint", text, key, value)
        if any((one["key"], one["effect"]) == (key, effect) for one in found):
            raise PluginError(f"duplicated taints with the same key and effect: {key}:{effect}")
        found.append({"key": key, **({"value": value} if value else {}), "effect": effect})
    return found


def tolerations(texts: Iterable[str]) -> list[dict[str, Any]]:
    """The tolerations of `KEY[=VALUE][:EFFECT]` or `:EFFECT` texts. Raises PluginError."""
    found: list[dict[str, Any]] = []
    for text in texts:
        key, value, effect = _parts("toleration", text)
        if not key and value:
            raise PluginError(f"invalid toleration spec: {text}")
        if effect:
            _check_effect(effect)
        if key or value:
            _check_label("toleration", text, key, value)
        one = {
            "key": key,
            "operator": "Equal" if key and value else "Exists",
            "value": value,
            "effect": effect,
        }
        found.append({field: content for field, content in one.items() if content})
    return found


def _parts(noun: str, text: str) -> tuple[str, str, str]:
    pair, *effects = text.split(":")
    key, *values = pair.split("=")
    if not text or len(effects) > 1 or len(values) > 1:
        raise PluginError(f"invalid {noun} spec: {text}".rstrip(": "))
    return key, values[0] if values else "", effects[0] if effects else ""


def _check_effect(effect: str) -> None:
    if effect not in EFFECTS:
        # Kueue's plugin says "taint" of tolerations too.
        raise PluginError(f"invalid taint effect: {effect}, unsupported taint effect")


def _check_label(noun: str, text: str, key: str, value: str) -> None:
    problems = [problem for problem in (qualified_name(key) if key else None, label_value(value)) if problem]
    if problems:
        raise PluginError(f"invalid {noun} spec: {text}, {'; '.join(problems)}")
