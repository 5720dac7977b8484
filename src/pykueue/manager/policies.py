"""The condition Active of policies that apply to ClusterQueues, a cohort or all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import set_condition
from pykueue.api.model import Model
from pykueue.api.objects import Object, get
from pykueue.api.validation import FieldError
from pykueue.api.validation.scopes import overlap_errors


def with_active(
    kind: type[Model],
    obj: Object,
    all_of_kind: Sequence[Object],
    errors: Callable[[Any], Sequence[FieldError]],
    now: float,
) -> list[Any]:
    """The conditions of a policy, with Active; `errors` returns what contradicts itself within it."""
    active, reason, message = _in_force(kind, obj, all_of_kind, errors)
    known = get(obj, "status", "conditions") or ()
    generation = get(obj, "metadata", "generation")
    return set_condition(known, "Active", "True" if active else "False", reason, message, now, generation)


def _in_force(
    kind: type[Model],
    obj: Object,
    all_of_kind: Sequence[Object],
    errors: Callable[[Any], Sequence[FieldError]],
) -> tuple[bool, str, str]:
    try:
        policy: Any = decode_as(kind, obj)
    except DecodeError as error:
        return False, "Invalid", str(error)
    # Of two for the same queues the first by name is in force.
    before = [each for each in all_of_kind if each["metadata"]["name"] < policy.metadata.name]
    found = (*errors(policy), *overlap_errors(kind, policy, before))
    if found:
        return False, "Conflict", "; ".join(map(str, found))[:32768]
    return True, "Ready", "The policy is in force"
