"""Rules of PreemptionPolicies beyond their schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.preemption_policies import PreemptionPolicy, PreemptionPolicySpec, seconds
from pykueue.api.validation.fields import DUPLICATE, INVALID, FieldError


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


def overlap_errors(policy: PreemptionPolicy, others: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Which other policies are for the same queues, with equal precedence; `others` are manifests of all."""
    errors: list[FieldError] = []
    for manifest in others:
        try:
            other = decode_as(PreemptionPolicy, manifest)
        except DecodeError:
            continue
        if other.metadata.name != policy.metadata.name:
            errors += _overlap(policy.spec, other.spec, other.metadata.name)
    return errors


def _overlap(spec: PreemptionPolicySpec, other: PreemptionPolicySpec, name: str) -> list[FieldError]:
    def error(field: str, value: Any, what: str) -> FieldError:
        return FieldError(field, DUPLICATE, value, f"PreemptionPolicy {name} is for {what} already")

    if spec.cluster_queues:
        taken = set(other.cluster_queues)
        return [
            error(f"spec.clusterQueues[{index}]", queue, f"ClusterQueue {queue}")
            for index, queue in enumerate(spec.cluster_queues)
            if queue in taken
        ]
    if other.cluster_queues or spec.cohort != other.cohort:
        return []
    if spec.cohort is not None:
        return [error("spec.cohort", spec.cohort, f"cohort {spec.cohort}")]
    return [error("spec", "{}", "all ClusterQueues")]
