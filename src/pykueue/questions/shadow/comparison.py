"""Compares a decision of the manager with the engine's on the same state, and finds the cause of differences.

Every comparison runs on a fork of the engine, which is then as it was. Causes are found by further trials: on
earlier states of the last seconds, after decisions that were written later, and with the workload considered
first.

A manager decides on a snapshot and writes later. A cycle takes one workload of each ClusterQueue and writes
why those that do not fit are pending before the next cycle starts: the snapshot of a decision is not older
than the previous decision about the same ClusterQueue. What that one changed is visible: the preemptor is
first in its queue, and a workload that does not fit is inadmissible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.meta import format_time
from pykueue.engine import Admit, Engine, Event, Preempt
from pykueue.engine.explain.render import reason_text
from pykueue.questions.shadow.changes import Change
from pykueue.questions.shadow.decisions import Observed, Verdict, assignment_text, observed, verdict
from pykueue.questions.shadow.report import Cause, Difference

#: Cycles of one trial.
CYCLES_MAX: Final = 400
#: Earlier states that are tried for one decision.
STATES_MAX: Final = 60
#: Workloads of one check for overdue decisions.
OVERDUE_MAX: Final = 100

#: Seconds after which Kueue considers inadmissible workloads again (its `requeueBatchPeriod`).
KUEUE_FLUSH_DELAY: Final = 1.0
#: The same, and some for it to do so.
BATCH: Final = KUEUE_FLUSH_DELAY + 0.5

_UNDECIDED: Final = Verdict(False, "not determined: too many cycles", is_final=False)


class _Decided(NamedTuple):
    """The last decision about a workload of a ClusterQueue."""

    version: int = 0
    time: float = 0.0


class Comparison:
    """Follows the state of a cluster and compares the manager's decisions with the engine's."""

    def __init__(self, engine: Engine, window: float) -> None:
        """`window`: the longest time between a decision and its write, in seconds."""
        self.engine = engine
        self._window = window
        self._history: deque[Change] = deque()
        self._keys: dict[str, str] = {}
        #: When preemptions were chosen that the manager may still have to write: by (preemptor, target).
        self._targets: dict[tuple[str, str], float] = {}
        #: resourceVersion of the last decision about a pending workload.
        self._considered: dict[str, int] = {}
        #: Keys of workloads that others are preempted for, by ClusterQueue.
        self._preemptors: dict[str, str] = {}
        #: By ClusterQueue.
        self._decided: dict[str, _Decided] = {}
        #: When pending workloads were last seen to be inadmissible.
        self._inadmissible: dict[str, float] = {}

    # --- following ------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """A change becomes part of the state."""
        self.engine.tick(change.received)
        self.engine.apply(change.event())
        decision = observed(change)
        if decision is not None:
            self._note_decision(decision)
        self.engine.requeue_unfit(change.received)
        for key in self._preemptors.values():
            self.engine.note_preemptor(key)
        if change.kind == "Workload":
            self._note_workload(change)
        self._history.append(change)
        while self._history and self._history[0].received < change.received - self._window:
            self._history.popleft()

    def _note_decision(self, decision: Observed) -> None:
        """What a decision of the manager changes in its queues, besides the objects."""
        preemptor = decision.workload if decision.is_preempting else self._keys.get(decision.preemptor_uid)
        if preemptor is not None:
            view = self.engine.workload(preemptor)
            if view is not None:
                self._preemptors[view.cluster_queue] = preemptor
        elif decision.kind == "Admit" or decision.is_inadmissible:
            self._forget_preemptor(decision.workload)
            if decision.is_inadmissible:
                self.engine.note_unfit(decision.workload)

    def _forget_preemptor(self, key: str) -> None:
        for queue, preemptor in list(self._preemptors.items()):
            if preemptor == key:
                del self._preemptors[queue]

    def _note_workload(self, change: Change) -> None:
        if change.after is not None:
            assert isinstance(change.after, kueue.Workload)
            self._keys[change.after.metadata.uid] = change.after.metadata.key
        elif isinstance(change.before, kueue.Workload):
            self._keys.pop(change.before.metadata.uid, None)
            self._forget_preemptor(change.before.metadata.key)
            self._considered.pop(change.before.metadata.key, None)

    # --- comparing ------------------------------------------------------------------------------------------

    def compare(self, about: Observed, following: Sequence[Change]) -> Difference | None:
        """The difference between a decision and the engine's on the state before its write; None if equal.

        `following` are later changes that are known already.
        """
        preemptor = self._keys.get(about.preemptor_uid, "")
        key = preemptor if about.kind == "Preempt" else about.workload
        now = about.change.received
        self._targets = {each: at for each, at in self._targets.items() if now - self._window <= at}
        if about.kind == "Preempt" and (preemptor, about.workload) in self._targets:
            return None
        considered = self._considered.get(key, 0)
        self._considered[key] = about.change.version
        view = self.engine.workload(key)
        queue = view.cluster_queue if view is not None else ""
        previous = self._decided.get(queue, _Decided())
        if about.kind != "Preempt":  # several are written in one cycle
            self._decided[queue] = _Decided(about.change.version, now)
        self._note_inadmissible(key, now)
        first = self._trial(about, key, ())
        if first.equal:
            for target in first.preempted:
                self._targets[preemptor, target] = now
            return None
        snapshot = self._in_cycle(about, key, previous)
        cause: Cause
        if snapshot is not None:
            cause, evidence = "Snapshot", [snapshot]
        else:
            cause, evidence = self._cause(about, key, first, following, considered)
        return Difference(
            workload=about.workload,
            kind=about.kind,
            cause=cause,
            resource_version=about.change.version,
            time=format_time(now),
            manager=about.text(),
            engine=first.text,
            evidence=evidence,
        )

    def _cause(
        self, about: Observed, key: str, first: Verdict, following: Sequence[Change], considered: int
    ) -> tuple[Cause, list[str]]:
        """Why the engine decides otherwise, and what shows it."""
        if self._decide(about, key, ()):
            return "Requeued", [f"pykueue admits before: {', '.join(first.ahead[:5])}"] if first.ahead else []
        earlier = self._on_earlier_states(about, key)
        if earlier is not None:
            return "Race", [_ago(earlier, about)]
        later = self._after_later_decisions(about, key, following)
        if later:
            return "WriteOrder", [f"{change} was decided before" for change in later]
        alone = self._trial(about, key, (), alone=True)
        if alone.equal:
            ahead = ", ".join(first.ahead[:5])
            return "CycleOrder", [f"equal if {key} is considered first; pykueue admits before: {ahead}"]
        if about.kind == "Admit" and considered and first.text.startswith("admit"):
            return "FlavorSearch", [f"{key} was considered at resourceVersion {considered}"]
        if first is _UNDECIDED:
            return "NotDetermined", [f"no decision about {key} in {CYCLES_MAX} cycles"]
        evidence = [f"tried on {1 + len(self._history)} states"]
        if first.ahead:
            evidence.append(f"pykueue admits before: {', '.join(first.ahead[:5])}")
        return "Decision", evidence

    def _in_cycle(self, about: Observed, key: str, previous: _Decided) -> str | None:
        """On which state since the previous decision about the ClusterQueue the engine decides the same."""
        unfit = self._inadmissible_since(key, max(previous.time, about.change.received - self._window))
        if unfit and self._trial(about, key, (), unfit=unfit).equal:
            return f"before {', '.join(unfit[:5])} were active again"
        active: list[str] = []
        for change, events in self._earlier_states(key, previous.version):
            unfit = self._inadmissible_since(key, change.received)
            decision = observed(change)
            if decision is not None and decision.kind != "Preempt":
                active.append(decision.workload)
            if self._trial(about, key, events, unfit=unfit, active=active).equal:
                return f"{_ago(change, about)}, and after the previous decision about the ClusterQueue"
        return None

    def _on_earlier_states(self, about: Observed, key: str) -> Change | None:
        """The change before which the engine decides as the manager did."""
        for change, events in self._earlier_states(key, 0):
            if self._decide(about, key, events):
                return change
        return None

    def _earlier_states(self, key: str, since: int) -> Iterator[tuple[Change, list[Event]]]:
        """Changes after a resourceVersion that can matter to a workload, the last one first, each with what
        undoes it and all later ones."""
        undone: dict[tuple[str, str, str], Event] = {}
        tried = 0
        for change in reversed(self._history):
            if change.version <= since or tried >= STATES_MAX:
                return
            undone[change.kind, change.namespace, change.name] = change.reverse()
            if self._matters(change, key):
                tried += 1
                yield change, list(undone.values())

    def _matters(self, change: Change, key: str) -> bool:
        """Whether a change can change what is decided about a workload."""
        if change.kind != "Workload":
            return True
        view = self.engine.workload(key)
        if view is None or not view.cluster_queue:
            return True
        members = self._tree(key)
        for workload in (change.before, change.after):
            if isinstance(workload, kueue.Workload):
                _, queue = self.engine.queues_of(workload)
                if queue is not None and queue.name in members:
                    return True
        return False

    def _after_later_decisions(self, about: Observed, key: str, following: Sequence[Change]) -> list[Change]:
        """Decisions that were written later and after which the engine decides as the manager did."""
        end = about.change.received + self._window
        applied: list[Change] = []
        for change in following:
            decision = observed(change)
            if decision is None or decision.kind != "Admit" or change.received > end:
                continue
            if not self._matters(change, key) or len(applied) >= STATES_MAX:
                continue
            applied.append(change)
            if self._decide(about, key, [each.event() for each in applied]):
                return applied
        return []

    def _decide(self, about: Observed, key: str, events: Sequence[Event]) -> bool:
        """Whether the engine decides the same after some events, whatever the manager considered again."""
        if self._trial(about, key, events).equal or self._trial(about, key, events, flush=True).equal:
            return True
        recent = self._inadmissible_since(key, about.change.received - BATCH)
        return bool(recent) and self._trial(about, key, events, unfit=recent).equal

    def _note_inadmissible(self, key: str, now: float) -> None:
        """Remember which workloads of the tree are inadmissible, and forget those that no longer are."""
        for name in self._tree(key):
            for other in self.engine.in_line(name)[1]:
                self._inadmissible[other] = now
        if len(self._inadmissible) > 2 * max(1000, len(self._keys)):
            self._inadmissible = {each: at for each, at in self._inadmissible.items() if now - at < BATCH}

    def _inadmissible_since(self, key: str, since: float) -> list[str]:
        """Active workloads of the tree that were inadmissible since some time, in seconds since 1970."""
        return [
            other
            for name in self._tree(key)
            for other in self.engine.in_line(name)[0]
            if other != key and self._inadmissible.get(other, -1.0) >= since
        ]

    def _tree(self, key: str) -> Sequence[str]:
        """The ClusterQueues that share quota with that of a workload."""
        view = self.engine.workload(key)
        return (
            list(self.engine.members(view.cluster_queue)) if view is not None and view.cluster_queue else []
        )

    def _trial(
        self,
        about: Observed,
        key: str,
        events: Iterable[Event],
        *,
        flush: bool = False,
        unfit: Sequence[str] = (),
        active: Sequence[str] = (),
        alone: bool = False,
    ) -> Verdict:
        """What the engine decides about a workload after some events.

        Which workloads the manager considered again since they became inadmissible is not visible in objects.
        It is decided with those that the engine would consider; `flush`: with all of them; `unfit`: with
        these inadmissible still; `active`: with these active.
        """
        now = about.change.received
        with self.engine.fork() as fork:
            for event in events:
                fork.apply(event)
            view = fork.workload(key)
            if view is None or not view.cluster_queue:
                return Verdict(about.kind == "Requeue", _pending_text(fork, key))
            fork.focus([view.cluster_queue], flush, unfit, [key, *active])
            ahead: list[str] = []
            last: Verdict | None = None
            for _ in range(CYCLES_MAX):
                if not alone and not fork.has_heads():
                    break
                decisions = fork.cycle_alone(key, now).decisions if alone else fork.cycle(now)
                found = verdict(about, key, decisions)
                last = found or last
                if found is not None and (found.equal or found.is_final):
                    break
                if alone and not decisions:
                    break
                ahead += [each.key for each in decisions if isinstance(each, Admit)]
            else:
                return _UNDECIDED
            if last is None:
                return Verdict(about.kind == "Requeue", _pending_text(fork, key), tuple(ahead))
            return Verdict(last.equal, last.text, tuple(ahead), last.preempted)


def overdue(engine: Engine, version: int, now: float) -> Iterator[Difference]:
    """Decisions of the engine on the present state, which the manager had time to make.

    `version`: resourceVersion of the last change; `now`: in seconds since 1970.
    """
    found: list[tuple[str, str]] = []
    for name in engine.cluster_queues():
        with engine.fork() as fork:
            fork.focus([name])
            for each in fork.cycle(now) if fork.has_heads() else ():
                if isinstance(each, Admit):
                    found.append((each.key, f"admit: {assignment_text(each.admission)}"))
                elif isinstance(each, Preempt):
                    found.append((each.preemptor, f"preempt {each.key} for {each.preemptor}"))
    for key, text in dict(found[:OVERDUE_MAX]).items():
        yield Difference(
            workload=key,
            kind="Overdue",
            cause="Overdue",
            resource_version=version,
            time=format_time(now),
            manager="no decision",
            engine=text,
            evidence=[f"nothing changed since resourceVersion {version}"],
        )


def _ago(change: Change, about: Observed) -> str:
    """A change and how long before a decision it was seen."""
    return (
        f"{change}, {1000 * (about.change.received - change.received):.0f} ms before the decision was written"
    )


def _pending_text(engine: Engine, key: str) -> str:
    if engine.workload(key) is None:
        return f"{key} is not known"
    reason, message = engine.pending_reason(key)
    if not message:
        explanation = engine.explain(key)
        message = reason_text(explanation) if explanation is not None else reason
    return f"pending: {message}"
