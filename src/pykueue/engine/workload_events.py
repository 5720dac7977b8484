"""Taking in workloads: what each version of an object means for queues and quota.

Source of the rules: docs/reference/kueue-semantics.md 4.2, 4.6 to 4.9 and 11.
"""

from __future__ import annotations

from sys import intern

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.kueue.names import WORKLOAD_SLICE_REPLACEMENT_ANNOTATION
from pykueue.api.meta import ObjectMeta, parse_time
from pykueue.api.variants import allowed_flavors, is_parent, parent_uid
from pykueue.engine.flavors.scheduling_class import AllowedFlavors, SchedulingClass
from pykueue.engine.options import Options
from pykueue.engine.sharing import share_parts
from pykueue.engine.state import State
from pykueue.engine.workload import (
    ACTIVE,
    INADMISSIBLE,
    NO_SCAN,
    RESERVED,
    Facts,
    WorkloadInfo,
    effective_counts,
    effective_priority,
    has_closed_gate,
    queue_timestamp,
)


def upsert(state: State, obj: kueue.Workload) -> None:
    """A Workload appeared or changed."""
    key = obj.metadata.key
    facts = Facts(obj, state.options)
    info = state.workloads.get(key)
    if facts.finished:
        state.backfill.finished(obj)
    if facts.finished or _is_represented(state, obj):
        if info is not None:
            forget_workload(state, info, is_over=facts.finished)
        return
    if info is None:
        info = WorkloadInfo(key, intern(obj.metadata.namespace))
        info.obj = obj
        state.undo_log.put(state.workloads, key, info)
        state.record_undo(info)
        _read(state, info, obj, facts)
        if facts.has_reservation:
            _read_reservation(state, info, facts)
        elif facts.may_queue:
            state.enqueue(info)
        return
    state.record_undo(info)
    if info.superseded:
        info.obj = obj
    elif info.place == RESERVED:
        _update_reserved(state, info, obj, facts)
    else:
        _update_pending(state, info, obj, facts)


def _is_represented(state: State, obj: kueue.Workload) -> bool:
    """Whether a Workload has no part in decisions because others stand for it (11.10).

    The variants stand for a parent; without the gate the parent stands for its variants.
    """
    if state.concurrent:
        return is_parent(obj.metadata.labels)
    return bool(obj.metadata.owner_references) and bool(parent_uid(obj.metadata))


def forget_workload(state: State, info: WorkloadInfo, is_over: bool = True) -> None:
    """The workload is finished or gone; without `is_over`, its variants compete in its place."""
    if info.queue is not None:
        state.undo_log.drop(info.queue.tree.preemptions, info.key)
    if info.place == RESERVED:
        assert info.queue is not None
        state.allow_preemptions(info.queue)
        state.release_and_flush(info)
        restore_slice(state, info)
    else:
        state.dequeue(info)
        if is_over:
            _flush_tree(state, info)
    if state.replacements.get(info.replaces) is info:
        state.undo_log.drop(state.replacements, info.replaces)
    if info.parent:
        state.undo_log.drop(state.variants.get(info.parent, {}), info.key)
        if not state.variants.get(info.parent):
            state.undo_log.drop(state.variants, info.parent)
    local = info.local
    if local is not None:
        state.undo_log.drop(local.workloads, info.key)
        state.history.forgive(local, info.key)
    state.drop_shared_requests(info)
    state.undo_log.drop(state.workloads, info.key)


def _flush_tree(state: State, info: WorkloadInfo) -> None:
    """A workload without quota left for good: the rest of the tree is looked at again (4.6)."""
    if info.local is not None and info.local.cluster_queue:
        state.request_flush(state.queue(info.local.cluster_queue))


def _read(state: State, info: WorkloadInfo, obj: kueue.Workload, facts: Facts) -> None:
    """Sets what the object says about a workload, wherever it stands."""
    options = state.options
    metadata = obj.metadata
    same_pods = info.scheduling_class is not None and (
        info.obj.spec.pod_sets is obj.spec.pod_sets or _same_spec(info.obj.metadata, metadata)
    )
    before = info.obj
    info.obj = obj
    if not info.uid:
        info.uid = metadata.uid
        info.created = metadata.created
    if state.concurrent:
        _index_variant(state, info)
    counts = effective_counts(obj, options)
    known = info.scheduling_class
    if (
        not same_pods
        or known is None
        or not state.scheduling_classes.is_current(
            known, counts, state.limits_of(info.namespace), info.namespace, _allowed(state, info)
        )
    ):
        scheduling_class = _scheduling_class(state, info, counts)
        if scheduling_class is not info.scheduling_class:
            info.scheduling_class = scheduling_class
            info.scan = NO_SCAN
    if metadata.generation and info.scheduling_class is not None:
        # Templates are the most of a workload; those that come again and again are kept once.
        share_parts(obj, before)
        info.obj = replace(obj, spec=state.scheduling_classes.shared_spec(info.scheduling_class, obj.spec))
    priority = effective_priority(obj, options)
    if priority != info.priority:
        info.priority = priority
        info.scan = NO_SCAN
        if info.queue is not None:
            state.allow_preemptions(info.queue)
    _read_status(info, obj, facts, options)
    replaces = metadata.annotations.get(WORKLOAD_SLICE_REPLACEMENT_ANNOTATION, "")
    info.replaces = replaces if replaces and options.enabled("ElasticJobsViaWorkloadSlices") else ""
    if state.capacities:
        state.set_shared_requests(info)
    _index_replacement(state, info)
    name = obj.spec.queue_name
    local = info.local
    if local is None or local.key != f"{info.namespace}/{name}":
        if local is not None:
            state.undo_log.drop(local.workloads, info.key)
            state.history.forgive(local, info.key)
        local = info.local = state.local(info.namespace, name) if name else None
        if local is not None:
            state.undo_log.put(local.workloads, info.key, info)


def _read_status(info: WorkloadInfo, obj: kueue.Workload, facts: Facts, options: Options) -> None:
    """Sets what the status says about its place in a queue."""
    info.timestamp = queue_timestamp(obj, facts, options, info.created)
    requeued = facts.requeued
    info.requeue_blocked = requeued is not None and requeued.status == "False"
    info.queue_since = (
        parse_time(requeued.last_transition_time)
        if requeued is not None and requeued.status == "True" and requeued.last_transition_time
        else info.created
    )
    again = obj.status.requeue_state
    info.requeue_at = parse_time(again.requeue_at) if again is not None and again.requeue_at else 0.0
    info.gated = has_closed_gate(obj)


def _index_replacement(state: State, info: WorkloadInfo) -> None:
    """Index a replacement by the key of the slice that it replaces."""
    if info.replaces and state.replacements.get(info.replaces) is not info:
        state.undo_log.put(state.replacements, info.replaces, info)


def _index_variant(state: State, info: WorkloadInfo) -> None:
    """Index a variant by the uid of its parent."""
    uid = parent_uid(info.obj.metadata)
    if uid == info.parent:
        return
    if info.parent:
        state.undo_log.drop(state.variants.get(info.parent, {}), info.key)
    info.parent = uid
    if uid:
        if uid not in state.variants:
            state.undo_log.put(state.variants, uid, {})
        state.undo_log.put(state.variants[uid], info.key, info)


def _scheduling_class(state: State, info: WorkloadInfo, counts: list[int]) -> SchedulingClass:
    """What a workload asks for with so many pods."""
    limits = state.limits_of(info.namespace)
    pod_sets = info.obj.spec.pod_sets
    return state.scheduling_classes.of(pod_sets, counts, limits, info.namespace, _allowed(state, info))


def _allowed(state: State, info: WorkloadInfo) -> AllowedFlavors:
    return allowed_flavors(info.obj.metadata.annotations) if state.concurrent else None


def _same_spec(before: ObjectMeta, after: ObjectMeta) -> bool:
    """Whether the server says that the spec is the same: it counts the changes of a spec as generations."""
    return 0 < before.generation == after.generation and before.uid == after.uid


def _read_reservation(state: State, info: WorkloadInfo, facts: Facts) -> None:
    """The object says that the workload holds quota."""
    admission = info.obj.status.admission
    assert admission is not None
    reserved = facts.reserved
    assert reserved is not None
    if admission != info.admission or not info.assumed:
        state.set_reservation(info, admission, effective_counts(info.obj, state.options))
    info.reserved_at = parse_time(reserved.last_transition_time) if reserved.last_transition_time else 0.0
    info.assumed = False
    info.admitted = facts.admitted
    info.ready = facts.ready
    info.evicted = facts.evicted is not None
    info.eviction_assumed = False
    info.scan = NO_SCAN
    state.reserve(info, state.queue(admission.cluster_queue))
    _supersede_slices(state, info)
    if info.superseded:
        return
    state.queue_second_pass(info)
    if facts.admitted:
        _settle_history(state, info)


def _supersede_slices(state: State, info: WorkloadInfo) -> None:
    """Of two slices that both hold quota, as a restart may find them, only the replacement counts (11.9)."""
    for replacement, old in ((info, state.replaced_by(info)), (state.replacements.get(info.key), info)):
        if (
            old is not None
            and replacement is not None
            and replacement.place == RESERVED
            and state.replaced_by(replacement) is old
        ):
            state.supersede(old)


def _update_reserved(state: State, info: WorkloadInfo, obj: kueue.Workload, facts: Facts) -> None:
    if not facts.has_reservation:
        if info.assumed and obj.spec.active:
            # The write is still on its way; only `forget` says that it failed.
            if not facts.may_queue:
                info.obj = obj
            return
        if not (info.evicted and info.preempted_for):
            assert info.queue is not None
            state.allow_preemptions(info.queue)
        state.release_and_flush(info)
        state.record_undo(info)
        _read(state, info, obj, facts)
        info.clear_reservation()
        restore_slice(state, info)
        if facts.may_queue:
            state.enqueue(info)
        return
    admission = obj.status.admission
    old = info.obj
    if old.spec is not obj.spec and _same_spec(old.metadata, obj.metadata):
        share_parts(obj, old)
        obj = replace(obj, spec=old.spec)
    same_spec = old.spec is obj.spec
    same_pods = same_spec and old.status.reclaimable_pods == obj.status.reclaimable_pods
    shrunk = not same_pods and effective_counts(old, state.options) != effective_counts(obj, state.options)
    priority = effective_priority(obj, state.options)
    reserved = facts.reserved
    assert admission is not None
    assert reserved is not None
    reserved_at = parse_time(reserved.last_transition_time) if reserved.last_transition_time else 0.0
    freed = shrunk or priority != info.priority
    if (
        not freed
        and (admission is info.admission or admission == info.admission)
        and info.local is not None
        and (same_spec or info.local.key == f"{info.namespace}/{obj.spec.queue_name}")
        and (
            (info.admitted == facts.admitted and info.reserved_at == reserved_at)
            or (same_pods and _confirm(state, info, obj, facts, reserved_at))
        )
    ):
        info.obj = obj
        if info.end is not None and not same_spec:
            state.backfill.refresh(info)
        _mark(state, info, facts)
        state.queue_second_pass(info)
        if facts.admitted:
            _settle_history(state, info)
        return
    state.release(info)
    state.record_undo(info)
    _read(state, info, obj, facts)
    info.reserved_at = reserved_at
    if shrunk or admission != info.admission:
        before = dict(info.usage)
        state.set_reservation(info, admission, effective_counts(obj, state.options))
        # Pods of a hybrid assignment that lost their flavor use it no more.
        after = dict(info.usage)
        freed = freed or any(after.get(each, 0) < amount for each, amount in before.items())
    info.assumed = False
    info.admitted = facts.admitted
    info.ready = facts.ready
    info.evicted = facts.evicted is not None or info.eviction_assumed
    state.reserve(info, state.queue(admission.cluster_queue))
    _mark(state, info, facts)
    state.queue_second_pass(info)
    if facts.admitted:
        _settle_history(state, info)
    if freed and info.queue is not None:
        state.allow_preemptions(info.queue)
        info.queue.advance()
        state.request_flush(info.queue)


def _confirm(state: State, info: WorkloadInfo, obj: kueue.Workload, facts: Facts, reserved_at: float) -> bool:
    """The workload holds what it held, in other words: admitted, or since another time; whether that is all.

    This is how the API shows a decision of the engine, in whole seconds. Nothing is released for it.
    """
    queue, local, known = info.queue, info.local, info.scheduling_class
    if (
        info.evicted
        or info.eviction_assumed
        or facts.evicted is not None
        or info.shared
        or info.replaces
        or queue is None
        or local is None
        or known is None
        or len(info.quota) < len(info.usage)
        or state.undo_log.on
        or state.backfill.on
        or state.capacities
        or state.concurrent
        or state.options.block_admission
        or WORKLOAD_SLICE_REPLACEMENT_ANNOTATION in obj.metadata.annotations
        or not state.scheduling_classes.is_read_now(known, state.limits_of(info.namespace), info.namespace)
    ):
        return False
    _read_status(info, obj, facts, state.options)
    queue.remove_candidate(info)
    info.reserved_at = reserved_at
    queue.add_candidate(info)
    queue.reservations[info.key] = queue.reservations.pop(info.key)
    if info.admitted != facts.admitted:
        info.admitted = facts.admitted
        sign = 1 if facts.admitted else -1
        queue.usage_counts.admit(info.usage, sign)
        local.usage_counts.admit(info.usage, sign)
    state.wake(queue)
    return True


def _mark(state: State, info: WorkloadInfo, facts: Facts) -> None:
    """Takes over conditions that do not change what is held."""
    info.assumed = False
    if facts.evicted is not None:
        info.eviction_assumed = False
        state.mark_evicted(info, True)
    elif not info.eviction_assumed:
        state.mark_evicted(info, False)
    if info.ready != facts.ready:
        info.ready = facts.ready
        if facts.ready:
            if state.unready.pop(info.key, None) is not None and not state.unready:
                state.all_pods_ready()
        elif state.options.block_admission:
            state.unready[info.key] = info


def _signature(info: WorkloadInfo) -> tuple[object, ...]:
    """What has to change for an inadmissible workload to be looked at again (4.9)."""
    obj = info.obj
    return (
        info.scheduling_class,
        info.priority,
        info.local,
        info.timestamp,
        info.requeue_blocked,
        info.requeue_at,
        info.gated,
        info.replaces,
        info.shared_requests,
        obj.spec,
        [check.state for check in obj.status.admission_checks],
    )


def _update_pending(state: State, info: WorkloadInfo, obj: kueue.Workload, facts: Facts) -> None:
    if facts.has_reservation:
        state.dequeue(info)
        state.record_undo(info)
        _read(state, info, obj, facts)
        _read_reservation(state, info, facts)
        return
    waiting = info.place in (ACTIVE, INADMISSIBLE)
    if waiting and facts.may_queue:
        before = _signature(info)
        queue, bucket = info.queue, info.bucket
        old_priority, old_timestamp, old_class = info.priority, info.timestamp, info.scheduling_class
        _read(state, info, obj, facts)
        if _signature(info) == before:
            return
        # The queue finds a workload by what it was when it came in.
        new = info.priority, info.timestamp, info.scheduling_class
        info.priority, info.timestamp, info.scheduling_class = old_priority, old_timestamp, old_class
        assert queue is not None
        was_preemptor = queue.pending.preemptor is info
        state.withdraw(info)
        state.record_undo(info)
        info.priority, info.timestamp, info.scheduling_class = new
        state.enqueue(info)
        if was_preemptor and info.queue is queue and info.place == ACTIVE and bucket is not None:
            state.undo_log.set(queue.pending, "preemptor", info)
        return
    if waiting:
        state.dequeue(info)
        state.record_undo(info)
    was_active = info.obj.spec.active
    _read(state, info, obj, facts)
    if facts.may_queue:
        state.enqueue(info)
    elif not obj.spec.active and info.local is not None:
        state.history.forgive(info.local, info.key)
        if was_active:
            _flush_tree(state, info)


def _settle_history(state: State, info: WorkloadInfo) -> None:
    """An admitted workload's penalty becomes past usage (10.3).

    One whose admission was read from the API has none: what its LocalQueue used until now is known from the
    status, and is sampled when it is due.
    """
    local, queue = info.local, info.queue
    if local is None or info.key not in local.penalties or queue is None or not queue.fair_by_usage:
        return
    admitted = next(
        (one.last_transition_time for one in info.obj.status.conditions if one.type == "Admitted"), None
    )
    now = parse_time(admitted) if admitted else state.now
    state.history.settle(local, info.key, now)
    state.wake(queue)


def place(state: State, info: WorkloadInfo) -> None:
    """Lets a workload that is in no queue wait, if it may."""
    if not info.superseded and Facts(info.obj, state.options).may_queue:
        state.enqueue(info)


def read_again(state: State, info: WorkloadInfo) -> None:
    """What the pod templates of a waiting workload mean changed."""
    counts = effective_counts(info.obj, state.options)
    scheduling_class = _scheduling_class(state, info, counts)
    if scheduling_class is info.scheduling_class:
        return
    before = info.scheduling_class
    state.dequeue(info)
    state.record_undo(info)
    info.scheduling_class = scheduling_class
    info.scan = NO_SCAN
    if state.capacities:
        state.set_shared_requests(info)
    place(state, info)
    if before is not None and before.kept_out:
        state.undo_log.put(state.kept_out, info.key, info)  # no cycle evaluates it if its queue is stopped


def restore_slice(state: State, info: WorkloadInfo) -> None:
    """A replacement holds no quota any more: the slice that it was to replace counts again (11.9)."""
    old = state.workloads.get(info.replaces) if info.replaces else None
    if old is None or not old.superseded or state.replacements.get(old.key) is not info:
        return
    state.record_undo(old)
    old.superseded = False
    facts = Facts(old.obj, state.options)
    _read(state, old, old.obj, facts)
    if facts.has_reservation:
        _read_reservation(state, old, facts)
    elif facts.may_queue:
        state.enqueue(old)
