"""The decision engine: events in, decisions out. No clock, no randomness, no I/O.

    engine = Engine(Options())
    engine.apply(Upsert(cluster_queue)); engine.apply(Upsert(workload)); ...
    for decision in engine.cycle(now): ...

Deterministic: the same events in the same order give the same decisions; ties are broken by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, get_args

from pykueue.api.kueue import Workload
from pykueue.api.pending_reasons import MISCONFIGURED
from pykueue.engine.capacity import SharedCapacity
from pykueue.engine.consistency import problems
from pykueue.engine.cycle.evaluation import Evaluator
from pykueue.engine.cycle.outcomes import Outcomes
from pykueue.engine.cycle.rules import CycleRules
from pykueue.engine.cycle.second_pass import SecondPass
from pykueue.engine.cycle.tree_cycle import TreeCycle
from pykueue.engine.decision_log import DecisionLog
from pykueue.engine.decisions import Decision, PendingReason, Requeue
from pykueue.engine.errors import EngineError
from pykueue.engine.event_handlers import EventHandlers
from pykueue.engine.events import Event, Removed, Upsert
from pykueue.engine.explain.queries import Queries
from pykueue.engine.explanation import Explanation
from pykueue.engine.flavors.plan import TopologyTerms
from pykueue.engine.following import Following
from pykueue.engine.log_entries import Story
from pykueue.engine.options import Options
from pykueue.engine.policies import NO_POLICIES, Policies
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.quota.tree import Tree, tree_order
from pykueue.engine.recorder import Recorder
from pykueue.engine.state import State
from pykueue.engine.workload import ACTIVE, IN_FLIGHT, INADMISSIBLE, RESERVED

_PENDING_REASONS: tuple[PendingReason, ...] = get_args(PendingReason)


class AloneCycle(NamedTuple):
    """The outcome of `Engine.cycle_alone`."""

    decisions: list[Decision]
    progress: bool
    """Another cycle can decide something else, although nothing else changes."""


class Engine(Queries):
    """Decides which workloads get quota. `Queries` adds what changes nothing."""

    def __init__(
        self,
        options: Options | None = None,
        log: DecisionLog | None = None,
        capacities: Sequence[SharedCapacity] = (),
        policies: Policies = NO_POLICIES,
    ) -> None:
        self.options = options if options is not None else Options()
        #: What happened to each workload, where that is recorded.
        self.log = log
        #: Receives every event and decision outside of forks, where they are recorded.
        self.recorder: Recorder | None = None
        self._state = State(self.options, capacities)
        self._handlers = EventHandlers(self._state)
        self._rules = CycleRules(self.options)
        self._evaluator = Evaluator(
            self.options,
            self._state.flavors,
            self._state.history.usage,
            policies,
            self._topology_terms(),
            self._state.damping,
        )
        super().__init__(self._state, self._evaluator)
        #: What another manager did, where the engine follows one.
        self.following = Following(self._state, self._evaluator, self._rules, self.fork)

    def _topology_terms(self) -> TopologyTerms | None:
        state, options = self._state, self.options
        if not options.enabled("TopologyAwareScheduling"):
            return None
        return TopologyTerms(state.topologies, state.checks, options.enabled("TASMultiLayerTopology"))

    # --- events and cycles -------------------------------------------------------------------------------

    def apply(self, event: Event, at: float | None = None) -> None:
        """Apply that an object appeared, changed or was deleted.

        The decision log records it with the time `at` (seconds since 1970); None: the last time given.
        Raises TypeError for what is neither an `Upsert` of a typed object nor a `Removed`.
        """
        if isinstance(event, Upsert):
            self._handlers.upsert(event.obj)
        elif isinstance(event, Removed):
            self._handlers.removed(event)
        else:
            raise TypeError(f"event is of type {type(event).__name__}; accepted: Upsert, Removed")
        if self._state.undo_log.on:
            return
        at = self._state.now if at is None else at
        if self.log is not None:
            self.log.observe(event, at, self._state.workloads)
        if self.recorder is not None:
            self.recorder.applied(event, at)

    def cycle(self, now: float) -> list[Decision]:
        """One scheduling cycle at `now` (seconds since 1970) over the heads of all queues that may have
        changed.

        The decisions are in effect for the engine; report with `forget` or `forget_preemption` what could
        not be carried out. Call again while `has_heads()`.
        """
        state = self._state
        self.tick(now)
        state.settle()
        state.undo_log.set(state, "cycle", state.cycle + 1)
        if state.damping.on:
            state.damping.restore(state.workloads.values())
        decisions: list[Decision] = []
        second_pass: SecondPass | None = None
        if state.second_pass and state.nodes is not None:
            second_pass = SecondPass(state, state.nodes, self._evaluator, now)
            decisions += second_pass.run()
        for trees in self._ready_trees():
            turn = TreeCycle(state, self._evaluator, self._rules, now)
            if second_pass is not None:
                turn.moved = second_pass.moved
            turn.run([queue for tree in trees for queue in tree.queues])
            decisions += turn.outcomes.decisions
            if turn.outcomes.progress:
                for tree in trees:
                    state.look_again(tree.queues[0])
        if second_pass is not None:
            second_pass.end()
        if state.kept_out:
            decisions += self._kept_out()
        if not state.undo_log.on:
            if self.log is not None:
                self.log.decided(decisions, state.cycle, now)
            if self.recorder is not None:
                self.recorder.decided(decisions, now)
        return decisions

    def _kept_out(self) -> list[Decision]:
        """Why workloads whose claims could not be counted are pending, if no cycle evaluates them (2.10)."""
        state = self._state
        found, decisions = state.kept_out, list[Decision]()
        state.undo_log.set(state, "kept_out", {})
        for key, info in found.items():
            pods, local = info.scheduling_class, info.local
            if state.workloads.get(key) is not info or pods is None:
                continue
            why, text = self.pending_reason(key)
            reason = next((each for each in _PENDING_REASONS if each == why), None)
            # Without a queue to be in, that is the reason. The text is empty where a cycle gave one.
            if reason is not None and text and (reason == MISCONFIGURED or not pods.kept_out):
                decisions.append(
                    Requeue(
                        key,
                        local.cluster_queue if local is not None else "",
                        reason,
                        "Generic",
                        True,
                        state.cycle,
                        Explanation(problem=text),
                    )
                )
        return decisions

    def story(self, key: str) -> Story:
        """Everything recorded of a workload (`namespace/name`), in order; `story.text` makes a text of it.

        Raises EngineError for an engine that was made without a `DecisionLog`.
        """
        if self.log is None:
            raise EngineError("the engine records no decisions: it was made without a DecisionLog")
        return self.log.story(key)

    def _ready_trees(self) -> list[list[Tree]]:
        """Trees that may have something to decide, in groups that share a capacity; none is ready after."""
        state = self._state
        trees = {queue.tree: None for queue in state.ready}
        state.ready.clear()
        if not state.capacities:
            return [[tree] for tree in sorted(trees, key=tree_order)]
        return sorted(state.wake_groups(trees), key=lambda group: tree_order(group[0]))

    def capacity_changed(self, name: str) -> None:
        """There is more of a shared capacity than before: workloads that request it are considered again.

        Raises KeyError for a name that no capacity has.
        """
        shared = {each.name: each for each in self._state.capacities}[name]
        self._state.capacity_changed(shared)

    def flush(self) -> None:
        """Activate every inadmissible workload that only a decision made inadmissible (4.6)."""
        state = self._state
        state.settle()
        for queue in state.queues.values():
            state.flush(queue)

    def has_heads(self) -> bool:
        """Whether a cycle now could decide something."""
        state = self._state
        state.settle()
        if state.kept_out:
            return True
        seen: set[Tree] = set()
        for queue in list(state.ready):
            tree = queue.tree
            if tree not in seen:
                seen.add(tree)
                for member in tree.queues:
                    if member.pending.workloads and not member.inactive and member.pending.has_active():
                        return True
            del state.ready[queue]
        return False

    def any_in_line(self) -> bool:
        """Whether any workload is in line, stopped queues and unchanged trees included."""
        state = self._state
        state.settle()
        return any(queue.pending.has_active() for queue in state.queues.values())

    @property
    def workload_count(self) -> int:
        """How many unfinished workloads it knows."""
        return len(self._state.workloads)

    def any_second_pass(self) -> bool:
        """Whether domains are to be chosen for a workload that holds quota, now or later."""
        return bool(self._state.second_pass)

    def is_second_pass_due(self, now: float) -> bool:
        """Whether domains are to be chosen now (seconds since 1970) for a workload that holds quota."""
        second_pass = self._state.second_pass
        return bool(second_pass) and any(due <= now for due, _ in second_pass.values())

    def queues_of(self, workload: Workload) -> tuple[LocalQueue | None, ClusterQueue | None]:
        """The LocalQueue a workload names, and the ClusterQueue it holds quota of or would compete in."""
        state = self._state
        local = state.locals.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
        admission = workload.status.admission
        name = admission.cluster_queue if admission is not None else local.cluster_queue if local else ""
        return local, state.queues.get(name)

    def next_wake(self, now: float) -> float | None:
        """The time (seconds since 1970) at which a cycle could decide something although nothing was applied.

        `now` if it could at once; None if only an event can change anything.
        """
        if self.has_heads():
            return now
        times = [time for time in (self.next_timer(), self.next_sample()) if time is not None]
        return max(now, min(times)) if times else None

    def next_timer(self) -> float | None:
        """When a back-off or protection ends or placement is retried, in seconds since 1970; None: never."""
        state = self._state
        if not (state.timers or state.second_pass or state.alarms):
            return None
        times = [time for time, key in state.timers if key in state.workloads]
        times += [due for due, _ in state.second_pass.values()]
        times += state.alarms.values()
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Does what is due at `now` (seconds since 1970): ends back-offs (4.8), samples past usage (10.4)."""
        state = self._state
        state.fire_timers(now)
        if not state.history.on:
            return
        for local, queue in self._competing():
            if state.history.due(local, now):
                state.history.sample(local, now)
                state.wake(queue)

    def next_sample(self) -> float | None:
        """When past usage is sampled next, in seconds since 1970; None where it is not."""
        history = self._state.history
        if not history.on:
            return None
        times = [history.next_sample(local) for local, _ in self._competing()]
        return min((time for time in times if time is not None), default=None)

    def _competing(self) -> Iterator[tuple[LocalQueue, ClusterQueue]]:
        """LocalQueues that compete by past usage, with their ClusterQueues."""
        state = self._state
        for local in state.locals.values():
            queue = state.queues.get(local.cluster_queue) if local.cluster_queue else None
            if queue is not None and queue.fair_by_usage:
                yield local, queue

    # --- what could not be carried out ------------------------------------------------------------------

    def forget(self, key: str) -> None:
        """The write of an `Admit` failed: the workload gives its quota back and is considered again at once.

        Does nothing if the workload does not hold quota by a decision that the API has yet to show.
        """
        state = self._state
        info = state.workloads.get(key)
        if info is None or info.place != RESERVED or not info.assumed:
            return
        state.release_and_flush(info)
        state.record_undo(info)
        info.clear_reservation()
        if info.local is not None:
            state.history.forgive(info.local, key)
        self._handlers.restore_slice(info)
        self._handlers.place(info)
        if self.recorder is not None and not state.undo_log.on:
            self.recorder.forgot(key, "Admit")

    def forget_preemption(self, key: str) -> None:
        """The write of a `Preempt` failed: the workload is not on its way out."""
        state = self._state
        info = state.workloads.get(key)
        if info is None or info.place != RESERVED or not info.eviction_assumed:
            return
        state.undo_log.set(info, "eviction_assumed", False)
        state.mark_evicted(info, False)
        if self.recorder is not None and not state.undo_log.on:
            self.recorder.forgot(key, "Preempt")
        state.damping.forget(key)

    # --- trying things out ------------------------------------------------------------------------------

    @contextmanager
    def fork(self) -> Iterator[Engine]:
        """A trial: whatever is done to the engine inside the `with` block is undone when it ends.

            with engine.fork() as trial:
                trial.apply(Upsert(bigger_queue))
                decisions = trial.cycle(now)

        Costs what is changed on it, and a copy of the ready queues and timers. Forks do not nest, and nothing
        may await inside.
        """
        state = self._state
        if state.undo_log.on:
            raise EngineError("a fork is open already: forks do not nest")
        state.settle()
        state.undo_log.on = True
        # Undoing other changes wakes queues too: recorded first, these are restored last.
        state.undo_log.set(state, "ready", dict(state.ready))
        state.undo_log.set(state, "timers", list(state.timers))
        state.undo_log.set(state, "now", state.now)
        state.undo_log.set(state, "changes", state.changes)
        try:
            yield self
        finally:
            state.undo_log.undo()

    def focus(
        self,
        cluster_queues: Iterable[str],
        flush: bool = False,
        unfit: Iterable[str] = (),
        active: Iterable[str] = (),
    ) -> None:
        """On a fork: the next cycles decide only about the trees of some ClusterQueues, and those that share
        a capacity with them, until an event concerns others.

        `flush`: the inadmissible workloads of the tree are active, as `Engine.flush` makes them.
        `unfit`: keys of active workloads that are inadmissible instead. `active`: keys of inadmissible
        workloads that are active instead.
        Raises EngineError outside a fork, and KeyError for a queue that does not exist.
        """
        state = self._state
        if not state.undo_log.on:
            raise EngineError("focus is for forks: no fork is open")
        state.settle()
        trees = dict.fromkeys(state.queues[name].tree for name in cluster_queues)
        queues = [queue for tree in trees for queue in tree.queues]
        for queue in queues if flush else ():
            state.flush(queue)
        for key in unfit:
            info = state.workloads.get(key)
            if info is not None and info.place == ACTIVE:
                state.places.move(info, IN_FLIGHT)
                state.places.move(info, INADMISSIBLE)
        for key in active:
            info = state.workloads.get(key)
            if info is not None:
                state.activate(info)
        state.ready = dict.fromkeys(queues)

    def requeue_unfit(self, now: float) -> list[Requeue]:
        """Make inadmissible what cycles at `now` (seconds since 1970) would, and leave all else as it is.

        For an engine that follows another manager, which admits and preempts: that one has considered the
        heads of all queues too. The decisions that took effect.
        """
        state = self._state
        outcomes = Outcomes(state, self._evaluator, self._rules, now)
        found: list[Requeue] = []
        while self.has_heads():
            with self.fork() as fork:
                decisions = fork.cycle(now)
            unfit = [each for each in decisions if isinstance(each, Requeue) and each.inadmissible]
            if not unfit:
                break
            for each in unfit:
                info = state.workloads[each.key]
                assert info.queue is not None
                state.places.move(info, IN_FLIGHT)
                outcomes.return_to_queue(info, info.queue, each.reason, each.requeue, each.explanation)
            found += unfit
        state.ready.clear()
        return found

    def note_preemptor(self, key: str) -> None:
        """Put a pending workload first in its queue until it has quota or does not fit (4.5).

        For an engine that follows another manager, which has preempted others for it.
        """
        info = self._state.workloads.get(key)
        if info is not None and info.queue is not None and info.place in (ACTIVE, INADMISSIBLE):
            self._state.activate(info)
            self._state.undo_log.set(info.queue.pending, "preemptor", info)

    def note_unfit(self, key: str) -> None:
        """Make an active workload inadmissible, unless its queue keeps it first in line.

        For an engine that follows another manager, which found that the workload does not fit.
        """
        state = self._state
        info = state.workloads.get(key)
        queue = info.queue if info is not None else None
        if info is None or queue is None or info.place != ACTIVE or queue.blocks:
            return
        state.places.move(info, IN_FLIGHT)
        state.places.move(info, INADMISSIBLE)
        if queue.pending.preemptor is info:
            state.undo_log.set(queue.pending, "preemptor", None)

    def cycle_alone(self, key: str, now: float) -> AloneCycle:
        """One cycle on a fork, at `now` (seconds since 1970), in which a pending workload is the only head.

        It is considered as if it were first in its queue, its back-off over and nothing else pending;
        no other workload is made active or considered. Decides nothing for a workload that is not pending, or
        whose queue is inactive. Raises EngineError outside a fork.
        """
        state = self._state
        if not state.undo_log.on:
            raise EngineError("cycle_alone is for forks: no fork is open")
        state.rebuild()
        info = state.workloads.get(key)
        queue = info.queue if info is not None else None
        if info is None or queue is None or queue.inactive or info.place not in (ACTIVE, INADMISSIBLE):
            return AloneCycle([], False)
        state.now = now
        if info.place == INADMISSIBLE:
            state.places.move(info, ACTIVE)
        state.undo_log.set(state, "cycle", state.cycle + 1)
        turn = TreeCycle(state, self._evaluator, self._rules, now)
        turn.decide([(info, queue)])
        return AloneCycle(turn.outcomes.decisions, turn.outcomes.progress)

    def check(self) -> None:
        """Recomputes usage, queues and indexes from the workloads; raises EngineError naming what differs."""
        self._state.settle()
        found = problems(self._state)
        if found:
            raise EngineError("; ".join(found))
