"""The loop around the engine: cluster events in, decisions out and carried out.

The engine sees every object through the watch caches, including what the manager itself writes. Its decisions
are already part of its state when they are handed out; a write that fails is reported back with `forget`, so
that nothing stays counted that does not exist. Writes run beside the loop, at most `CONCURRENCY` at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pykueue.api import DecodeError, conditions, decode, encode
from pykueue.api.backfill_policies import BACKFILLED
from pykueue.api.hybrid import flavors_of
from pykueue.api.kueue.names import JOB_UID_LABEL
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, labels_of, only_status_differs
from pykueue.api.pending_reasons import PendingReason
from pykueue.api.queue_specs import check_rules, checks_for
from pykueue.clock import Clock, Recheck
from pykueue.engine import Engine
from pykueue.engine.decisions import Admit, Assign, Delay, Evict, Preempt, Requeue
from pykueue.engine.events import Removed, Upsert
from pykueue.engine.explain.render import PREEMPTION_CAUSES, message, proof_text
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import MODIFIED, Informer
from pykueue.manager.cluster import Cluster
from pykueue.manager.connection import Order
from pykueue.manager.metrics import Metrics
from pykueue.manager.nodes.outlines import runs_outside
from pykueue.manager.workloads import transitions
from pykueue.manager.workloads.reservations import Reservations
from pykueue.manager.writes import Writer

#: Decisions written at the same time.
CONCURRENCY = 32
#: Time by which the next cycle comes later if nothing came of one, in multiples of what that took, and in
#: seconds at most.
REST_TIMES, REST_SECONDS = 12.0, 0.1
#: Shortest time until a cycle that no event asked for, in seconds.
MIN_WAIT = 0.01
#: Seconds for which an admission is tried to be written; quota may be another by then.
LIFETIME = 5.0
#: Seconds after which a decision that could not be written is undone and made again.
RETRY = 1.0

#: Kinds of whose status the engine reads nothing but past usage.
_FIGURES = frozenset({"ClusterQueue", "LocalQueue", "Cohort"})

log = logging.getLogger(__name__)


class Scheduler:
    """Feeds the engine and carries out what it decides."""

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Metrics,
        reservations: Reservations,
    ) -> None:
        self.engine = engine
        self._cluster = cluster
        self._reservations = reservations
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._admission_gates = cluster.configuration.gates["AdmissionGatedBy"]
        self._metrics = metrics
        self._waits = cluster.configuration.wait_for_pods_ready is not None
        self._wake = asyncio.Event()
        #: Decisions that are still to be written, oldest first, and how many tasks write such now.
        self._decided: deque[Coroutine[Any, Any, None]] = deque()
        self._writing = 0
        self._requeues: dict[str, Requeue] = {}
        self._requeues_wake = asyncio.Event()
        self._timer: Recheck | None = None
        #: Workloads with reclaimable pods that came before their job may have.
        self._claims: set[Key] = set()
        #: Admissions of Workloads as they were, while other domains are being written.
        self._assigning: dict[Key, Any] = {}
        #: When the engine wants a cycle although nothing happens, in seconds since 1970.
        self._due: float | None = None
        for informer in (
            cluster.flavors,
            cluster.cluster_queues,
            cluster.cohorts,
            cluster.local_queues,
            cluster.checks,
            cluster.topologies,
            cluster.namespaces,
            cluster.limit_ranges,
            cluster.runtime_classes,
            *cluster.devices,
            cluster.preemption_policies,
            cluster.backfill_policies,
            cluster.advance_reservations,
            cluster.budgets,
            cluster.budget_ledgers,
        ):
            self._feed(informer)
        cluster.workloads.on_event(self._workload_changed, Order.DECIDE)
        cluster.nodes.on_node_event(self._node_changed, Order.DECIDE)
        cluster.nodes.on_pod_event(self._pod_changed, Order.DECIDE)
        reservations.on_restored(self._review_kept)
        cluster.on_job_event(self._job_changed, Order.DECIDE)
        cluster.job_pods.on_event(self._job_changed, Order.DECIDE)

    # Events in

    def _feed(self, informer: Informer) -> None:
        kind = informer.resource.kind

        def on_event(type_: str, old: Any, new: Any) -> None:
            self._changed(kind, old, new)

        informer.on_event(on_event, Order.DECIDE)

    def _changed(self, kind: str, old: Any, new: Any) -> None:
        if kind in _FIGURES and only_status_differs(old, new) and _past_usage(old) == _past_usage(new):
            return  # the figures that the manager itself writes
        if new is None:
            self._apply_deleted(kind, key_of(old))
        else:
            self._apply(kind, new)
            if kind == "BackfillPolicy" and self._cluster.has_synced:
                self._apply_finished()
        self._wake.set()

    def _apply_finished(self) -> None:
        """Tell the engine of finished Workloads that it did not ask for before."""
        policies = self._cluster.backfill_policies.list()
        if any(get(policy, "spec", "fittedPercentile") for policy in policies):
            for workload in self._cluster.workloads.list():
                if conditions.is_finished(workload):
                    self._apply("Workload", workload)

    def _node_changed(self, type_: str, old: Any, new: Any) -> None:
        if old is None or new is None or _content(old) != _content(new):
            self._changed("Node", old, new)

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        """What runs outside of topology assignments takes room that these must leave."""
        before, after = (pod if runs_outside(pod) else None for pod in (old, new))
        if (before or after) and (before is None or after is None or before["spec"] != after["spec"]):
            self._changed("Pod", before, after)

    def _apply_deleted(self, kind: str, key: Key) -> None:
        self.engine.apply(Removed(kind, *key), self._clock.time())

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        key = key_of(old if new is None else new)
        lost = self._reservations.lost(key)
        if self._reservations.keeps(key, old, new):
            return
        if key in self._assigning and _holds(new, self._assigning[key]):
            return  # the cache does not show the other domains yet
        if new is None or _is_leaving(new):
            self._apply_deleted("Workload", key)
        else:
            if lost is not None and lost["metadata"].get("uid") != new["metadata"].get("uid"):
                self._apply_deleted("Workload", key)
            self._apply("Workload", new)
        self._wake.set()

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        """A job that has stopped with its last pod no longer keeps quota that no status shows."""
        for key in self._reservations.keys() if self._reservations else ():
            self._review_kept(key)

    def _review_kept(self, key: Key) -> None:
        """Release kept quota that no job needs any more."""
        lost = self._reservations.lost(key)
        if lost is not None:
            self._workload_changed(MODIFIED, lost, self._cluster.workload(key))

    def _apply(self, kind: str, obj: Object) -> None:
        if kind == "Workload" and get(obj, "status", "reclaimablePods"):
            if not self._cluster.has_synced:
                self._claims.add(key_of(obj))
            obj = self._reservations.counted(obj)
        try:
            self.engine.apply(Upsert(decode(obj)), self._clock.time())
        except DecodeError as error:
            log.error("%s; ignored until it is valid", error)
            self._apply_deleted(kind, key_of(obj))

    # Decisions out

    async def run(self) -> None:
        """Decide until cancelled."""
        await self._cluster.synced()
        await self._cluster.nodes.synced()
        while self._claims:
            workload = self._cluster.workload(self._claims.pop())
            if workload is not None and not _is_leaving(workload):
                self._apply("Workload", workload)
        self._apply_finished()
        for workload in self._reservations.recover():
            self._apply("Workload", workload)
        self._writing = 0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_requeues())
            try:
                while True:
                    self._wake.clear()
                    # The first flavor with a Topology makes nodes and pods be watched.
                    await self._cluster.nodes.synced()
                    await self._cycle(tasks)
                    await self._wake.wait()
            finally:
                if self._timer is not None:
                    self._timer.cancel()
                while self._decided:
                    self._decided.popleft().close()

    async def _cycle(self, tasks: asyncio.TaskGroup) -> None:
        """Cycles until nothing is left to look at; after each, other tasks get as much time as it took.

        They get several times as much where most of what it looked at still waits. What happens meanwhile is
        then decided on together: under load cycles become fewer, not slower. The engine notices in a cycle
        that time has passed: what was timed for now gets one in any case.
        """
        due = self._due is not None and self._clock.time() >= self._due
        while due or self.engine.has_heads():
            due = False
            started = self._clock.monotonic()
            decisions = self.engine.cycle(self._clock.time())
            took = self._clock.monotonic() - started
            self._metrics.observer.cycle(took, decisions)
            for decision in decisions:
                match decision:
                    case Admit():
                        self._requeues.pop(decision.key, None)
                        self._carry_out(tasks, self._admit(decision, self.engine.version(decision.key)))
                    case Preempt():
                        self._carry_out(tasks, self._preempt(decision))
                    case Requeue():
                        self._requeues[decision.key] = decision
                        self._requeues_wake.set()
                        if decision.explanation.problem:
                            requeued = self._cluster.workload(_key(decision.key))
                            if requeued is not None:
                                self._reservations.problem_found(requeued)
                    case Assign():
                        seen = self._cluster.workload(_key(decision.key)) or {}
                        self._assigning[_key(decision.key)] = get(seen, "status", "admission")
                        self._carry_out(tasks, self._assign(decision, seen))
                    case Evict():
                        self._carry_out(tasks, self._evict(decision))
                    case Delay():
                        self._record_delay(decision)
            in_vain = sum(isinstance(decision, Requeue) for decision in decisions) / max(1, len(decisions))
            await self._clock.sleep(took + min(REST_TIMES * in_vain * took, REST_SECONDS))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.time()
        self._due = self.engine.next_wake(now)
        if self._due is not None:
            self._timer = self._clock.recheck_later(max(MIN_WAIT, self._due - now), self._wake.set)

    def _carry_out(self, tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        self._decided.append(work)
        if self._writing < CONCURRENCY:
            self._writing += 1
            tasks.create_task(self._write_decided())

    async def _write_decided(self) -> None:
        """Write decisions until none is left."""
        try:
            while self._decided:
                await self._decided.popleft()
        finally:
            self._writing -= 1

    async def _admit(self, decision: Admit, decided_on: tuple[str, int]) -> None:
        """Write an admission, if the Workload still asks for what it was decided on."""
        key = _key(decision.key)
        admission = encode(decision.admission)
        begun = self._clock.monotonic()

        def step(workload: Object) -> Object | None:
            if self._clock.monotonic() - begun > LIFETIME:
                return None
            if _version(workload) != decided_on or not self._may_reserve(workload):
                return None
            old = self._cluster.workload(_key(decision.replaces)) if decision.replaces else None
            if not _may_take_over(old) if decision.replaces else self._cluster.runs(workload):
                return None  # its job is stopped first
            checks = self._checks(workload, decision)
            now = self._clock.time()
            proof = decision.explanation.backfill
            backfilled = None if proof is None else (proof.kind, proof_text(proof))
            result = transitions.reserved(workload, admission, checks, self._waits, now, backfilled)
            result = result if old is None else transitions.taken_over(result, old, now)
            return self._reservations.completed(result)

        def undo() -> None:
            self.engine.forget(decision.key)
            # Until here the engine took no news of a Workload whose admission was being written.
            self._apply_newest(key)
            # Its queue by now may be another one than that which it was counted in.
            self._reservations.undone(decision.cluster_queue, self._cluster.workload(key))

        written = await self._written(key, step, undo)
        if written is not None:
            self._record_admission(written, decision)

    def _checks(self, workload: Mapping[str, Any], decision: Admit) -> list[Object]:
        """The checks that apply to the flavors it got, as far as they are known."""
        queue = self._cluster.cluster_queues.get("", decision.cluster_queue)
        present = get(workload, "status", "admissionChecks") or ()
        if not present and (queue is None or not check_rules(queue)):
            return []
        assigned = [flavor for pods in decision.admission.pod_set_assignments for flavor in flavors_of(pods)]
        required = set() if queue is None else set(checks_for(queue, assigned))
        return transitions.synced_checks(present, required, self._clock.time())

    def _record_admission(self, workload: Object, decision: Admit) -> None:
        waited = max(0, int(self._clock.time() - decision.queued_since))
        self._recorder.event(
            workload,
            NORMAL,
            conditions.QUOTA_RESERVED,
            lambda: (
                f"Quota reserved in ClusterQueue {decision.cluster_queue}, "
                f"wait time since queued was {waited}s; Flavors considered: {message(decision)}"
            ),
        )
        if decision.explanation.backfill is not None:
            self._recorder.event(workload, NORMAL, BACKFILLED, proof_text(decision.explanation.backfill))
        if conditions.is_admitted(workload):
            note = f"Admitted by ClusterQueue {decision.cluster_queue}, wait time since reservation was 0s"
            self._recorder.event(workload, NORMAL, conditions.ADMITTED, note)

    async def _preempt(self, decision: Preempt) -> None:
        key = _key(decision.key)
        preemptor = self._cluster.workload(_key(decision.preemptor))
        text = self._preemption_text(decision, preemptor)

        def step(workload: Object) -> Object | None:
            if (
                not conditions.has_quota(workload)
                or conditions.is_finished(workload)
                or conditions.is_evicted(workload)
            ):
                return None
            return transitions.preempted(workload, decision.reason, text, self._clock.time())

        written = await self._written(key, step, lambda: self.engine.forget_preemption(decision.key))
        if written is not None:
            self._recorder.event(written, NORMAL, conditions.PREEMPTED, text)
            self._recorder.event(written, NORMAL, "EvictedDueToPreempted", text)
            if preemptor is not None:
                queue = decision.preemptor_path[-1] if decision.preemptor_path else ""
                self._metrics.observer.preemption(queue, decision.reason)
                self._metrics.observer.lost_work(
                    queue, decision.cluster_queue, decision.reason, decision.lost_resource_seconds
                )
                note = f"Preempted {decision.key} due to {decision.reason}"
                self._recorder.event(preemptor, NORMAL, "PreemptedWorkload", note)

    async def _assign(self, decision: Assign, seen: Object) -> None:
        """Write the domains of a Workload that holds quota, if it is still as it was `seen`."""
        key = _key(decision.key)
        before, admission = self._assigning[key], encode(decision.admission)
        basis = (_version(seen), get(seen, "status", "unhealthyNodes"))

        def step(workload: Object) -> Object | None:
            if (_version(workload), get(workload, "status", "unhealthyNodes")) != basis:
                return None
            if conditions.is_evicted(workload) or not _holds(workload, before):
                return None
            return transitions.assigned(workload, admission, self._waits, self._clock.time())

        def end() -> None:
            self._assigning.pop(key, None)
            self._apply_newest(key)

        written = await self._written(key, step, end)
        if written is None:
            return
        end()
        if conditions.is_admitted(written) and not conditions.is_admitted(seen):
            note = f"Admitted by ClusterQueue {decision.cluster_queue}, after its topology was assigned"
            self._recorder.event(written, NORMAL, conditions.ADMITTED, note)

    async def _evict(self, decision: Evict) -> None:
        key = _key(decision.key)

        def step(workload: Object) -> Object | None:
            if not conditions.has_quota(workload) or conditions.is_finished(workload):
                return None
            if conditions.is_evicted(workload):
                return None
            if decision.reason == "NodeFailures" and not get(workload, "status", "unhealthyNodes"):
                return None
            return transitions.evicted(workload, decision.reason, decision.message, self._clock.time())

        def undo() -> None:
            self.engine.forget_preemption(decision.key)
            self._apply_newest(key)

        written = await self._written(key, step, undo)
        if written is not None:
            self._recorder.event(written, NORMAL, f"EvictedDueTo{decision.reason}", decision.message)

    def _record_delay(self, decision: Delay) -> None:
        workload = self._cluster.workload(_key(decision.key))
        if workload is not None:
            self._recorder.event(workload, WARNING, "SecondPassFailed", decision.message)

    def _apply_newest(self, key: Key) -> None:
        newest = self._cluster.workload(key)
        if newest is not None and not _is_leaving(newest):
            self._apply("Workload", newest)

    def _preemption_text(self, decision: Preempt, preemptor: Mapping[str, Any] | None) -> str:
        job = labels_of(preemptor).get(JOB_UID_LABEL) if preemptor is not None else None
        paths = ["/" + "/".join(path) for path in (decision.preemptor_path, decision.path)]
        return (
            f"Preempted to accommodate a workload (UID: {decision.preemptor_uid}, "
            f"JobUID: {job or 'UNKNOWN'}) due to {PREEMPTION_CAUSES[decision.reason]}; "
            f"preemptor path: {paths[0]}; preemptee path: {paths[1]}"
        )

    async def _written(
        self, key: Key, step: Callable[[Object], Object | None], undo: Callable[[], None]
    ) -> Object | None:
        """The object after the step. What could not be written is undone in the engine, which decides again.

        Not at once: the event that overtook the decision comes first, and a server in trouble is spared.
        """
        written, answered = None, False
        try:
            written = await self._writer.update(self._cluster.workloads, key, step)
            answered = True
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.warning("the decision on %s/%s could not be written: %s", *key, error)
        if not answered:
            await self._await_outcome(key, undo)
        if written is None:
            self._clock.call_later(RETRY, self._undone, undo)
        else:
            self._confirm(key, written, undo)
        return written

    def _confirm(self, key: Key, written: Object, undo: Callable[[], None]) -> None:
        """Tell the engine that a decision was written, should the cache be unable to.

        The cache may be listing again, or may have come past this write to one that took it back before the
        answer arrived; the engine, which waits to see its decision, would wait forever.
        """
        cached = self._cluster.workload(key)
        if cached is None:
            return
        if int(cached["metadata"]["resourceVersion"]) < int(written["metadata"]["resourceVersion"]):
            self._apply("Workload", written)
        elif not conditions.has_quota(cached):
            self._undone(undo)
            self._apply("Workload", cached)
        self._wake.set()

    async def _await_outcome(self, key: Key, undo: Callable[[], None]) -> None:
        """A write without an answer may have been made all the same, and the watch may be late to show it.

        What it may have given away must not be given to others before the server says that it was not.
        """
        while True:
            try:
                stored = await self._writer.reread(self._cluster.workloads, key)
                if stored is not None and conditions.has_quota(stored):
                    self._confirm(key, stored, undo)
                return
            except (ApiError, ConnectionError, TimeoutError) as error:
                if not _may_succeed_later(error):
                    return
            await self._clock.sleep(RETRY)

    def _undone(self, undo: Callable[[], None]) -> None:
        undo()
        self._wake.set()

    def _may_reserve(self, workload: Mapping[str, Any]) -> bool:
        """Whether it is still in its queue: what was decided a moment ago may have been overtaken."""
        return (
            conditions.is_active(workload)
            and not conditions.holding(workload) & (conditions.IS_FINISHED | conditions.HOLDS_QUOTA)
            and not (self._admission_gates and conditions.is_gated(workload))
            and not is_deleting(workload)
        )

    # Why workloads wait

    async def _write_requeues(self) -> None:
        """Write the newest reason of each waiting workload, one after the other, after everything urgent."""
        while True:
            await self._requeues_wake.wait()
            self._requeues_wake.clear()
            while self._requeues:
                decision = self._requeues.pop(next(iter(self._requeues)))
                again = False
                try:
                    await self._requeue(decision)
                except (ApiError, ConnectionError, TimeoutError) as error:
                    log.info("the pending reason of %s could not be written: %s", decision.key, error)
                    again = _may_succeed_later(error)
                if again:
                    self._requeues.setdefault(decision.key, decision)
                    await self._clock.sleep(RETRY)

    async def _requeue(self, decision: Requeue) -> None:
        key = _key(decision.key)
        text = message(decision)
        before = self._cluster.workload(key)
        requests = transitions.resource_requests(self.engine.workload(decision.key))

        def step(workload: Object) -> Object | None:
            if not self._may_reserve(workload):
                return None
            why = PendingReason(decision.reason, text)
            now = self._clock.time()
            result = transitions.pending(workload, why, now, requests)
            return transitions.blocked_on_gates(result, now) if decision.blocked_on_gates else result

        if before is None or step(before) in (None, before):
            return
        written = await self._writer.update(self._cluster.workloads, key, step)
        if written is not None and conditions.reason(before, conditions.QUOTA_RESERVED) != decision.reason:
            self._recorder.event(written, WARNING, decision.reason, text)


def _past_usage(queue: Mapping[str, Any]) -> Any:
    """What a LocalQueue has used, for fair sharing: forecasts begin with it."""
    return get(queue, "status", "fairSharing", "admissionFairSharingStatus")


def _may_succeed_later(error: Exception) -> bool:
    """Whether the same request may succeed when it is sent again; one that was refused will not."""
    return not isinstance(error, ApiError) or error.code >= 500 or error.code == 429 or error.conflict


def _version(workload: Mapping[str, Any] | None) -> tuple[str, int]:
    """Which Workload this is, and which spec of it."""
    metadata = workload["metadata"] if workload else {}
    return (metadata.get("uid") or "", metadata.get("generation") or 0)


def _content(outline: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of the outline of a node the engine reads."""
    return (outline["metadata"].get("labels"), outline["spec"], outline["status"])


def _holds(workload: Mapping[str, Any] | None, admission: Any) -> bool:
    """Whether it holds quota by this very admission and goes on."""
    return (
        workload is not None
        and conditions.has_quota(workload)
        and not conditions.is_finished(workload)
        and get(workload, "status", "admission") == admission
    )


def _is_leaving(obj: Mapping[str, Any]) -> bool:
    """A Workload that is being deleted competes no more; one that holds quota still counts."""
    return is_deleting(obj) and obj.get("kind") == "Workload" and not conditions.has_quota(obj)


def _key(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return (namespace, name)


def _may_take_over(old: Mapping[str, Any] | None) -> bool:
    """Whether a slice that is to be replaced still has the quota that its replacement counts on."""
    return (
        old is not None
        and conditions.has_quota(old)
        and conditions.is_active(old)
        and not conditions.is_finished(old)
        and not conditions.is_evicted(old)
        and not is_deleting(old)
    )
