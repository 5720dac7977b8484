"""Workloads between queue and job: checks, stops, time limits, back-off, deactivation, retention.

The rules are in `workloads.rules`; this is the loop that applies them. It owns, in a Workload's status, what
neither the scheduler nor the job controller writes, and `spec.active` and `spec.priority`.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from itertools import islice
from typing import Any

from pykueue.api import conditions, pending_reasons, variants
from pykueue.api.kueue import names
from pykueue.api.objects import (
    Key,
    Object,
    controller_of,
    get,
    is_deleting,
    key_of,
    labels_of,
    only_status_differs,
    replaced,
    spec_differs,
    without_finalizer,
)
from pykueue.api.pending_reasons import PendingReason
from pykueue.api.queue_specs import required_checks
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.jobs.user import UserJob
from pykueue.kube.controller import Controller
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import DELETED
from pykueue.manager.cluster import Cluster
from pykueue.manager.indexes import is_group_workload
from pykueue.manager.writes import Writer

from . import transitions
from .reservations import Reservations
from .rules import Context, Queue, Step, next_step


class WorkloadController:
    """Reconciles all Workloads."""

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        writer: Writer,
        reservations: Reservations,
        recorder: EventRecorder,
        clock: Clock,
        rng: random.Random,
        workers: int = 8,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._reservations = reservations
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._waiting = cluster.configuration.wait_for_pods_ready
        self._retention = cluster.configuration.object_retention_policies.workloads
        self._gates = cluster.configuration.gates
        self._engine = engine
        #: By ClusterQueue: why it was inactive when its Workloads were last reconciled for that.
        self._problems: dict[str, tuple[str, ...]] = {}
        self.controller: Controller[Key] = Controller(
            "workload controller", self.reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        cluster.workloads.on_event(self._workload_changed)
        reservations.on_agreement(self._add)
        cluster.local_queues.on_event(self._local_queue_changed)
        for informer in (
            cluster.cluster_queues,
            cluster.flavors,
            cluster.checks,
            cluster.topologies,
            cluster.cohorts,
        ):
            informer.on_event(self._context_changed)
        cluster.workload_priority_classes.on_event(self._priority_class_changed)
        cluster.on_job_event(self._job_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # What leads to work

    def _add(self, workload: Mapping[str, Any]) -> None:
        self.controller.queue.add(key_of(workload))

    def _add_found(self, index: str, index_key: Hashable) -> None:
        for key in self._cluster.workloads.keys_by_index(index, index_key):
            self.controller.queue.add(key)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._add(new)
        else:
            uid = labels_of(old).get(names.JOB_UID_LABEL, "")
            self._cluster.awaited_pods.forget(uid, self.controller.queue)

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        if type_ == DELETED:
            self._add_found("owner", old["metadata"].get("uid", ""))

    def _local_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        queue = old if new is None else new
        if not spec_differs(old, new):
            return
        self._queue_workloads((queue["metadata"].get("namespace") or "", queue["metadata"]["name"]))

    def _queue_workloads(self, queue: Key) -> None:
        self._add_found("queue", queue)

    def _context_changed(self, type_: str, old: Any, new: Any) -> None:
        """Look at the Workloads of the ClusterQueues that are not as they were."""
        obj = old if new is None else new
        kind, name = obj.get("kind"), obj["metadata"]["name"]
        queues = self._cluster.cluster_queues
        match kind:
            case "ClusterQueue" if only_status_differs(old, new) and (
                get(old, "status", "conditions") == get(new, "status", "conditions")
            ):
                return  # its figures
            case "ClusterQueue":
                affected = {name}
                if old is not None and new is not None and old.get("spec") != new.get("spec"):
                    self._cluster_queue_workloads(name)
            case "ResourceFlavor":
                affected = {q["metadata"]["name"] for q in queues.by_index("flavor", name)}
            case "AdmissionCheck":
                affected = {q["metadata"]["name"] for q in queues.by_index("check", name)}
            case "Cohort" if get(old or {}, "spec", "parentName") == get(new or {}, "spec", "parentName"):
                affected = set()
            case _:
                affected = {q["metadata"]["name"] for q in queues.list()}
        for queue in sorted(affected):
            if self._problems.get(queue) != self._current_problems(queue):
                self._cluster_queue_workloads(queue)

    def _current_problems(self, name: str) -> tuple[str, ...] | None:
        if self._cluster.cluster_queues.get("", name) is None:
            self._problems.pop(name, None)
            return None
        self._problems[name] = self._problems_of(name)
        return self._problems[name]

    def _problems_of(self, name: str) -> tuple[str, ...]:
        return tuple(text for _, text in self._engine.queue_problems(name) or ())

    def _scheduler_reason(self, workload: Mapping[str, Any]) -> PendingReason | None:
        """Why it is pending by the engine, where that decides who wrote its reason."""
        if conditions.reason(workload, conditions.QUOTA_RESERVED) not in pending_reasons.OF_QUEUES:
            return None
        return PendingReason(*self._engine.pending_reason("/".join(key_of(workload))))

    def _cluster_queue_workloads(self, name: str) -> None:
        for queue in self._cluster.local_queues.by_index("clusterQueue", name):
            self._queue_workloads((queue["metadata"].get("namespace") or "", queue["metadata"]["name"]))
        self._add_found("clusterQueue", name)

    def _priority_class_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._add_found("priorityClass", new["metadata"]["name"])

    # The work

    async def reconcile(self, key: Key) -> float | None:
        """Bring one Workload up to date; returns when to look again, in seconds."""
        workload = self._cluster.workload(key)
        if workload is None:
            return None
        lost = self._reservations.lost(key) is not None
        waits = self._awaits_pods(workload)
        if self._is_orphan(workload) and not lost and not waits:
            await self._finish_orphan(workload)
            return None
        if is_deleting(workload):
            if not self._has_controller(workload) and not waits:
                await self._drop_finalizer(key)
            return None
        if lost:
            await self._restore(key, workload)
            return None
        if conditions.is_finished(workload):
            # It has no quota any more; without the finalizer it can be deleted while no manager runs.
            await self._drop_finalizer(key)
            return await self._retain(workload)
        if waits or (
            controller_of(workload) is None and self._has_job(workload) and not is_group_workload(workload)
        ):
            return None  # its job controller writes the reference back first
        workload = await self._follow_priority(workload)
        if conditions.is_active(workload) and conditions.is_true(workload, conditions.DEACTIVATION_TARGET):
            desired = replaced(workload, ("spec", "active"), False)
            await self._writer.change(self._cluster.workloads, workload, desired)
            return None
        return await self._step(key, workload)

    async def _restore(self, key: Key, workload: Object) -> None:
        """Write back the status that another client took from a Workload whose job runs.

        Whether it runs is asked of the server: the cache may not know yet of the stop or the end that the
        change of the status is about.
        """
        for integration, job in list(self._cluster.jobs_of(workload)):
            await self._writer.reread(self._cluster.jobs[integration.kind.framework], key_of(job))
        for pod in self._cluster.left_pods(workload):
            await self._writer.reread(self._cluster.job_pods, key_of(pod))
        if self._reservations.is_restoring(key):
            # The last write of the status had no answer.
            await self._writer.reread(self._cluster.workloads, key)

        def step(current: Object) -> Object | None:
            lost = self._reservations.lost(key)
            if lost is None or not self._cluster.runs(lost):
                return None
            self._reservations.begin_restore(key)
            return replaced(current, ("status",), lost["status"])

        written = await self._writer.update(self._cluster.workloads, key, step)
        self._reservations.end_restore(key)
        if written is not None:
            text = "Restored the status of the workload: it was changed while its job runs"
            self._recorder.event(written, WARNING, "StatusRestored", text)

    async def _step(self, key: Key, workload: Object) -> float | None:
        jitter = self._rng.random()
        taken: list[Step] = []

        def step(current: Object) -> Object | None:
            if self._reservations.lost(key) is not None:
                return None  # its status was edited since; it is written back first
            taken.append(next_step(current, self._context(current, jitter)))
            return taken[-1].workload

        if step(workload) != workload:
            written = await self._writer.update(self._cluster.workloads, key, step)
            if written is None:
                return None
            for event in taken[-1].events:
                self._recorder.event(written, *event)
                if event[1] == conditions.MISCONFIGURED:
                    # Its user may look at the job alone.
                    for _, job in islice(self._cluster.jobs_of(written), 1):
                        self._recorder.event(job, *event)
        return await self._after(workload, taken[-1])

    async def _after(self, workload: Object, step: Step) -> float | None:
        wake = step.wake
        deletion = self._deletes_job_at(step.workload)
        if deletion is not None:
            if deletion <= self._clock.time():
                await self._delete_job(workload)
            else:
                wake = deletion if wake is None else min(wake, deletion)
        return None if wake is None else max(0.0, wake - self._clock.time())

    def _context(self, workload: Mapping[str, Any], jitter: float) -> Context:
        namespace = workload["metadata"].get("namespace") or ""
        local_name = str(get(workload, "spec", "queueName") or "")
        local = self._cluster.local_queues.get(namespace, local_name)
        name = conditions.cluster_queue(workload) or (
            str(get(local, "spec", "clusterQueue") or "") if local else ""
        )
        queue = self._cluster.cluster_queues.get("", name) if name else None
        return Context(
            now=self._clock.time(),
            local_queue=_queue(local_name, local),
            cluster_queue=_queue(name, queue, self._problems.get(name, ())) if name else None,
            required_checks=frozenset() if queue is None else required_checks(queue, workload),
            waiting=self._waiting,
            jitter=jitter,
            admission_gates=self._gates["AdmissionGatedBy"],
            explicit_status=self._gates["UnadmittedWorkloadsExplicitStatus"],
            scheduler_reason=self._scheduler_reason(workload),
            has_unreferenced_job=self._has_unreferenced_job(workload),
            is_parent=self._gates[variants.GATE] and variants.has_variants(workload),
            is_variant=self._gates[variants.GATE] and variants.parent_reference(workload) is not None,
            runs_unadmitted=conditions.has_quota(workload)
            and not conditions.is_admitted(workload)
            and self._cluster.runs(workload),
        )

    async def _follow_priority(self, workload: Object) -> Object:
        """The value of a WorkloadPriorityClass reaches every Workload that uses it, running ones too."""
        if get(workload, "spec", "priorityClassRef", "kind") != "WorkloadPriorityClass":
            return workload
        name = str(get(workload, "spec", "priorityClassRef", "name"))
        if self._has_priority_of_parent(workload):
            return workload
        found = self._cluster.workload_priority_classes.get("", name)
        if found is None or found.get("value") == get(workload, "spec", "priority"):
            return workload
        desired = replaced(workload, ("spec", "priority"), found.get("value"))
        return await self._writer.change(self._cluster.workloads, workload, desired)

    def _has_priority_of_parent(self, workload: Mapping[str, Any]) -> bool:
        """Whether it is a variant whose priority its parent decides: one writer for one field."""
        reference = variants.parent_reference(workload) if self._gates[variants.GATE] else None
        if reference is None:
            return False
        namespace = workload["metadata"].get("namespace") or ""
        parent = self._cluster.workloads.get(namespace, str(reference.get("name")))
        path = ("spec", "priorityClassRef")
        return parent is not None and get(parent, *path) == get(workload, *path)

    # Ends

    def _is_orphan(self, workload: Mapping[str, Any]) -> bool:
        """It belonged to a job and does not any more (docs/reference/kueue-api.md 5.7)."""
        if get(workload, "metadata", "ownerReferences") or self._has_job(workload):
            return False
        if is_deleting(workload):
            return True
        return self._gates["FinishOrphanedWorkloads"] and names.JOB_UID_LABEL in labels_of(workload)

    def _has_job(self, workload: Mapping[str, Any]) -> bool:
        return next(self._cluster.jobs_of(workload), None) is not None

    def _has_unreferenced_job(self, workload: Mapping[str, Any]) -> bool:
        """Whether its owner references were removed while its job, or pods of that, are there."""
        if get(workload, "metadata", "ownerReferences"):
            return False
        return self._has_job(workload) or bool(self._cluster.left_pods(workload))

    def _awaits_pods(self, workload: Mapping[str, Any]) -> bool:
        """Whether the Workload has no owner any more, its job is gone, and pods of that go on.

        It is reconciled when they end.
        """
        uid = labels_of(workload).get(names.JOB_UID_LABEL, "")
        has_owner = bool(get(workload, "metadata", "ownerReferences"))
        if (
            not (has_owner or conditions.is_finished(workload))
            and self._cluster.left_pods(workload)
            and not self._has_job(workload)
        ):
            self._cluster.awaited_pods.expect(uid, self.controller.queue, key_of(workload))
            return True
        self._cluster.awaited_pods.forget(uid, self.controller.queue)
        return False

    def _has_controller(self, workload: Mapping[str, Any]) -> bool:
        """Whether a controller stops its job when it is deleted, and then removes the finalizer.

        None does where another installation made it, for a kind that this one does not queue.
        """
        if variants.parent_reference(workload) is not None:
            return True
        if self._has_job(workload):
            return True
        external = self._cluster.configuration.integrations.external_frameworks
        for owner in get(workload, "metadata", "ownerReferences") or ():
            version, kind = str(owner.get("apiVersion")), str(owner.get("kind"))
            if self._cluster.kinds.for_kind(version, kind) is not None:
                return True
            if any(
                (version, kind) == (each.kind.resource.api_version, each.kind.resource.kind)
                for each in self._cluster.kinds.pod_owners.values()
                if each.makes_workloads
            ):
                return True
            group = version.partition("/")[0]
            if any(one.split(".", 2)[::2] == [kind, group] for one in external):
                return True
        return False

    async def _finish_orphan(self, workload: Object) -> None:
        key = key_of(workload)
        if not conditions.is_finished(workload):
            text = "The job that the workload belonged to is gone"
            await self._writer.update(
                self._cluster.workloads,
                key,
                lambda w: _finished(w, "OwnerNotFound", text, self._clock.time()),
            )
        await self._drop_finalizer(key)

    async def _drop_finalizer(self, key: Key) -> None:
        workload = self._cluster.workload(key)
        if workload is None or not workload["metadata"].get("finalizers"):
            return

        def step(workload: Object) -> Object | None:
            desired = without_finalizer(workload, names.RESOURCE_IN_USE_FINALIZER)
            return None if desired is workload else desired

        await self._writer.update(self._cluster.workloads, key, step, subresource="")

    async def _retain(self, workload: Object) -> float | None:
        """A finished Workload is kept for a while, if the configuration says for how long."""
        if self._retention is None or self._retention.after_finished is None:
            return None
        ends = conditions.since(workload, conditions.FINISHED) + self._retention.after_finished
        if self._clock.time() < ends:
            return ends - self._clock.time()
        await self._writer.delete(self._cluster.workloads, workload)
        self._recorder.event(
            workload, NORMAL, "Deleted", "Deleted finished workload due to elapsed retention"
        )
        return None

    def _deletes_job_at(self, workload: Mapping[str, Any]) -> float | None:
        """When the job of a Workload that the system deactivated is deleted; None: never."""
        if self._retention is None or self._retention.after_deactivated_by_kueue is None:
            return None
        cause = conditions.reason(workload, conditions.EVICTED)
        if conditions.is_active(workload) or not cause.startswith(conditions.DEACTIVATED + conditions.DUE_TO):
            return None
        return conditions.since(workload, conditions.EVICTED) + self._retention.after_deactivated_by_kueue

    async def _delete_job(self, workload: Object) -> None:
        found = self._cluster.job_of(workload)
        if found is None or found[1] is None:
            return
        integration, job = found
        assert job is not None
        if isinstance(integration, UserJob):
            return  # there is no right to delete jobs of a kind that a JobKind describes
        await self._writer.delete(
            self._cluster.jobs[integration.kind.framework], job, propagation="Background"
        )
        text = "Deleted job because its workload was deactivated and the retention has elapsed"
        self._recorder.event(job, NORMAL, "Deleted", text)


def _queue(name: str, obj: Mapping[str, Any] | None, problems: tuple[str, ...] = ()) -> Queue:
    if obj is None:
        return Queue(name, exists=False)
    return Queue(
        name,
        terminating=is_deleting(obj),
        stop_policy=str(get(obj, "spec", "stopPolicy") or "None"),
        problems=problems,
    )


def _finished(workload: Object, reason: str, message: str, now: float) -> Object | None:
    return None if conditions.is_finished(workload) else transitions.finished(workload, reason, message, now)
