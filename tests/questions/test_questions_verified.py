"""Every change that `why` prints is tried on another engine, made from a dump of the recorded state.

It admits the workload within the printed number of cycles, and reduced by the smallest unit it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from engine_plans import Plan, build, plans, run
from hypothesis import HealthCheck, given, settings

from pykueue.api import decode, encode
from pykueue.api.kueue import V1BETA2
from pykueue.api.quantity import Quantity, parse
from pykueue.engine import Admit, Engine, Preempt, Removed, Upsert, lifecycle
from pykueue.engine.dump import KIND, dump, load
from pykueue.questions import Change, why
from pykueue.questions.answers import Edit
from pykueue.questions.edits import edited

relaxed = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
CYCLES_MAX = 60


def apply_edits(engine: Engine, key: str, edits: Iterable[tuple[Edit, str]]) -> str:
    """Sets the fields that edits name; the key of the workload then."""
    for edit, after in edits:
        if edit.field == "metadata.namespace":
            obj: Any = engine.workload_object(key)
            engine.apply(Removed("Workload", edit.namespace, edit.name))
            manifest = edited({"apiVersion": V1BETA2, "kind": edit.kind, **encode(obj)}, edit, after)
            engine.apply(Upsert(decode(manifest)))
            key = f"{after}/{edit.name}"
        else:
            apply_edit(engine, key, edit, after)
    return key


def apply_edit(engine: Engine, key: str, edit: Edit, after: str) -> None:
    obj: Any
    if edit.kind == "Workload":
        obj = engine.workload_object(key)
    elif edit.kind == "ClusterQueue":
        obj = engine.cluster_queue_object(edit.name)
    elif edit.kind == "Cohort":
        obj = engine.cohort_object(edit.name)
    else:
        obj = next(
            each for each in engine.local_queue_objects(edit.namespace) if each.metadata.name == edit.name
        )
    manifest = edited({"apiVersion": V1BETA2, "kind": edit.kind, **encode(obj)}, edit, after)
    manifest["metadata"].pop("generation", None)
    engine.apply(Upsert(decode(manifest)))


def admitted_after(engine: Engine, key: str, now: float, alone: bool) -> tuple[int, list[str]]:
    """The cycle in which a workload is admitted (0: never), and which workloads were preempted until then."""
    gone: list[str] = []
    for cycle in range(1, CYCLES_MAX + 1):
        if alone:
            for other in list(engine.workload_objects()):
                view = engine.workload(other.metadata.key)
                if view is not None and view.state != "reserved" and view.key != key:
                    engine.apply(Removed("Workload", other.metadata.namespace, other.metadata.name))
            engine.flush()
        if not engine.has_heads():
            return 0, gone
        decisions = engine.cycle(now + cycle)
        if any(isinstance(each, Admit) and each.key == key for each in decisions):
            return cycle, gone
        for each in decisions:
            if isinstance(each, Preempt):
                gone.append(each.key)
                release(engine, each.key, now + cycle, each.reason)
        for view in map(engine.workload, [each.metadata.key for each in engine.workload_objects()]):
            if view is not None and view.evicted and view.state == "reserved":
                release(engine, view.key, now + cycle, "InClusterQueue")
    return 0, gone


def release(engine: Engine, key: str, now: float, reason: str) -> None:
    workload, view = engine.workload_object(key), engine.workload(key)
    assert workload is not None
    assert view is not None
    if view.admission is not None and workload.status.admission is None:
        workload = lifecycle.reserved(workload, view.admission, view.admitted, now)
        engine.apply(Upsert(workload))
    engine.apply(Upsert(lifecycle.released(lifecycle.preempted(workload, reason, now), now)))


def reduced(change: Change) -> Iterable[tuple[Edit, str]]:
    """Each amount of a change, by its smallest unit smaller."""
    for edit in change.edits:
        match edit.field.rpartition(".")[2]:
            case "nominalQuota" | "borrowingLimit" | "lendingLimit":
                unit = Quantity.of_milli(1) if "[cpu]" in edit.field else Quantity.of(1)
                yield edit, str(parse(edit.after) - unit)
            case "priority":
                yield edit, str(int(edit.after) - 1)
            case "count":
                yield edit, str(int(edit.after) + 1)


def verify(recorded: dict[str, Any], key: str, change: Change, now: float, alone: bool) -> None:
    engine = load(recorded)
    moved = apply_edits(engine, key, ((edit, edit.after) for edit in change.edits))
    cycle, _ = admitted_after(engine, moved, now, alone)
    assert 0 < cycle <= change.cycles, (change, cycle)
    if not change.smallest:
        return
    for less, after in reduced(change):
        engine = load(recorded)
        changed = ((edit, after if edit is less else edit.after) for edit in change.edits)
        moved = apply_edits(engine, key, changed)
        cycle, preempted = admitted_after(engine, moved, now, alone)
        assert not cycle or (change.without_preemption and preempted), (change, less, after)


def assert_unchanged(engine: Engine, recorded: dict[str, Any]) -> None:
    """An engine is as recorded, but for its number of changes, which counts those that were undone, and for
    texts that it makes again when they are asked for."""

    def items(document: dict[str, Any]) -> list[dict[str, Any]]:
        found = deepcopy(document["items"])
        for item in found:
            if item["kind"] == KIND:
                item["spec"].pop("changes", None)
                for workload in item["spec"]["workloads"].values():
                    workload.pop("explained", None)
        return sorted(found, key=lambda item: (item["kind"], str(item.get("metadata"))))

    assert items(dump(engine)) == items(recorded)


def questions(plan: Plan) -> tuple[Engine, float, list[str]]:
    world = build(plan)
    run(world)
    engine = world.engine
    views = map(engine.workload, [each.metadata.key for each in engine.workload_objects()])
    waiting = [view.key for view in views if view is not None and view.state in ("active", "inadmissible")]
    return engine, world.now, sorted(waiting)


@relaxed
@given(plans())
def test_changes_for_the_head_admit_it_and_smaller_ones_do_not(plan: Plan) -> None:
    engine, now, waiting = questions(plan)
    recorded = dump(engine)
    for key in waiting:
        answer = why(engine, key, now, place=False)
        engine.check()
        assert answer.head is not None
        for change in answer.head.changes:
            verify(recorded, key, change, now, alone=True)
    assert_unchanged(engine, recorded)


@relaxed
@given(plans(most=6))
def test_changes_at_its_place_admit_it_and_smaller_ones_do_not(plan: Plan) -> None:
    engine, now, waiting = questions(plan)
    recorded = dump(engine)
    for key in waiting[:3]:
        answer = why(engine, key, now, place_decisions_max=3000)
        assert answer.place is not None
        for change in answer.place.changes:
            verify(recorded, key, change, now, alone=False)
    assert_unchanged(engine, recorded)
