"""Workloads between queue and job: checks, stops, time limits, back-off, deactivation, retention.

The rules are in `workloads.rules`; this is the loop that applies them. It owns, in a Workload's status, what
neither the scheduler nor the job controller writes, and `spec.active` and `spec.priority`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from pykueue.api.kueue import names
from pykueue.clock import Clock
from pykueue.jobs.objects import Object, get, labels_of, replaced, without_finalizer
from pykueue.kube.controller import Controller
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.kube.informer import DELETED

from .activity import Activity
from .cluster import Cluster, Key
from .queue_parts import required_checks
from .workloads import reading, transitions
from .workloads.rules import Queue, Step, Surroundings, next_step
from .writes import Writer


class WorkloadController:
    """Reconciles all Workloads."""

    def __init__(
        self,
        cluster: Cluster,
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        rng: random.Random,
        workers: int = 8,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._waiting = cluster.configuration.wait_for_pods_ready
        self._retention = cluster.configuration.object_retention_policies.workloads
        self._gates = cluster.configuration.gates
        self._activity: dict[str, Activity] = {}
        self.controller: Controller[Key] = Controller(
            "workload controller", self.reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        cluster.workloads.on_event(self._workload_changed)
        cluster.local_queues.on_event(self._local_queue_changed)
        for informer in (cluster.cluster_queues, cluster.flavors, cluster.checks, cluster.topologies):
            informer.on_event(self._surroundings_changed)
        cluster.workload_priority_classes.on_event(self._priority_class_changed)
        for jobs in cluster.jobs.values():
            jobs.on_event(self._job_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # What leads to work

    def _add(self, workload: Mapping[str, Any]) -> None:
        self.controller.queue.add(reading.key(workload))

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._add(new)

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        if type_ == DELETED:
            for workload in self._cluster.workloads.by_index("owner", old["metadata"].get("uid", "")):
                self._add(workload)

    def _local_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        queue = old if new is None else new
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return
        self._queue_workloads((queue["metadata"].get("namespace") or "", queue["metadata"]["name"]))

    def _queue_workloads(self, queue: Key) -> None:
        for workload in self._cluster.workloads.by_index("queue", queue):
            self._add(workload)

    def _surroundings_changed(self, type_: str, old: Any, new: Any) -> None:
        """Look at the Workloads of the ClusterQueues that are not as they were."""
        obj = old if new is None else new
        kind, name = obj.get("kind"), obj["metadata"]["name"]
        queues = self._cluster.cluster_queues
        match kind:
            case "ClusterQueue":
                affected = {name}
                if old is not None and new is not None and old.get("spec") != new.get("spec"):
                    self._cluster_queue_workloads(name)
            case "ResourceFlavor":
                affected = {q["metadata"]["name"] for q in queues.by_index("flavor", name)}
            case "AdmissionCheck":
                affected = {q["metadata"]["name"] for q in queues.by_index("check", name)}
            case _:
                affected = {q["metadata"]["name"] for q in queues.list()}
        for queue in sorted(affected):
            if self._activity.get(queue) != self._current_activity(queue):
                self._cluster_queue_workloads(queue)

    def _current_activity(self, name: str) -> Activity | None:
        queue = self._cluster.cluster_queues.get("", name)
        if queue is None:
            self._activity.pop(name, None)
            return None
        found = self._cluster.activity(queue)
        self._activity[name] = found
        return found

    def _cluster_queue_workloads(self, name: str) -> None:
        for queue in self._cluster.local_queues.by_index("clusterQueue", name):
            self._queue_workloads((queue["metadata"].get("namespace") or "", queue["metadata"]["name"]))
        for workload in self._cluster.workloads.by_index("clusterQueue", name):
            self._add(workload)

    def _priority_class_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            for workload in self._cluster.workloads.by_index("priorityClass", new["metadata"]["name"]):
                self._add(workload)

    # The work

    async def reconcile(self, key: Key) -> float | None:
        """Bring one Workload up to date; returns when to look again, in seconds."""
        workload = self._cluster.workload(key)
        if workload is None:
            return None
        if self._is_orphan(workload):
            await self._let_go(workload)
            return None
        if workload["metadata"].get("deletionTimestamp"):
            if not self._is_looked_after(workload):
                await self._drop_finalizer(key)
            return None
        if reading.is_finished(workload):
            # It holds nothing any more, and whoever deletes it later need not find a manager.
            await self._drop_finalizer(key)
            return await self._retain(workload)
        workload = await self._follow_priority(workload)
        if reading.is_active(workload) and reading.holds(workload, reading.DEACTIVATION_TARGET):
            desired = replaced(workload, ("spec", "active"), False)
            await self._writer.change(self._cluster.workloads, workload, desired)
            return None
        return await self._step(key, workload)

    async def _step(self, key: Key, workload: Object) -> float | None:
        chance = self._rng.random()
        taken: list[Step] = []

        def step(current: Object) -> Object | None:
            taken.append(next_step(current, self._surroundings(current, chance)))
            return taken[-1].workload

        if step(workload) != workload:
            written = await self._writer.update(self._cluster.workloads, key, step)
            if written is None:
                return None
            for event in taken[-1].events:
                self._recorder.event(written, *event)
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

    def _surroundings(self, workload: Mapping[str, Any], chance: float) -> Surroundings:
        namespace = workload["metadata"].get("namespace") or ""
        local_name = str(get(workload, "spec", "queueName") or "")
        local = self._cluster.local_queues.get(namespace, local_name)
        name = reading.cluster_queue(workload) or (
            str(get(local, "spec", "clusterQueue") or "") if local else ""
        )
        queue = self._cluster.cluster_queues.get("", name) if name else None
        return Surroundings(
            now=self._clock.time(),
            local_queue=_queue(local_name, local),
            cluster_queue=_queue(name, queue, self._activity.get(name)) if name else None,
            required_checks=frozenset() if queue is None else required_checks(queue, workload),
            waiting=self._waiting,
            chance=chance,
        )

    async def _follow_priority(self, workload: Object) -> Object:
        """The value of a WorkloadPriorityClass reaches every Workload that uses it, running ones too."""
        if get(workload, "spec", "priorityClassRef", "kind") != "WorkloadPriorityClass":
            return workload
        name = str(get(workload, "spec", "priorityClassRef", "name"))
        found = self._cluster.workload_priority_classes.get("", name)
        if found is None or found.get("value") == get(workload, "spec", "priority"):
            return workload
        desired = replaced(workload, ("spec", "priority"), found.get("value"))
        return await self._writer.change(self._cluster.workloads, workload, desired)

    # Ends

    def _is_orphan(self, workload: Mapping[str, Any]) -> bool:
        """It belonged to a job and does not any more (reference/kueue-api.md 5.7)."""
        if get(workload, "metadata", "ownerReferences"):
            return False
        if workload["metadata"].get("deletionTimestamp"):
            return True
        return self._gates["FinishOrphanedWorkloads"] and names.JOB_UID_LABEL in labels_of(workload)

    def _is_looked_after(self, workload: Mapping[str, Any]) -> bool:
        """Whether somebody stops its job when it is deleted, and lets it go then.

        Nobody does where it was made by another installation, for a kind that this one does not queue.
        """
        external = self._cluster.configuration.integrations.external_frameworks
        for owner in get(workload, "metadata", "ownerReferences") or ():
            version, kind = str(owner.get("apiVersion")), str(owner.get("kind"))
            if self._cluster.registry.for_kind(version, kind) is not None:
                return True
            if (version, kind) == ("apps/v1", "StatefulSet") and self._cluster.stateful_sets is not None:
                return True
            group = version.partition("/")[0]
            if any(one.split(".", 2)[::2] == [kind, group] for one in external):
                return True
        return False

    async def _let_go(self, workload: Object) -> None:
        key = reading.key(workload)
        if not reading.is_finished(workload):
            text = "The job that the workload belonged to is gone"
            await self._writer.update(
                self._cluster.workloads,
                key,
                lambda w: _finished(w, "OwnerNotFound", text, self._clock.time()),
            )
        await self._drop_finalizer(key)

    async def _drop_finalizer(self, key: Key) -> None:
        def step(workload: Object) -> Object | None:
            desired = without_finalizer(workload, names.RESOURCE_IN_USE_FINALIZER)
            return None if desired is workload else desired

        await self._writer.update(self._cluster.workloads, key, step, subresource="")

    async def _retain(self, workload: Object) -> float | None:
        """A finished Workload is kept for a while, if the configuration says for how long."""
        if self._retention is None or self._retention.after_finished is None:
            return None
        ends = reading.since(workload, reading.FINISHED) + self._retention.after_finished
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
        cause = reading.reason(workload, reading.EVICTED)
        if reading.is_active(workload) or not cause.startswith(reading.DEACTIVATED + reading.DUE_TO):
            return None
        return reading.since(workload, reading.EVICTED) + self._retention.after_deactivated_by_kueue

    async def _delete_job(self, workload: Object) -> None:
        found = self._cluster.job_of(workload)
        if found is None or found[1] is None:
            return
        integration, job = found
        assert job is not None
        await self._writer.delete(self._cluster.jobs[integration.name], job, propagation="Background")
        text = "Deleted job because its workload was deactivated and the retention has elapsed"
        self._recorder.event(job, NORMAL, "Deleted", text)


def _queue(name: str, obj: Mapping[str, Any] | None, activity: Activity | None = None) -> Queue:
    if obj is None:
        return Queue(name, exists=False)
    inactive = "" if activity is None or activity.active else activity.message
    return Queue(
        name,
        terminating=bool(obj["metadata"].get("deletionTimestamp")),
        stop_policy=str(get(obj, "spec", "stopPolicy") or "None"),
        inactive=inactive,
    )


def _finished(workload: Object, reason: str, message: str, now: float) -> Object | None:
    return None if reading.is_finished(workload) else transitions.finished(workload, reason, message, now)
