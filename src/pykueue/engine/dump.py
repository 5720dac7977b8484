# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The whole state of an engine as JSON, and an engine from it: `load(dump(engine))` decides what it would.

A dump is a `v1` List of the objects the engine knows, as manifests, and of one `EngineState`: what only the
engine knows. Everything else (usage along the trees, flavors open to a class, orders of candidates) follows
from these. `restore` takes an EngineState alone, for an engine that got the objects otherwise; entries of
workloads it does not know, or knows under another uid, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, Final

from pykueue.api import KINDS, DecodeError, decode, decode_as, encode, kind_of, kueue
from pykueue.api.core import Namespace
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import Model
from pykueue.api.quantity import Quantity
from pykueue.engine.capacity import SharedCapacity
from pykueue.engine.engine import Engine
from pykueue.engine.events import Upsert
from pykueue.engine.fitted import Sample
from pykueue.engine.flavors.scheduling_class import SchedulingClass
from pykueue.engine.options import Options
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.quota.tree import Cohort
from pykueue.engine.state import State
from pykueue.engine.workload import ACTIVE, INADMISSIBLE, OUT, RESERVED, Promise, WorkloadInfo

API_VERSION: Final = "pykueue.io/v1alpha1"
KIND: Final = "EngineState"

#: Progress of a search for flavors: (pod set, resource, index of the last flavor tried).
Scan = list[tuple[int, str, int]]
#: (flavor, resource, amount in the units quota is counted in).
Use = tuple[str, str, int]


class WorkloadState(Model):
    """What the engine knows of a workload beside its object."""

    place: str = OUT
    cluster_queue: str = ""
    """Where it waits, or holds quota."""
    local_queue: str = ""
    """`namespace/name`."""
    uid: str = ""
    created: float = 0.0
    priority: int = 0
    timestamp: float = 0.0
    queue_since: float = 0.0
    requeue_blocked: bool = False
    requeue_at: float = 0.0
    gated: bool = False
    replaces: str = ""
    reason: str = ""
    inadmissible: str = ""
    """Why all workloads like it are inadmissible, if they are."""
    explained: str = ""
    scan: Scan = []
    scan_cycle: int = 0
    scan_generation: int = 0
    scanned_at: int = -1
    tried: list[Scan] = []
    tried_at: int = -1
    preempted_for: str = ""
    preemption_attempts: int = 0
    level_limit: int = -1
    preemptions: int = 0
    """How often it preempted others since something else than preemption changed its tree."""
    admission: kueue.Admission | None = None
    usage: list[Use] = []
    flavor_resources: list[tuple[str, str]] = []
    shared: dict[str, Any] = {}
    """What it reserves of shared capacities, by their names."""
    reserved_at: float = 0.0
    reservable: bool = True
    promise: tuple[float, float, int] | None = None
    """When it first had a reservation, from when on that was, and how certain it is in percent."""
    promised: list[tuple[int, str, str]] = []
    """The flavors in which capacity was reserved for it last: (pod set, resource, flavor)."""
    fitted: float | None = None
    """Its run time in seconds by finished workloads like it, where that was looked for."""
    assumed: bool = False
    admitted: bool = False
    ready: bool = False
    evicted: bool = False
    eviction_assumed: bool = False
    superseded: bool = False


#: Fields that a record has under the same name, as they are.
_PLAIN: Final = (
    "uid", "created", "priority", "timestamp", "queue_since", "requeue_blocked", "requeue_at", "gated",
    "replaces", "reason", "scan_cycle", "scan_generation", "scanned_at", "tried_at", "preempted_for",
    "preemption_attempts", "level_limit", "admission", "reserved_at", "fitted", "assumed", "admitted",
    "ready", "reservable", "evicted", "eviction_assumed", "superseded",
)  # fmt: skip


class Unfit(Model):
    """Pod sets that did not fit in a queue: workloads that ask for the same are not looked at."""

    pod_sets: list[kueue.PodSet]
    counts: list[int]
    namespace: str = ""
    """One whose LimitRanges they were read under; empty for none."""
    priority: int = 0
    reason: str = ""
    allowed: list[str] | None = None
    """The flavors that they may use; None: all."""
    run_time: int = 0
    """Declared run time in seconds; 0: none, or it does not matter."""


class ClusterQueueState(Model):
    """What the engine knows of a ClusterQueue beside its object."""

    generation: int = 0
    alarm: float | None = None
    """When the first protection ends that keeps a workload of it waiting, in seconds since 1970."""
    issued: tuple[float, ...] = ()
    """Times of the preemptions for it within the last hour, where these are limited."""
    preemptor: str = ""
    """Key of the workload whose preemptions are under way."""
    changed: bool = False
    """Its tree may have something to decide."""
    unfit: list[Unfit] = []


class LocalQueueState(Model):
    """Past usage under admission fair sharing, by resource; penalties by workload."""

    consumed: dict[str, Quantity] = {}
    sampled: float | None = None
    penalties: dict[str, dict[str, Quantity]] = {}


class EngineState(Model):
    """What only the engine knows."""

    options: dict[str, Any] = {}
    now: float = 0.0
    """The last time it was given, in seconds since 1970."""
    cycle: int = 0
    changes: int = 0
    flavor_resources: list[tuple[str, str]] = []
    """In the order they were first seen."""
    timers: list[tuple[float, str]] = []
    """(time, key): ends of back-offs."""
    turns: list[tuple[str, str, str, float, int, str]] = []
    """Preemptions between pairs of ClusterQueues: both names, for which the last was, when, how many turns,
    and the preempted workload."""
    second_pass: dict[str, tuple[float, int]] = {}
    """Workloads that hold quota and for which nodes are to be chosen: (when, attempts so far), by key."""
    run_times: list[tuple[float, str, float, str, str, int, int]] = []
    """Finished workloads that run times are fitted from: end, uid, seconds, queue, kind, size, priority."""
    kept_out: list[str] = []
    """Workloads outside of their queue of which the next cycle says why."""
    cluster_queues: dict[str, ClusterQueueState] = {}
    local_queues: dict[str, LocalQueueState] = {}
    workloads: dict[str, WorkloadState] = {}


# --- dumping ------------------------------------------------------------------------------------------------


def dump(engine: Engine) -> dict[str, Any]:
    """Everything the engine knows, as a List that `load` and `pykueue schedule -f` read."""
    items = [manifest_of(obj) for obj in objects_of(engine)]
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [*items, engine_state(engine)]}


def engine_state(engine: Engine) -> dict[str, Any]:
    """What only the engine knows, as a manifest; the objects are not part of it."""
    state = engine._state
    state.settle()
    if state.damping.on:
        state.damping.restore(state.workloads.values())
    found = EngineState(
        options=encode(engine.options),
        now=state.now,
        cycle=state.cycle,
        changes=state.changes,
        flavor_resources=list(state.flavor_resources.names),
        timers=sorted(timer for timer in state.timers if timer[1] in state.workloads),
        turns=state.damping.turns(),
        second_pass=dict(sorted(state.second_pass.items())),
        run_times=[tuple(each) for each in state.backfill.fitted.samples()],  # type: ignore[misc]
        kept_out=list(state.kept_out),
        cluster_queues={name: _queue(state, state.queues[name]) for name in sorted(state.queues)},
        local_queues={
            key: LocalQueueState(
                consumed=_quantities(local.consumed),
                sampled=local.sampled,
                penalties={name: _quantities(penalty) for name, penalty in local.penalties.items()},
            )
            for key, local in sorted(state.locals.items())
        },
        workloads={key: _workload(state, info) for key, info in sorted(state.workloads.items())},
    )
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "engine"}, "spec": encode(found)}


def objects_of(engine: Engine) -> Iterator[Model]:
    """All objects, in an order in which none comes before what it names."""
    state = engine._state
    for name, labels in sorted(state.namespaces.items()):
        yield Namespace(metadata=ObjectMeta(name=name, labels=dict(labels)))
    if state.nodes is not None:
        yield from (obj for _, obj in sorted(state.nodes.nodes.items()))
        yield from (obj for _, obj in sorted(state.nodes.pods.items()))
    yield from state.damping.policies()
    yield from state.backfill.policies()
    yield from state.backfill.windows.objects()
    yield from (obj for _, obj in sorted(state.budgets.budgets.items()))
    yield from (obj for _, obj in sorted(state.budgets.ledgers.items()))
    devices = state.scheduling_classes.devices
    for objects in (
        devices.classes,
        devices.templates,
        devices.slices,
        state.scheduling_classes.runtime_classes,
        state.topologies,
        state.flavors,
        state.checks,
    ):
        yield from (obj for _, obj in sorted(objects.items()))
    for _, ranges in sorted(engine._handlers.limit_ranges.items()):
        yield from (obj for _, obj in sorted(ranges.items()))
    nodes: list[Cohort | ClusterQueue | LocalQueue] = [
        *(node for _, node in sorted(state.forest.cohorts.items())),
        *(node for _, node in sorted(state.queues.items())),
        *(node for _, node in sorted(state.locals.items())),
    ]
    yield from (node.obj for node in nodes if node.obj is not None)
    yield from (info.obj for _, info in sorted(state.workloads.items()))


def manifest_of(obj: Model) -> dict[str, Any]:
    """The manifest of a typed object, with version and kind."""
    return {"apiVersion": _VERSIONS[kind_of(obj)], "kind": kind_of(obj), **encode(obj)}


_VERSIONS: Final = {kind: version for version, kind in KINDS}


def _queue(state: State, queue: ClusterQueue) -> ClusterQueueState:
    preemptor = queue.pending.preemptor
    return ClusterQueueState(
        generation=queue.generation,
        alarm=state.alarms.get(queue),
        issued=state.damping.issued(queue.name),
        preemptor=preemptor.key if preemptor is not None else "",
        changed=queue in state.ready,
        unfit=sorted(_unfit(state, queue), key=lambda each: (each.priority, repr(each))),
    )


def _unfit(state: State, queue: ClusterQueue) -> Iterator[Unfit]:
    """What did not fit in a queue, as far as a workload can still turn out to be like it."""
    for (scheduling_class, priority, run_time), reason in queue.pending.inadmissible_classes.items():
        namespace = _namespace_of(state, scheduling_class)
        if namespace is not None:
            yield Unfit(
                pod_sets=scheduling_class.source,
                counts=[pods.count for pods in scheduling_class.pod_sets],
                namespace=namespace,
                priority=priority,
                reason=reason,
                allowed=None if scheduling_class.allowed is None else list(scheduling_class.allowed),
                run_time=run_time,
            )


def _namespace_of(state: State, scheduling_class: SchedulingClass) -> str | None:
    """A namespace whose pod templates are read as those of the class were; None if there is none any more."""
    own = scheduling_class.environment.namespace
    for namespace in (own,) if own else ("", *sorted(state.limits)):
        under = state.scheduling_classes.under(state.limits_of(namespace), own, scheduling_class.dependencies)
        if under == scheduling_class.environment:
            return own or namespace
    return None


def _workload(state: State, info: WorkloadInfo) -> WorkloadState:
    names, bucket = state.flavor_resources.names, info.bucket
    return WorkloadState(
        place=info.place,
        cluster_queue=info.queue.name if info.queue is not None else "",
        local_queue=info.local.key if info.local is not None else "",
        inadmissible=bucket.inadmissible if bucket is not None else "",
        explained=bucket.explained if bucket is not None else "",
        scan=_scan(info.scan),
        tried=[_scan(scan) for scan in info.tried],
        promise=None if info.promise is None else info.promise[:3],
        promised=_promised(info),
        usage=[(*names[flavor_resource], amount) for flavor_resource, amount in info.usage],
        flavor_resources=sorted(names[flavor_resource] for flavor_resource in info.flavor_resources),
        shared={shared.name: shared.encode(reservation) for shared, reservation in info.shared},
        preemptions=info.queue.tree.preemptions.get(info.key, 0) if info.queue is not None else 0,
        **{name: getattr(info, name) for name in _PLAIN},
    )


def _promised(info: WorkloadInfo) -> list[tuple[int, str, str]]:
    found = info.promise.found if info.promise is not None else None
    if found is None:
        return []
    pinned = found if isinstance(found, Mapping) else found.assignment.pinned()  # the former is from a dump
    return [(pods, resource, flavor) for (pods, resource), flavor in pinned.items()]


def _scan(scan: Mapping[tuple[int, str], int]) -> Scan:
    return [(pods, resource, index) for (pods, resource), index in scan.items()]


# --- loading ------------------------------------------------------------------------------------------------


def load(document: Mapping[str, Any], capacities: Sequence[SharedCapacity] = ()) -> Engine:
    """The engine of a dump; `capacities` are those of the engine that was dumped, with nothing reserved.

    Raises DecodeError where it is none, or a workload reserves of a capacity that is not given.
    """
    items = document.get("items")
    if not isinstance(items, list):
        raise DecodeError("dump", "items: Expected `array`")
    found = state_of(items)
    if found is None:
        raise DecodeError("dump", f"items: there is no {KIND} ({API_VERSION}) among them")
    engine = Engine(options_of(found), capacities=capacities)
    for item in items:
        if not is_state(item):
            engine.apply(Upsert(decode(item)))
    restore(engine, found)
    return engine


def is_state(manifest: Any) -> bool:
    """Whether a manifest is that of an EngineState."""
    return (
        isinstance(manifest, Mapping)
        and manifest.get("kind") == KIND
        and manifest.get("apiVersion") == API_VERSION
    )


def state_of(manifests: Iterable[Mapping[str, Any]]) -> EngineState | None:
    """The EngineState among manifests, if there is one. Raises DecodeError for one of the wrong shape."""
    for manifest in manifests:
        if is_state(manifest):
            try:
                return decode_as(EngineState, manifest.get("spec"))
            except DecodeError as error:
                raise DecodeError(KIND, f"spec.{error.why}") from None
    return None


def options_of(found: EngineState) -> Options:
    """The options of the engine that was dumped."""
    return decode_as(Options, found.options)


def restore(engine: Engine, found: EngineState) -> None:
    """Restores the dumped state in an engine to which the same objects were applied."""
    state = engine._state
    for flavor, resource in found.flavor_resources:
        state.flavor_resources.index_of(flavor, resource)
    state.settle()
    known = {
        key: (info, each)
        for key, each in found.workloads.items()
        if (info := state.workloads.get(key)) is not None and info.uid in ("", each.uid)
    }
    for info, _ in known.values():
        _take_out(state, info)
    for info, each in known.values():
        _restore_workload(state, info, each)
    state.to_flush.clear()
    state.cohorts_to_flush.clear()
    state.settle()
    for key, local in found.local_queues.items():
        _restore_local(state, key, local)
    state.ready.clear()
    for name, queue in found.cluster_queues.items():
        _restore_queue(state, state.queue(name), queue)
    for info, each in known.values():
        if each.preemptions and info.queue is not None:
            info.queue.tree.preemptions[info.key] = each.preemptions
        bucket = info.bucket
        if bucket is not None and each.inadmissible:
            if not bucket.inadmissible and info.queue is not None:
                info.queue.pending.deactivate_bucket(bucket, each.inadmissible)
            bucket.explained = each.explained
    state.timers[:] = found.timers
    state.damping.take_over(
        found.turns, {name: each.issued for name, each in found.cluster_queues.items() if each.issued}
    )
    state.second_pass.update({key: due for key, due in found.second_pass.items() if key in known})
    state.backfill.fitted.take_over(starmap(Sample, found.run_times))
    state.kept_out = {key: known[key][0] for key in found.kept_out if key in known}
    state.now, state.cycle, state.changes = found.now, found.cycle, found.changes


def _take_out(state: State, info: WorkloadInfo) -> None:
    """Takes a workload out of its queue, or its usage out of the tree."""
    if info.place == RESERVED:
        state.release(info)
    elif info.place in (ACTIVE, INADMISSIBLE):
        state.dequeue(info)


def _restore_workload(state: State, info: WorkloadInfo, found: WorkloadState) -> None:
    for name in _PLAIN:
        setattr(info, name, getattr(found, name))
    flavors = {(pods, resource): flavor for pods, resource, flavor in found.promised}
    info.promise = None if found.promise is None else Promise(*found.promise, flavors or None)
    info.scan = {(pods, resource): index for pods, resource, index in found.scan}
    info.tried = tuple({(pods, name): index for pods, name, index in scan} for scan in found.tried)
    number = state.flavor_resources.index_of
    info.usage = tuple((number(flavor, resource), amount) for flavor, resource, amount in found.usage)
    info.flavor_resources = frozenset(number(flavor, resource) for flavor, resource in found.flavor_resources)
    info.shared = tuple([_shared(state, name, each) for name, each in found.shared.items()])
    local = _local(state, found.local_queue)
    if local is not info.local:
        if info.local is not None:
            del info.local.workloads[info.key]
        if local is not None:
            local.workloads[info.key] = info
        info.local = local
    queue = state.queue(found.cluster_queue) if found.cluster_queue else None
    info.queue = queue
    if queue is None:
        return
    if found.place == RESERVED:
        state.reserve(info, queue)
    elif found.place in (ACTIVE, INADMISSIBLE):
        state.places.move(info, found.place, queue)


def _shared(state: State, name: str, reservation: Any) -> tuple[SharedCapacity, Any]:
    for shared in state.capacities:
        if shared.name == name:
            return shared, shared.decode(reservation)
    raise DecodeError(KIND, f"spec.workloads: the shared capacity {name!r} is not given")


def _local(state: State, key: str) -> LocalQueue | None:
    namespace, _, name = key.partition("/")
    return state.local(namespace, name) if key else None


def _restore_local(state: State, key: str, found: LocalQueueState) -> None:
    local = _local(state, key)
    if local is not None:
        local.consumed, local.sampled = _nanos(found.consumed), found.sampled
        local.penalties = {name: _nanos(penalty) for name, penalty in found.penalties.items()}


def _quantities(nanos: Mapping[str, int]) -> dict[str, Quantity]:
    return {resource: Quantity(amount) for resource, amount in nanos.items()}


def _nanos(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {resource: quantity.nanos for resource, quantity in quantities.items()}


def _restore_queue(state: State, queue: ClusterQueue, found: ClusterQueueState) -> None:
    pending = queue.pending
    queue.generation = found.generation
    if found.alarm is not None:
        state.alarms[queue] = found.alarm
    pending.preemptor = pending.workloads.get(found.preemptor)
    if found.changed:
        state.ready[queue] = None
    for each in found.unfit:
        scheduling_class = state.scheduling_classes.of(
            each.pod_sets,
            each.counts,
            state.limits_of(each.namespace),
            each.namespace,
            None if each.allowed is None else tuple(each.allowed),
        )
        pending.set_class_inadmissible((scheduling_class, each.priority, each.run_time), each.reason)
