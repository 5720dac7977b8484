"""Rules of BackfillPolicies beyond their schema."""

from __future__ import annotations

from pykueue.api.backfill_policies import BackfillPolicy
from pykueue.api.preemption_policies import seconds
from pykueue.api.validation.fields import INVALID, FieldError


def backfill_policy_errors(policy: BackfillPolicy) -> list[FieldError]:
    """What contradicts itself within a policy."""
    spec = policy.spec
    errors: list[FieldError] = []
    if seconds(spec.assumed_run_time) <= 0:
        errors.append(
            FieldError("spec.assumedRunTime", INVALID, spec.assumed_run_time, "must be more than 0s")
        )
    if spec.strategy == "Conservative" and spec.depth != 1:
        why = "is for strategy EASY: Conservative reserves for all pending workloads"
        errors.append(FieldError("spec.depth", INVALID, spec.depth, why))
    return errors
