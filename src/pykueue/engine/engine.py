"""The decision engine: events in, decisions out. No clock, no chance, no I/O.

    engine = Engine(Options())
    engine.apply(Upsert(cluster_queue)); engine.apply(Upsert(workload)); ...
    for decision in engine.cycle(now): ...

Deterministic: the same events in the same order give the same decisions; ties are broken by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pykueue.engine.checking import problems
from pykueue.engine.cycle import TreeCycle
from pykueue.engine.decisions import Decision
from pykueue.engine.evaluation import Evaluator
from pykueue.engine.events import Event, Upsert
from pykueue.engine.intake import Intake
from pykueue.engine.options import Options
from pykueue.engine.state import State
from pykueue.engine.tree import Tree
from pykueue.engine.views import Views
from pykueue.engine.workload import HOLDING


class EngineError(RuntimeError):
    """The engine was used in a way it cannot serve, or found its own books wrong."""


class Engine(Views):
    """Decides which workloads get quota. What `Views` adds are questions that change nothing."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options if options is not None else Options()
        self._state = State(self.options)
        self._intake = Intake(self._state)
        self._evaluator = Evaluator(self.options, self._state.flavors, self._state.history.usage)
        super().__init__(self._state, self._evaluator)

    # --- telling and asking -----------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Takes in that an object appeared, changed or went."""
        if isinstance(event, Upsert):
            self._intake.upsert(event.obj)
        else:
            self._intake.removed(event.kind, event.namespace, event.name)

    def cycle(self, now: float) -> list[Decision]:
        """One scheduling cycle at `now` (seconds since 1970) over the heads of all queues that may have
        changed.

        The decisions are in effect for the engine; report with `forget` or `forget_preemption` what could
        not be carried out. Call again while `has_heads()`.
        """
        state = self._state
        state.fire_timers(now)
        self._sample(now)
        state.settle()
        state.journal.set(state, "cycle", state.cycle + 1)
        decisions: list[Decision] = []
        for tree in self._ready_trees():
            turn = TreeCycle(state, self._evaluator, now)
            turn.run(tree)
            decisions += turn.decisions
            if turn.progress:
                state.look_again(tree.queues[0])
        return decisions

    def _ready_trees(self) -> list[Tree]:
        """Trees that may have something to decide, which from now on they have not."""
        state = self._state
        trees = {queue.tree: None for queue in state.ready}
        for queue in list(state.ready) if state.journal.on else ():
            state.journal.drop(state.ready, queue)
        state.ready.clear()
        return sorted(trees, key=lambda tree: (tree.root.name, tree.root.is_queue))

    def flush(self) -> None:
        """Puts back in line every parked workload that nothing but a decision keeps out (4.6)."""
        state = self._state
        state.settle()
        for queue in state.queues.values():
            state.flush(queue)

    def has_heads(self) -> bool:
        """Whether a cycle now could decide something."""
        state = self._state
        state.settle()
        seen: set[Tree] = set()
        for queue in list(state.ready):
            tree = queue.tree
            if tree not in seen:
                seen.add(tree)
                if any(
                    member.pending.records and member.is_active and member.pending.has_active()
                    for member in tree.queues
                ):
                    return True
            state.journal.drop(state.ready, queue)
        return False

    def next_wake(self, now: float) -> float | None:
        """The time (seconds since 1970) at which a cycle could decide something although nothing was applied.

        `now` if it could at once; None if only an event can change anything.
        """
        if self.has_heads():
            return now
        state = self._state
        times = [time for time, key in state.timers if key in state.records]
        if state.history.on:
            times += [
                time
                for local in state.locals.values()
                if (time := state.history.next_sample(local)) is not None
            ]
        return max(now, min(times)) if times else None

    def _sample(self, now: float) -> None:
        """Samples past usage where it is due (10.4)."""
        state = self._state
        if not state.history.on:
            return
        for local in state.locals.values():
            queue = state.queues.get(local.cluster_queue) if local.cluster_queue else None
            if queue is not None and queue.fair_by_usage and state.history.due(local, now):
                state.history.sample(local, state.used_nanos(local), now)
                state.wake(queue)

    # --- what could not be carried out ------------------------------------------------------------------

    def forget(self, key: str) -> None:
        """The write of an `Admit` failed: the workload gives its quota back and is considered again at once.

        Does nothing if the workload does not hold quota by a decision that the API has yet to show.
        """
        state = self._state
        record = state.records.get(key)
        if record is None or record.place != HOLDING or not record.assumed:
            return
        state.release(record)
        state.keep(record)
        record.assumed = record.admitted = record.evicted = record.eviction_assumed = False
        record.admission, record.usage, record.holds = None, (), frozenset()
        if record.local is not None:
            state.history.forgive(record.local, key)
        self._intake.restore_slice(record)
        self._intake.place(record)

    def forget_preemption(self, key: str) -> None:
        """The write of a `Preempt` failed: the workload is not on its way out."""
        state = self._state
        record = state.records.get(key)
        if record is None or record.place != HOLDING or not record.eviction_assumed:
            return
        state.journal.set(record, "eviction_assumed", False)
        state.mark_evicted(record, False)

    # --- trying things out ------------------------------------------------------------------------------

    @contextmanager
    def fork(self) -> Iterator[Engine]:
        """A trial: whatever is done to the engine inside the `with` block is undone when it ends.

            with engine.fork() as trial:
                trial.apply(Upsert(bigger_queue))
                decisions = trial.cycle(now)

        Costs what is changed on it, not what exists. Forks do not nest, and nothing may await inside.
        """
        state = self._state
        if state.journal.on:
            raise EngineError("a fork is open already: forks do not nest")
        state.settle()
        ready, now = dict(state.ready), state.now
        state.journal.on = True
        try:
            yield self
        finally:
            state.journal.undo()
            state.ready, state.now = ready, now

    def check(self) -> None:
        """Recomputes usage, queues and indexes from the workloads; raises EngineError naming what differs."""
        self._state.settle()
        found = problems(self._state)
        if found:
            raise EngineError("; ".join(found))
