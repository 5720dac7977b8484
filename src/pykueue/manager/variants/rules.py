"""What becomes of a Workload with variants and of these: the rules of concurrent admission.

One call looks at a parent and its variants and returns the next changes; what follows from these is decided
once they are made. The quota of a job is counted with one variant, from before the job starts until after it
has stopped: the parent has the admission of that variant, and loses it first. Sources:
docs/reference/kueue-semantics.md 11.10, docs/reference/kueue-api.md 5.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pykueue.api import conditions, variants
from pykueue.api.conditions import DEACTIVATED, DUE_TO, Workload
from pykueue.api.kueue import V1BETA2, names
from pykueue.api.objects import (
    Object,
    annotations_of,
    controller_reference,
    get,
    is_deleting,
    key_of,
    labels_of,
    replaced,
    without_finalizer,
)
from pykueue.api.pending_reasons import OF_QUEUES, PENDING_EVALUATION, PendingReason
from pykueue.manager.workloads import transitions

from .family import Change, Event, Family, Plan, flavor_of, runs
from .gates import gate_changes

#: What a variant that holds quota has from its parent, as long as both have the same priority class.
_RESERVED = ("priority",)
#: Fields of the spec that a variant has from its parent while it holds no quota.
_UNRESERVED = (
    "priority",
    "priorityClassName",
    "priorityClassRef",
    "priorityClassSource",
    "podSets",
    "queueName",
    "maximumExecutionTimeSeconds",
)
#: Fields of the spec that an admission is for: what a variant that holds quota must share with its parent.
_ADMITTED = ("podSets", "queueName")


def becomes_parent(workload: Workload) -> bool:
    """Whether a Workload of a ClusterQueue with concurrent admission is to have variants.

    One that holds quota keeps it, and stays without variants.
    """
    return (
        variants.may_be_parent(annotations_of(workload))
        and not conditions.has_quota(workload)
        and not conditions.is_finished(workload)
        and not is_deleting(workload)
    )


def marked(workload: Object, parent: bool) -> Object:
    """The Workload marked, or no longer marked, as the parent of variants."""
    path = ("metadata", "labels", names.CONCURRENT_ADMISSION_PARENT_LABEL)
    return replaced(workload, path, "true" if parent else None)


def new_variant(parent: Workload, flavor: str, name_limit: int) -> Object:
    """The variant of a parent for a flavor."""
    metadata = parent["metadata"]
    labels = dict(labels_of(parent))
    labels.pop(names.CONCURRENT_ADMISSION_PARENT_LABEL, None)
    gates = [
        gate
        for gate in get(parent, "spec", "preemptionGates") or ()
        if gate.get("name") != names.CONCURRENT_ADMISSION_GATE
    ]
    spec = {
        **parent["spec"],
        "active": True,
        "preemptionGates": [*gates, {"name": names.CONCURRENT_ADMISSION_GATE}],
    }
    return {
        "apiVersion": V1BETA2,
        "kind": "Workload",
        "metadata": {
            "name": variants.variant_name(metadata["name"], str(metadata.get("uid")), flavor, name_limit),
            "namespace": metadata.get("namespace"),
            "labels": labels,
            "annotations": {**annotations_of(parent), names.ALLOWED_FLAVORS_ANNOTATION: flavor},
            "ownerReferences": [controller_reference(parent, V1BETA2, "Workload")],
            "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
        },
        "spec": spec,
    }


def next_changes(family: Family) -> Plan:
    """What to change next of a parent that is not finished, and of its variants."""
    plan = Plan()
    for stage in (_membership, _evictions, _contents, _activity, _mirror, gate_changes):
        stage(family, plan)
        if plan.created or plan.deleted or plan.changes:
            return plan
    return plan


# --- which there are ----------------------------------------------------------------------------------------


def _membership(family: Family, plan: Plan) -> None:
    present = {flavor_of(each) for each in family.members}
    if family.is_active:
        for flavor in family.order:
            if flavor not in present:
                plan.created.append(new_variant(family.parent, flavor, family.name_limit))
    for variant in family.members:
        if is_deleting(variant):
            if not conditions.has_quota(variant):
                plan.changes.append(Change(key_of(variant), _without_finalizer, ""))
            elif conditions.is_active(variant):
                plan.changes.append(_deactivation(variant, "The variant is being deleted"))
            elif not conditions.is_evicted(variant):
                # The workload controller leaves alone what is being deleted.
                step = partial(_deactivated, now=family.now)
                plan.changes.append(Change(key_of(variant), step))
        elif flavor_of(variant) not in family.order:
            if not conditions.has_quota(variant):
                plan.deleted.append(variant)
            elif conditions.is_active(variant):
                text = f"The ClusterQueue has no flavor {flavor_of(variant)} any more"
                plan.changes.append(_deactivation(variant, text))
        elif not conditions.is_active(family.parent) and _is_rejected(variant):
            plan.deleted.append(variant)  # it competes again when the parent does
        elif conditions.has_quota(variant) and not _describes(variant, family.parent):
            plan.deleted.append(variant)  # as the Workload of a job is that was edited before its start


def _describes(variant: Workload, parent: Workload) -> bool:
    """Whether the parent may have the admission of a variant: not where its job was edited since."""
    return all(get(variant, "spec", name) == get(parent, "spec", name) for name in _ADMITTED)


def _is_rejected(variant: Workload) -> bool:
    """Whether it was deactivated for good, as by an admission check."""
    return (
        not conditions.is_active(variant)
        and not conditions.has_quota(variant)
        and conditions.reason(variant, conditions.EVICTED).startswith(DEACTIVATED + DUE_TO)
    )


def _without_finalizer(variant: Object) -> Object:
    return without_finalizer(variant, names.RESOURCE_IN_USE_FINALIZER)


# --- evictions ----------------------------------------------------------------------------------------------


def _evictions(family: Family, plan: Plan) -> None:
    """The job of an evicted variant stops before the quota goes back, and that of an evicted parent too."""
    parent, now = family.parent, family.now
    for variant in family.members:
        if not conditions.has_quota(variant):
            continue
        if conditions.is_evicted(variant):
            if _mirrors(parent, variant):
                if not conditions.is_evicted(parent):
                    message = get(conditions.condition(variant, conditions.EVICTED) or {}, "message")
                    text = f"The admitted variant {key_of(variant)[1]} was evicted: {message}"
                    plan.changes.append(_parent_eviction(parent, variants.VARIANT_EVICTED, text, now))
            else:
                step = _releasing(family.waits, now)
                plan.changes.append(Change(key_of(variant), step))
        elif _left_by_parent(parent, variant):
            plan.changes.append(_following(parent, variant, now))


def withdrawals(family: Family) -> Sequence[Change]:
    """What takes quota from the variants of a parent that competes itself again.

    The variant that the job runs with keeps it as long as the parent has that admission.
    """
    parent, plan = family.parent, Plan()
    _evictions(family, plan)
    for variant in family.members:
        left = conditions.has_quota(variant) and not conditions.is_evicted(variant)
        if left and conditions.is_active(variant) and not _mirrors(parent, variant):
            plan.changes.append(_deactivation(variant, "The workload competes without variants"))
    return plan.changes


def _left_by_parent(parent: Workload, variant: Workload) -> bool:
    """Whether the parent was evicted from the admission of this variant, and not because of its variants."""
    if not conditions.is_evicted(parent) or not runs(variant):
        return False
    if conditions.reason(parent, conditions.EVICTED).startswith(DEACTIVATED):
        return False  # the variants of an inactive parent are deactivated
    if _mirrors(parent, variant):
        return True
    own = conditions.reason(parent, conditions.EVICTED) not in (
        variants.VARIANT_EVICTED,
        variants.NO_VARIANT,
    )
    # Times have seconds: one that was admitted in the second of the eviction was admitted after it.
    since = conditions.since(variant, conditions.ADMITTED)
    before = since < conditions.since(parent, conditions.EVICTED) and not _has_followed(parent, variant)
    return own and before and not conditions.has_quota(parent)


def _has_followed(parent: Workload, variant: Workload) -> bool:
    """Whether the variant was admitted again after it had been evicted as its parent was.

    The clock of the replica that admitted it may be behind that of the one which evicted the parent.
    """
    past = conditions.condition(variant, conditions.EVICTED) or {}
    message = get(conditions.condition(parent, conditions.EVICTED) or {}, "message")
    return past.get("message") == transitions.previously(str(message))


def _following(parent: Workload, variant: Workload, now: float) -> Change:
    """Evict the variant as its parent was, with the same back-off."""
    eviction = conditions.condition(parent, conditions.EVICTED) or {}
    state = get(parent, "status", "requeueState")

    def step(current: Object) -> Object | None:
        if not runs(current):
            return None
        result = replaced(current, ("status", "requeueState"), state) if state else current
        reason, message = str(eviction.get("reason")), str(eviction.get("message") or "")
        return transitions.evicted(result, reason, message, now)

    return Change(key_of(variant), step)


def _deactivated(variant: Object, now: float) -> Object | None:
    if not conditions.has_quota(variant) or conditions.is_evicted(variant):
        return None
    return transitions.deactivated(variant, now)


def _deactivation(variant: Workload, message: str) -> Change:
    """Deactivate a variant that is to go: the workload controller evicts it."""

    def step(current: Object) -> Object | None:
        return replaced(current, ("spec", "active"), False) if conditions.is_active(current) else None

    return Change(key_of(variant), step, "", Event("DeactivatedVariant", message))


def _parent_eviction(parent: Workload, reason: str, message: str, now: float) -> Change:
    def step(current: Object) -> Object | None:
        if not conditions.has_quota(current) or conditions.is_evicted(current):
            return None
        return transitions.evicted(current, reason, message, now)

    return Change(key_of(parent), step, "status", Event(f"EvictedDueTo{reason}", message))


def _releasing(waits: bool, now: float) -> Callable[[Object], Object | None]:
    def step(current: Object) -> Object | None:
        if not conditions.has_quota(current) or not conditions.is_evicted(current):
            return None
        return transitions.released(current, waits, now)

    return step


def _mirrors(parent: Workload, variant: Workload) -> bool:
    """Whether a parent that holds quota has the admission of this variant."""
    if not conditions.has_quota(parent):
        return False
    flavors = {
        flavor
        for pods in get(parent, "status", "admission", "podSetAssignments") or ()
        for flavor in (pods.get("flavors") or {}).values()
    }
    return not flavors or flavors == {flavor_of(variant)}


# --- what they say ------------------------------------------------------------------------------------------


def _contents(family: Family, plan: Plan) -> None:
    """Variants say the same as their parent; the workload and the gates of its job may have changed."""
    counts = conditions.reclaimable_counts(family.parent)
    for variant in family.members:
        # First, as with too many reclaimable pods it would reserve too little quota.
        reclaim = partial(transitions.with_reclaimable, counts=counts)
        if reclaim(variant) != variant:
            plan.changes.append(Change(key_of(variant), reclaim))
            continue
        desired = _like_parent(variant, family.parent)
        if desired != variant:
            parent = family.parent

            def step(current: Object, parent: Object = parent) -> Object | None:
                return _like_parent(current, parent)

            plan.changes.append(Change(key_of(variant), step, ""))


def _like_parent(variant: Object, parent: Workload) -> Object:
    result = variant
    fields: Sequence[str] = _UNRESERVED
    if conditions.has_quota(variant):
        same = get(variant, "spec", "priorityClassRef") == get(parent, "spec", "priorityClassRef")
        fields = _RESERVED if same else ()
    for name in fields:
        value = get(parent, "spec", name)
        if get(variant, "spec", name) != value:
            result = replaced(result, ("spec", name), value)
    gate = annotations_of(parent).get(names.ADMISSION_GATED_BY_ANNOTATION)
    if annotations_of(variant).get(names.ADMISSION_GATED_BY_ANNOTATION) != gate:
        path = ("metadata", "annotations", names.ADMISSION_GATED_BY_ANNOTATION)
        result = replaced(result, path, gate)
    return result


def _activity(family: Family, plan: Plan) -> None:
    """Which variants compete (11.10): those that are not to first, then those that are."""
    admitted = family.admitted
    flavor = flavor_of(admitted) if admitted is not None else ""
    wanted = variants.wanted_flavors(family.policy, family.order, flavor) if family.is_active else frozenset()
    because = (
        f"the variant {key_of(admitted)[1]} being admitted"
        if admitted is not None
        else "no variant being admitted"
    )
    if not family.is_active:
        because = "the parent being inactive"
    for active in (False, True):
        for variant in family.members:
            if (flavor_of(variant) in wanted) != active or conditions.is_active(variant) == active:
                continue
            if is_deleting(variant):
                continue
            if active and _is_rejected(variant):
                continue
            plan.changes.append(_activation(variant, active, because))
    if family.is_active and family.members and all(map(_is_rejected, family.members)):
        plan.changes.append(_rejection(family))


def _activation(variant: Workload, active: bool, because: str) -> Change:
    def step(current: Object) -> Object | None:
        if conditions.is_active(current) == active:
            return None
        return replaced(current, ("spec", "active"), active)

    verb = "Activated" if active else "Deactivated"
    return Change(key_of(variant), step, "", Event(f"{verb}Variant", f"{verb} due to {because}"))


def _rejection(family: Family) -> Change:
    """Every variant was deactivated for good: so is the parent."""
    last = conditions.condition(family.members[-1], conditions.EVICTED) or {}
    cause = str(last.get("reason")).partition(DUE_TO)[2]
    text = f"All variants were deactivated: {last.get('message')}"

    def step(current: Object) -> Object | None:
        return transitions.deactivation_target(current, cause, text, family.now)

    return Change(key_of(family.parent), step)


def _mirror(family: Family, plan: Plan) -> None:
    """The parent is admitted as its variant is; the variant knows what the job says of its pods."""
    parent, admitted, now = family.parent, family.admitted, family.now
    if admitted is None:
        if conditions.has_quota(parent):
            if not conditions.is_evicted(parent):
                text = "None of the variants is admitted any more"
                plan.changes.append(_parent_eviction(parent, variants.NO_VARIANT, text, now))
        elif (why := _pending_reason(family)) and not _says(parent, why):
            plan.changes.append(_pending(parent, why, now))
        return
    if not conditions.has_quota(parent):
        if family.is_active:
            plan.changes.append(_admission(family, admitted))
        return
    if not _mirrors(parent, admitted):
        return  # the variant that the job runs with was deactivated
    admission, failed = (get(admitted, "status", name) for name in ("admission", "unhealthyNodes"))
    if (get(parent, "status", "admission"), get(parent, "status", "unhealthyNodes")) != (admission, failed):

        def mirrored(current: Object) -> Object | None:
            if not conditions.has_quota(current):
                return None
            current = replaced(current, ("status", "admission"), admission)
            return replaced(current, ("status", "unhealthyNodes"), failed)

        plan.changes.append(Change(key_of(parent), mirrored))
    if _of_job(admitted, parent) != admitted:
        plan.changes.append(Change(key_of(admitted), lambda current: _of_job(current, parent)))


def _admission(family: Family, admitted: Object) -> Change:
    """Admit the parent as its variant is, with what its admission checks add to the pods."""
    status = admitted["status"]
    checks = [dict(check) for check in status.get("admissionChecks") or ()]
    name = key_of(admitted)[1]

    def step(current: Object) -> Object | None:
        if (
            conditions.has_quota(current)
            or not conditions.is_active(current)
            or conditions.is_finished(current)
            or not _describes(admitted, current)
        ):
            return None
        return transitions.reserved(current, status["admission"], checks, family.waits, family.now)

    return Change(key_of(family.parent), step, "status", Event("Admitted", f"The variant {name} is admitted"))


def _of_job(variant: Object, parent: Workload) -> Object:
    """The variant with what only the job knows: whether its pods are ready."""
    ready = conditions.condition(parent, conditions.PODS_READY)
    known = conditions.condition(variant, conditions.PODS_READY)
    if ready is not None and (known is None or known.get("status") != ready.get("status")):
        others = [
            one
            for one in get(variant, "status", "conditions") or ()
            if one.get("type") != conditions.PODS_READY
        ]
        return replaced(variant, ("status", "conditions"), [*others, dict(ready)])
    return variant


def _pending_reason(family: Family) -> PendingReason | None:
    """Why none of the variants is admitted, by flavor; the reason of the most preferred one.

    What follows from its queues the workload controller says of the parent as of any other Workload.
    """
    found: list[tuple[str, str, str]] = []
    for variant in family.members:
        known = conditions.condition(variant, conditions.QUOTA_RESERVED)
        if known is None or not conditions.is_active(variant):
            continue
        if known.get("status") == "True":
            text = get(conditions.condition(variant, conditions.ADMITTED) or {}, "message")
            found.append((flavor_of(variant), PENDING_EVALUATION, f"quota reserved; {text}"))
        elif known.get("reason") not in OF_QUEUES or conditions.is_true(variant, conditions.BLOCKED_ON_GATES):
            found.append((flavor_of(variant), str(known.get("reason")), str(known.get("message"))))
    if not found or not family.is_active:
        return None
    reasons = [reason for _, reason, _ in found if reason not in OF_QUEUES]
    text = "; ".join(f"{flavor}: {message}" for flavor, _, message in found)
    return PendingReason(reasons[0] if reasons else PENDING_EVALUATION, transitions.cut(text))


def _says(parent: Workload, why: PendingReason) -> bool:
    """Whether the parent is pending for that reason, or for one of its queues."""
    known = conditions.condition(parent, conditions.QUOTA_RESERVED) or {}
    return (known.get("reason"), known.get("message")) == why or known.get("reason") in OF_QUEUES


def _pending(parent: Workload, why: PendingReason, now: float) -> Change:
    def step(current: Object) -> Object | None:
        if conditions.has_quota(current) or conditions.is_on_hold(current) or _says(current, why):
            return None
        return transitions.pending(current, why, now)

    return Change(key_of(parent), step)


def finished(family: Family) -> Iterator[Change]:
    """The variants of a parent that is finished are finished as it is."""
    finish = conditions.condition(family.parent, conditions.FINISHED) or {}
    reason, message = str(finish.get("reason")), str(finish.get("message") or "")

    def step(current: Object) -> Object | None:
        return (
            None
            if conditions.is_finished(current)
            else transitions.finished(current, reason, message, family.now)
        )

    for variant in family.members:
        if not conditions.is_finished(variant):
            yield Change(key_of(variant), step)
