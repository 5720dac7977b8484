"""Compares the decisions of Kueue's manager cycle by cycle, with its log beside the changes of objects.

The log says which changes the manager's caches had when a cycle took its snapshot, and which workloads the
cycle considered. So the state of a decision is known: the objects at the resourceVersions that the snapshot
had, and the workloads to which earlier cycles gave quota, written or not. The engine decides on that state
about the same heads; what it remembers of flavors that were tried comes from the cycles before.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.meta import format_time
from pykueue.engine import Admit, Decision, Engine, Event, Preempt, Requeue
from pykueue.engine.explain.render import reason_text
from pykueue.questions.shadow.changes import Change
from pykueue.questions.shadow.decisions import Observed, assignment_text, observed, same_assignment
from pykueue.questions.shadow.manager_log import LOGGED, Considered, Cycle, Entry, Flushed, Seen
from pykueue.questions.shadow.report import Cause, Difference

#: Seconds after which a change that the log does not name is taken for one that the manager has.
DELAY: Final = 5.0
#: How much the clock of the manager may be behind, in seconds.
SKEW: Final = 0.5

#: Changes without which a cycle is tried again.
CHANGES_MAX: Final = 20
#: How long the manager may take until a change of which its log tells is in its caches, in seconds.
DELAY_OF_CACHES: Final = 0.5

_Key = tuple[str, str, str]
#: Called with a decision of the manager and the difference; None if the engine decides the same.
OnDecision = Callable[[Observed, Difference | None], None]

_TIME: Final = attrgetter("time")
#: Entries that are kept after they were taken over, so that not each one costs a copy of the others.
_TAKEN_MAX: Final = 1000


class _Began(NamedTuple):
    """A cycle takes the heads of the queues; its snapshot comes later."""

    time: float
    cycle: Cycle


class _Written(NamedTuple):
    """What a cycle wrote of a head."""

    head: Considered
    decisions: list[Observed]


class _Judgement(NamedTuple):
    """How a decision of a cycle compares with the engine's."""

    cycle: int
    cause: Cause | None
    """None if the engine decides the same."""
    text: str
    targets: frozenset[str] = frozenset()
    """What the engine preempts."""
    preemptions: int = 0
    """For how many preemptions it waits."""
    evidence: tuple[str, ...] = ()


class _Trial(NamedTuple):
    """A cycle that differs from the one in question."""

    cause: Cause
    """What it shows where the decision is then the same."""
    undone: tuple[Event, ...] = ()
    """What undoes changes."""
    evidence: tuple[str, ...] = ()


_UNCHANGED: Final = _Trial("Decision")


class CycleComparison:
    """Follows a cluster and the log of its manager."""

    def __init__(self, engine: Engine, on_decision: OnDecision) -> None:
        """`engine` makes no inadmissible workload active by itself: its `flush_delay` is infinite."""
        self.engine = engine
        self._on_decision = on_decision
        #: Changes that the manager's caches do not have yet, of each object in order.
        self._unseen: dict[_Key, deque[Change]] = {}
        #: When the log tells that the caches have them, as far as it is known.
        self._told: dict[_Key, deque[float]] = {}
        #: Those of kinds that the log does not name, in order.
        self._unlogged: deque[Change] = deque()
        self._entries: list[Entry | _Began] = []
        #: How many of the entries are taken over.
        self._taken = 0
        #: The workload that the engine considers in the queue of each head of the cycle.
        self._expected: dict[str, str] = {}
        #: Versions of admissions that the manager's caches have before they are written, by workload.
        self._assumed: dict[str, int] = {}
        #: Versions of decisions that cycles made and that the caches do not have.
        self._attributed: set[int] = set()
        self._keys: dict[str, str] = {}
        #: Decisions that the caches do not have yet, by workload; preemptions by preemptor (uid) as well.
        self._decisions: dict[str, list[Observed]] = {}
        self._preemptions: dict[str, list[Observed]] = {}
        #: The changes that the caches had last, with the times at which the log tells of them.
        self._recent: deque[tuple[float, Change]] = deque(maxlen=CHANGES_MAX)
        #: By workload: how the last cycle compares that preempted others for it, and the last that did not.
        self._last: dict[str, dict[bool, _Judgement]] = {}
        #: How often something changed that a decision can depend on.
        self._changes = 0
        #: The last cycle, by its heads and the changes until then, if the same follows from it again.
        self._repeatable: tuple[object, list[Decision]] = None, []
        #: By ClusterQueue: the workload for which others were preempted last. The manager puts it first until
        #: it has quota or is gone, even if it does not fit any more (defect D5 of the reference).
        self._preemptors: dict[str, str] = {}
        self._began = 0.0
        #: How many changes of objects the caches have that were not delivered here yet.
        self._awaited: dict[_Key, int] = {}
        self.late = 0
        """Changes that were delivered after the log told of them."""
        self.cycles = 0
        self.attempts = 0
        """Workloads that cycles considered."""

    # --- following --------------------------------------------------------------------------------------

    def begin(self, changes: Iterable[Change], now: float) -> None:
        """The objects at the start, at `now` (seconds since 1970). What does not fit then is inadmissible."""
        self._began = now
        for change in changes:
            self._note(change)
            self.engine.apply(change.event())
        self.engine.requeue_unfit(now)

    def add(self, change: Change) -> None:
        """A watch delivered a change; the log tells when the manager has it."""
        self._note(change)
        about = observed(change)
        if about is not None:
            if about.kind == "Preempt":
                self._preemptions.setdefault(about.preemptor_uid, []).append(about)
            self._decisions.setdefault(about.workload, []).append(about)
        if change.kind in LOGGED:
            key = (change.kind, change.namespace, change.name)
            waiting = self._unseen.setdefault(key, deque())
            waiting.append(change)
            if self._awaited.get(key, 0):
                self._awaited[key] -= 1
                self.late += 1
                self._take(waiting)
        else:
            self._unlogged.append(change)

    def _note(self, change: Change) -> None:
        if isinstance(change.after, kueue.Workload):
            self._keys[change.after.metadata.uid] = change.after.metadata.key

    def read(self, entry: Entry) -> None:
        """The log went on."""
        if isinstance(entry, Seen):
            self._told.setdefault((entry.kind, entry.namespace, entry.name), deque()).append(entry.time)
        if isinstance(entry, Cycle):
            insort(self._entries, _Began(entry.began, entry), key=_TIME)
        insort(self._entries, entry, key=_TIME)

    def waiting(self) -> bool:
        """Whether there are changes that the manager's caches do not have yet."""
        return bool(self._unseen or self._unlogged)

    def work(self, until: float) -> Iterator[None]:
        """Take over what happened until a time, in seconds since 1970, in steps.

        Later entries may be known already.
        """
        while self._taken < len(self._entries) and (entry := self._entries[self._taken]).time <= until:
            self._taken += 1
            self._apply_unlogged(entry.time)
            if isinstance(entry, Seen):
                self._see(entry)
            elif isinstance(entry, _Began):
                self._begin_cycle(entry.cycle)
            elif isinstance(entry, Flushed):
                self._changes += 1
                self.engine.following.note_flushed(entry.cohort, entry.cluster_queue)
            else:
                self._cycle(entry)
            yield
        if self._taken > _TAKEN_MAX:
            del self._entries[: self._taken]
            self._taken = 0
        self._apply_unlogged(until)
        for waiting in list(self._unseen.values()):
            while waiting and waiting[0].received < until - DELAY:
                self._take(waiting)

    def _see(self, seen: Seen) -> None:
        key = (seen.kind, seen.namespace, seen.name)
        told = self._told[key]
        told.popleft()
        if not told:
            del self._told[key]
        waiting = self._unseen.get(key)
        if seen.time < self._began + DELAY and (not waiting or waiting[0].received > seen.time + SKEW):
            return  # part of the state at the start
        if not waiting:
            self._awaited[key] = self._awaited.get(key, 0) + 1
            return
        self._recent.append((seen.time, waiting[0]))
        self._take(waiting)

    def _take(self, waiting: deque[Change]) -> None:
        change = waiting.popleft()
        if not waiting:
            del self._unseen[change.kind, change.namespace, change.name]
        key = f"{change.namespace}/{change.name}"
        about = next((each for each in self._decisions.get(key, ()) if each.change is change), None)
        if about is not None:
            if change.version not in self._attributed:
                self._late(about)
            _drop(self._decisions, key, about)
            if about.kind == "Preempt":
                _drop(self._preemptions, about.preemptor_uid, about)
        self._attributed.discard(change.version)
        self._apply(change)

    def _apply_unlogged(self, until: float) -> None:
        while self._unlogged and self._unlogged[0].received <= until:
            self._apply(self._unlogged.popleft())

    def _apply(self, change: Change) -> None:
        """A change is part of the manager's caches."""
        self.engine.tick(change.received)
        if change.kind == "Workload":
            key = f"{change.namespace}/{change.name}"
            if change.after is not None and change.version < self._assumed.get(key, 0):
                return  # an admission is assumed, which this change does not have
            self._assumed.pop(key, None)
            workload = change.after
            if not isinstance(workload, kueue.Workload) or workload.condition_is("QuotaReserved"):
                self._preemptors = {name: each for name, each in self._preemptors.items() if each != key}
            if change.after is None and isinstance(change.before, kueue.Workload):
                self._keys.pop(change.before.metadata.uid, None)
                self._last.pop(key, None)
        self._changes += 1
        self.engine.apply(change.event())

    # --- comparing --------------------------------------------------------------------------------------

    def _begin_cycle(self, cycle: Cycle) -> None:
        """The heads of the queues are taken."""
        following = self.engine.following
        following.begin_cycle(cycle.began)
        self._expected = {}
        for key in cycle.workloads:
            view = self.engine.workload(key)
            if view is not None:
                queue = view.cluster_queue
                self._expected[key] = following.head_of(queue, self._preemptors.get(queue, ""))

    def _cycle(self, cycle: Cycle) -> None:
        heads = [each for each in cycle.workloads.values() if not each.skipped]
        if not heads:
            return
        self.cycles += 1
        self.attempts += len(heads)
        written = [self._written_about(cycle, head) for head in heads]
        state = self._changes, tuple((each.key, each.requeued) for each in heads)
        repeated = state == self._repeatable[0]  # managers try preemptors again all the time
        decisions = self._repeatable[1] if repeated else self._decide(cycle, heads)
        judged = [self._compare(each, decisions) for each in written]
        explained = any(each.cause for each in judged)
        if explained:
            judged = self._explain(cycle, heads, written, judged)
        if explained or not repeated:
            searching = self.engine.following.remember()
            self._repeatable = (None if explained or searching else state), decisions
        for each, judgement in zip(written, judged, strict=True):
            self._conclude(cycle, each, judgement)

    def _decide(
        self, cycle: Cycle, heads: Sequence[Considered], trial: _Trial = _UNCHANGED
    ) -> list[Decision]:
        keys = [each.key for each in heads]
        return self.engine.following.decide(
            keys, cycle.time, trial.cause == "Tie", trial.undone, trial.cause == "FlavorSearch"
        )

    def _explain(
        self,
        cycle: Cycle,
        heads: Sequence[Considered],
        written: Sequence[_Written],
        judged: list[_Judgement],
    ) -> list[_Judgement]:
        """Find why the engine decides otherwise, by trials: the first with which a decision is the same."""
        best, most = _UNCHANGED, sum(each.cause is None for each in judged)
        for trial in self._trials(cycle):
            decisions = self._decide(cycle, heads, trial)
            again = [self._compare(each, decisions).cause is None for each in written]
            judged = [
                each._replace(cause=trial.cause, evidence=trial.evidence)
                if each.cause == "Decision" and same
                else each
                for each, same in zip(judged, again, strict=True)
            ]
            if sum(again) > most:
                best, most = trial, sum(again)
            if not any(each.cause == "Decision" for each in judged):
                break
        # The workloads remember what was tried in the cycle that is most like the manager's.
        self._decide(cycle, heads, best)
        return judged

    def _trials(self, cycle: Cycle) -> Iterator[_Trial]:
        """Other cycles that the manager can have made."""
        yield _Trial("Tie")
        yield _Trial("FlavorSearch", evidence=("the same if the search begins with the first flavor",))
        undone: dict[_Key, Event] = {}
        for seen, change in reversed(self._recent):
            if seen < cycle.time - DELAY_OF_CACHES:
                return
            undone[change.kind, change.namespace, change.name] = change.reverse()
            text = f"the same without {_told(change, cycle.time - seen)}"
            yield _Trial("Race", tuple(undone.values()), (text,))

    def _late_change(self, key: str, began: float) -> str:
        """The change of a workload that the caches may not have had yet, in words; empty if there is none."""
        for seen, change in reversed(self._recent):
            if f"{change.namespace}/{change.name}" == key and seen >= began - DELAY_OF_CACHES:
                return _told(change, began - seen)
        return ""

    def _conclude(self, cycle: Cycle, written: _Written, judged: _Judgement) -> None:
        """Report what was written of a head, and take over what the manager decided."""
        key = written.head.key
        expected = self._expected.get(key, "")
        if judged.cause is None and expected != key:
            text = f"{expected or 'nothing'} is considered first"
            judged = judged._replace(cause="QueueOrder", text=text)
            late = self._late_change(expected, cycle.began)
            if late:
                judged = judged._replace(cause="Race", evidence=(late,))
        judged = judged._replace(cycle=cycle.number)
        self._last.setdefault(key, {})[written.head.requeued == "PendingPreemption"] = judged
        for about in written.decisions:
            self._attributed.add(about.change.version)
            self._judge(about, judged)
        if written.head.assumed:
            admission = next((each for each in written.decisions if each.kind == "Admit"), None)
            if admission is not None:  # else the workload was deleted meanwhile
                self._assumed[key] = admission.change.version
                self._changes += 1
                self.engine.apply(admission.change.event())
        elif written.head.requeued is not None:
            view = self.engine.workload(key)
            if view is not None and written.head.requeued in ("PendingPreemption", "PendingMigration"):
                self._preemptors[view.cluster_queue] = key
            self.engine.following.note_requeued(key, written.head.requeued, written.head.inadmissible)

    def _considered_again(self, key: str, after: float) -> float:
        """When the next cycle considers a workload, as far as the log is known; else infinite."""
        for position in range(self._taken, len(self._entries)):
            entry = self._entries[position]
            if entry.time > after + DELAY:
                break
            if isinstance(entry, Cycle) and key in entry.workloads:
                return entry.time
        return inf

    def _written_about(self, cycle: Cycle, head: Considered) -> _Written:
        """What a cycle wrote of a head: before it was considered again."""
        until = min(self._considered_again(head.key, cycle.time), cycle.ended + DELAY_OF_CACHES)
        found = self._preempted_for(head.key, cycle.began, until)
        if head.assumed:
            about = self._written(head.key, "Admit", cycle.began, inf, False)
        else:
            about = self._written(
                head.key, "Requeue", cycle.began, until, head.requeued == "PendingPreemption"
            )
        return _Written(head, [*found, about] if about is not None else found)

    def _compare(self, written: _Written, decisions: Sequence[Decision]) -> _Judgement:
        """Whether the engine decides about a head as the manager did."""
        head = written.head
        own = next(
            (each for each in decisions if isinstance(each, Admit | Requeue) and each.key == head.key), None
        )
        targets = {each.key for each in decisions if isinstance(each, Preempt) and each.preemptor == head.key}
        same = False
        if head.assumed:
            admission = next((each for each in written.decisions if each.kind == "Admit"), None)
            same = isinstance(own, Admit) and (
                admission is None or same_assignment(own.admission, admission.after.status.admission)
            )
        elif isinstance(own, Requeue):
            preempted = {each.workload for each in written.decisions if each.kind == "Preempt"}
            same = own.requeue == head.requeued and preempted <= targets
        waiting = own.explanation.pending_preemptions if isinstance(own, Requeue) else 0
        cause: Cause | None = None if same else "Decision"
        return _Judgement(0, cause, _text(own, targets), frozenset(targets), waiting)

    def _judge(self, about: Observed, judged: _Judgement) -> None:
        cause = judged.cause
        if cause is None and about.preemptions not in (None, judged.preemptions):
            cause = "Decision"
        if cause is None:
            self._on_decision(about, None)
            return
        difference = Difference(
            workload=about.workload,
            kind=about.kind,
            cause=cause,
            resource_version=about.change.version,
            time=format_time(about.change.received),
            manager=about.text(),
            engine=judged.text,
            evidence=[*([f"cycle {judged.cycle} of the manager"] if judged.cycle else []), *judged.evidence],
        )
        self._on_decision(about, difference)

    def _late(self, about: Observed) -> None:
        """A decision that was not yet attributed when the manager had it in its caches.

        It is that of the last cycle that considered the workload; or the reason of a workload that no cycle
        considered, as one that is alike did not fit.
        """
        key = self._keys.get(about.preemptor_uid, "") if about.kind == "Preempt" else about.workload
        judged = self._last.get(key, {}).get(about.kind == "Preempt" or about.awaits_preemption)
        if judged is None:
            if about.change.received < self._began + SKEW:
                return  # a cycle before the start made it
            cause: Cause | None = None if self._is_inadmissible(about) else "NotDetermined"
            judged = _Judgement(0, cause, "no cycle in the manager's log decided it")
        elif about.kind == "Preempt" and about.workload not in judged.targets:
            judged = judged._replace(cause="Decision")
        self._judge(about, judged)

    def _is_inadmissible(self, about: Observed) -> bool:
        """Whether a workload that is pending is so without being considered."""
        view = self.engine.workload(about.workload)
        if about.kind != "Requeue" or view is None:
            return False
        return not view.cluster_queue or about.workload not in self.engine.in_line(view.cluster_queue)[0]

    def _written(self, key: str, kind: str, since: float, until: float, preempting: bool) -> Observed | None:
        """The decision about a workload that a cycle wrote, before it was considered again."""
        for about in self._decisions.get(key, ()):
            if (
                about.kind == kind
                and about.awaits_preemption == preempting
                and about.change.version not in self._attributed
                and since <= self._known_at(about.change) < until
            ):
                return about
        return None

    def _preempted_for(self, key: str, since: float, until: float) -> list[Observed]:
        """The preemptions for a workload that a cycle wrote, before it considered that again."""
        workload = self.engine.workload_object(key)
        return [
            about
            for about in self._preemptions.get(workload.metadata.uid if workload is not None else "", ())
            if about.change.version not in self._attributed and since <= self._known_at(about.change) < until
        ]

    def _known_at(self, change: Change) -> float:
        """When a change was known first, here or by the manager: it was written before."""
        key = (change.kind, change.namespace, change.name)
        told = self._told.get(key, ())
        for index, each in enumerate(self._unseen.get(key, ())):
            if each is change:
                return min(change.received, told[index]) if index < len(told) else change.received
        return change.received


def _told(change: Change, before: float) -> str:
    return f"{change}, of which the log tells {1000 * before:.1f} ms before the cycle"


def _drop(lists: dict[str, list[Observed]], key: str, about: Observed) -> None:
    found = lists[key]
    found.remove(about)
    if not found:
        del lists[key]


def _text(own: Admit | Requeue | None, targets: Iterable[str]) -> str:
    """What the engine decides about a workload, in words."""
    if isinstance(own, Admit):
        return f"admit: {assignment_text(own.admission)}"
    if own is None:
        return "no decision"
    preempted = "".join(f"; preempt {key}" for key in sorted(targets))
    return f"pending: {reason_text(own.explanation)}{preempted}"
