"""An engine beside another manager: that one decides, the engine follows.

Which workloads are active depends on what the other manager did in its cycles, which its objects do not show
in full. Who knows it from elsewhere says it here. Source of the rules: docs/reference/kueue-semantics.md 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pykueue.engine.cycle.evaluation import Evaluator
from pykueue.engine.cycle.outcomes import Outcomes
from pykueue.engine.cycle.rules import CycleRules
from pykueue.engine.cycle.tree_cycle import TreeCycle
from pykueue.engine.decisions import Decision, RequeueReason
from pykueue.engine.events import Event
from pykueue.engine.explanation import Explanation
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota.tree import Tree, tree_order
from pykueue.engine.state import State
from pykueue.engine.workload import ACTIVE, IN_FLIGHT, INADMISSIBLE, NO_SCAN, WorkloadInfo

_Fork = Callable[[], AbstractContextManager[Any]]


#: Requeue reasons of workloads for which others are evicted.
_PREEMPTING = ("PendingPreemption", "PendingMigration")


class Following:
    """What another manager did, for an engine that follows it: `Engine.following`."""

    def __init__(self, state: State, evaluator: Evaluator, rules: CycleRules, fork: _Fork) -> None:
        self._state = state
        self._evaluator = evaluator
        self._rules = rules
        self._fork = fork
        #: What the last cycle that was decided tried: flavors, and the generation of the queue.
        self._tried: list[tuple[WorkloadInfo, Mapping[tuple[int, str], int], int]] = []

    def decide(
        self,
        heads: Sequence[str],
        now: float,
        in_order: bool = False,
        after: Sequence[Event] = (),
        from_first: bool = False,
    ) -> list[Decision]:
        """What the engine decides in a cycle, at `now` (seconds since 1970), that considers these workloads.

        Keys of workloads that are not pending are left out. `in_order`: of workloads of the same rank, those
        that are named first come first. `after`: events that come before the cycle. `from_first`: no search
        goes on where it ended, all begin with the first flavor. Nothing of it takes effect; `remember` says
        that the other manager made this cycle.
        """
        state = self._state
        state.settle()
        among_equals = {key: position for position, key in enumerate(heads)} if in_order else {}
        with self._fork() as fork:
            for event in after:
                fork.apply(event)
            state.rebuild()
            found = [info for key in heads if (info := state.workloads.get(key)) is not None]
            for info in found if from_first else ():
                state.record_undo(info)
                info.scan = NO_SCAN
            pending = [info for info in found if info.place in (ACTIVE, INADMISSIBLE)]
            decisions = self._cycle(pending, now, among_equals)
            # What comes before the cycle here came after it there: quotas have changed since.
            self._tried = [(info, info.scan, -1 if after else info.scan_generation) for info in found]
        return decisions

    def remember(self) -> bool:
        """The workloads of the last `decide` remember which flavors were tried for them.

        Whether a search goes on in the next cycle.
        """
        for info, scan, generation in self._tried:
            info.scan, info.scan_cycle, info.scan_generation = scan, self._state.cycle, generation
        searching = any(scan for _, scan, _ in self._tried)
        self._tried = []
        return searching

    def begin_cycle(self, now: float) -> None:
        """The other manager begins a cycle, at `now` (seconds since 1970)."""
        self._state.fire_timers(now)
        self._state.cycle += 1

    def _cycle(
        self, heads: list[WorkloadInfo], now: float, among_equals: Mapping[str, int]
    ) -> list[Decision]:
        state = self._state
        by_tree: dict[Tree, list[tuple[WorkloadInfo, ClusterQueue]]] = {}
        for info in heads:
            if info.queue is not None and not info.queue.inactive:
                state.activate(info)
                by_tree.setdefault(info.queue.tree, []).append((info, info.queue))
        decisions: list[Decision] = []
        for group in sorted(state.wake_groups(by_tree), key=lambda trees: tree_order(trees[0])):
            turn = TreeCycle(state, self._evaluator, self._rules, now)
            turn.among_equals = among_equals
            turn.decide([head for tree in group for head in by_tree.get(tree, ())])
            decisions += turn.outcomes.decisions
        return decisions

    def head_of(self, cluster_queue: str, preemptor: str = "") -> str:
        """Key of the workload that is next in a ClusterQueue; empty if none is active.

        `preemptor`: key of the workload that the other manager puts first, while that is in line.
        """
        queue = self._state.queues.get(cluster_queue)
        if queue is None or not queue.pending.workloads:
            return ""
        pending = queue.pending
        known, pending.preemptor = pending.preemptor, pending.workloads.get(preemptor)
        info = pending.head(self._evaluator.usage_of, queue.blocks)
        pending.preemptor = known
        return info.key if info is not None else ""

    def note_requeued(self, key: str, reason: RequeueReason, inadmissible: bool | None = None) -> None:
        """The other manager considered a pending workload and returned it to its queue for a reason.

        `inadmissible`: whether it is, there; None: as the reason says.
        """
        info = self._state.workloads.get(key)
        queue = info.queue if info is not None else None
        if info is None or queue is None or info.place not in (ACTIVE, INADMISSIBLE):
            return
        self._state.activate(info)
        if inadmissible or reason in _PREEMPTING:
            info.scan = NO_SCAN  # all flavors were tried, or are tried again once the victims have stopped
        if inadmissible is not False:
            self._state.places.move(info, IN_FLIGHT)
            outcomes = Outcomes(self._state, self._evaluator, self._rules, self._state.now)
            outcomes.return_to_queue(info, queue, "Pending", reason, Explanation())

    def note_flushed(self, cohort: str = "", cluster_queue: str = "") -> None:
        """The other manager made the inadmissible workloads active of a cohort's tree, or of a queue."""
        state = self._state
        state.settle()
        for queue in state.queues.values():
            if queue.name == cluster_queue or (cohort and cohort in queue.path[:-1]):
                state.flush(queue)
