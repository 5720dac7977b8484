"""Carries decisions out in memory: what the API, the workload controller and the job controllers would do.

    driver = Driver(Options(), now)
    driver.apply(Upsert(cluster_queue), Upsert(workload), ...)
    driver.follow()
    driver.cycle()
    driver.carry_out()
    driver.advance(driver.now + 1)

No job runs here: pods are ready, and jobs finish, when the caller says so. An evicted workload gives its
quota back at once, unless the caller does that with `release`. Time passes only in `advance`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from pykueue.api import kueue
from pykueue.api.kueue.names import (
    EVICTED,
    FINISHED,
    PREEMPTED,
    QUOTA_RESERVED,
    WORKLOAD_SLICE_REPLACEMENT_ANNOTATION,
)
from pykueue.api.meta import find_condition
from pykueue.engine import families, lifecycle
from pykueue.engine.capacity import SharedCapacity
from pykueue.engine.decision_log import DecisionLog
from pykueue.engine.decisions import Admit, Assign, Decision, Evict, Preempt, Requeue
from pykueue.engine.engine import Engine
from pykueue.engine.events import Event, Removed, Upsert
from pykueue.engine.options import Options
from pykueue.engine.policies import NO_POLICIES, Policies

#: Cycles in a row that admit and preempt nothing, after which `until_stable` ends.
IDLE_CYCLES = 3
#: The most cycles of `until_stable`: two workloads could preempt each other without end.
CYCLES_MAX = 10_000


class Change(NamedTuple):
    """What happened to a workload beside the decisions."""

    kind: Literal["Evicted", "Withdrawn", "Finished"]
    """Withdrawn: it lost a reservation that never became an admission, without an eviction."""
    workload: str
    reason: str


class Driver:
    """An engine, the workloads as its decisions make them, and the time."""

    def __init__(
        self,
        options: Options | None,
        now: float,
        release: Literal["at once", "manual"] = "at once",
        log: DecisionLog | None = None,
        capacities: Sequence[SharedCapacity] = (),
        policies: Policies = NO_POLICIES,
        *,
        whole_seconds: bool = False,
    ) -> None:
        """`whole_seconds`: conditions have no finer times, as on an API server; else they are exact."""
        self._whole_seconds = whole_seconds
        self.engine = Engine(options, log, capacities, policies)
        self.now = now
        #: Cycles so far.
        self.cycles = 0
        #: As they are now, by key; finished ones included.
        self.workloads: dict[str, kueue.Workload] = {}
        self._at_once = release == "at once"
        #: Decisions of the last cycle that are not carried out.
        self._decisions: list[Decision] = []
        #: Workloads to look at in `follow`, by key.
        self._changed: dict[str, None] = {}
        #: Key of a slice -> key of the workload that replaces it.
        self._replacements: dict[str, str] = {}
        #: (time, key): when a back-off ends.
        self._backoffs: list[tuple[float, str]] = []
        self._concurrent = self.engine.options.enabled("ConcurrentAdmission")
        self._families = families.Families()
        #: Parents whose variants to look at in `follow`, by key.
        self._parents: dict[str, None] = {}
        self.engine.tick(now)

    @property
    def _written(self) -> float:
        """The time that conditions get which are written now."""
        return float(int(self.now)) if self._whole_seconds else self.now

    # --- what others do ---------------------------------------------------------------------------------

    def apply(self, *events: Event) -> None:
        """Objects appeared, changed or went; `follow` does what that leads to."""
        others = False
        for event in events:
            if isinstance(event, Upsert) and isinstance(event.obj, kueue.Workload):
                self._put(event.obj)
                continue
            self.engine.apply(event)
            if isinstance(event, Removed) and event.kind == "Workload":
                key = f"{event.namespace}/{event.name}"
                self._remove(key)
            else:
                others = True
        if others:
            # Queues may have stopped or started, or begin to sample past usage.
            self._changed = dict.fromkeys(self.workloads)
            self.engine.tick(self.now)

    def finish(self, key: str, reason: str = "Succeeded") -> None:
        """The job of a workload finished."""
        self._put(lifecycle.finished(self.workloads[key], reason, self._written))

    def release(self, key: str) -> list[Change]:
        """The job of an evicted workload stopped: its quota goes back; it is over if a slice replaces it."""
        workload = self.workloads[key]
        new = self._released(workload)
        self._put(new)
        return list(_changes(workload, new))

    # --- decisions --------------------------------------------------------------------------------------

    def cycle(self) -> list[Decision]:
        """One cycle over the heads of all queues. `carry_out` writes what it decided."""
        self.cycles += 1
        self._decisions = self.engine.cycle(self.now)
        return self._decisions

    def carry_out(self, unseen: Container[str] = (), preempting: Container[str] = ()) -> list[Change]:
        """Workloads become what the last cycle decided; `follow` does what that leads to.

        Admissions of the workloads with keys in `unseen` are left to `admit`, and preemptions of those in
        `preempting` to `preempt`.
        """
        decisions, self._decisions = self._decisions, []
        found: list[Change] = []
        for decision in decisions:
            if isinstance(decision, Admit):
                if decision.key not in unseen:
                    self._admit(decision, found, self._written)
            elif isinstance(decision, Requeue) and decision.blocked_on_gates:
                self._put(lifecycle.blocked_on_gates(self.workloads[decision.key], self.now))
            elif isinstance(decision, Requeue) and self._concurrent:
                parent = families.parent_key(self.workloads[decision.key])
                if parent:
                    self._parents[parent] = None  # another variant may preempt now
            elif isinstance(decision, Assign):
                workload = self.workloads[decision.key]
                self._put(lifecycle.assigned(workload, decision.admission, decision.admitted, self._written))
            elif isinstance(decision, Evict):
                old = self.workloads[decision.key]
                self._evict(old, lifecycle.evicted(old, decision.reason, self._written), found)
        for decision in decisions:
            if isinstance(decision, Preempt) and decision.key not in preempting:
                found += self.preempt(decision)
        return found

    def preempt(self, decision: Preempt) -> list[Change]:
        """A preemption has been written."""
        found: list[Change] = []
        old = self.workloads[decision.key]
        self._evict(old, lifecycle.preempted(old, decision.reason, self._written), found)
        return found

    def _evict(self, old: kueue.Workload, new: kueue.Workload, found: list[Change]) -> None:
        if self._at_once:
            new = self._released(new)
            found += _changes(old, new)
        self._put(new)

    def admit(self, decision: Admit, at: float) -> list[Change]:
        """An admission that `carry_out` left out has been written; its conditions have the time `at`."""
        found: list[Change] = []
        self._admit(decision, found, float(int(at)) if self._whole_seconds else at)
        return found

    def _admit(self, decision: Admit, found: list[Change], at: float) -> None:
        workload = self.workloads[decision.key]
        self._put(lifecycle.reserved(workload, decision.admission, decision.admitted, at))
        if decision.replaces:
            old = self.workloads[decision.replaces]
            new = lifecycle.finished(old, "WorkloadSliceReplaced", at)
            self._put(new)
            found += _changes(old, new)

    def until_stable(self, cycles_max: int = CYCLES_MAX) -> Iterator[list[Decision]]:
        """Cycles, carried out and a second apart, until none is in line or `IDLE_CYCLES` decided nothing.

        Gives the decisions of each cycle before they are carried out.
        """
        idle, last = 0, self.cycles + cycles_max
        self.follow_variants()
        while (
            idle < IDLE_CYCLES
            and self.cycles < last
            and (self.engine.any_in_line() or self.engine.any_second_pass())
        ):
            decisions = self.cycle()
            idle = 0 if any(isinstance(each, Admit | Preempt | Evict) for each in decisions) else idle + 1
            yield decisions
            self.carry_out()
            self.follow_variants()
            self.advance(self.now + 1)

    # --- time -------------------------------------------------------------------------------------------

    def advance(self, to: float) -> None:
        """Time passes, to `to` (seconds since 1970): past usage is sampled when it is due, back-offs end."""
        while (due := self.engine.next_sample()) is not None and due <= to:
            self.engine.tick(due)
        self.now = to
        self.engine.tick(to)
        while self._backoffs and self._backoffs[0][0] <= to:
            self._changed[heappop(self._backoffs)[1]] = None

    def next_timer(self) -> float | None:
        """When a back-off ends or placement is retried, in seconds since 1970; None where neither is due."""
        due = self.engine.next_timer()
        if self._backoffs and (due is None or self._backoffs[0][0] < due):
            return self._backoffs[0][0]
        return due

    # --- what follows -----------------------------------------------------------------------------------

    def follow(self) -> list[Change]:
        """Does what the workload controller and that of variants would; evicted workloads release quota."""
        found: list[Change] = []
        if self._changed:
            self._follow_workloads(found)
        while self._parents:
            parent = next(iter(self._parents))
            del self._parents[parent]
            self._follow_variants(parent, found)
            self._follow_workloads(found)
        return found

    def follow_variants(self) -> None:
        """`follow`, where Workloads compete by variants: they are made there."""
        if self._concurrent:
            self.follow()

    def _follow_variants(self, key: str, found: list[Change]) -> None:
        """Create, delete, activate and deactivate the variants of a parent; admit it as they are."""
        parent = self.workloads.get(key)
        if parent is None:
            for variant in self._families.of(key, self.workloads).values():
                self._delete(variant)
            self._families.forget(key)
            return
        _, queue = self.engine.queues_of(parent)
        if queue is None:
            return
        order = queue.flavor_order()
        family = self._families.of(key, self.workloads)
        if not parent.condition_is(FINISHED):
            for number, flavor in enumerate(order):
                if flavor not in family:
                    self._put(families.new_variant(parent, flavor, number, self.now))
        for flavor, variant in family.items():
            if flavor not in order:
                self._delete(variant)
        self._follow_workloads(found)
        family = self._families.of(key, self.workloads)
        members = [family[flavor] for flavor in order if flavor in family]
        for new in list(families.settled(parent, members, queue, self.now)):
            found += _changes(self.workloads[new.metadata.key], new)
            self._put(new)
        if key in self._parents:
            return  # what follows from that comes first
        views = (self.engine.workload(each.metadata.key) for each in members)
        evaluated = {view.key for view in views if view is not None and view.reason}
        new_gate, again = families.with_open_gate(members, self.engine.options, evaluated, self.now)
        if new_gate is not None:
            self._put(new_gate)
        if again is not None and (again, key) not in self._backoffs:
            heappush(self._backoffs, (again, key))

    def _follow_workloads(self, found: list[Change]) -> None:
        while self._changed:
            key = next(iter(self._changed))
            del self._changed[key]
            workload = self.workloads.get(key)
            if workload is None or (workload.status.conditions and workload.condition_is(FINISHED)):
                continue
            new = self._settled(workload)
            if (
                self._at_once
                and new.status.conditions
                and new.condition_is(EVICTED)
                and new.condition_is(QUOTA_RESERVED)
            ):
                new = self._released(new)
            if new is not workload:
                found += _changes(workload, new)
                self._put(new)

    def _settled(self, workload: kueue.Workload) -> kueue.Workload:
        local, queue = self.engine.queues_of(workload)
        if self._concurrent:
            if families.becomes_parent(workload, queue):
                workload = families.marked(workload)
            if families.is_parent(workload):
                self._parents[workload.metadata.key] = None
                return workload if workload.spec.active else lifecycle.deactivated(workload, self.now)
        return lifecycle.settled(workload, local, queue, self.now)

    def _delete(self, variant: kueue.Workload) -> None:
        """Delete a variant, as the controller of variants would."""
        self._remove(variant.metadata.key)
        self.engine.apply(Removed("Workload", variant.metadata.namespace, variant.metadata.name))

    def _remove(self, key: str) -> None:
        """A workload is gone."""
        gone = self.workloads.pop(key, None)
        self._changed.pop(key, None)
        if gone is not None and self._concurrent:
            self._parents[families.parent_key(gone) or key] = None

    def _released(self, workload: kueue.Workload) -> kueue.Workload:
        replacement = self.workloads.get(self._replacements.get(workload.metadata.key, ""))
        if replacement is not None and not replacement.condition_is(FINISHED):
            return lifecycle.finished(workload, "WorkloadSliceReplaced", self._written)
        return lifecycle.released(workload, self._written)

    def _put(self, workload: kueue.Workload) -> None:
        """A workload is now like this."""
        metadata = workload.metadata
        key = metadata.key
        self.workloads[key] = workload
        self._changed[key] = None
        if replaced := metadata.annotations.get(WORKLOAD_SLICE_REPLACEMENT_ANNOTATION):
            self._replacements[replaced] = key
        if workload.status.requeue_state is not None:
            until = lifecycle.requeue_at(workload)
            if until is not None and until > self.now:
                heappush(self._backoffs, (until, key))
        if self._concurrent:
            if parent := families.parent_key(workload):
                self._families.add(workload)
                self._parents[parent] = None
            elif families.is_parent(workload):
                self._parents[key] = None
        self.engine.apply(Upsert(workload))


def _changes(before: kueue.Workload, after: kueue.Workload) -> Iterator[Change]:
    """What a reader of the API sees happen."""
    key = after.metadata.key
    done = find_condition(after.status.conditions, FINISHED)
    if done is not None and done.status == "True" and not before.condition_is(FINISHED):
        yield Change("Finished", key, done.reason)
        return
    eviction = find_condition(after.status.conditions, EVICTED)
    is_evicted = eviction is not None and eviction.status == "True"
    if eviction is not None and is_evicted and not before.condition_is(EVICTED):
        if eviction.reason != PREEMPTED:
            yield Change("Evicted", key, eviction.reason)
    elif before.condition_is(QUOTA_RESERVED) and not after.condition_is(QUOTA_RESERVED) and not is_evicted:
        reserved = find_condition(after.status.conditions, QUOTA_RESERVED)
        yield Change("Withdrawn", key, reserved.reason if reserved is not None else "")
