"""Workloads that go to workers: offered to several, run by the first that admits, followed to their end.

Source: docs/reference/admission-checks.md 16 and 17.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, labels_of, replaced
from pykueue.clock import Clock
from pykueue.jobs.remote import may_run_remotely, remote_workload
from pykueue.jobs.slices import REPLACED, counts_of, is_elastic, replaced_key, with_counts
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.manager.checks.answers import PENDING, READY, REJECTED, RETRY, Answer, with_answer
from pykueue.manager.cluster import Cluster
from pykueue.manager.metrics.observer import Observer
from pykueue.manager.workloads import transitions

from .adapters import DispatchedJob, Home
from .dispatch import Dispatcher, Nomination, Workers
from .jobs import DEFERRED, RemoteJobs, runs_remotely
from .losses import Losses
from .preemption import GATE, Opening, gated, next_opening
from .remote import BusyError, RemoteCluster, Session
from .state import (
    NEVER_STARTED,
    OUT_OF_SYNC,
    PUSHED,
    Dispatch,
    compared,
    end_of,
    is_deactivated,
    is_last,
    is_stopping,
    with_nodes_chosen,
)

EVICTED_HERE = "EvictedOnManagerCluster"
#: Reason of Finished of a Workload whose job failed.
FAILED = "Failed"
#: Message of the check of a Workload that is itself a copy.
COPY = "The workload was dispatched here by another cluster and is not dispatched again"

log = logging.getLogger(__name__)


class WorkloadDispatcher:
    """Reconciles Workloads with a MultiKueue check."""

    def __init__(
        self,
        cluster: Cluster,
        remotes: Mapping[str, RemoteCluster],
        clusters_of: Callable[[str], Sequence[str]],
        dispatcher: Dispatcher,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Observer,
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._writer = cluster.connection.writer
        self._remotes = remotes
        #: The workers of a check, in the order of its configuration; empty while that is missing.
        self._clusters_of = clusters_of
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._clock = clock
        settings = cluster.configuration.multi_kueue
        self._home = Home(cluster, settings.origin, clock)
        self._orchestrates = cluster.configuration.gates["MultiKueueOrchestratedPreemption"]
        #: Which workers cannot be reached, and for how long.
        self.losses = Losses(remotes, settings.worker_lost_timeout, clock)
        self._waits = cluster.configuration.wait_for_pods_ready is not None
        self._jobs = RemoteJobs(self._home)

    def parts(self, workload: Object) -> Sequence[Object] | None:
        """The Workloads of all groups of the same LeaderWorkerSet; None for those of other jobs."""
        return self._jobs.parts(workload)

    def replacements(self, key: Key) -> Iterator[Key]:
        """The slices that have taken the place of a Workload."""
        if conditions.reason(self._cluster.workload(key) or {}, conditions.FINISHED) == REPLACED:
            yield from map(key_of, self._jobs.unfinished_slices(key))

    def sessions(self) -> dict[str, Session]:
        """What is known of the connected workers."""
        return {name: one.session for name, one in self._remotes.items() if one.session is not None}

    # Removal

    async def remove_everywhere(self, key: Key, kept: str = "") -> None:
        """Remove the copies from all connected workers but one.

        Raises BusyError where a worker that may run the job has not answered yet.
        """
        holders = []
        for name, session in self.sessions().items():
            if name == kept:
                continue
            if session.holds(key):
                holders.append(session)
            else:
                session.forget(key)
        for session, error in await self._on_each(holders, key, self._jobs.remove):
            if not isinstance(error, BusyError) or session.may_run(key):
                raise error

    def _holders(self, key: Key) -> list[Session]:
        return [one for one in self.sessions().values() if one.holds(key)]

    async def _on_each(
        self,
        sessions: Sequence[Session],
        key: Key,
        work: Callable[[Session, Key], Coroutine[Any, Any, object]],
    ) -> list[tuple[Session, Exception]]:
        """Do something on several workers at the same time; those where it failed, and why."""
        results = await asyncio.gather(
            *(session.carry_out(key, partial(work, session, key)) for session in sessions),
            return_exceptions=True,
        )
        failed = []
        for session, result in zip(sessions, results, strict=True):
            if isinstance(result, Exception):
                failed.append((session, result))
            elif isinstance(result, BaseException):
                raise result
        return failed

    async def collect_garbage(self) -> None:
        """Remove copies whose Workload is gone or about to go (docs/reference/admission-checks.md 17.2)."""
        for name, session in self.sessions().items():
            for key in sorted(session.workload_keys()):
                workload = self._cluster.workload(key)
                if workload is None or (is_deleting(workload) and not may_run_remotely(workload)):
                    for _, error in await self._on_each([session], key, self._jobs.remove):
                        log.info("garbage collection on worker %s: %s; trying again", name, error)

    # One Workload

    async def reconcile(self, key: Key) -> float | None:
        """Bring the copies of one Workload, and its check, up to date."""
        try:
            return await self._reconcile(key)
        except BusyError:
            return None

    async def _reconcile(self, key: Key) -> float | None:
        workload = self._cluster.workload(key)
        if workload is None:
            await self.remove_everywhere(key)
            return None
        check = self._cluster.multikueue_state(workload)
        uid = str(workload["metadata"].get("uid"))
        over = conditions.is_finished(workload) or (is_deleting(workload) and not may_run_remotely(workload))
        if over or not conditions.has_quota(workload):
            self._dispatcher.forget(uid)
            if conditions.reason(workload, conditions.FINISHED) == REPLACED and not is_deleting(workload):
                if self._may_have_moved(key):
                    return None
                for _, error in await self._on_each(self._holders(key), key, self._jobs.remove_unbound):
                    raise error
                return None
            await self.remove_everywhere(key)
            clusters = () if check is None else self._clusters_of(str(check["name"]))
            return None if over else await self._clear_status(workload, clusters)
        stopping = is_stopping(workload)
        if not stopping and (check is None or check.get("state") == REJECTED):
            return None
        if not stopping and check is not None and names.MULTIKUEUE_ORIGIN_LABEL in labels_of(workload):
            # Its job is created here only once it is admitted: a further cluster would have nothing to run.
            await self._answer(workload, check, Answer(PENDING, COPY))
            return None
        job = self._jobs.of(workload)
        why = self._jobs.missing_adapter(workload) if job is None else job.refusal()
        if why and not stopping and check is not None:
            await self._answer(workload, check, Answer(REJECTED, why))
            return None
        if job is None or not job.exists:
            await self.remove_everywhere(key)
            await self._clear_cluster(workload)
            return None
        check = check or {}
        clusters = self._clusters_of(str(check.get("name")))
        able = {name: one for name, one in self.sessions().items() if job.framework in one.jobs}
        return await self._advance(Dispatch(workload, check, clusters, able), job)

    def _may_have_moved(self, key: Key) -> bool:
        """Whether an unfinished slice names a worker that there is not: it may have got another name."""
        named = (get(one, "status", "clusterName") for one in self._jobs.unfinished_slices(key))
        return any(name and name not in self._remotes for name in named)

    async def _clear_status(self, workload: Object, clusters: Sequence[str]) -> float | None:
        """Note that no pods run of a job that no worker has any more.

        A status that was written late, after the quota was released, would show them forever.
        """
        key = key_of(workload)
        sessions = self.sessions()
        job = self._jobs.of(workload)
        if (
            job is None
            or not job.exists
            or not job.is_active()
            or any(session.may_run(key) for session in sessions.values())
        ):
            return None
        waits = max((self.losses.left(name) for name in clusters if name not in sessions), default=0.0)
        if waits > 0:
            return waits
        await job.without_pods()
        return None

    async def _advance(self, d: Dispatch, job: DispatchedJob) -> float | None:
        finished = [name for name, copy in d.copies.items() if conditions.is_finished(copy)]
        if finished:
            done, again = await self._finished(d, d.earliest(conditions.FINISHED, finished), job)
            if done:
                return again
        if await self._ended_earlier(d, job):
            return None
        evicted = [name for name, copy in d.copies.items() if conditions.is_evicted(copy)]
        if d.is_stopping:
            return await self._stop_here(d, job)
        if job.has_ended():
            return None  # a slice that was made before that was known: it is removed next
        if not conditions.is_active(d.workload):
            return None  # it is about to be evicted, and until then nothing is offered, changed or removed
        if d.recorded in evicted:
            why = conditions.condition(d.copies[d.recorded], conditions.EVICTED) or {}
            text = f'Workload evicted on worker cluster: "{d.recorded}": {why.get("message") or ""}'
            await self._answer(d.workload, d.check, Answer(RETRY, transitions.cut(text)))
            return None
        await self._push(d)
        admitted = [name for name, copy in d.copies.items() if runs_remotely(copy)]
        if d.recorded:
            admitted = [name for name in admitted if name == d.recorded]
        if admitted and not d.recorded and (left := self.losses.connecting(d.clusters)) > 0:
            return left  # another one may have admitted it before
        if admitted:
            return await self._admitted(d, d.earliest(conditions.ADMITTED, admitted), job)
        if d.recorded in d.sessions and not d.is_ready and replaced_key(d.workload) is not None:
            await self._offer_growth(d)
            return None
        if d.is_ready or d.recorded:
            return await self._lost(d)
        opening = await self._open_gate(d) if self._orchestrates else Opening("")
        if d.check.get("state") != PENDING or d.recorded:
            return opening.again
        delays = [again for again in (opening.again, await self._offer(d)) if again is not None]
        return min(delays, default=None)

    async def _open_gate(self, d: Dispatch) -> Opening:
        """Let one of the workers that wait for it preempt."""
        opening = next_opening(d.copies, self._clock.time())
        if opening.worker:
            session = d.sessions[opening.worker]
            await session.carry_out(d.key, partial(self._let_preempt, session, d.key))
        return opening

    async def _let_preempt(self, session: Session, key: Key) -> None:
        now = self._clock.time()
        await session.writer.update(
            session.workloads, key, lambda copy: transitions.with_open_gate(copy, GATE, now)
        )

    # Outcomes on workers

    async def _finished(self, d: Dispatch, name: str, job: DispatchedJob) -> tuple[bool, float | None]:
        copy, session = d.copies[name], d.sessions[name]
        end = conditions.condition(copy, conditions.FINISHED) or {}
        reason, message = str(end.get("reason")), str(end.get("message") or "")
        # Without its job, the copy is left of an earlier dispatch whose job was removed already.
        is_left = name != d.recorded and not job.copies(session) and reason != NEVER_STARTED
        # A group of pods that ended without pods still to be created, or with those of an earlier dispatch.
        is_partial = reason == FAILED and not d.is_stopping and job.lacks_parts(session)
        if is_partial:
            await job.synchronise(session)
        if reason == OUT_OF_SYNC or is_left or is_partial:
            if name == d.recorded and not d.is_stopping:
                text = f'The job on the worker cluster "{name}" does not match its workload'
                await self._answer(d.workload, d.check, Answer(RETRY, text))
                return True, None
            await session.carry_out(d.key, partial(self._jobs.remove, session, d.key))
            d.copies.pop(name)
            return False, None
        if reason == NEVER_STARTED and not d.is_stopping:
            text = f'The job cannot be started on the worker cluster "{name}": {message}'
            await self._answer(d.workload, d.check, Answer(REJECTED, transitions.cut(text)))
            return True, None
        if d.is_stopping and reason == FAILED and job.was_stopped(session):
            return True, await self._stop_here(d, job)
        if not job.shows_end(session):
            return True, DEFERRED
        await job.synchronise(session)
        await self._finish(d.key, end)
        return True, None

    async def _ended_earlier(self, d: Dispatch, job: DispatchedJob) -> bool:
        """Whether an elastic job has ended on a worker before that got its present slice, which is finished
        then."""
        if replaced_key(d.workload) is None:
            return False
        for session in d.sessions.values():
            for earlier in job.bound_otherwise(session):
                end = end_of(session.workloads.get(*earlier) or {})
                if end is None or not job.shows_end(session):
                    continue
                if d.is_stopping and end.get("reason") == FAILED and job.was_stopped(session):
                    continue
                await job.synchronise(session)
                await self._finish(d.key, end)
                return True
        return False

    async def _finish(self, key: Key, end: Mapping[str, Any]) -> None:
        """Finish a Workload with the reason and the message of its copy."""
        now, reason, message = self._clock.time(), str(end.get("reason")), str(end.get("message") or "")

        def step(current: Object) -> Object | None:
            if conditions.is_finished(current):
                return None
            return transitions.finished(current, reason, message, now)

        await self._writer.update(self._cluster.workloads, key, step)

    async def _stop_here(self, d: Dispatch, job: DispatchedJob) -> float | None:
        """Stop the job on its worker; its quota is released once that shows that no pod of it runs.

        Source: docs/decisions/0014-evictions-from-workers.md.
        """
        again = None
        running = False
        for session in d.sessions.values():
            others = job.bound_otherwise(session)
            if not session.holds(d.key) and not others:
                continue
            if others and job.shows_end(session):
                running = True  # until its manager there has finished its Workload, which shows how it ended
                continue
            copy = d.copies.get(session.name)
            try:
                for other in others:
                    await session.carry_out(other, partial(self._jobs.remove, session, other))
                if copy is None or not job.copies(session):
                    await session.carry_out(d.key, partial(self._jobs.remove, session, d.key))
                elif not is_deactivated(copy):
                    await session.carry_out(d.key, partial(self._deactivate, session, d.key))
            except BusyError:
                pass
            if job.copies(session) and not await job.synchronise(session):
                again = DEFERRED
            present = session.workloads.get(*d.key)
            running = running or session.is_creating(d.key) or not job.has_stopped(session, present)
        if running:
            return again
        if d.recorded and d.recorded not in d.sessions and (left := self.losses.left(d.recorded)) > 0:
            return left  # it may run on a worker that cannot be reached
        await job.without_pods()
        await self._clear_cluster(d.workload)
        return None

    async def _clear_cluster(self, workload: Object) -> None:
        """Note that no worker runs the job of a Workload any more that is evicted or being deleted."""

        def step(current: Object) -> Object | None:
            if not is_stopping(current):
                return None
            return replaced(current, ("status", "clusterName"), None)

        await self._writer.update(self._cluster.workloads, key_of(workload), step)

    async def _deactivate(self, session: Session, key: Key) -> None:
        now = self._clock.time()
        text = "The workload was evicted on the manager cluster"

        def step(current: Object) -> Object:
            return transitions.deactivation_target(current, EVICTED_HERE, text, now)

        await session.writer.update(session.workloads, key, step)

    async def _admitted(self, d: Dispatch, name: str, job: DispatchedJob) -> float | None:
        session = d.sessions[name]
        await self.remove_everywhere(d.key, kept=name)
        if not d.recorded:
            if name not in (get(d.workload, "status", "nominatedClusterNames") or ()):
                d.workload = await self._nominated(d.workload, [name]) or d.workload
            # Before the job is created: were it recorded afterwards, a connection that breaks meanwhile would
            # leave a job running that another worker is given too.
            written = await self._record(d.workload, name)
            if written is None:
                return None
            d.workload = written
        if self._jobs.have_replaced(d.key, job.bound_otherwise(session)):
            return None  # its quota is taken over, and it is finished next
        if not job.is_current(session):
            update = partial(job.bring_current, session, d.workload)
            await session.carry_out(d.key, update, creates_job=True)
        complete = await job.synchronise(session)
        if d.check.get("state") == PENDING:
            text = f'The workload was admitted on "{name}"'
            await self._answer(d.workload, d.check, Answer(READY, text), cluster=name)
        return self.losses.timeout if complete else DEFERRED

    async def _lost(self, d: Dispatch) -> float | None:
        """A worker has the job, and the copy that it admitted is not seen."""
        if (
            d.recorded in self._remotes
        ):  # what others have is left from before, as in a restored state of theirs
            await self.remove_everywhere(d.key, kept=d.recorded)
        if d.recorded and d.recorded not in d.sessions:
            left = self.losses.left(d.recorded)
            if left > 0:
                return left
            text = f'Admitting remote lost: the worker cluster "{d.recorded}" cannot be reached'
        else:
            text = f'The workload no longer exists on the worker cluster "{d.recorded}"'
            if d.recorded in d.copies:
                text = f'The workload is not admitted any more on the worker cluster "{d.recorded}"'
        await self._answer(d.workload, d.check, Answer(RETRY, text))
        return None

    # Copies

    async def _push(self, d: Dispatch) -> None:
        """Copies get the Workload's new priority; those that differ otherwise are removed."""
        spec = dict(d.workload.get("spec") or {})
        for name, copy in list(d.copies.items()):
            session = d.sessions[name]
            try:
                elastic = is_elastic(d.workload)
                if elastic and not conditions.has_quota(copy):
                    # Of one that has quota, the worker takes what pods of the job are gone.
                    smaller = with_counts(copy, counts_of(spec.get("podSets")))
                    if smaller != copy:
                        push = partial(session.writer.change, session.workloads, copy, smaller)
                        copy = d.copies[name] = await session.carry_out(d.key, push)
                if compared(copy["spec"], elastic) != compared(spec, elastic):
                    d.copies.pop(name)
                    await session.carry_out(d.key, partial(self._jobs.remove, session, d.key))
                elif any(copy["spec"].get(field) != spec.get(field) for field in PUSHED):
                    push = partial(self._push_priority, session, copy, spec)
                    d.copies[name] = await session.carry_out(d.key, push)
            except BusyError:
                continue

    async def _push_priority(self, session: Session, copy: Object, spec: Object) -> Object:
        # The worker's job first: its label decides what the worker gives its Workload.
        await self._jobs.push_priority(session, key_of(copy), spec.get("priorityClassRef"))
        desired = copy
        for field in PUSHED:
            desired = replaced(desired, ("spec", field), spec.get(field))
        return await session.writer.change(session.workloads, copy, desired)

    async def _offer(self, d: Dispatch) -> float | None:
        """Nominate workers and offer the Workload to them."""
        if not is_last(d.workload, d.check):
            return None
        present = list(get(d.workload, "status", "nominatedClusterNames") or ())
        nomination = self._nominate(d, present)
        if nomination is None:
            return None
        if list(nomination.names) != present:
            written = await self._nominated(d.workload, nomination.names)
            if written is None:
                return None
            d.workload = written
        workload, chosen = d.workload, set(nomination.names)
        lacking = [one for name, one in d.sessions.items() if name in chosen and name not in d.copies]
        others = [one for name, one in d.sessions.items() if name not in chosen and one.holds(d.key)]
        is_gated = self._orchestrates and not nomination.fixed
        failed = await self._on_each(
            lacking, d.key, lambda session, _: self._create(session, workload, is_gated)
        )
        failed += await self._on_each(others, d.key, self._jobs.remove)
        for _, error in failed:
            if not isinstance(error, BusyError):
                raise error
        return nomination.again

    def nominated_at_reservation(self, workload: Object) -> Object:
        """The Workload, which gets quota, with the workers that it will be offered to."""
        check = self._cluster.multikueue_state(workload)
        if check is None or check.get("state") != PENDING or not is_last(workload, check):
            return workload
        job = self._jobs.of(workload)
        if get(workload, "status", "clusterName") or job is None or not job.exists or job.refusal():
            return workload
        able = {name: one for name, one in self.sessions().items() if job.framework in one.jobs}
        d = Dispatch(workload, check, self._clusters_of(str(check["name"])), able)
        nomination = self._nominate(d, ())
        if nomination is None:
            return workload
        return replaced(workload, ("status", "nominatedClusterNames"), list(nomination.names) or None)

    async def _offer_growth(self, d: Dispatch) -> None:
        """Offer the larger slice of an elastic job to the worker that runs it."""
        session = d.sessions[d.recorded]
        if d.recorded not in d.copies:
            await session.carry_out(d.key, partial(self._create, session, d.workload, False))

    def _nominate(self, d: Dispatch, present: Sequence[str]) -> Nomination | None:
        """The workers to offer a Workload to; None: it has to wait for others of the same job.

        The groups of a LeaderWorkerSet run on one worker: the first is nominated, the others follow.
        """
        parts = self._jobs.parts(d.workload)
        if parts is not None:
            chosen = [
                str(name)
                for part in parts
                if (name := get(part, "status", "clusterName")) and not conditions.is_evicted(part)
            ]
            if chosen:
                return Nomination(chosen[:1], fixed=True)
            if not parts or key_of(parts[0]) != d.key:
                return None
        uid = str(d.workload["metadata"].get("uid"))
        workers = Workers(d.clusters, d.sessions.keys(), present)
        return self._dispatcher.nominate(uid, workers, self._clock.time())

    async def _create(self, session: Session, workload: Object, is_gated: bool) -> None:
        """Create the copy of a Workload. Raises ForeignObjectError."""
        try:
            copy = remote_workload(workload, self._home.origin)
            await session.writer.create(session.workloads, gated(copy) if is_gated else copy)
            self._metrics.dispatched(conditions.cluster_queue(workload), session.name)
        except ApiError as error:
            if not error.already_exists:
                raise
            # The cache has only copies of this manager: what else is there is not taken in.
            namespace, name = key_of(workload)
            found = await session.client.find(session.workloads.resource, name, namespace)
            if found is not None:
                self._home.check_origin(found)

    # Writing

    async def _nominated(self, workload: Object, chosen: Sequence[str]) -> Object | None:
        def step(current: Object) -> Object | None:
            if get(current, "status", "clusterName") or not conditions.has_quota(current):
                return None
            return replaced(current, ("status", "nominatedClusterNames"), list(chosen) or None)

        return await self._writer.update(self._cluster.workloads, key_of(workload), step)

    async def _record(self, workload: Object, name: str) -> Object | None:
        """Write the worker that gets the job; None where the Workload has changed too much for that."""

        def step(current: Object) -> Object | None:
            given = get(current, "status", "clusterName")
            if given not in (None, "", name) or not conditions.has_quota(current):
                return None
            if conditions.is_evicted(current):
                return None
            result = replaced(current, ("status", "nominatedClusterNames"), None)
            return replaced(result, ("status", "clusterName"), name)

        return await self._writer.update(self._cluster.workloads, key_of(workload), step)

    async def _answer(self, workload: Object, check: Object, answer: Answer, cluster: str = "") -> None:
        """Write the state of the check, and the worker that the Workload runs on."""

        def step(current: Object) -> Object | None:
            if not conditions.has_quota(current) or conditions.is_evicted(current):
                return None
            result = with_answer(current, str(check.get("name")), answer, self._clock.time())
            if cluster:
                result = replaced(result, ("status", "nominatedClusterNames"), None)
                result = replaced(result, ("status", "clusterName"), cluster)
                result = with_nodes_chosen(result)
            if answer.state == READY and not conditions.is_admitted(result):
                # The check is the last one: with its answer the Workload is admitted, in the same write.
                result = transitions.admitted_by_checks(result, self._waits, self._clock.time())
            return result

        written = await self._writer.update(self._cluster.workloads, key_of(workload), step)
        if written is not None and check.get("state") != answer.state:
            self._recorder.event(written, NORMAL, "MultiKueue", answer.message)
            if answer.state == READY:
                self._metrics.admitted_remotely(conditions.cluster_queue(written), cluster)
            if conditions.is_admitted(written) and not conditions.is_admitted(workload):
                note = transitions.admission_note(written, self._clock.time())
                self._recorder.event(written, NORMAL, conditions.ADMITTED, note)
