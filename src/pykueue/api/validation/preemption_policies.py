"""Rules of PreemptionPolicies beyond their schema."""

from __future__ import annotations

from pykueue.api.preemption_policies import PreemptionPolicy, seconds
from pykueue.api.validation.fields import INVALID, FieldError


def preemption_policy_errors(policy: PreemptionPolicy) -> list[FieldError]:
    """What contradicts itself within a policy."""
    cool_down = policy.spec.cool_down
    if cool_down is None:
        return []
    longest = seconds(cool_down.max)
    errors: list[FieldError] = []
    if not 0 < seconds(cool_down.base) <= longest:
        why = f"must be more than 0s and at most max ({cool_down.max})"
        errors.append(FieldError("spec.coolDown.base", INVALID, cool_down.base, why))
    if seconds(cool_down.window) < longest:
        why = f"must be at least max ({cool_down.max})"
        errors.append(FieldError("spec.coolDown.window", INVALID, cool_down.window, why))
    return errors
