"""What happened to each workload: the events that touched it and the decisions about it, in order.

An engine that is made with a `DecisionLog` records into it; one without records nothing and pays nothing.
Entries are data: decisions with their explanations, and what changed in an object between two events.
`pykueue.engine.story` makes a text of them. What happens inside a fork is not recorded.

A time is that of the object where it has one (creation, transition of a condition), else that of the event,
in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from sys import intern
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pykueue.api import encode, kueue
from pykueue.api.meta import Condition, parse_time
from pykueue.engine.decisions import Admit, Decision, Preempt, Requeue
from pykueue.engine.events import Event, Upsert
from pykueue.engine.explain.render import reason_text

from .entry_packing import ObjectEntries, Packed, pack
from .log_entries import FIRST_KEPT, Change, Entry, Story

if TYPE_CHECKING:
    from pykueue.engine.workload import WorkloadInfo

#: Entries kept of one object: the first `FIRST_KEPT`, and of the others the newest.
ENTRIES_MAX: Final = 64
#: Objects with entries; beyond it, those of the object longest without a new one are dropped.
OBJECTS_MAX: Final = 10_000
#: Objects whose entries are packed together.
PACKED_TOGETHER: Final = 32
#: The part of the objects that are dropped at once.
DROPPED_TOGETHER: Final = 100
#: Fields named in one change of a queue.
FIELDS_MAX: Final = 8
#: Different sets of observed fields that are kept once.
SHARED_MAX: Final = 4096

CREATED: Final = "created"
DELETED: Final = "deleted"
_FINISHED: Final = "condition Finished"
#: The field by which a Workload names its LocalQueue.
_QUEUE_NAME: Final = "spec.queueName"
#: Names and values, in turn, that are observed of every Workload from the first: its priority, `spec.active`.
_ALWAYS: Final = 4
#: The names under which the conditions of every Workload are observed.
_CONDITION_FIELDS: Final = {
    type: intern("condition " + type)
    for type in ("QuotaReserved", "Admitted", "PodsReady", "Evicted", "Preempted", "Requeued", "Finished")
}

#: Names of fields and their values as text, in turn.
_Fields = tuple[str, ...]


def _all_entries(known: ObjectEntries) -> list[Entry]:
    """The entries in a list of their own."""
    kept = known.kept
    if isinstance(kept, list):
        return list(kept)
    if isinstance(kept, Packed):
        return kept.entries()
    return [] if kept is None else [kept]


def _opened(known: ObjectEntries) -> list[Entry]:
    """The entries, to be changed; not packed any more."""
    kept = known.kept
    if isinstance(kept, list):
        return kept
    entries = _all_entries(known)
    known.kept = entries
    return entries


class DecisionLog:
    """Entries by object. At most `entries_max` of each of `objects_max` objects are kept."""

    def __init__(self, entries_max: int = ENTRIES_MAX, objects_max: int = OBJECTS_MAX) -> None:
        self._entries_max = max(entries_max, FIRST_KEPT + 1)
        self._objects_max = objects_max
        #: By key, the object with the newest entry last.
        self._objects: dict[str, ObjectEntries] = {}
        #: Observed fields of Workloads, each by itself.
        self._alike: dict[_Fields, _Fields] = {}
        #: The entries for the creation of Workloads, by LocalQueue and details.
        self._creations: dict[tuple[str, str], Change] = {}
        #: Those whose entries are packed when there are enough of them.
        self._closed: list[ObjectEntries] = []
        self._number = 0
        #: The cycle and the time of the newest entry, for the next ones of the same. Compiled, what is known
        #: to be a number is another object in each entry: hence Any.
        self._cycle: Any = 0
        self._at: Any = 0.0

    # --- recording --------------------------------------------------------------------------------------

    def observe(self, event: Event, now: float, workloads: Mapping[str, WorkloadInfo]) -> None:
        """Records what an event shows to have changed in a workload or a queue.

        `workloads` are those of the engine, whose keys are kept once.
        """
        if not isinstance(event, Upsert):
            self._removed(event.kind, event.namespace, event.name, now)
        elif isinstance(event.obj, kueue.Workload):
            key = event.obj.metadata.key
            info = workloads.get(key)
            self._workload(event.obj, key if info is None else info.key, now)
        elif isinstance(event.obj, kueue.ClusterQueue | kueue.LocalQueue):
            self._queue(event.obj, now)

    def decided(self, decisions: Iterable[Decision], cycle: int, now: float) -> None:
        """Records the decisions of a cycle; a preemption belongs to both workloads."""
        self._cycle = cycle
        for decision in decisions:
            keys = [decision.key]
            if isinstance(decision, Preempt):
                keys.append(decision.preemptor)
            for key in keys:
                known = self._object(key)
                entries = _opened(known)
                last = entries[-1] if entries else None
                if last is not None and _is_same(last.what, decision):
                    last.what, last.cycle = decision, self._cycle
                    last.count += 1
                    last.last_at = self._shared_time(now)
                else:
                    self._add(known, now, decision)

    def _removed(self, kind: str, namespace: str, name: str, now: float) -> None:
        key = f"{namespace}/{name}" if namespace else name
        if kind != "Workload":
            key = f"{kind} {key}"
        known = self._objects.get(key)
        if known is not None and known.shown is not None:
            known.queue, known.shown = "", None
            known = self._object(key)
            self._add(known, now, Change("" if kind == "Workload" else key, DELETED))
            self._close(known)

    def _workload(self, obj: kueue.Workload, key: str, now: float) -> None:
        known = self._object(key)
        queue = obj.spec.queue_name or ""
        new = _fields(obj)
        if known.shown is None:
            known.queue, known.shown = queue, self._shared(new[:_ALWAYS])
            details = [f"priority {new[1]}"]
            for pods in obj.spec.pod_sets:
                details.append(f"pod set {pods.name}: {pods.count} pod{'' if pods.count == 1 else 's'}")
            self._add(known, obj.metadata.created or now, self._creation(queue, "; ".join(details)))
        if queue != known.queue or new != known.shown:
            self._changed(known, queue, new, obj.status.conditions, now)

    def _changed(
        self, known: ObjectEntries, queue: str, new: _Fields, conditions: list[Condition], now: float
    ) -> None:
        """Records how a workload differs from what it was, in the order of the times."""
        found: list[tuple[float, int, Change]] = []
        if queue != known.queue:
            found.append((now, 0, Change("", _QUEUE_NAME, known.queue, queue)))
            known.queue = queue
        before: _Fields = known.shown
        known.shown = self._shared(new)
        for name, old, value in _differing(before, new):
            condition = _condition(conditions, name)
            if condition is None:
                found.append((now, len(found), Change("", name, old, value)))
            elif old or condition.status == "True":
                change = Change("", name, old, value, condition.reason, condition.message)
                stamp = condition.last_transition_time
                found.append((parse_time(stamp) if stamp else now, len(found), change))
        if len(found) > 1:
            found.sort()
        for at, _, change in found:
            self._add(known, at, change)
        finished = _place(new, _FINISHED)
        if finished >= 0 and new[finished + 1] == "True":
            self._close(known)

    def _shared(self, fields: _Fields) -> _Fields:
        """The fields as other workloads have them."""
        if len(self._alike) >= SHARED_MAX:
            self._alike.clear()
        return self._alike.setdefault(fields, fields)

    def _creation(self, queue: str, details: str) -> Change:
        """That a Workload was created, as other Workloads have it."""
        if len(self._creations) >= SHARED_MAX:
            self._creations.clear()
        found = self._creations.get((queue, details))
        if found is None:
            found = self._creations[queue, details] = Change("", CREATED, "", queue, message=details)
        return found

    def _queue(self, obj: kueue.ClusterQueue | kueue.LocalQueue, now: float) -> None:
        title = f"{type(obj).__name__} {obj.metadata.key}"
        known = self._object(title)
        spec = encode(obj.spec)
        if known.shown is None:
            self._add(known, obj.metadata.created or now, Change(title, CREATED))
        elif spec != known.shown:
            differences = list(_differences("spec", known.shown, spec))
            for name, before, after in differences[:FIELDS_MAX]:
                self._add(known, now, Change(title, name, before, after))
        known.shown = spec

    def _object(self, key: str) -> ObjectEntries:
        """The object of that key, from now on the newest."""
        objects = self._objects
        known = objects.pop(key, None)
        if known is None:
            if len(objects) >= self._objects_max:
                # Several at once: each look for the first passes by those that were taken out before it.
                for oldest in list(islice(objects, 1 + self._objects_max // DROPPED_TOGETHER)):
                    del objects[oldest]
            known = ObjectEntries(key)
        objects[known.key] = known
        return known

    def _close(self, known: ObjectEntries) -> None:
        """Keeps the entries of an object as bytes, from when there are enough of them until another one."""
        if known.closed or isinstance(known.kept, Packed):
            return
        known.closed = True
        closed = self._closed
        closed.append(known)
        if len(closed) < PACKED_TOGETHER:
            return
        self._closed = []
        # Those that cannot be packed stay as they are.
        for each, packed in zip(closed, pack([_all_entries(each) for each in closed]), strict=False):
            each.kept, each.closed = packed, False

    def _add(self, known: ObjectEntries, at: float, what: Change | Decision) -> None:
        self._number += 1
        entry = Entry(self._number, self._shared_time(at), self._cycle, what)
        if known.kept is None:
            known.kept = entry
            return
        entries = _opened(known)
        entries.append(entry)
        if len(entries) > self._entries_max:
            del entries[FIRST_KEPT]
            known.dropped += 1

    def _shared_time(self, at: float) -> Any:
        """The time, as the newest entry has it if it is the same."""
        if at != self._at:
            self._at = at
        return self._at

    # --- asking -----------------------------------------------------------------------------------------

    def workloads(self) -> list[str]:
        """Keys of all workloads with entries, sorted."""
        return sorted(key for key in self._objects if _is_workload(key))

    def story(self, key: str) -> Story:
        """What happened to a workload, and to the queues it was in while it existed; in order."""
        known = self._objects.get(key)
        if known is None or not _is_workload(key):
            return Story(key, [], 0)
        entries = [_titled(entry, f"Workload {key}") for entry in _all_entries(known)]
        first, born = entries[0].number, entries[0].at
        last = entries[-1].number if known.shown is None else self._number
        for queue in self._queues_of(key, entries):
            other = self._objects.get(queue)
            for entry in _all_entries(other) if other is not None else ():
                # A manager that starts reads queues after the workloads that they are older than.
                if first < entry.number <= last and not (_is_creation(entry) and entry.at < born):
                    entries.append(entry)
        return Story(key, sorted(entries, key=lambda entry: entry.number), known.dropped)

    def _queues_of(self, key: str, entries: Iterable[Entry]) -> Iterator[str]:
        """Titles of the queues that a workload was in."""
        namespace = key.partition("/")[0]
        found: dict[str, None] = {}
        for entry in entries:
            match entry.what:
                case Change(field="created" | "spec.queueName", after=name):
                    local = f"LocalQueue {namespace}/{name}"
                    found[local] = None
                    known = self._objects.get(local)
                    if known is not None and known.shown is not None:
                        found[f"ClusterQueue {known.shown.get('clusterQueue', '')}"] = None
                case Admit() | Requeue() | Preempt() as decision if decision.key == key:
                    found[f"ClusterQueue {decision.cluster_queue}"] = None
        return iter(found)


def _is_workload(key: str) -> bool:
    return " " not in key


def _titled(entry: Entry, title: str) -> Entry:
    """The entry of a Workload, with the name of the Workload in it."""
    what = entry.what
    return replace(entry, what=replace(what, object=title)) if isinstance(what, Change) else entry


def _is_creation(entry: Entry) -> bool:
    return isinstance(entry.what, Change) and entry.what.field == CREATED


def _is_same(before: Change | Decision, after: Decision) -> bool:
    """Whether a workload waits for the same reason again."""
    return (
        isinstance(before, Requeue)
        and isinstance(after, Requeue)
        and before.reason == after.reason
        and before.requeue == after.requeue
        and before.inadmissible == after.inadmissible
        and (
            before.explanation == after.explanation
            or reason_text(before.explanation) == reason_text(after.explanation)
        )
    )


def _fields(obj: kueue.Workload) -> _Fields:
    """What is observed of a workload beside the name of its LocalQueue, as text."""
    spec, status = obj.spec, obj.status
    fields = [
        "spec.priority",
        str(spec.priority or 0),
        "spec.active",
        "true" if spec.active else "false",
    ]
    if status.reclaimable_pods:
        for done in status.reclaimable_pods:
            fields.append(f"reclaimablePods {done.name}")
            fields.append(str(done.count))
    if status.admission_checks:
        for check in status.admission_checks:
            fields.append(f"admissionCheck {check.name}")
            fields.append(check.state)
    for condition in status.conditions:
        fields.append(_condition_field(condition.type))
        fields.append(condition.status)
    return tuple(fields)


def _differing(before: _Fields, after: _Fields) -> list[tuple[str, str, str]]:
    """(name, before, after) of each field that differs; a value is empty where there is no such field."""
    found: list[tuple[str, str, str]] = []
    for at in range(0, len(after), 2):
        name, value = after[at], after[at + 1]
        old = _place(before, name, at)
        if old < 0:
            found.append((name, "", value))
        elif before[old + 1] != value:
            found.append((name, before[old + 1], value))
    for at in range(0, len(before), 2):
        if _place(after, before[at], at) < 0:
            found.append((before[at], before[at + 1], ""))
    return found


def _place(fields: _Fields, name: str, likely: int = 0) -> int:
    """The index of a field; -1 if there is none of that name. Most fields are at the `likely` one."""
    if likely < len(fields) and fields[likely] == name:
        return likely
    for at in range(0, len(fields), 2):
        if fields[at] == name:
            return at
    return -1


def _condition_field(type: str) -> str:
    """The name under which a condition is observed."""
    return _CONDITION_FIELDS.get(type) or intern("condition " + type)


def _condition(conditions: list[Condition], field: str) -> Condition | None:
    """The condition that is observed under that name."""
    for condition in conditions:
        if _condition_field(condition.type) == field:
            return condition
    return None


def _differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """(path, before, after) of every leaf that differs; items of lists go by their name, if they have one."""
    if isinstance(before, list) and isinstance(after, list):
        before, after = _by_name(before), _by_name(after)
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from _differences(f"{path}.{name}", before.get(name), after.get(name))
    elif before != after:
        yield path, _text(before), _text(after)


def _by_name(items: list[Any]) -> dict[str, Any]:
    return {
        str(item["name"]) if isinstance(item, dict) and "name" in item else str(index): item
        for index, item in enumerate(items)
    }


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    return "set" if isinstance(value, dict | list) else str(value)
