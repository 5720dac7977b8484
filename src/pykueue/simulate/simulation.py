"""Lives of workloads in virtual time, decided by the engine.

Nothing here decides: a workload arrives, the engine's cycles admit and preempt, and what its decisions lead
to is carried out by the same driver as everywhere (`pykueue.engine.driver`). The simulation adds what happens
outside of decisions: jobs run and end, pods take time to start and stop, checks are answered, objects change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

from msgspec.structs import replace

from pykueue.api import kueue, variants
from pykueue.api.budgets import BUDGET_EXHAUSTED
from pykueue.api.kueue.names import ADMITTED, EVICTED, FINISHED, PREEMPTED, QUOTA_RESERVED
from pykueue.api.meta import ObjectMeta, format_micro_time
from pykueue.api.preemption_policies import CHECKPOINT_ANNOTATION
from pykueue.engine import (
    Admit,
    Assign,
    Decision,
    Evict,
    Preempt,
    Removed,
    Requeue,
    Upsert,
    lifecycle,
)
from pykueue.engine.driver import Change, Driver
from pykueue.engine.events import Event
from pykueue.simulate.accounting import UsageAccounting, amounts_of
from pykueue.simulate.budgets import BudgetLedgers
from pykueue.simulate.hosts import hosts_of, unhealthy, with_unhealthy
from pykueue.simulate.journal import Journal
from pykueue.simulate.life import Life
from pykueue.simulate.measures import (
    SLOWDOWN_BOUND,
    Group,
    Lives,
    Lost,
    Outcome,
    Pair,
)
from pykueue.simulate.pace import Pace
from pykueue.simulate.plan import ObjectChange, Plan, Present
from pykueue.simulate.scenario.jobs import Job
from pykueue.simulate.sizes import Sizes
from pykueue.simulate.timeline import Timeline
from pykueue.simulate.writes import Writes

#: Cycles at one moment after which a run ends: the rules then lead to no end.
CYCLES_AT_ONCE: Final = 20_000

#: Steps in a row of retries that nothing else accompanies, after which a run ends.
RETRIES_ALONE: Final = 1000

#: Seconds after which a recorded run would have ended that was interrupted late, where nothing else is known.
MORE: Final = 0.001


class Simulation:
    """One run."""

    def __init__(self, plan: Plan, journal: Journal, variant: str = "", seed: int = 0) -> None:
        self.outcome = Outcome(variant, seed)
        self.journal = journal
        self._plan = plan
        self._outside = plan.outside
        release = "at once" if plan.outside.eviction is None else "manual"
        # Jobs are simulated as ordinary workloads: no variants, and no migration to a preferred flavor.
        options = dataclasses.replace(plan.options, gates={**plan.options.gates, variants.GATE: False})
        self.driver = Driver(options, plan.start, release, whole_seconds=plan.whole_seconds)  # type: ignore[arg-type]
        self._lives: dict[str, Life] = {}
        #: (time, number, what happens): seconds from the start.
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._first: float | None = None
        self._writes = Writes(plan.outside.limit)
        #: Workloads whose preemption has not been written yet.
        self._preempting: set[str] = set()
        self._accounting = UsageAccounting(self.outcome, plan)
        self._budgets = BudgetLedgers(self.driver, plan.start)
        #: Hosts that failed or were drained.
        self._hosts_out: frozenset[str] = frozenset()
        self._pace = Pace(plan.outside.cycle, [_instant(each) for each in plan.outside.cycles])
        #: When a cycle begins that is waited for, in seconds from the start.
        self._next_cycle = 0.0
        #: Workloads that the decisions of the cycle being carried out evict.
        self._evicted: dict[str, None] = {}
        #: Admissions that the engine has not seen written yet, by key.
        self._unseen: dict[str, Admit] = {}
        #: Watched workloads that were not admitted yet.
        self._watched = set(plan.watched)
        self._timeline = Timeline() if plan.timeline else None
        self._sizes = Sizes() if plan.detail else None
        self._apply(plan.objects, 0.0)
        for each in plan.present:
            self._adopt(each)
        self._budgets.begin()

    # --- running ----------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Runs to the end."""
        plan, events = self._plan, self._events
        changes = iter(plan.changes)
        coming, change = self._next_job(), next(changes, None)
        now = 0.0
        self.driver.follow()
        self._decide(now)
        alone = 0
        while True:
            times = [events[0][0]] if events else []
            if coming is not None:
                times.append(coming.at)
            if change is not None:
                times.append(change.at)
            alone = 0 if times else alone + 1
            due = self._due(bool(times))
            if due is not None:
                times.append(due)
            if not times or alone > RETRIES_ALONE:
                break
            at = max(now, min(times))
            if plan.horizon is not None and at > plan.horizon:
                now = plan.horizon
                break
            now = at
            if now >= self._accounting.next_sample:
                self._accounting.sample_shares(self.driver.engine, now)
            self.driver.advance(plan.start + now)
            while change is not None and change.at <= now:
                self._change(change, now)
                change = next(changes, None)
            while events and events[0][0] <= now:
                heappop(events)[2](now)
            while coming is not None and coming.at <= now:
                self._create(coming, now)
                coming = self._next_job()
            self._follow(now)
            self._settle_budgets(now)
            if not self._decide(now) or self._seen_all(now):
                break
        return self._ended(now)

    def _seen_all(self, now: float) -> bool:
        """Whether the watched workloads have been admitted, as far as the run goes on for them."""
        plan = self._plan
        if not plan.watched:
            return False
        return not self._watched or (
            bool(plan.required) and now >= plan.window and self._watched.isdisjoint(plan.required)
        )

    def _due(self, others: bool) -> float | None:
        """When something happens in the engine by itself; None where nothing does.

        Samples of past usage change an order, not what fits: they are no reason to go on without `others`.
        """
        if not self._lives:
            return None
        due = self.driver.next_timer()
        if (change := self._budgets.due()) is not None:
            due = change if due is None else min(due, change)
        if others and (sample := self.driver.engine.next_sample()) is not None:
            due = sample if due is None else min(due, sample)
        return None if due is None else due - self._plan.start

    def _decide(self, now: float) -> bool:
        """Cycles until none could decide anything; False where that has no end."""
        driver = self.driver
        for number in count():
            engine = driver.engine
            if not (engine.has_heads() or engine.is_second_pass_due(driver.now)):
                return True
            if (begin := self._pace.next(now)) > now:
                if begin != self._next_cycle:
                    self._next_cycle = begin
                    self._later(begin, lambda _: None)
                return True
            if number == CYCLES_AT_ONCE:
                self.outcome.ended = f"{CYCLES_AT_ONCE} scheduling cycles at {now:.3f} s without an end"
                return False
            self._pace.begin(now)
            self.outcome.cycles += 1
            self._evicted.clear()
            decisions = driver.cycle()
            for decision in decisions:
                self._decided(decision, now)
            self._pace.busy_until(self._writes.cycle(decisions, now))
            self._happened(driver.carry_out(self._unseen, self._preempting), now)
            self._follow(now)
            for key in self._evicted:
                self._settle(key, now)
            self._settle_budgets(now)
        return True

    def _next_job(self) -> Job | None:
        job = next(self._plan.jobs, None)
        if job is not None:
            job.at = _instant(job.at)
        return job

    def _later(self, at: float, what: Callable[[float], None]) -> None:
        heappush(self._events, (_instant(at), next(self._numbers), what))

    def _apply(self, events: Sequence[Event], now: float) -> None:
        self.driver.apply(*events)
        self._accounting.apply(events, now)
        self._budgets.apply(events, self._plan.start + now)

    def _follow(self, now: float) -> None:
        self._happened(self.driver.follow(), now)

    # --- lives ------------------------------------------------------------------------------------------

    def _adopt(self, present: Present) -> None:
        """A workload that exists at the start; the work of one that runs is what is left of it."""
        workload, job = present.workload, present.job
        life = self._live(workload, job, created=job.at, since=0.0, counts=True)
        admission = workload.status.admission
        if admission is None or not workload.condition_is(QUOTA_RESERVED):
            return
        key, attempt = workload.metadata.key, life.attempt
        self._hold(life, admission, 0.0)
        if workload.condition_is(ADMITTED):
            self._budgets.open(key, self._plan.start + (present.started or 0.0))
        if workload.condition_is(EVICTED):
            wait = self._outside.eviction() if self._outside.eviction is not None else 0.0
            self._later(wait, lambda at: self._release(key, at))
        elif present.started is None:
            self._await_checks(key, life, 0.0)
        else:
            life.was_admitted, life.running_since = True, present.started
            how = "failed" if job.fails else "finished"
            end = max(0.0, present.started + job.run_time)
            self._later(end, lambda at: self._over(key, attempt, how, at))

    def _create(self, job: Job, now: float) -> None:
        metadata = job.metadata or ObjectMeta(
            namespace=job.namespace,
            name=job.name,
            uid=job.key,
            labels=dict(job.labels),
            annotations=dict(job.annotations),
            creation_timestamp=format_micro_time(self._plan.start + now),
        )
        workload = kueue.Workload(metadata=metadata, spec=job.spec)
        if self._first is None:
            self._first = now
        self.journal.created(now, job.key, job.job_class)
        life = self._live(workload, job, created=now, since=now, counts=now >= self._plan.warm_up)
        if self._timeline is not None:
            self._timeline.created(now, job.key, life.cluster_queue, job.job_class)

    def _live(
        self, workload: kueue.Workload, job: Job, *, created: float, since: float, counts: bool
    ) -> Life:
        """A workload is there, without quota since a time; `counts`: it is reported."""
        _, queue = self.driver.engine.queues_of(workload)
        name = queue.name if queue is not None else ""
        lives = self._group(name, job.job_class, "" if self._sizes is None else self._sizes.of(job.spec))
        lives.created += counts
        key = workload.metadata.key
        life = Life(job, created, lives, counts, waiting_since=since, cluster_queue=name)
        self._lives[key] = life
        if job.leaves_at is not None:
            self._later(job.leaves_at, lambda at: self._leave(key, at))
        self.driver.apply(Upsert(workload))
        return life

    def _leave(self, key: str, now: float) -> None:
        """A job is deleted, if it is pending."""
        life = self._lives.get(key)
        if life is not None and not life.held:
            self._over(key, life.attempt, "stopped", now)

    def _group(self, cluster_queue: str, job_class: str, size: str) -> Lives:
        group = Group(cluster_queue, job_class, size)
        found = self.outcome.lives.get(group)
        if found is None:
            found = self.outcome.lives[group] = Lives()
        return found

    def _decided(self, decision: Decision, now: float) -> None:
        if self._timeline is not None and isinstance(decision, Admit | Preempt | Requeue | Evict):
            self._timeline.decided(now, decision)
        match decision:
            case Admit():
                self.journal.admitted(now, decision)
                life = self._lives[decision.key]
                self._write(life, decision, now)
                self._reserved(life, decision, now)
            case Assign() if self._lives[decision.key].displaced:
                self._moved(decision, now)
            case Assign() if decision.admitted:
                self._admitted(decision.key, now)
            case Preempt():
                self.journal.preempted(now, decision)
                self._preempt(decision, now)
            case Evict():
                self.journal.evicted(now, decision.key, decision.reason)
                self._evicted[decision.key] = None
                self._interrupted(self._lives[decision.key], decision.reason, now)

    def _preempt(self, decision: Preempt, now: float) -> None:
        """It is evicted when that is written, unless it has ended before."""
        key, life = decision.key, self._lives[decision.key]
        written, admissions = self._writes.preemption(now), life.admissions
        if written == now:
            self._preempted(decision, life, now)
            return

        def evict(at: float) -> None:
            self._preempting.discard(key)
            if self._lives.get(key) is life and life.held and life.admissions == admissions:
                self._preempted(decision, life, at)
                self._happened(self.driver.preempt(decision), at)
                self._follow(at)
                self._settle(key, at)

        self._preempting.add(key)
        self._later(written, evict)

    def _preempted(self, decision: Preempt, life: Life, now: float) -> None:
        self._see(self._unseen.get(decision.key), now)
        pair = Pair(decision.preemptor_path[-1], decision.cluster_queue, decision.reason)
        lost = self.outcome.preemptions.setdefault(pair, Lost())
        self._evicted[decision.key] = None
        thrown = self._interrupted(life, PREEMPTED, now)
        if life.counts:
            lost.count += 1
            lost.lost.update(thrown)

    def _happened(self, changes: Iterable[Change], now: float) -> None:
        """What followed from decisions, from queues and from checks."""
        for kind, key, reason in changes:
            life = self._lives.get(key)
            if life is None:
                continue
            if kind == "Evicted" and key not in self._evicted:
                self.journal.evicted(now, key, reason)
                if self._timeline is not None:
                    self._timeline.evicted(now, key, reason)
                self._interrupted(life, reason, now)
            self._settle(key, now)

    def _settle_budgets(self, now: float) -> None:
        """Ledgers are up to date before the engine decides; what may run no longer is evicted."""
        while evicted := self._budgets.settle(self._plan.start + now):
            self._follow(now)
            for key in evicted:
                self._evicted.pop(key, None)  # of an earlier eviction
                self._happened([Change("Evicted", key, BUDGET_EXHAUSTED)], now)

    def _settle(self, key: str, now: float) -> None:
        """Quota that the driver gave back is not held any more."""
        life = self._lives.get(key)
        if key in self._unseen:
            return
        if life is not None and life.held and not self.driver.workloads[key].condition_is(QUOTA_RESERVED):
            self._unreserved(life, now)

    def _write(self, life: Life, decision: Admit, now: float) -> None:
        """An admission is written as long after the decision as it was recorded."""
        recorded = life.job.recorded
        if recorded is not None and life.admissions < len(recorded.writes):
            stamp, seen = recorded.writes[life.admissions]
            if seen:
                self._unseen[decision.key] = decision
                self._later(now + seen, lambda at: self._see(decision, at, now + stamp))
        life.admissions += 1

    def _see(self, decision: Admit | None, now: float, written: float | None = None) -> None:
        """The engine sees an admission that was written with the time `written`, or now."""
        if decision is not None and self._unseen.get(decision.key) is decision:
            del self._unseen[decision.key]
            stamp = self._plan.start + (now if written is None else written)
            self._happened(self.driver.admit(decision, stamp), now)
            self._follow(now)

    def _reserved(self, life: Life, decision: Admit, now: float) -> None:
        """It holds quota; checks it has to pass are answered later."""
        if life.held:  # quota of an earlier reservation that was given back in the same step
            self._unreserved(life, now)
        self._hold(life, decision.admission, now)
        if decision.admitted:
            self._admitted(decision.key, now)
        else:
            self._await_checks(decision.key, life, now)

    def _hold(self, life: Life, admission: kueue.Admission, now: float) -> None:
        self._writes.forget(life.job.key)
        if life.waiting_since is not None:
            life.pending += now - life.waiting_since
            life.waiting_since = None
        life.held = amounts_of(admission)
        for usage_key, amount in life.held:
            self._accounting.change(usage_key, amount, now)

    def _await_checks(self, key: str, life: Life, now: float) -> None:
        attempt = life.attempt
        self._later(now + self._outside.checks(), lambda at: self._answer(key, life, attempt, at))

    def _answer(self, key: str, life: Life, attempt: int, now: float) -> None:
        """Every admission check of a workload is Ready."""
        self._see(self._unseen.get(key), now)
        workload = self.driver.workloads.get(key)
        if workload is None or life.attempt != attempt or not workload.condition_is(QUOTA_RESERVED):
            return
        self.driver.apply(Upsert(lifecycle.checks_ready(workload, self._plan.start + now)))
        self._follow(now)
        workload = self.driver.workloads[key]
        if workload.condition_is(ADMITTED) and not workload.condition_is(EVICTED):
            self._admitted(key, now)

    def _admitted(self, key: str, now: float) -> None:
        """Its pods start once that is written."""
        life = self._lives[key]
        written = self._writes.admission(now)
        if life.counts:
            life.lives.admissions += 1
            if not life.was_admitted:
                life.lives.wait.add(written - life.created)
        life.was_admitted = True
        self._budgets.open(key, self._plan.start + now)
        if key in self._watched:
            self._watched.discard(key)
            self.outcome.first_admissions[key] = written
        out = self._hosts_out and self._hosts_out & hosts_of(self.driver.workloads[key].status.admission)
        if out:  # lost while its checks were pending
            self._lose(key, life, out, 0.0, now)
        else:
            self._run_pods(key, life, written)

    def _run_pods(self, key: str, life: Life, now: float) -> None:
        """Its pods start on the hosts that it has, and its job goes on to its end."""
        life.displaced = False
        begin = now + self._outside.pod_start()
        life.attempt += 1
        life.running_since = begin
        length = max(0.0, life.job.run_time - life.progress)
        recorded = life.job.recorded
        if recorded is not None and life.preemptions < len(recorded.interrupted):
            length = max(length, recorded.interrupted[life.preemptions] + MORE)
        limit = life.job.spec.maximum_execution_time_seconds
        attempt = life.attempt
        if limit is not None and limit - life.executed < length:
            at = begin + limit - life.executed
            self._later(at, lambda at: self._over(key, attempt, "stopped", at))
        else:
            how = "failed" if life.job.fails else "finished"
            self._later(begin + length, lambda at: self._over(key, attempt, how, at))
        every = life.job.checkpoint_every
        if every and self.driver.engine.has_preemption_policies:
            self._later(begin + every, lambda at: self._checkpoint(key, attempt, every, at))

    def _checkpoint(self, key: str, attempt: int, every: float, now: float) -> None:
        """Its job has saved its state and reports the time, for PreemptionPolicies."""
        life = self._lives.get(key)
        if life is None or life.attempt != attempt or life.running_since is None:
            return
        workload = self.driver.workloads[key]
        saved = {CHECKPOINT_ANNOTATION: format_micro_time(self._plan.start + now)}
        metadata = replace(workload.metadata, annotations={**workload.metadata.annotations, **saved})
        self.driver.apply(Upsert(replace(workload, metadata=metadata)))
        self._follow(now)
        self._later(now + every, lambda at: self._checkpoint(key, attempt, every, at))

    # --- nodes ------------------------------------------------------------------------------------------

    def _change(self, change: ObjectChange, now: float) -> None:
        """Objects change; what runs on hosts that are lost with that stops."""
        self._hosts_out = (self._hosts_out | change.failed | change.drained) - change.restored
        self._apply(change.events, now)
        eviction = self._outside.eviction
        if change.failed:
            self._lose_all(change.failed, self._outside.node_failure(), now)
        if change.drained:
            self._lose_all(change.drained, eviction() if eviction is not None else 0.0, now)
        if change.restored:
            self._restore(change.restored, now)

    def _lose_all(self, hosts: frozenset[str], delay: float, now: float) -> None:
        for key, life in self._lives.items():
            if life.running_since is not None or life.displaced:
                lost = hosts & hosts_of(self.driver.workloads[key].status.admission)
                if lost:
                    self._lose(key, life, lost, delay, now)

    def _lose(self, key: str, life: Life, hosts: frozenset[str], delay: float, now: float) -> None:
        """A workload stops at once, and gets other hosts after a delay."""
        if not life.displaced:
            lost = self._stopped(life, now)
            life.displaced = True
            if life.counts:
                life.lives.node_losses += 1
                life.lives.lost.update(lost)
        self.journal.nodes_lost(now, key, sorted(hosts))
        if self._timeline is not None:
            self._timeline.nodes_lost(now, key, sorted(hosts))
        self._later(now + delay, lambda at: self._mark(key, hosts, at))

    def _mark(self, key: str, hosts: frozenset[str], now: float) -> None:
        """The hosts are listed as unhealthy with a workload that is still assigned to them."""
        workload = self.driver.workloads.get(key)
        if workload is None or workload.condition_is(EVICTED) or not workload.condition_is(ADMITTED):
            return
        listed = unhealthy(workload)
        more = hosts & self._hosts_out & hosts_of(workload.status.admission)
        if more - listed:
            self.driver.apply(Upsert(with_unhealthy(workload, listed | more)))
            self._follow(now)

    def _moved(self, decision: Assign, now: float) -> None:
        """It has other hosts in place of those that are out of use."""
        hosts = hosts_of(decision.admission)
        self.journal.moved(now, decision.key, sorted(hosts))
        if self._timeline is not None:
            self._timeline.moved(now, decision.key, sorted(hosts))
        if not hosts & self._hosts_out:
            self._run_pods(decision.key, self._lives[decision.key], self._writes.admission(now))

    def _restore(self, hosts: frozenset[str], now: float) -> None:
        """Hosts are back: workloads that still have them go on there."""
        for key, life in list(self._lives.items()):
            if not life.displaced:
                continue
            workload = self.driver.workloads[key]
            if unhealthy(workload) & hosts:
                self.driver.apply(Upsert(with_unhealthy(workload, unhealthy(workload) - hosts)))
                self._follow(now)
            if not hosts_of(workload.status.admission) & self._hosts_out:
                self._run_pods(key, life, now)

    # --- ends -------------------------------------------------------------------------------------------

    def _stopped(self, life: Life, now: float) -> Mapping[str, float]:
        """Its pods are stopped; the resource-seconds that are lost, by resource."""
        lost: dict[str, float] = {}
        since, life.running_since = life.running_since, None
        life.attempt += 1
        if since is not None and now > since:
            ran = now - since
            life.executed += ran
            reached = life.progress + ran
            every = life.job.checkpoint_every
            kept = reached // every * every if every else 0.0
            kept = max(kept, life.progress if every else 0.0)
            life.progress = kept
            for usage_key, amount in life.held:
                resource = usage_key.resource
                lost[resource] = lost.get(resource, 0.0) + amount * (reached - kept)
        return lost

    def _interrupted(self, life: Life, reason: str, now: float) -> Mapping[str, float]:
        """It is evicted; the resource-seconds that are lost, by resource."""
        wait = self._eviction_seconds(life, reason)
        life.preemptions += reason == PREEMPTED
        if wait is None:
            return {}
        lost = self._stopped(life, now)
        life.displaced = False
        if life.counts:
            life.lives.evictions[reason] += 1
            life.lives.lost.update(lost)
        if self._outside.eviction is not None:
            key = life.job.key
            self._later(now + wait, lambda at: self._release(key, at))
        return lost

    def _eviction_seconds(self, life: Life, reason: str) -> float | None:
        """How long it keeps its quota once it is evicted; None where it comes to its end before."""
        if self._outside.eviction is None:
            return 0.0
        recorded = life.job.recorded
        if recorded is not None and reason == PREEMPTED and life.preemptions < len(recorded.evictions):
            return recorded.evictions[life.preemptions]
        return self._outside.eviction()

    def _release(self, key: str, now: float) -> None:
        """The pods of an evicted workload are gone."""
        workload = self.driver.workloads.get(key)
        if workload is None or not workload.condition_is(EVICTED) or workload.condition_is(FINISHED):
            return
        if workload.condition_is(QUOTA_RESERVED):
            self.driver.release(key)
        self.journal.released(now, key)
        self._unreserved(self._lives[key], now)

    def _unreserved(self, life: Life, now: float) -> None:
        """It holds no quota any more and waits again."""
        for usage_key, amount in life.held:
            self._accounting.change(usage_key, -amount, now)
        life.held = ()
        life.attempt += 1
        self._budgets.close(life.job.key, self._plan.start + now)
        if life.waiting_since is None:
            life.waiting_since = now

    def _over(self, key: str, attempt: int, how: str, now: float) -> None:
        """Its job has come to its end, if the attempt to run that was to end now still goes on."""
        life = self._lives.get(key)
        if life is None or life.attempt != attempt:
            return
        self._unreserved(life, now)
        del self._lives[key]
        self._unseen.pop(key, None)
        self._writes.forget(key)
        self.journal.over(now, key, how)
        if self._timeline is not None:
            self._timeline.over(now, key, how)
        if life.counts:
            lives, turnaround = life.lives, now - life.created
            setattr(lives, how, getattr(lives, how) + 1)
            lives.pending.add(life.pending)
            lives.turnaround.add(turnaround)
            lives.slowdown.add(max(1.0, turnaround / max(life.job.run_time, SLOWDOWN_BOUND)))
        self.outcome.makespan = now - (self._first or 0.0)
        self.driver.apply(Removed("Workload", life.job.namespace, life.job.name))
        if life.job.over is not None:
            following = life.job.over(now, how == "failed")
            if following is not None:
                self._later(following.at, lambda at: self._create(following, at))

    def _ended(self, now: float) -> Outcome:
        outcome = self.outcome
        self._accounting.close(self.driver.engine, now)
        if self._timeline is not None:
            outcome.timeline, outcome.timeline_omitted = self._timeline.entries, self._timeline.omitted
        outcome.budgets = self._budgets.finish(self._plan.start + now)
        outcome.end = now
        outcome.requests = self._writes.requests
        outcome.unfinished = sum(life.counts for life in self._lives.values())
        outcome.decisions = self.journal.close()
        return outcome


def _instant(seconds: float) -> float:
    """Whole microseconds: sums of the same durations are the same time, in whatever order they are made."""
    return round(seconds, 6)
