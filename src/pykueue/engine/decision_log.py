"""What happened to each workload: the events that touched it and the decisions about it, in order.

An engine that is made with a `DecisionLog` records into it; one without records nothing and pays nothing.
Entries are data: decisions with their explanations, and what changed in an object between two events.
`pykueue.engine.story` makes a text of them. What happens inside a fork is not recorded.

A time is that of the object where it has one (creation, transition of a condition), else that of the event,
in seconds since 1970.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from sys import intern
from typing import Any, Final

from pykueue.api import encode, kueue
from pykueue.api.meta import Condition, parse_time
from pykueue.engine.decisions import Admit, Decision, Preempt, Requeue
from pykueue.engine.events import Event, Upsert
from pykueue.engine.explain.render import reason_text

from .entry_packing import Packed, pack
from .log_entries import FIRST_KEPT, Change, Entry, Story

#: Entries kept of one object: the first `FIRST_KEPT`, and of the others the newest.
ENTRIES_MAX: Final = 64
#: Objects with entries; beyond it, those of the object longest without a new one are dropped.
OBJECTS_MAX: Final = 10_000
#: Objects whose entries are packed together.
PACKED_TOGETHER: Final = 32
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


class _Object:
    """The entries of one object, and what it was like last."""

    __slots__ = ("closed", "dropped", "entries", "exists", "fields", "packed", "queue", "spec", "title")

    def __init__(self, title: str) -> None:
        #: `Kind name`.
        self.title = title
        self.entries: list[Entry] = []
        self.dropped = 0
        self.exists = False
        #: The LocalQueue of a Workload.
        self.queue = ""
        #: What else is observed of a Workload; the same tuple for all that are alike.
        self.fields: _Fields = ()
        #: Of a queue, as encoded.
        self.spec: Any = None
        #: The entries, in place of `entries`, while nothing more is expected to happen.
        self.packed: Packed | None = None
        #: Whether they are to be packed with the next ones.
        self.closed = False

    def all_entries(self) -> list[Entry]:
        """The entries in a list of their own."""
        return self.packed.entries() if self.packed is not None else list(self.entries)

    def open(self) -> list[Entry]:
        """The entries, to be changed; not packed any more."""
        if self.packed is not None:
            self.entries, self.packed = self.packed.entries(), None
        return self.entries


class DecisionLog:
    """Entries by object. At most `entries_max` of each of `objects_max` objects are kept."""

    def __init__(self, entries_max: int = ENTRIES_MAX, objects_max: int = OBJECTS_MAX) -> None:
        self._entries_max = max(entries_max, FIRST_KEPT + 1)
        self._objects_max = objects_max
        #: By `Kind name`, the object with the newest entry last.
        self._objects: OrderedDict[str, _Object] = OrderedDict()
        #: Observed fields of Workloads, each by itself.
        self._alike: dict[_Fields, _Fields] = {}
        #: Those whose entries are packed when there are enough of them.
        self._closed: list[_Object] = []
        self._number = 0
        self._cycle = 0

    # --- recording --------------------------------------------------------------------------------------

    def observe(self, event: Event, now: float) -> None:
        """Records what an event shows to have changed in a workload or a queue."""
        if not isinstance(event, Upsert):
            self._removed(event.kind, event.namespace, event.name, now)
        elif isinstance(event.obj, kueue.Workload):
            self._workload(event.obj, now)
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
                known = self._object(f"Workload {key}")
                entries = known.open()
                last = entries[-1] if entries else None
                if last is not None and _is_same(last.what, decision):
                    last.what, last.cycle = decision, cycle
                    last.count += 1
                    last.last_at = now
                else:
                    self._add(known, now, decision)

    def _removed(self, kind: str, namespace: str, name: str, now: float) -> None:
        title = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        known = self._objects.get(title)
        if known is not None and known.exists:
            known.exists = False
            known.queue, known.fields, known.spec = "", (), None
            known = self._object(title)
            self._add(known, now, Change(known.title, DELETED))
            self._close(known)

    def _workload(self, obj: kueue.Workload, now: float) -> None:
        known = self._object(f"Workload {obj.metadata.key}")
        queue = obj.spec.queue_name or ""
        new = _fields(obj)
        if not known.exists:
            known.exists = True
            known.queue, known.fields = queue, self._shared(new[:_ALWAYS])
            details = [f"priority {new[1]}"]
            for pods in obj.spec.pod_sets:
                details.append(f"pod set {pods.name}: {pods.count} pod{'' if pods.count == 1 else 's'}")
            change = Change(known.title, CREATED, "", queue, message=intern("; ".join(details)))
            self._add(known, obj.metadata.created or now, change)
        if queue != known.queue or new != known.fields:
            self._changed(known, queue, new, obj.status.conditions, now)

    def _changed(
        self, known: _Object, queue: str, new: _Fields, conditions: list[Condition], now: float
    ) -> None:
        """Records how a workload differs from what it was, in the order of the times."""
        found: list[tuple[float, int, Change]] = []
        if queue != known.queue:
            found.append((now, 0, Change(known.title, _QUEUE_NAME, known.queue, queue)))
            known.queue = queue
        before, after = _by_field(known.fields), _by_field(new)
        known.fields = self._shared(new)
        changed = [name for name, value in after.items() if before.get(name) != value]
        changed += [name for name in before if name not in after]
        for name in changed:
            old, value = before.get(name, ""), after.get(name, "")
            condition = _condition(conditions, name)
            if condition is None:
                found.append((now, len(found), Change(known.title, name, old, value)))
            elif old or condition.status == "True":
                change = Change(known.title, name, old, value, condition.reason, condition.message)
                stamp = condition.last_transition_time
                found.append((parse_time(stamp) if stamp else now, len(found), change))
        if len(found) > 1:
            found.sort()
        for at, _, change in found:
            self._add(known, at, change)
        if after.get(_FINISHED) == "True":
            self._close(known)

    def _shared(self, fields: _Fields) -> _Fields:
        """The fields as other workloads have them."""
        if len(self._alike) >= SHARED_MAX:
            self._alike.clear()
        return self._alike.setdefault(fields, fields)

    def _queue(self, obj: kueue.ClusterQueue | kueue.LocalQueue, now: float) -> None:
        known = self._object(f"{type(obj).__name__} {obj.metadata.key}")
        title = known.title
        spec = encode(obj.spec)
        if not known.exists:
            known.exists = True
            self._add(known, obj.metadata.created or now, Change(title, CREATED))
        elif spec != known.spec:
            differences = list(_differences("spec", known.spec, spec))
            for name, before, after in differences[:FIELDS_MAX]:
                self._add(known, now, Change(title, name, before, after))
        known.spec = spec

    def _object(self, title: str) -> _Object:
        """The object of that title, from now on the newest."""
        known = self._objects.get(title)
        if known is not None:
            self._objects.move_to_end(title)
            return known
        if len(self._objects) >= self._objects_max:
            self._objects.popitem(last=False)
        known = self._objects[title] = _Object(title)
        return known

    def _close(self, known: _Object) -> None:
        """Keeps the entries of an object as bytes, from when there are enough of them until another one."""
        if known.closed or known.packed is not None:
            return
        known.closed = True
        closed = self._closed
        closed.append(known)
        if len(closed) < PACKED_TOGETHER:
            return
        self._closed = []
        # Those that cannot be packed stay as they are.
        for each, packed in zip(closed, pack([each.entries for each in closed]), strict=False):
            each.packed, each.entries, each.closed = packed, [], False

    def _add(self, known: _Object, at: float, what: Change | Decision) -> None:
        entries = known.open()
        self._number += 1
        entries.append(Entry(self._number, at, self._cycle, what))
        if len(entries) > self._entries_max:
            del entries[FIRST_KEPT]
            known.dropped += 1

    # --- asking -----------------------------------------------------------------------------------------

    def workloads(self) -> list[str]:
        """Keys of all workloads with entries, sorted."""
        return sorted(title.partition(" ")[2] for title in self._objects if title.startswith("Workload "))

    def story(self, key: str) -> Story:
        """What happened to a workload, and to the queues it was in while it existed; in order."""
        title = f"Workload {key}"
        known = self._objects.get(title)
        if known is None:
            return Story(key, [], 0)
        entries = known.all_entries()
        first, born = entries[0].number, entries[0].at
        last = entries[-1].number if not known.exists else self._number
        for queue in self._queues_of(key, entries):
            other = self._objects.get(queue)
            for entry in other.all_entries() if other is not None else ():
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
                    if known is not None and known.spec is not None:
                        found[f"ClusterQueue {known.spec.get('clusterQueue', '')}"] = None
                case Admit() | Requeue() | Preempt() as decision if decision.key == key:
                    found[f"ClusterQueue {decision.cluster_queue}"] = None
        return iter(found)


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


def _by_field(fields: _Fields) -> dict[str, str]:
    """The values by the names of the fields."""
    return dict(zip(fields[::2], fields[1::2], strict=True))


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
