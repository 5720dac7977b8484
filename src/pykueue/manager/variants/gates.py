"""The preemption gates of variants: which variant may preempt, and which compete again after a migration.

Source: docs/reference/kueue-semantics.md 11.10.
"""

from __future__ import annotations

from pykueue.api import conditions, variants
from pykueue.api.conditions import Workload
from pykueue.api.kueue import names
from pykueue.api.meta import parse_time
from pykueue.api.objects import Object, get, is_deleting, key_of
from pykueue.manager.workloads import transitions

from .family import Change, Event, Family, Plan, flavor_of


def gate_changes(family: Family, plan: Plan) -> None:
    """Let evicted variants compete again, or open the next gate and say when to look again."""
    _lift_migration(family, plan)
    if plan.changes:
        return
    queued = [each for each in family.members if _may_be_queued(each)]
    flavor, plan.wake = variants.gate_to_open(map(_of_gate, queued), family.now)
    variant = family.of(flavor) if flavor else None
    if variant is None:
        return
    now = family.now
    plan.changes.append(
        Change(
            key_of(variant),
            lambda current: transitions.with_open_gate(current, names.CONCURRENT_ADMISSION_GATE, now),
            "status",
            Event("PreemptionUngatedVariant", f"Opened the preemption gate of {key_of(variant)[1]}"),
        )
    )


def _may_be_queued(variant: Workload) -> bool:
    return (
        conditions.is_active(variant)
        and not conditions.has_quota(variant)
        and not conditions.is_finished(variant)
        and not conditions.is_gated(variant)
        and not conditions.is_on_hold(variant)
        and not is_deleting(variant)
    )


def _of_gate(variant: Workload) -> variants.Variant:
    opened = next(
        (
            parse_time(str(gate["lastTransitionTime"]))
            for gate in get(variant, "status", "preemptionGates") or ()
            if gate.get("name") == names.CONCURRENT_ADMISSION_GATE and gate.get("position") == "Open"
        ),
        None,
    )
    return variants.Variant(
        flavor_of(variant),
        conditions.condition(variant, conditions.QUOTA_RESERVED) is not None,
        conditions.is_true(variant, conditions.BLOCKED_ON_GATES),
        opened,
    )


def _lift_migration(family: Family, plan: Plan) -> None:
    """Requeue variants that were evicted for a more preferred one which is not admitted."""

    def step(current: Object) -> Object | None:
        if not _evicted_for_migration(current):
            return None
        text = "The variant with a more preferred flavor was not admitted"
        return transitions.requeued(current, "MigrationEnded", text, family.now)

    for index, variant in enumerate(family.members):
        if not _may_be_queued(variant) or not _evicted_for_migration(variant):
            continue
        if not any(map(_awaits_migration, family.members[:index])):
            plan.changes.append(Change(key_of(variant), step))


def _evicted_for_migration(variant: Workload) -> bool:
    held = conditions.is_false(variant, conditions.REQUEUED)
    return held and conditions.reason(variant, conditions.REQUEUED) == variants.FLAVOR_MIGRATION


def _awaits_migration(variant: Workload) -> bool:
    """Whether a less preferred variant was evicted for it, and its admission is still to be decided."""
    if conditions.has_quota(variant):
        return True
    return conditions.reason(variant, conditions.QUOTA_RESERVED) == "WaitingForPreemptedWorkloads"
