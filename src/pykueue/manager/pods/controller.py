"""Plain pods and pod groups: the flow of `JobController` for jobs that only deleting them can stop.

A pod on its own is a job like any other until it is stopped. A group is several pods and one Workload of its
name, which all of them own. Source: docs/reference/kueue-integrations.md 9.4, "Pod".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.kueue import names
from pykueue.api.objects import (
    Key,
    Object,
    annotations_of,
    get,
    is_deleting,
    key_of,
    replaced,
    without_finalizer,
)
from pykueue.api.pods import is_terminal
from pykueue.api.resources import PODS
from pykueue.jobs import workload as construction
from pykueue.jobs.base import Outcome
from pykueue.jobs.pod import is_gated, suspending_parent, ungated
from pykueue.jobs.pod_owners import STATEFUL_SET, plain_owner
from pykueue.jobs.podgroup import GroupError, PodGroup, has_ended, is_held, role
from pykueue.jobs.podsets import PodSetConflictError
from pykueue.kube.events import NORMAL, WARNING
from pykueue.kube.informer import DELETED
from pykueue.manager.indexes import group_keys, is_group_workload
from pykueue.manager.jobs.context import JobContext
from pykueue.manager.jobs.controller import NEVER_STARTED, JobController, eviction_text
from pykueue.manager.workloads import transitions
from pykueue.manager.writes import write_each

#: Owners whose pods are always members of a group.
_GROUPING = (STATEFUL_SET.framework, LEADER_WORKER_SET.framework)
#: Seconds by which a look at a group is put off after a change of a pod, so that many changes cost one.
BATCH_DELAY = 0.2
#: Pods of a group that are written at the same time.
_AT_ONCE = 16
#: Seconds by which the end of a pod's grace is waited out: it is written in whole seconds.
_PATIENCE = 1.0


class _PodsController(JobController):
    """What single pods and groups have in common."""

    def _queues_alone(self, pod: Mapping[str, Any]) -> bool:
        """Whether its kind is switched on: plain pods may be off while kinds that own pods are on."""
        frameworks = self._configuration.integrations.frameworks
        return "pod" in frameworks or bool(suspending_parent(pod))

    def _is_dispatched(self, workload: Mapping[str, Any]) -> bool:
        """Whether the pods run on a worker cluster, and stay gated here."""
        return self._gates["MultiKueue"] and self._cluster.multikueue_state(workload) is not None

    async def _finalize(self, pods: Iterable[Object]) -> None:
        """Remove the finalizer of pods that are no longer needed."""

        async def release(pod: Object) -> None:
            await self._writer.change(self._jobs, pod, without_finalizer(pod, names.MANAGED_FINALIZER))

        await write_each((pod for pod in pods if is_held(pod)), release, _AT_ONCE)


class PodController(_PodsController):
    """Pods on their own, keyed by namespace and name."""

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        if not self._cluster.identifiers.group_name(old if new is None else new):
            super()._job_changed(type_, old, new)

    async def _reconcile(self, key: Key) -> None:
        pod = self._jobs.get(*key)
        if pod is None:
            await super()._reconcile(key)
        elif self._is_alone(pod) and self._queues_alone(pod):
            await self._reconcile_pod(key, pod)

    def _is_alone(self, pod: Mapping[str, Any]) -> bool:
        """Whether it belongs to no group, and to no owner that will make it a member of one."""
        return not self._cluster.identifiers.group_name(pod) and suspending_parent(pod) not in _GROUPING

    def _runs_pods(self, job: Object) -> bool:
        return True  # the copy of a gated one may be ready on a worker cluster

    async def _start(self, job: Object, workload: Object) -> None:
        if not self._is_dispatched(workload):
            await super()._start(job, workload)

    async def _reconcile_pod(self, key: Key, pod: Object) -> None:
        if is_deleting(pod) and not is_terminal(pod):
            await self._release_deleted(pod)
            return
        await super()._reconcile(key)
        workloads = self._cluster.workloads_of(pod)
        if is_terminal(pod) and all(map(conditions.is_finished, workloads)):
            await self._finalize([pod])

    async def _release_deleted(self, pod: Object) -> None:
        """A pod that is being deleted releases the quota of its evicted Workload and loses its finalizer.

        Its Workload is deleted with it.
        """
        for workload in self._cluster.workloads_of(pod):
            if is_deleting(workload):
                await self._drop_finalizer(workload)
            elif conditions.is_evicted(workload) and conditions.has_quota(workload):
                await self._set_status(workload, self._released)
        await self._finalize([pod])

    def _released(self, workload: Object) -> Object | None:
        """Without its quota, and not to come back where the pod it stands for does not run again."""
        result = super()._released(workload)
        found = self._cluster.job_of(workload)
        pod = None if found is None else found[1]
        if result is None or (pod is not None and is_gated(pod) and not is_deleting(pod)):
            return result
        eviction = conditions.condition(workload, conditions.EVICTED) or {}
        text = "The pod of the workload has been deleted"
        reason = str(eviction.get("reason") or "Evicted")
        return transitions.with_condition(
            result, conditions.REQUEUED, "False", reason, text, self._clock.time()
        )


class PodGroupController(_PodsController):
    """Groups of pods, keyed by namespace and group name, which is the Workload's name too."""

    _follows_owners = False

    def __init__(self, context: JobContext, workers: int = 8) -> None:
        super().__init__(context, workers)
        self._conflicts: set[tuple[Key, str]] = set()
        #: By Workload: the pods that were made its owners.
        self._owners: dict[str, set[str]] = {}

    # What leads to work

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        for pod in (old, new):
            for key in [] if pod is None else group_keys(pod, self._cluster.identifiers):
                self.controller.queue.add_after(key, BATCH_DELAY)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        workload = old if new is None else new
        key = key_of(workload)
        if is_group_workload(workload) or self._cluster.pods_of_group(*key):
            self.controller.queue.add(key)
        if type_ == DELETED:
            self._conflicts.discard((key, workload["metadata"].get("uid", "")))
            self._owners.pop(workload["metadata"].get("uid", ""), None)

    def _priority_class_changed(self, type_: str, old: Any, new: Any) -> None:
        for pod in self._jobs.by_index("priorityClass", new["metadata"]["name"]) if new is not None else ():
            self._job_changed(type_, None, pod)

    def _namespace_changed(self, type_: str, old: Any, new: Any) -> None:
        for pod in self._jobs.list(new["metadata"]["name"]) if new is not None else ():
            self._job_changed(type_, None, pod)

    # The work

    async def reconcile(self, key: Key) -> float | None:
        again = await super().reconcile(key)
        pods = self._cluster.pods_of_group(*key)
        now = self._clock.time()
        end = PodGroup.of(pods).active_until(now) if pods else None
        if again is None and end is not None and end < inf:
            # Pods that do not end in time hold nothing any more.
            again = end - now + _PATIENCE
        return again

    async def _reconcile(self, key: Key) -> None:
        pods = self._cluster.pods_of_group(*key)
        workload = self._cluster.workload(key)
        if workload is not None and not is_group_workload(workload):
            await self._foreign(key, workload, pods)
            return
        if not pods:
            if workload is not None:
                await self._without_pods(workload)
            return
        if not self._cluster.manages_namespace(key[0]) or not self._queues_alone(pods[0]):
            return
        group = PodGroup.of(pods, self._gates["FastQuotaReleaseInPodIntegration"])
        if workload is None:
            await self._without(group)
        elif group.is_abandoned():
            await self._referred(pods, workload)
            await self._finalize(pods)
            if is_deleting(workload) and await self._has_stopped(group):
                await self._drop_finalizer(workload)
        elif is_deleting(workload):
            await self._deleted(group, workload)
        elif self._reservations.lost(key) is not None:
            return  # the workload controller restores its status first
        elif conditions.is_finished(workload):
            if await self._goes_on(group, workload):
                runs = self._cluster.runs(workload)  # others may have the quota of one that does not
                now = self._clock.time()
                await self._set_status(workload, partial(transitions.unfinished, runs=runs, now=now))
            else:
                await self._close(group, workload)
        elif (outcome := _outcome(group, workload)) is not None:
            await self._finish(group.first, workload, outcome)
        else:
            await self._synchronise_group(group, workload)

    async def _foreign(self, key: Key, workload: Object, pods: list[Object]) -> None:
        """A Workload of the group's name that was not made for a pod group.

        Without the gate PodIntegrationValidateGroupOwner a complete group takes over one that is not owned
        and has no quota.
        """
        await self._finalize(pod for pod in pods if is_deleting(pod))
        if (
            self._gates["PodIntegrationValidateGroupOwner"]
            or get(workload, "metadata", "ownerReferences")
            or conditions.has_quota(workload)
            or conditions.is_finished(workload)
            or is_deleting(workload)
        ):
            self._record_conflict(key, workload, pods)
        elif pods and (group := PodGroup.of(pods)).is_complete() and self._cluster.manages_namespace(key[0]):
            mark = ("metadata", "annotations", names.IS_GROUP_WORKLOAD_ANNOTATION)
            desired = replaced(replaced(workload, mark, "true"), ("spec", "podSets"), group.pod_sets())
            await self._writer.change(self._cluster.workloads, workload, desired)

    def _record_conflict(self, key: Key, workload: Object, pods: list[Object]) -> None:
        known = (key, str(workload["metadata"].get("uid")))
        if pods and known not in self._conflicts:
            self._conflicts.add(known)
            text = f"Workload {key[1]} already exists and does not belong to a pod group"
            self._recorder.event(pods[0], WARNING, "WorkloadNameConflict", text)

    async def _without_pods(self, workload: Object) -> None:
        """Release a Workload whose pods are gone, or (where a StatefulSet made it) not there yet."""
        if is_deleting(workload):
            await self._drop_finalizer(workload)
        elif conditions.is_evicted(workload) and conditions.has_quota(workload):
            await self._set_status(workload, self._released)
        elif self._is_orphan(workload):
            text = "The pods that the workload belonged to are gone"
            await self._set_status(workload, lambda w: self._finished(w, "OwnerNotFound", text))

    def _is_orphan(self, workload: Object) -> bool:
        """Whether a Workload without pods had owners (docs/reference/kueue-api.md 5.7).

        The manager adds the finalizer where it creates the Workload of pods. One made ahead of its pods, by a
        user or for a worker cluster, has none; one made for a set of pods names that in its annotations.
        """
        metadata = workload["metadata"]
        return (
            self._gates["FinishOrphanedWorkloads"]
            and not metadata.get("ownerReferences")
            and names.RESOURCE_IN_USE_FINALIZER in (metadata.get("finalizers") or ())
            and names.JOB_OWNER_NAME_ANNOTATION not in annotations_of(workload)
        )

    # Without a Workload

    async def _without(self, group: PodGroup) -> None:
        over = group.is_over()
        gone = group.is_abandoned() or (over and group.outcome() is not None)
        # What failed or was deleted with an earlier Workload of the group is no part of the next.
        kept = {pod["metadata"]["uid"] for pod in group.kept} if not gone else set()
        ended = [pod for pod in group.pods if over or gone or has_ended(pod)]
        await self._finalize(pod for pod in ended if pod["metadata"]["uid"] not in kept)
        if over or gone:
            return
        if group.started() and not group.is_suspended():
            await self._stop_group(group, "No matching Workload")
            return
        if self._cluster.identifiers.prebuilt_name(group.first):
            return  # the one it asks for is not there yet
        try:
            group.check(self._cluster.labels_to_copy, self._configuration.annotations_to_copy)
            if group.is_complete():
                await self._create_for(group)
        except GroupError as error:
            self._composer.refuse(group.first, str(error))

    async def _create_for(self, group: PodGroup) -> None:
        priority, reference = self._composer.priority_of(group.first)
        pod_sets = group.pod_sets()
        if len(pod_sets) > construction.MAX_POD_SETS:
            text = f"{len(pod_sets)} roles; a group has at most {construction.MAX_POD_SETS}"
            raise GroupError(text)
        base = self._composer.built(group.first, priority, reference)
        labels = {
            **{k: v for k, v in base["metadata"]["labels"].items() if k != names.JOB_UID_LABEL},
            **group.labels(self._cluster.labels_to_copy),
        }
        annotations = {
            **annotations_of(base),
            **group.annotations(self._configuration.annotations_to_copy),
            names.IS_GROUP_WORKLOAD_ANNOTATION: "true",
        }
        metadata = {
            **base["metadata"],
            "name": self._cluster.identifiers.group_name(group.first),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [pod_owner(pod) for pod in group.pods],
        }
        workload = {**base, "metadata": metadata, "spec": {**base["spec"], "podSets": pod_sets}}
        await self._composer.create(group.first, workload)

    # With its Workload

    async def _deleted(self, group: PodGroup, workload: Object) -> None:
        """The Workload is being deleted: all pods are deleted with it, also gated and terminated ones."""
        await self._stop_group(group, "Workload is deleted", waiting=True)
        if await self._has_stopped(group):
            await self._finalize(pod for pod in group.pods if is_deleting(pod))
            await self._drop_finalizer(workload)

    async def _synchronise_group(self, group: PodGroup, workload: Object) -> None:
        workload = await self._owned(group, workload)
        excess = group.excess(get(workload, "spec", "podSets") or ())
        if not suspending_parent(group.first):
            for pod in excess:
                await self._remove(pod)
            if excess:
                return  # their deletion queues the group again
        await self._finalize(group.replaced())
        waiting = group.waiting()
        workload = await self._with_job_changes(waiting[0] if waiting else group.first, workload)
        workload = await self._observed_group(group, workload) or workload
        if conditions.is_evicted(workload) and conditions.has_quota(workload):
            await self._stop_group(group, eviction_text(workload))
            if await self._has_stopped(group):
                with self._reservations.releasing(key_of(workload)):
                    await self._set_status(workload, self._released)
        elif conditions.may_run(workload):
            await self._ungate(workload, [pod for pod in group.waiting() if pod not in excess])
        elif group.started():
            await self._stop_group(group, "Not admitted by cluster queue")

    async def _goes_on(self, group: PodGroup, workload: Object) -> bool:
        """Whether the Workload was marked as finished while pods that own it wait or run.

        A pod that came after the end of its group never became an owner.
        """
        never_started = conditions.reason(workload, conditions.FINISHED) in NEVER_STARTED
        if _outcome(group, workload) is not None or (never_started and not group.started()):
            return False
        owners = {one.get("uid") for one in get(workload, "metadata", "ownerReferences") or ()}
        for pod in group.pods:
            if owners and pod["metadata"]["uid"] not in owners:
                continue
            if has_ended(pod) or is_deleting(pod):
                continue
            if await self._exists(pod):
                newest = self._jobs.get(*key_of(pod)) or pod
                if not has_ended(newest) and not is_deleting(newest):
                    return True
        return False

    async def _close(self, group: PodGroup, workload: Object) -> None:
        """The group is over: remove the finalizers of its pods, and delete those still gated."""
        late = group.waiting()
        for pod in late:
            await self._remove(pod)
        uids = {pod["metadata"]["uid"] for pod in late}
        ended = [pod for pod in group.pods if pod["metadata"]["uid"] not in uids]
        await self._referred(ended, workload)
        await self._finalize(ended)

    async def _owned(self, group: PodGroup, workload: Object) -> Object:
        """Every pod that stays is an owner, so that the Workload goes with the last of them."""
        known = get(workload, "metadata", "ownerReferences") or []
        uids = {one.get("uid") for one in known}
        new = [pod for pod in group.pods if pod["metadata"]["uid"] not in uids and not is_deleting(pod)]
        added = self._owners.setdefault(workload["metadata"]["uid"], set())
        # An owner that is none any more was dropped because its pod is gone; the cache may not know yet.
        new = [pod for pod in new if pod["metadata"]["uid"] not in added or await self._exists(pod)]
        if not new:
            return workload
        added |= {pod["metadata"]["uid"] for pod in new}
        return await self._with_owners(workload, new)

    async def _referred(self, pods: list[Object], workload: Object) -> None:
        """Write back the owners of a Workload that has lost all of them: it has to go with its pods."""
        if pods and not get(workload, "metadata", "ownerReferences"):
            await self._with_owners(workload, pods)

    async def _with_owners(self, workload: Object, new: list[Object]) -> Object:
        known = get(workload, "metadata", "ownerReferences") or []
        references = [*known, *map(pod_owner, new)]
        desired = replaced(workload, ("metadata", "ownerReferences"), references)
        result = await self._writer.change(self._cluster.workloads, workload, desired)
        listed = ", ".join(pod["metadata"]["name"] for pod in new)
        self._recorder.event(result, NORMAL, "OwnerReferencesAdded", f"Added owner references of: {listed}")
        return result

    async def _exists(self, pod: Object) -> bool:
        stored = await self._writer.reread(self._jobs, key_of(pod))
        return stored is not None and stored["metadata"]["uid"] == pod["metadata"]["uid"]

    async def _remove(self, pod: Object) -> None:
        await self._finalize([pod])
        await self._writer.delete(self._jobs, self._jobs.get(*key_of(pod)) or pod)
        self._recorder.event(pod, NORMAL, "ExcessPodDeleted", "Excess pod deleted")

    async def _observed_group(self, group: PodGroup, workload: Object) -> Object | None:
        """What the pods tell, in one write: replacements waited for, pods given back, readiness."""
        now = self._clock.time()
        # The status of a set on a worker cluster stays there, which evicts it if its pods do not get ready.
        is_there = suspending_parent(group.first) in _GROUPING and self._is_dispatched(workload)

        def step(current: Object) -> Object | None:
            if conditions.is_finished(current):
                return None
            current = _waiting_for_replacements(current, group, now)
            if not conditions.has_quota(current):
                return current
            if self._gates["ReclaimablePods"]:
                current = transitions.with_reclaimable(current, group.reclaimable())
            if self._waits and conditions.is_admitted(current) and not conditions.is_evicted(current):
                current = transitions.pods_ready(current, is_there or group.pods_ready(), now)
            return current

        if step(workload) in (None, workload):
            return None
        return await self._set_status(workload, step)

    async def _ungate(self, workload: Object, waiting: list[Object]) -> None:
        """Ungate the pods that are part of the admission, replacements included."""
        if not waiting or self._is_dispatched(workload):
            return
        try:
            infos = {info.name: info for info in self._lifecycle.pod_set_infos(workload)}
            desired = {pod["metadata"]["uid"]: ungated(pod, infos[role(pod)]) for pod in waiting}
        except PodSetConflictError as error:
            await self._cannot_start(workload, error)
            return
        text = f"Admitted by clusterQueue {conditions.cluster_queue(workload)}"

        async def start(pod: Object) -> None:
            await self._writer.change(self._jobs, pod, desired[pod["metadata"]["uid"]])
            self._recorder.event(pod, NORMAL, "Started", text)

        await write_each(waiting, start, _AT_ONCE)

    async def _has_stopped(self, group: PodGroup) -> bool:
        """Whether none of its pods runs.

        Read from the API server, not from the cache: quota is released because of it.
        """
        now = self._clock.time()
        if group.is_active(now):
            return False
        pods = [
            pod if is_terminal(pod) else await self._writer.reread(self._jobs, key_of(pod))
            for pod in group.pods
        ]
        left = [pod for pod in pods if pod is not None]
        return not left or not PodGroup.of(left, group.fast_release).is_active(now)

    async def _stop_group(self, group: PodGroup, why: str, waiting: bool = False) -> None:
        """Delete the ungated pods; with `waiting` also gated and terminated ones."""

        async def stop(pod: Object) -> None:
            await self._lifecycle.terminate(pod, why)
            self._recorder.event(pod, NORMAL, "Stopped", why)

        wanted = (pod for pod in group.pods if waiting or not (is_gated(pod) or is_terminal(pod)))
        await write_each((pod for pod in wanted if not is_deleting(pod)), stop, _AT_ONCE)


def pod_owner(pod: Mapping[str, Any]) -> Object:
    """How the Workload of a group names one of its pods: as an owner, not as its controller."""
    return plain_owner(pod, PODS)


def _outcome(group: PodGroup, workload: Mapping[str, Any]) -> Outcome | None:
    """How a group with this Workload ended; None while it has not."""
    return group.outcome(conditions.has_quota(workload))


def _waiting_for_replacements(workload: Object, group: PodGroup, now: float) -> Object:
    kind = names.WAITING_FOR_REPLACEMENT_PODS
    if group.missing and (group.lost or not group.is_fast):
        reason, text = "PodsFailed", "Some Failed pods need replacement"
        if conditions.is_evicted(workload):
            reason = conditions.reason(workload, conditions.EVICTED)
        return transitions.with_condition(workload, kind, "True", reason, text, now)
    if conditions.is_true(workload, kind):
        text = "No pods need replacement"
        return transitions.with_condition(workload, kind, "False", "PodsReady", text, now)
    return workload
