"""The condition Active of policies and Budgets: whether they are in force, or contradict others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import set_condition
from pykueue.api.model import Model
from pykueue.api.objects import Object, get
from pykueue.api.validation import FieldError
from pykueue.api.validation.scopes import overlap_errors
from pykueue.manager.workloads.transitions import MESSAGE_LIMIT


def with_active(
    kind: type[Model],
    obj: Object,
    all_of_kind: Sequence[Object],
    errors: Callable[[Any], Sequence[FieldError]],
    now: float,
) -> list[Any]:
    """The conditions of a policy, with Active; `errors` returns what contradicts itself within it."""

    def all_errors(policy: Any, before: Sequence[Object]) -> Iterable[FieldError]:
        return (*errors(policy), *overlap_errors(kind, policy, before))

    active, reason, message = in_force(kind, obj, all_of_kind, all_errors, "policy")
    known = get(obj, "status", "conditions") or ()
    generation = get(obj, "metadata", "generation")
    return set_condition(known, "Active", "True" if active else "False", reason, message, now, generation)


def in_force(
    kind: type[Model],
    obj: Object,
    all_of_kind: Sequence[Object],
    errors: Callable[[Any, Sequence[Object]], Iterable[FieldError]],
    noun: str,
) -> tuple[bool, str, str]:
    """(whether it is in force, reason, message); `errors` is given those of its kind before it by name.

    Of two that contradict each other the first by name is in force.
    """
    try:
        policy: Any = decode_as(kind, obj)
    except DecodeError as error:
        return False, "Invalid", str(error)
    before = [each for each in all_of_kind if each["metadata"]["name"] < policy.metadata.name]
    found = tuple(errors(policy, before))
    if found:
        return False, "Conflict", "; ".join(map(str, found))[:MESSAGE_LIMIT]
    return True, "Ready", f"The {noun} is in force"
