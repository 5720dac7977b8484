"""Jobs and their Workloads: one controller for all job kinds.

A job becomes a Workload, starts when that is admitted, stops when it is evicted, and its end is the
Workload's end. The controller owns, in a Workload's status, PodsReady, Finished, reclaimablePods and the
release of an eviction; everything it does follows from the job and the Workload as they are. Source:
docs/reference/kueue-integrations.md 9.3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from pykueue.api import conditions
from pykueue.api.hybrid import split_pod_sets
from pykueue.api.jobkinds import is_exempt
from pykueue.api.kueue import names
from pykueue.api.objects import (
    Key,
    Object,
    annotations_of,
    controller_of,
    get,
    is_deleting,
    key_of,
    labels_of,
    replaced,
    without_finalizer,
)
from pykueue.jobs import workload as construction
from pykueue.jobs.base import MissingReferenceError, Outcome, UnreadableJobError
from pykueue.jobs.podsets import PodSetConflictError
from pykueue.jobs.remote import may_run_remotely
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING
from pykueue.kube.informer import ADDED, DELETED, MODIFIED, Handler, Informer
from pykueue.manager.ancestors import managing_owner
from pykueue.manager.cluster import MissingPriorityClassError
from pykueue.manager.indexes import job_uid
from pykueue.manager.workloads import transitions

from .composition import WorkloadComposer
from .context import JobContext
from .lifecycle import JobLifecycle
from .matching import WorkloadMatcher
from .pod_set_info import MissingFlavorError
from .slices import ElasticJobs

#: Seconds after which a job is looked at again that names something that does not exist.
RETRY = 10.0
#: Reasons of Workloads that are finished although their job has not ended.
NEVER_STARTED = ("FailedToStart", "OutOfSync")

log = logging.getLogger(__name__)


class JobController:
    """Reconciles the jobs of one kind."""

    #: Whether only Workloads that jobs own, or owned, concern it.
    _follows_owners: ClassVar[bool] = True

    def __init__(self, context: JobContext, workers: int = 8) -> None:
        self.integration = integration = context.integration
        self._cluster = cluster = context.cluster
        self._jobs = cluster.jobs[integration.kind.framework]
        self._writer = context.writer
        self._reservations = context.reservations
        self._recorder = context.recorder
        self._clock = context.clock
        self._configuration = cluster.configuration
        self._gates = cluster.configuration.gates
        self._waits = cluster.configuration.wait_for_pods_ready is not None
        self._warned: set[str] = set()
        self._matcher = WorkloadMatcher(context)
        self._composer = WorkloadComposer(context)
        self._elastic = ElasticJobs(context)
        self.controller: Controller[Key] = Controller(
            f"{integration.kind.framework} controller",
            self.reconcile,
            clock=self._clock,
            workers=workers,
            wait_for=[cluster.synced],
        )
        self._lifecycle = JobLifecycle(context, self.controller.queue)
        self._subscriptions: list[tuple[Informer, Handler]] = [
            (self._jobs, self._job_changed),
            (cluster.workload_priority_classes, self._priority_class_changed),
            (cluster.namespaces, self._namespace_changed),
            *self._elastic.subscriptions(self._elastic_pod_changed, self._owned_changed),
        ]
        if self._follows_owners:
            cluster.owner_events.subscribe(integration.kind.framework, self._workload_changed)
        else:
            self._subscriptions.append((cluster.workloads, self._workload_changed))
        for informer, handler in self._subscriptions:
            informer.on_event(handler)
        self._reservations.on_agreement(self._status_restored)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def close(self) -> None:
        """Unsubscribe from the caches: jobs of the kind are not queued any more."""
        for informer, handler in self._subscriptions:
            informer.off_event(handler)
        self._cluster.owner_events.unsubscribe(self._workload_changed)
        self._cluster.awaited_pods.forget_all(self.controller.queue)
        self._reservations.off_agreement(self._status_restored)

    # What leads to work

    def _status_restored(self, workload: Object) -> None:
        self._workload_changed(MODIFIED, None, workload)

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        job = old if new is None else new
        if type_ == DELETED:
            self._warned.discard(str(job["metadata"].get("uid")))
            self._matcher.forget(job)
            self._lifecycle.forget(job)
            self._elastic.forget(job)
            self._composer.forget(job)
        self.controller.queue.add(key_of(job))

    def _elastic_pod_changed(self, type_: str, old: Any, new: Any) -> None:
        for key in self._elastic.jobs_of(old if new is None else new):
            self.controller.queue.add(key)

    def _owned_changed(self, type_: str, old: Any, new: Any) -> None:
        owner = controller_of(old if new is None else new)
        if owner is not None and self._is_own_kind(owner):
            self.controller.queue.add((key_of(old if new is None else new)[0], str(owner.get("name"))))

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        owner: Object | None = None
        for workload in (old, new):
            owner = controller_of(workload) if workload is not None else None
            if owner is not None and self._is_own_kind(owner):
                namespace = workload["metadata"].get("namespace") or ""
                self.controller.queue.add((namespace, str(owner.get("name"))))
                if new is None:
                    self._composer.workload_deleted(namespace, owner)
            elif workload is not None and owner is None and (uid := job_uid(workload)):
                for job in self._jobs.by_index("uid", uid):  # its reference was removed
                    self.controller.queue.add(key_of(job))
        if (
            new is not None
            and owner is not None
            and (old is None or conditions.may_run(old) != conditions.may_run(new))
        ):
            self._add_parts(owner)

    def _add_parts(self, owner: Mapping[str, Any]) -> None:
        """Whether parts of the job that an owner reference names may run has changed."""
        framework = self.integration.kind.framework
        for key in self._cluster.parts_of(str(owner.get("uid")), framework):
            self.controller.queue.add(key)

    def _is_own_kind(self, owner: Mapping[str, Any]) -> bool:
        found = self._cluster.kinds.for_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
        return found is self.integration

    def _priority_class_changed(self, type_: str, old: Any, new: Any) -> None:
        if type_ == ADDED:
            for job in self._jobs.by_index("priorityClass", new["metadata"]["name"]):
                self.controller.queue.add(key_of(job))

    def _namespace_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and (old is None or labels_of(old) != labels_of(new)):
            for job in self._jobs.list(new["metadata"]["name"]):
                self.controller.queue.add(key_of(job))

    # The work

    async def reconcile(self, key: Key) -> float | None:
        """Bring one job and its Workload a step on."""
        try:
            await self._reconcile(key)
        except (MissingFlavorError, MissingPriorityClassError, MissingReferenceError) as error:
            log.info("%s: %s/%s: %s", self.controller.name, *key, error)
            return RETRY
        except UnreadableJobError as error:
            log.info("%s: %s/%s: %s", self.controller.name, *key, error)  # until the job changes
            return None
        return self._lifecycle.poll_after(key)

    async def _reconcile(self, key: Key) -> None:
        job = self._jobs.get(*key)
        await self._release_leftovers(key, job)
        if job is None or not self._cluster.manages_namespace(key[0]):
            return
        manages_all = self._configuration.manage_jobs_without_queue_name
        owner = managing_owner(job, self._cluster.queued_owner, manages_all)
        job = await self._without_stale_mark(job, owner is None and self._is_managed(job))
        if owner is not None:
            await self._follow_owner(job, owner.object)
            return
        if not self._is_managed(job):
            for workload in self._cluster.workloads_of(job):
                await self._delete_workload(job, workload)
            return
        self._warn_of_annotation(job)
        await self._reconcile_managed(job)

    async def _without_stale_mark(self, job: Object, managed: bool) -> Object:
        """The job without the annotation of a stop under way, where none is."""
        if names.STOPPING_ANNOTATION not in annotations_of(job):
            return job
        if managed and self.integration.is_stopping(job) and self.integration.outcome(job) is None:
            return job
        path = ("metadata", "annotations", names.STOPPING_ANNOTATION)
        return await self._writer.change(self._jobs, job, replaced(job, path, None))

    def _is_managed(self, job: Mapping[str, Any]) -> bool:
        if is_exempt(job, self.integration.kind):
            return False
        return bool(construction.queue_name(job)) or self._configuration.manage_jobs_without_queue_name

    def _warn_of_annotation(self, job: Mapping[str, Any]) -> None:
        uid = str(job["metadata"].get("uid"))
        if construction.queue_name_by_annotation(job) and uid not in self._warned:
            self._warned.add(uid)
            text = f"The annotation {names.QUEUE_LABEL} is deprecated: use the label of the same name"
            self._recorder.event(dict(job), WARNING, "DeprecatedQueueNameAnnotation", text)

    async def _release_leftovers(self, key: Key, job: Object | None) -> None:
        """Workloads of a job that is gone have nothing left to protect."""
        uid = None if job is None else job["metadata"].get("uid")
        index_key = (key[0], self.integration.kind.resource.kind, key[1])
        for workload in self._cluster.workloads.by_index("owner", index_key):
            owner = controller_of(workload) or {}
            if owner.get("uid") != uid and self._is_own_kind(owner):
                await self._drop_finalizer(workload)

    async def _follow_owner(self, job: Object, owner: Mapping[str, Any] | None) -> None:
        """A job inside a managed job runs exactly while that one is admitted.

        While that one is evicted, its own suspension stops what is inside: to suspend that here as well would
        be undone by its controller as long as that has not seen the suspension.
        """
        if owner is None:
            return
        workloads = self._cluster.workloads_of(owner)
        admitted = any(map(conditions.may_run, workloads))
        running = not self.integration.suspend_requested(job) and self.integration.outcome(job) is None
        if running and not admitted:
            await self._writer.change(self._jobs, job, self.integration.suspended(job))

    async def _reconcile_managed(self, job: Object) -> None:
        outcome = self.integration.outcome(job)
        elastic = self._elastic.has(job)
        if elastic and outcome is None:
            await self._adopt_slice(job)
            await self._elastic.tidy(job)
        workload, others = self._elastic.match(job) if elastic else self._matcher.match(job)
        for other in others:
            if workload is not None or outcome is not None:
                await self._delete_workload(job, other)
        if workload is None:
            if outcome is None and not is_deleting(job):
                await self._without_workload(job, others)
            return
        workload = await self._with_owner(job, workload)
        if is_deleting(workload):
            await self._workload_deleted(job, workload)
        elif self._reservations.lost(key_of(workload)) is not None:
            return  # the workload controller restores its status first
        elif conditions.is_finished(workload):
            await self._finished_early(job, workload)
        elif outcome is not None:
            await self._finish(job, workload, outcome)
        else:
            await self._synchronise(job, workload)

    async def _with_owner(self, job: Object, workload: Object) -> Object:
        """The Workload with its job as controller, should that reference have been removed.

        The garbage collector removes it too, from what a deleted job leaves behind.
        """
        if controller_of(workload) is not None or is_deleting(job):
            return workload
        uid = job["metadata"].get("uid")
        known = get(workload, "metadata", "ownerReferences") or ()
        others = [one for one in known if one.get("uid") != uid]
        references = [*others, construction.owner_reference(job, self.integration)]
        desired = replaced(workload, ("metadata", "ownerReferences"), references)
        return await self._writer.change(self._cluster.workloads, workload, desired)

    async def _finished_early(self, job: Object, workload: Object) -> None:
        """A Workload that another client marked as finished is not, unless its job never starts.

        A job that is being deleted may not show any more how it ended.
        """
        if self.integration.outcome(job) is not None or is_deleting(job):
            return
        if conditions.reason(workload, conditions.FINISHED) in NEVER_STARTED and not self.integration.runs(
            job
        ):
            return
        stored = await self._writer.reread(self._jobs, key_of(job))
        if stored is None or self.integration.outcome(stored) is not None:
            return

        def step(current: Object) -> Object | None:
            # A job that does not run has lost the quota to others already.
            runs = self._cluster.runs(workload)
            return transitions.unfinished(current, runs, self._clock.time())

        await self._set_status(workload, step)

    # Without a matching Workload

    async def _without_workload(self, job: Object, others: Sequence[Object]) -> None:
        stop, why = self._lifecycle.stop, "No matching Workload"
        originals = get(others[0], "spec", "podSets") if len(others) == 1 else None
        if not self.integration.is_suspended(job):
            await stop(job, originals, why)
            return
        if self.integration.is_active(job):
            return
        if self.integration.has_record(job) and not await stop(job, originals, why):
            return  # what an admission added must not become part of a Workload
        if self._cluster.identifiers.prebuilt_name(job) and self.integration.kind.prebuilt:
            await self._adopt_prebuilt(job)
            return
        if len(others) == 1 and not conditions.has_quota(others[0]) and not conditions.is_finished(others[0]):
            if not self._lifecycle.is_injected(job, others[0]) or await stop(job, originals, why):
                await self._rewrite(job, others[0])
            return
        for other in others:
            if not conditions.has_quota(other) or await stop(job, originals, why):
                await self._delete_workload(job, other)
        if not others:
            await self._create(job)

    async def _create(
        self, job: Object, replaces: Object | None = None, counts: Mapping[str, int] | None = None
    ) -> None:
        """Create the Workload of a job, or one with other counts that is to replace a slice."""
        if self.integration.on_hold(job):
            return
        if errors := self._matcher.errors(job):
            self._composer.refuse(job, "; ".join(map(str, errors)))
            return
        priority, reference = self._composer.priority_of(job)
        workload = self._composer.built(job, priority, reference)
        sets = len(workload["spec"]["podSets"])
        if sets > construction.MAX_POD_SETS:
            text = f"{sets} pod sets; a Workload holds at most {construction.MAX_POD_SETS}"
            self._composer.refuse(job, text)
            return
        if self._elastic.has(job):
            workload = self._elastic.as_slice(workload, job, replaces, counts)
        await self._composer.create(job, workload)

    async def _rewrite(self, job: Object, workload: Object) -> None:
        """The job was edited while it waits: its Workload says the same again.

        First how many of its pods have ended, which may be fewer of the new size: with too many it would be
        admitted for less than it runs with.
        """
        if self._gates["ReclaimablePods"]:
            counts = self.integration.reclaimable(job)
            if transitions.with_reclaimable(workload, counts) != workload:
                step = partial(transitions.with_reclaimable, counts=counts)
                workload = await self._set_status(workload, step) or workload
        wanted = self._composer.built(job, int(get(workload, "spec", "priority") or 0), None)["spec"]
        desired = workload
        for field in ("podSets", "queueName", "maximumExecutionTimeSeconds"):
            desired = replaced(desired, ("spec", field), wanted.get(field))
        await self._writer.change(self._cluster.workloads, workload, desired)
        namespace, name = key_of(workload)
        text = f"Updated not matching Workload for suspended job: {namespace}/{name}"
        self._recorder.event(job, NORMAL, "UpdatedWorkload", text)

    async def _adopt_prebuilt(self, job: Object) -> None:
        """Own an existing Workload without an owner; one that does not fit is finished OutOfSync."""
        namespace = job["metadata"].get("namespace") or ""
        workload = self._cluster.workload((namespace, self._cluster.identifiers.prebuilt_name(job)))
        if workload is None or conditions.is_finished(workload):
            return
        owner = controller_of(workload)
        if owner is not None:
            if owner.get("uid") == job["metadata"].get("uid"):
                text = "The prebuilt workload is out of sync with its job"
                await self._set_status(workload, lambda w: self._finished(w, "OutOfSync", text))
            return
        references = [
            *(get(workload, "metadata", "ownerReferences") or ()),
            construction.owner_reference(job, self.integration),
        ]
        await self._writer.change(
            self._cluster.workloads,
            workload,
            replaced(workload, ("metadata", "ownerReferences"), references),
        )

    async def _adopt_slice(self, job: Object) -> None:
        """Own the next slice of an elastic job that a manager cluster dispatched here."""
        name = self._cluster.identifiers.prebuilt_name(job)
        workload = self._cluster.workload((job["metadata"].get("namespace") or "", name)) if name else None
        if workload is not None and controller_of(workload) is None and self._cluster.workloads_of(job):
            await self._adopt_prebuilt(job)

    def _is_dispatched(self, workload: Object) -> bool:
        """Whether a worker cluster may run the job; MultiKueue clears the name of one that no longer does."""
        runs = self._runs_on_worker(workload) and may_run_remotely(workload)
        return runs and self._cluster.multikueue_state(workload) is not None

    async def _delete_workload(self, job: Object, workload: Object) -> None:
        if not self._is_dispatched(workload):
            await self._drop_finalizer(workload)
        if is_deleting(workload):
            return  # it goes with its finalizer
        await self._writer.delete(self._cluster.workloads, workload)
        namespace, name = key_of(workload)
        text = f"Deleted not matching Workload: {namespace}/{name}"
        self._recorder.event(job, NORMAL, "DeletedWorkload", text)

    async def _drop_finalizer(self, workload: Object) -> None:
        desired = without_finalizer(workload, names.RESOURCE_IN_USE_FINALIZER)
        if desired is workload:
            return
        try:
            await self._writer.change(self._cluster.workloads, workload, desired)
        except ApiError as error:
            if not error.not_found:
                raise

    # With its Workload

    async def _workload_deleted(self, job: Object, workload: Object) -> None:
        """The Workload of a job is being deleted: the job stops first, and is queued again if it exists."""
        if self.integration.outcome(job) is None and not is_deleting(job):
            stopped = await self._lifecycle.stop(job, get(workload, "spec", "podSets"), "Workload is deleted")
            if not stopped or self._is_dispatched(workload):
                return
        await self._drop_finalizer(workload)

    async def _finish(self, job: Object, workload: Object, outcome: Outcome) -> None:
        if self._lifecycle.awaits_pods(job):
            return
        reason = "Succeeded" if outcome.succeeded else "Failed"
        message = outcome.message or "Job finished successfully"
        written = await self._set_status(workload, lambda w: self._finished(w, reason, message))
        if written is not None:
            namespace, name = key_of(workload)
            self._recorder.event(
                job, NORMAL, "FinishedWorkload", f"Workload {namespace}/{name} is declared finished"
            )

    def _finished(self, workload: Object, reason: str, message: str) -> Object | None:
        if conditions.is_finished(workload):
            return None
        return transitions.finished(workload, reason, message, self._clock.time())

    async def _synchronise(self, job: Object, workload: Object) -> None:
        workload = await self._with_job_changes(job, workload)
        workload = await self._observed(job, workload) or workload
        missing: Mapping[str, int] = {}
        if self._elastic.has(job) and conditions.has_quota(workload):
            workload, missing = await self._elastic.settle(job, workload)
        stop, originals = self._lifecycle.stop, get(workload, "spec", "podSets")
        if conditions.is_evicted(workload) and conditions.has_quota(workload):
            if await stop(job, originals, eviction_text(workload)):
                with self._reservations.releasing(key_of(workload)):
                    await self._set_status(workload, self._released)
            return
        if conditions.has_quota(workload) and (why := self.integration.on_hold(job)):
            if await stop(job, originals, why):
                with self._reservations.releasing(key_of(workload)):
                    step = partial(transitions.held, why=why, now=self._clock.time())
                    await self._set_status(workload, step)
            return
        suspended = self.integration.is_suspended(job)
        if not conditions.has_quota(workload):
            await self._hold_or_release(job, workload)
        if conditions.may_run(workload):
            if suspended:
                await self._start(job, workload)
            elif self.integration.is_stopping(job):
                # Its stop began before it was admitted again.
                await stop(job, originals, "Stopped before it starts again")
            elif self._elastic.has(job):
                await self._elastic.ungate(job, workload)
                if missing:
                    await self._create(job, workload, missing)
            elif any(split_pod_sets(workload)):
                await self._shrink(job, workload)
            return
        if self._elastic.goes_on(job, workload):
            return
        if not suspended and not self._is_outdated(workload):
            await stop(job, originals, "Not admitted by cluster queue")

    async def _shrink(self, job: Object, workload: Object) -> None:
        """Let a job go on without pods that have lost their flavor."""
        counts = construction.running_counts(workload, conditions.admitted_counts(workload))
        smaller = self.integration.shrunk(job, counts)
        if smaller != job:
            await self._writer.change(self._jobs, job, smaller)

    def _is_outdated(self, workload: Object) -> bool:
        """Whether a Workload without an admission has been, or is about to be, given it back.

        Writes take time. The event of the newer version brings the job here again.
        """
        key = key_of(workload)
        newest = self._cluster.workload(key)
        is_admitted_again = newest is not None and conditions.may_run(newest)
        return self._reservations.lost(key) is not None or is_admitted_again

    async def _hold_or_release(self, job: Object, workload: Object) -> None:
        """Keep the pending Workload of a job that is on hold out of its queue, and no longer than that."""
        why = self.integration.on_hold(job)

        def step(current: Object) -> Object | None:
            if conditions.has_quota(current):
                return None  # the job stops first
            return transitions.held(current, why, self._clock.time())

        await self._set_status(workload, step)

    async def _start(self, job: Object, workload: Object) -> None:
        try:
            await self._lifecycle.start(job, workload)
        except PodSetConflictError as error:
            await self._cannot_start(workload, error)

    async def _cannot_start(self, workload: Object, error: PodSetConflictError) -> None:
        text = f"The job cannot be started: {error}"
        await self._set_status(workload, lambda w: self._finished(w, "FailedToStart", text))

    async def _observed(self, job: Object, workload: Object) -> Object | None:
        """What the job's pods tell: reclaimable pods and readiness, in one write."""

        def step(current: Object) -> Object | None:
            if conditions.is_finished(current):
                return None
            if not conditions.has_quota(current):
                counts = self.integration.reclaimable(job) if self._gates["ReclaimablePods"] else {}
                return transitions.reclaimable_at_most(current, counts)
            if self._gates["ReclaimablePods"]:
                current = transitions.with_reclaimable(current, self._elastic.reclaimable(job, current))
            if self._waits and conditions.is_admitted(current) and not conditions.is_evicted(current):
                running = self._runs_pods(job)
                ready = running and self._elastic.pods_ready(job, current)
                current = transitions.pods_ready(current, ready, self._clock.time())
            return current

        if step(workload) in (None, workload):
            return None
        return await self._set_status(workload, step)

    def _runs_pods(self, job: Object) -> bool:
        """Whether pods that are ready count as those of a running job."""
        return not self.integration.is_suspended(job)

    def _released(self, workload: Object) -> Object | None:
        if conditions.is_finished(workload) or not conditions.is_evicted(workload):
            return None
        if not conditions.has_quota(workload) or self._runs_on_worker(workload):
            return None
        return transitions.released(workload, self._waits, self._clock.time())

    def _runs_on_worker(self, workload: Mapping[str, Any]) -> bool:
        """Whether a worker cluster may still run the job of an evicted Workload (docs/decisions/0014)."""
        return self._gates["MultiKueue"] and bool(get(workload, "status", "clusterName"))

    async def _with_job_changes(self, job: Object, workload: Object) -> Object:
        desired = self._composer.changed(job, workload)
        return await self._writer.change(self._cluster.workloads, workload, desired)

    async def _set_status(self, workload: Object, step: Any) -> Object | None:
        return await self._writer.update(self._cluster.workloads, key_of(workload), step)


def eviction_text(workload: Mapping[str, Any]) -> str:
    """Why the Workload was evicted, in words."""
    eviction = conditions.condition(workload, conditions.EVICTED) or {}
    return str(eviction.get("message") or eviction.get("reason") or "Evicted")
