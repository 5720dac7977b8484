"""What a recording or a dump tells of the jobs of a cluster: when they came, how long they ran, what changed.

Decisions are left out: this is what a simulation needs to decide again, under the same or other rules. How
long a job runs is the time from its last admission to its end; one that had not ended runs as long as those
like it that ran longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, Literal, NamedTuple

import orjson
from msgspec.structs import replace

from pykueue.api import KINDS, conditions, decode, kueue
from pykueue.api.decoding import decode_as
from pykueue.api.kueue.names import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED
from pykueue.api.meta import find_condition, parse_time
from pykueue.api.objects import Object
from pykueue.engine import Removed, Upsert, lifecycle
from pykueue.engine.dump import is_state, options_of, state_of
from pykueue.engine.events import Event
from pykueue.engine.options import Options
from pykueue.simulate.changes import Identity, identity_of, manifest_identity
from pykueue.simulate.plan import ObjectChange, Outside, Present
from pykueue.simulate.recorded.reading import MALFORMED, damaged, segments
from pykueue.simulate.run_times import RunTimes
from pykueue.simulate.scenario.jobs import Job, Recorded, Written

#: Seconds from the end of a recording to the cycle that was not recorded any more.
_AFTER: Final = 0.001


class Happened(NamedTuple):
    """Something that happened to a workload."""

    at: float
    """Seconds from the start."""
    what: Literal["admitted", "undone", "preempted", "evicted", "released", "over"]
    """Undone: its admission could not be written. Released: it gave back the quota after a preemption."""
    key: str
    """Of its job."""
    details: str = ""
    """What it got, as JSON; the workload it was preempted for, or why it was evicted."""


@dataclass
class History:
    """The jobs of a time, and everything else that decisions depend on."""

    start: float
    """Seconds since 1970."""
    end: float
    options: Options | None
    """None: not known."""
    objects: dict[Identity, Object]
    """What was there at the start, but Workloads."""
    present: list[Present]
    """Workloads that were there at the start."""
    jobs: list[Job]
    """Those that came later, in order; times in seconds from the start."""
    changes: list[tuple[float, Event]]
    """Of objects other than Workloads, in seconds from the start."""
    starts: dict[str, float] = field(default_factory=dict)
    """First admission of each workload that was admitted later than the start, in seconds from it."""
    eviction_seconds: float | None = None
    """From the decision to preempt a workload to the release of its quota, in the median; None: none was."""
    log: list[Happened] = field(default_factory=list)
    """In order."""
    cycles: list[float] = field(default_factory=list)
    """When scheduling cycles began, in seconds from the start."""
    gaps: int = 0
    """Times of which nothing is known."""

    def changes_but(self, identities: Collection[Identity]) -> list[ObjectChange]:
        """The changes of all objects but these.

        Recorded run times include what failures of nodes cost: these change where pods fit, and stop none.
        """
        return [ObjectChange(at, [event]) for at, event in self.changes if _subject(event) not in identities]

    def outside(self) -> Outside:
        """What happens outside of decisions takes as long as it did."""
        seconds = self.eviction_seconds
        # What was to be decided at the end of the recording was decided after it.
        cycles = [*self.cycles, self.end - self.start + _AFTER] if self.cycles else ()
        return Outside(eviction=None if seconds is None else lambda: seconds, cycles=cycles)


def _subject(event: Event) -> Identity:
    if isinstance(event, Upsert):
        return identity_of(event.obj)
    return event.kind, event.namespace, event.name


@dataclass
class _Life:
    """One Workload as it was seen."""

    key: str
    """Of its job."""
    manifest: Object
    place: str
    """File and line of the manifest."""
    at: float
    """When it was seen first."""
    present: bool
    admitted: float | None = None
    """When the admission with which it runs was decided, or was seen where no decision is known."""
    first_admitted: float | None = None
    over: float | None = None
    """When it finished or was deleted."""
    ran: float | None = None
    """Seconds of its last run, from the decision to admit it."""
    longest: float = 0.0
    """Seconds of the longest run that did not come to its end: it runs longer than that."""
    recorded: Recorded = field(default_factory=Recorded)
    holds: bool = False
    """It was seen with quota last."""
    finished: bool = False
    failed: bool = False


def of_recording(path: Path) -> History:
    """The history in the files of a flight recorder. Raises RecordingError and OSError."""
    found = segments(path)
    reader = _Reader(found[0].at)
    for number, segment in enumerate(found):
        try:
            reader.place = f"{segment.path}: line 1"
            if not number:
                reader.begin(segment.head["items"])
            elif segment.head.get("gap"):
                reader.resume(segment.at, segment.head["items"])
            for line, entry in enumerate(segment.entries(), 2):
                reader.place = f"{segment.path}: line {line}"
                reader.take(entry)
        except MALFORMED as error:
            raise damaged(reader.place, error) from None
    return reader.history()


def of_objects(items: list[Object], now: float | None = None) -> History:
    """The present state in a dump. Raises RecordingError and DecodeError."""
    state = state_of(items)
    start = state.now if state is not None and state.now else now
    reader = _Reader(0.0)
    try:
        reader = _Reader(max((_newest(item) for item in items), default=0.0) if start is None else start)
        reader.begin(items)
    except MALFORMED as error:
        raise damaged(reader.place, error) from None
    return reader.history()


def _newest(item: Object) -> float:
    """The newest time in an object, in seconds since 1970."""
    found = (
        [parse_time(item["metadata"]["creationTimestamp"])]
        if item["metadata"].get("creationTimestamp")
        else []
    )
    for one in (item.get("status") or {}).get("conditions") or ():
        if one.get("lastTransitionTime"):
            found.append(parse_time(one["lastTransitionTime"]))
    return max(found, default=0.0)


class _Reader:
    def __init__(self, start: float) -> None:
        #: File and line of what is read.
        self.place = "dump"
        self._start = start
        self._last = start
        self._gaps = 0
        self._options: Options | None = None
        self._objects: dict[Identity, Object] = {}
        self._now: dict[Identity, Object] = {}
        self._changes: list[tuple[float, Event]] = []
        self._lives: list[_Life] = []
        #: When workloads were preempted that hold quota still, by key, and how long others took.
        self._preempted: dict[str, float] = {}
        self._evictions: list[float] = []
        self._cycles: list[float] = []
        self._log: list[Happened] = []
        #: How many Workloads have had a key.
        self._numbers: Counter[str] = Counter()
        #: When admissions were decided that were not seen since, by key.
        self._unseen: dict[str, float] = {}
        #: When the newest admission of each workload was decided, by key.
        self._admissions: dict[str, float] = {}
        #: The Workloads that exist, by key.
        self._alive: dict[str, _Life] = {}

    def begin(self, items: list[Object]) -> None:
        """The state at the start."""
        state = state_of(items)
        self._options = options_of(state) if state is not None else None
        for item in items:
            if item["kind"] == "Workload":
                self._workload(item, self._start, present=True)
            elif (item.get("apiVersion"), item["kind"]) in KINDS:
                self._objects[manifest_identity(item)] = self._now[manifest_identity(item)] = item

    def take(self, entry: Mapping[str, Any]) -> None:
        """The next entry of a recording."""
        at = entry.get("at", self._last)
        self._last = max(self._last, at)
        if "upsert" in entry:
            self._upsert(entry["upsert"], at)
        elif "removed" in entry:
            self._removed(tuple(entry["removed"]), at)
        elif "cycle" in entry:
            self._cycles.append(at - self._start)
            for decision in entry["cycle"]:
                self._decided(decision, decision["workload"], at)
        elif entry.get("what") == "Admit":
            self._unseen.pop(entry["forget"], None)
            self._note(self._last, "undone", self._alive.get(entry["forget"]))

    def resume(self, at: float, items: list[Object]) -> None:
        """The state after a time of which nothing is known."""
        self._gaps += 1
        self._last = max(self._last, at)
        for item in items:
            if not is_state(item):
                self._upsert(item, at)
        known = {manifest_identity(item) for item in items}
        for identity in [each for each in self._now if each not in known]:
            self._removed(identity, at)
        for key in list(self._alive):
            namespace, _, name = key.partition("/")
            if ("Workload", namespace, name) not in known:
                self._removed(("Workload", namespace, name), at)

    def _decided(self, decision: Mapping[str, Any], key: str, at: float) -> None:
        """A decision on a workload."""
        life = self._alive.get(key)
        if decision.get("admitted"):
            self._admissions[key] = at
        if decision["kind"] == "Admit" and life is not None:
            life.recorded.writes.append(Written(0.0, 0.0))
            self._unseen[key] = at
            self._note(at, "admitted", life, canonical(decision["admission"]))
        if decision["kind"] == "Preempt" and key not in self._preempted:  # else it could not be written
            self._preempted[key] = at
            if life is not None:
                admitted = self._admissions.get(key, life.admitted)
                life.recorded.interrupted.append(0.0 if admitted is None else at - admitted)
                self._note(at, "preempted", life, decision["preemptor"])

    def _note(self, at: float, what: Any, life: _Life | None, details: str = "") -> None:
        if life is not None:
            self._log.append(Happened(at - self._start, what, life.key, details))

    def _upsert(self, item: Object, at: float) -> None:
        if item["kind"] == "Workload":
            self._workload(item, at, present=False)
            return
        identity = manifest_identity(item)
        before = self._now.get(identity)
        if before is None or _content(before) != _content(item):
            self._changes.append((at - self._start, Upsert(decode(item))))
        self._now[identity] = item

    def _removed(self, identity: Identity, at: float) -> None:
        kind, namespace, name = identity
        if kind != "Workload":
            if self._now.pop(identity, None) is not None:
                self._changes.append((at - self._start, Removed(*identity)))
            return
        key = f"{namespace}/{name}"
        life = self._alive.pop(key, None)
        if life is not None and life.over is None:
            self._end(key, life, at)

    def _workload(self, item: Object, at: float, present: bool) -> None:
        metadata = item["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        life = self._alive.get(key)
        if key in self._preempted and not conditions.has_quota(item):
            seconds = at - self._preempted.pop(key)
            self._evictions.append(seconds)
            if life is not None:
                life.recorded.evictions.append(seconds)
            self._note(at, "released", life)
        elif life is not None and life.holds and not conditions.has_quota(item):
            self._note(at, "evicted", life, conditions.reason(item, EVICTED))
        if life is not None and life.manifest["metadata"].get("uid") != metadata.get("uid"):
            self._removed(manifest_identity(item), at)
            life = None
        if life is None:
            if conditions.is_finished(item) and not present:
                return  # its life is not known
            self._numbers[key] += 1
            job = key + (f"-{self._numbers[key]}" if self._numbers[key] > 1 else "")
            life = self._alive[key] = _Life(job, item, self.place, at, present)
            self._lives.append(life)
        life.holds = conditions.has_quota(item)
        if life.over is not None:
            return
        if life.holds and (decided := self._unseen.pop(key, None)) is not None:
            stamp = max(decided, _since(item, at, QUOTA_RESERVED))
            life.recorded.writes[-1] = Written(stamp - decided, at - decided)
        if conditions.is_admitted(item) and not conditions.is_evicted(item):
            if life.admitted is None:
                decided = self._admissions.pop(key, at)
                life.admitted = _since(item, at, ADMITTED) if present else decided
            if life.first_admitted is None:
                life.first_admitted = life.admitted
        elif not conditions.is_finished(item):
            if life.admitted is not None:
                life.longest = max(life.longest, at - life.admitted)
            life.admitted = None
        if conditions.is_finished(item):
            life.manifest, life.place, life.finished = item, self.place, True
            found = next(each for each in item["status"]["conditions"] if each["type"] == FINISHED)
            life.failed = found.get("reason") == "Failed"
            self._end(key, life, at)

    def _end(self, key: str, life: _Life, at: float) -> None:
        life.over = at
        self._note(at, "over", life)
        if self._preempted.pop(key, None) is not None:
            life.recorded.evictions.append(None)
        if life.admitted is not None:
            life.ran = at - life.admitted

    # --- result -----------------------------------------------------------------------------------------

    def history(self) -> History:
        """Everything that was read."""
        typed = [_decoded(life) for life in self._lives]
        known = RunTimes(_ended(workload, life) for workload, life in zip(typed, self._lives, strict=True))
        result = History(self._start, self._last, self._options, self._objects, [], [], self._changes)
        result.log, result.cycles, result.gaps = self._log, self._cycles, self._gaps
        if any(life.recorded.evictions for life in self._lives):
            result.eviction_seconds = median(self._evictions or [0.0])
        for workload, life in zip(typed, self._lives, strict=True):
            if life.present and life.finished:
                continue
            job = self._job(workload, life, known)
            if life.present:
                started = None if life.admitted is None and life.over is None else _started(workload, life)
                since = None if started is None else started - self._start
                result.present.append(Present(workload, job, since))
            else:
                result.jobs.append(job)
            if life.first_admitted is not None and life.first_admitted >= self._start:
                result.starts[job.key] = life.first_admitted - self._start
        return result

    def _job(self, workload: kueue.Workload, life: _Life, known: RunTimes) -> Job:
        metadata = workload.metadata
        name = life.key.partition("/")[2]
        random = Random(metadata.key)
        run_time, leaves = life.ran, None
        if life.over is None:
            running = self._last - life.admitted if life.admitted else 0.0
            run_time = known.draw(workload, random, max(running, life.longest))
        elif run_time is None:
            # It was deleted while it was pending, and would be under other rules too.
            run_time, leaves = known.draw(workload, random, life.longest), life.over - self._start
        at = (metadata.created or life.at) - self._start if life.present else life.at - self._start
        queue = f"{metadata.namespace}/{workload.spec.queue_name}"
        return Job(
            at,
            metadata.namespace,
            name,
            queue,
            workload.spec,
            run_time,
            fails=life.failed,
            metadata=replace(metadata, name=name),
            leaves_at=leaves,
            recorded=life.recorded,
        )


def _decoded(life: _Life) -> kueue.Workload:
    """The Workload. Raises RecordingError."""
    try:
        return decode_as(kueue.Workload, life.manifest)
    except ValueError as error:
        raise damaged(life.place, error) from None


def _started(workload: kueue.Workload, life: _Life) -> float | None:
    """Since when a Workload that was there at the start ran then."""
    found = find_condition(workload.status.conditions, "Admitted")
    if found is None or found.status != "True" or not found.last_transition_time:
        return None
    return min(parse_time(found.last_transition_time), life.at)


def _since(item: Object, at: float, condition: str) -> float:
    """Since when a Workload has been in a condition, by `at` at the latest."""
    for each in (item.get("status") or {}).get("conditions") or ():
        if each["type"] == condition and each.get("lastTransitionTime"):
            return min(at, parse_time(each["lastTransitionTime"]))
    return at


def _ended(workload: kueue.Workload, life: _Life) -> kueue.Workload:
    """The Workload as run times are learnt from it."""
    return (
        workload if life.finished or life.over is None else lifecycle.finished(workload, "Deleted", life.over)
    )


def canonical(admission: Any) -> str:
    """An admission as JSON: equal ones are equal texts."""
    return orjson.dumps(admission, option=orjson.OPT_SORT_KEYS).decode()


def _content(item: Object) -> tuple[Any, ...]:
    """What decisions read of an object; the heartbeats of nodes are left out."""
    metadata = item["metadata"]
    status = item.get("status") or {}
    states = [(each["type"], each["status"]) for each in status.get("conditions") or ()]
    rest = {name: value for name, value in status.items() if name != "conditions"}
    return item.get("spec"), metadata.get("labels"), metadata.get("annotations"), states, rest
