"""Which LocalQueue a pod is imported into: rules in order, the first that matches decides.

Source: docs/reference/kueue-api.md 8.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from pykueue.api.objects import get, labels_of


class MappingError(ValueError):
    """The rules cannot be read; the message is one line."""


@dataclass(frozen=True)
class Rule:
    """Pods of a priority class, empty for any, with all of the labels go to a LocalQueue or are skipped."""

    queue: str = ""
    skip: bool = False
    priority_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def matches(self, pod: Mapping[str, Any]) -> bool:
        """Whether it decides about a pod."""
        if self.priority_class and get(pod, "spec", "priorityClassName") != self.priority_class:
            return False
        labels = labels_of(pod)
        return all(labels.get(key) == value for key, value in self.labels.items())


def rules_for_label(label: str, queues: Mapping[str, str]) -> list[Rule]:
    """Rules that map the values of one label."""
    return [Rule(queue, labels={label: value}) for value, queue in queues.items()]


def rules_of(text: str, source: str) -> list[Rule]:
    """The rules of a mapping file: `[{match: {priorityClassName, labels}, toLocalQueue, skip}]`.

    Raises MappingError for another shape.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise MappingError(f"{source}: {' '.join(str(error).split())}") from None
    if not isinstance(content, list):
        raise MappingError(f"{source}: expected a list of rules")
    return [_rule(one, f"{source}: [{i}]") for i, one in enumerate(content)]


def queue_of(rules: Sequence[Rule], pod: Mapping[str, Any]) -> Rule | None:
    """The rule that decides about a pod; None where none does."""
    return next((rule for rule in rules if rule.matches(pod)), None)


def _rule(value: Any, place: str) -> Rule:
    known = _mapping(value, place, ("match", "toLocalQueue", "skip"))
    match = _mapping(known.get("match") or {}, f"{place}.match", ("priorityClassName", "labels"))
    labels = _mapping(match.get("labels") or {}, f"{place}.match.labels", None)
    queue, skip = known.get("toLocalQueue") or "", known.get("skip") or False
    if not isinstance(queue, str) or not isinstance(skip, bool):
        raise MappingError(f"{place}: toLocalQueue must be a string and skip a boolean")
    if not queue and not skip:
        raise MappingError(f"{place}: toLocalQueue or skip must be set")
    if not all(isinstance(one, str) for one in labels.values()):
        raise MappingError(f"{place}.match.labels: values must be strings")
    return Rule(queue, skip, str(match.get("priorityClassName") or ""), labels)


def _mapping(value: Any, place: str, fields: Sequence[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MappingError(f"{place}: expected a mapping")
    for key in value:
        if fields is not None and key not in fields:
            raise MappingError(f"{place}: unknown field {key!r}; accepted: {', '.join(fields)}")
    return value
