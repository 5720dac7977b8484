"""Taking in workloads: what each version of an object means for queues and quota.

Source of the rules: reference/kueue-semantics.md 4.2, 4.6 to 4.9 and 11.
"""

from __future__ import annotations

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.meta import ObjectMeta, parse_time
from pykueue.engine.requests import Environment, Shape
from pykueue.engine.state import State
from pykueue.engine.workload import (
    ACTIVE,
    HOLDING,
    NO_SCAN,
    PARKED,
    REPLACES_SLICE,
    Facts,
    Record,
    effective_counts,
    effective_priority,
    has_closed_gate,
    queue_timestamp,
)


def upsert(state: State, obj: kueue.Workload) -> None:
    """A Workload appeared or changed."""
    key = obj.metadata.key
    facts = Facts(obj, state.options)
    record = state.records.get(key)
    if facts.finished:
        if record is not None:
            forget_workload(state, record)
        return
    if record is None:
        record = Record(key, obj.metadata.namespace)
        record.obj = obj
        state.journal.put(state.records, key, record)
        state.keep(record)
        _read(state, record, obj, facts)
        if facts.holding:
            _take_quota(state, record, facts)
        elif facts.may_queue:
            state.enqueue(record)
        return
    state.keep(record)
    if record.superseded:
        record.obj = obj
    elif record.place == HOLDING:
        _update_holding(state, record, obj, facts)
    else:
        _update_waiting(state, record, obj, facts)


def forget_workload(state: State, record: Record) -> None:
    """The workload is finished or gone."""
    if record.place == HOLDING:
        state.release(record)
    else:
        state.dequeue(record)
    local = record.local
    if local is not None:
        state.journal.drop(local.records, record.key)
        state.history.forgive(local, record.key)
    state.journal.drop(state.records, record.key)


def _read(state: State, record: Record, obj: kueue.Workload, facts: Facts) -> None:
    """Sets what the object says about a workload, wherever it stands."""
    options = state.options
    known = record.shape is not None
    metadata = obj.metadata
    same_pods = known and (
        record.obj.spec.pod_sets is obj.spec.pod_sets or _same_spec(record.obj.metadata, metadata)
    )
    record.obj = obj
    if not record.uid:
        record.uid = metadata.uid
        record.created = metadata.created
    counts = effective_counts(obj, options)
    limits = state.limits_of(record.namespace)
    if not (same_pods and _is_shape_of(record.shape, counts, state.shapes.under(limits))):
        shape = state.shapes.of(obj.spec.pod_sets, counts, limits)
        if shape is not record.shape:
            record.shape = shape
            record.scan = NO_SCAN
    if metadata.generation and record.shape is not None:
        # Templates are the most of a workload; those that come again and again are kept once.
        record.obj = replace(obj, spec=replace(obj.spec, pod_sets=record.shape.source))
    priority = effective_priority(obj, options)
    if priority != record.priority:
        record.priority = priority
        record.scan = NO_SCAN
    record.timestamp = queue_timestamp(obj, facts, options, record.created)
    requeued = facts.requeued
    record.requeue_blocked = requeued is not None and requeued.status == "False"
    record.queue_since = (
        parse_time(requeued.last_transition_time)
        if requeued is not None and requeued.status == "True" and requeued.last_transition_time
        else record.created
    )
    again = obj.status.requeue_state
    record.requeue_at = parse_time(again.requeue_at) if again is not None and again.requeue_at else 0.0
    record.gated = has_closed_gate(obj)
    record.replaces = (
        metadata.annotations.get(REPLACES_SLICE, "")
        if options.enabled("ElasticJobsViaWorkloadSlices")
        else ""
    )
    name = obj.spec.queue_name
    local = record.local
    if local is None or local.key != f"{record.namespace}/{name}":
        if local is not None:
            state.journal.drop(local.records, record.key)
            state.history.forgive(local, record.key)
        local = record.local = state.local(record.namespace, name) if name else None
        if local is not None:
            state.journal.put(local.records, record.key, record)


def _is_shape_of(shape: Shape | None, counts: list[int], environment: Environment) -> bool:
    """Whether the same pod templates with so many pods still mean this."""
    return (
        shape is not None
        and shape.environment == environment
        and [pods.count for pods in shape.pod_sets] == counts
    )


def _same_spec(before: ObjectMeta, after: ObjectMeta) -> bool:
    """Whether the server says that the spec is the same: it counts the changes of a spec as generations."""
    return 0 < before.generation == after.generation and before.uid == after.uid


def _take_quota(state: State, record: Record, facts: Facts) -> None:
    """The object says that the workload holds quota."""
    admission = record.obj.status.admission
    assert admission is not None
    reserved = facts.reserved
    assert reserved is not None
    if admission != record.admission or not record.assumed:
        state.set_holding(record, admission, effective_counts(record.obj, state.options))
    record.reserved_at = parse_time(reserved.last_transition_time) if reserved.last_transition_time else 0.0
    record.assumed = False
    record.admitted = facts.admitted
    record.ready = facts.ready
    record.evicted = facts.evicted is not None
    record.eviction_assumed = False
    record.scan = NO_SCAN
    state.hold(record, state.queue(admission.cluster_queue))
    if facts.admitted:
        _settle_history(state, record)


def _update_holding(state: State, record: Record, obj: kueue.Workload, facts: Facts) -> None:
    if not facts.holding:
        if record.assumed and obj.spec.active:
            # The write is still on its way; only `forget` says that it failed.
            if not facts.may_queue:
                record.obj = obj
            return
        state.release(record)
        state.keep(record)
        _read(state, record, obj, facts)
        record.assumed = record.admitted = record.ready = False
        record.evicted = record.eviction_assumed = False
        record.admission, record.usage, record.holds = None, (), frozenset()
        if facts.may_queue:
            state.enqueue(record)
        return
    admission = obj.status.admission
    old = record.obj
    counts = effective_counts(obj, state.options)
    same_pods = old.spec is obj.spec and old.status.reclaimable_pods == obj.status.reclaimable_pods
    old_counts = counts if same_pods else effective_counts(old, state.options)
    priority = effective_priority(obj, state.options)
    reserved = facts.reserved
    assert admission is not None
    assert reserved is not None
    reserved_at = parse_time(reserved.last_transition_time) if reserved.last_transition_time else 0.0
    shrunk = counts != old_counts
    freed = shrunk or priority != record.priority
    if (
        not freed
        and admission == record.admission
        and record.admitted == facts.admitted
        and record.reserved_at == reserved_at
        and record.local is not None
        and record.local.key == f"{record.namespace}/{obj.spec.queue_name}"
    ):
        record.obj = obj
        _mark(state, record, facts)
        return
    was_admitted = record.admitted
    state.let_go(record)
    state.keep(record)
    _read(state, record, obj, facts)
    record.reserved_at = reserved_at
    if shrunk or admission != record.admission:
        state.set_holding(record, admission, counts)
    record.assumed = False
    record.admitted = facts.admitted
    record.ready = facts.ready
    record.evicted = facts.evicted is not None or record.eviction_assumed
    state.hold(record, state.queue(admission.cluster_queue))
    _mark(state, record, facts)
    if facts.admitted and not was_admitted:
        _settle_history(state, record)
    if freed and record.queue is not None:
        record.queue.advance()
        state.request_flush(record.queue)


def _mark(state: State, record: Record, facts: Facts) -> None:
    """Takes over conditions that do not change what is held."""
    record.assumed = False
    if facts.evicted is not None:
        record.eviction_assumed = False
        state.mark_evicted(record, True)
    elif not record.eviction_assumed:
        state.mark_evicted(record, False)
    if record.ready != facts.ready:
        record.ready = facts.ready
        if facts.ready:
            if state.unready.pop(record.key, None) is not None and not state.unready:
                state.everybody_ready()
        elif state.options.block_admission:
            state.unready[record.key] = record


def _signature(record: Record) -> tuple[object, ...]:
    """What has to change for a parked workload to be looked at again (4.9)."""
    obj = record.obj
    return (
        record.shape,
        record.priority,
        record.local,
        record.timestamp,
        record.requeue_blocked,
        record.requeue_at,
        record.gated,
        record.replaces,
        obj.spec,
        [check.state for check in obj.status.admission_checks],
    )


def _update_waiting(state: State, record: Record, obj: kueue.Workload, facts: Facts) -> None:
    if facts.holding:
        state.dequeue(record)
        state.keep(record)
        _read(state, record, obj, facts)
        _take_quota(state, record, facts)
        return
    waiting = record.place in (ACTIVE, PARKED)
    if waiting and facts.may_queue:
        before = _signature(record)
        queue, bucket = record.queue, record.bucket
        old_priority, old_timestamp, old_shape = record.priority, record.timestamp, record.shape
        _read(state, record, obj, facts)
        if _signature(record) == before:
            return
        # The queue finds a workload by what it was when it came in.
        new = record.priority, record.timestamp, record.shape
        record.priority, record.timestamp, record.shape = old_priority, old_timestamp, old_shape
        assert queue is not None
        was_sticky = queue.pending.sticky is record
        queue.pending.discard(record)
        state.keep(record)
        record.priority, record.timestamp, record.shape = new
        state.enqueue(record)
        if was_sticky and record.queue is queue and record.place == ACTIVE and bucket is not None:
            state.journal.set(queue.pending, "sticky", record)
        return
    if waiting:
        state.dequeue(record)
        state.keep(record)
    _read(state, record, obj, facts)
    if facts.may_queue:
        state.enqueue(record)
    elif not obj.spec.active and record.local is not None:
        state.history.forgive(record.local, record.key)


def _settle_history(state: State, record: Record) -> None:
    """An admitted workload's penalty becomes past usage (10.3)."""
    local, queue = record.local, record.queue
    if not state.history.on or local is None or queue is None or not queue.fair_by_usage:
        return
    admitted = next(
        (c for c in record.obj.status.conditions if c.type == "Admitted" and c.last_transition_time), None
    )
    now = parse_time(admitted.last_transition_time) if admitted is not None else state.now
    state.history.settle(local, record.key, state.used_nanos(local), now)
    state.wake(queue)


def place(state: State, record: Record) -> None:
    """Lets a workload that is in no queue wait, if it may."""
    if not record.superseded and Facts(record.obj, state.options).may_queue:
        state.enqueue(record)


def read_again(state: State, record: Record) -> None:
    """What the pod templates of a waiting workload mean changed."""
    counts = effective_counts(record.obj, state.options)
    shape = state.shapes.of(record.obj.spec.pod_sets, counts, state.limits_of(record.namespace))
    if shape is record.shape:
        return
    state.dequeue(record)
    state.keep(record)
    record.shape = shape
    record.scan = NO_SCAN
    place(state, record)


def restore_slice(state: State, record: Record) -> None:
    """The admission of a replacement failed: the slice it was to replace holds its quota again (11.9)."""
    old = state.records.get(record.replaces) if record.replaces else None
    if old is None or not old.superseded or old.queue is None:
        return
    state.keep(old)
    old.superseded = False
    facts = Facts(old.obj, state.options)
    if facts.holding:
        state.hold(old, old.queue)
    elif facts.may_queue:
        state.enqueue(old)
