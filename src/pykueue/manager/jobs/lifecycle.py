"""Starting and stopping jobs: what an admission and an eviction write to a job.

Whether a job is to run is decided by the controllers; this carries it out, one write per call, and tells when
a job has stopped completely. Source: docs/reference/kueue-integrations.md 9.3, "Start" and "Stop".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import has_pods_named_by_status, pod_selector
from pykueue.api.kueue import names
from pykueue.api.meta import set_condition
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, replaced, section
from pykueue.api.pods import LIVE_PODS
from pykueue.api.resources import PODS
from pykueue.jobs.base import MissingReferenceError
from pykueue.jobs.podsets import PodSetConflictError, PodSetInfo
from pykueue.kube.events import NORMAL
from pykueue.kube.workqueue import WorkQueue

from . import pod_set_info
from .context import JobContext

#: Seconds between looks for the pods of a stopped job of another project's kind.
POD_POLL = 2.0


class JobLifecycle:
    """Starts and stops the jobs of one kind."""

    def __init__(self, context: JobContext, queue: WorkQueue[Key]) -> None:
        self._queue = queue
        self._integration = integration = context.integration
        self._cluster = context.cluster
        self._jobs = context.cluster.jobs[integration.kind.framework]
        self._writer = context.writer
        self._recorder = context.recorder
        self._clock = context.clock
        gates = context.cluster.configuration.gates
        self._queue_labels = gates["AssignQueueLabelsForPods"]
        self._elastic_jobs = integration.kind.elastic and gates["ElasticJobsViaWorkloadSlices"]
        self._topology = gates["TopologyAwareScheduling"]
        #: Whether pods are given the uid of their job, because nothing else names it for as long as they run.
        self._labels_pods = has_pods_named_by_status(integration.kind)
        #: Jobs that have stopped but for pods that go on.
        self._polled: set[Key] = set()

    # Live pods

    def awaits_pods(self, job: Mapping[str, Any]) -> bool:
        """Whether pods of the job go on, whatever its status says; it is looked at again when they change."""
        uid = str(job["metadata"].get("uid"))
        key = key_of(job)
        if self._cluster.live_pods(key[0], uid):
            self._cluster.awaited_pods.expect(uid, self._queue, key)
            return True
        self._cluster.awaited_pods.forget(uid, self._queue)
        return False

    async def _has_pods(self, job: Mapping[str, Any]) -> bool:
        """Whether pods that carry the labels of the job's kind go on; the server is asked.

        Those kinds have no cache of their pods, so the job is looked at again after a while.
        """
        key = key_of(job)
        client = self._cluster.connection.client
        for selector in self._pod_selectors(job):
            found = await client.list(PODS, key[0], label_selector=selector, field_selector=LIVE_PODS)
            if not all(map(is_deleting, found.items)):
                self._polled.add(key)
                return True
        return False

    def _pod_selectors(self, job: Mapping[str, Any]) -> Iterator[str]:
        if self._labels_pods:
            yield f"{names.JOB_UID_LABEL}={job['metadata'].get('uid')}"
        selector = pod_selector(job, self._integration.kind)
        if selector:
            yield selector

    def poll_after(self, key: Key) -> float | None:
        """Seconds after which a job is looked at again whose pods go on; None: when it changes."""
        waits = key in self._polled
        self._polled.discard(key)
        return POD_POLL if waits else None

    def forget(self, job: Mapping[str, Any]) -> None:
        """The job is gone."""
        self._cluster.awaited_pods.forget(str(job["metadata"].get("uid")), self._queue)

    def is_injected(self, job: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
        """Whether its templates have what an admission added, which no Workload may ask for.

        A job that Kueue started has no record of it, but the pod set label, which is not in its Workload.
        """
        if self._integration.has_record(job):
            return True
        originals = get(workload, "spec", "podSets") or ()
        try:
            return _labelled(self._integration.pod_sets(job)) and not _labelled(originals)
        except MissingReferenceError:
            return False

    # Start

    def pod_set_infos(self, workload: Mapping[str, Any]) -> list[PodSetInfo]:
        """What each pod set gains by the admission. Raises MissingFlavorError and PodSetConflictError."""
        flavors = self._cluster.flavors
        return pod_set_info.pod_set_infos(
            workload,
            lambda name: flavors.get("", name),
            self._queue_labels,
            self._elastic_jobs,
            self._topology,
        )

    async def start(self, job: Object, workload: Object) -> None:
        """Write the job as its Workload was admitted. Raises MissingFlavorError and PodSetConflictError.

        A job that its user suspended still has the node selectors of its last admission, which may contradict
        the new one: its templates are restored first, and the change of the job leads here again.
        """
        infos = self.pod_set_infos(workload)
        originals = get(workload, "spec", "podSets")
        if self._labels_pods:
            uid = str(job["metadata"].get("uid"))
            infos = [replace(info, labels={**info.labels, names.JOB_UID_LABEL: uid}) for info in infos]
        try:
            desired = self._integration.started(job, infos)
        except PodSetConflictError:
            if not self.is_injected(job, workload) or not await self._restore(job, originals):
                raise
            return
        if self._integration.has_record(job) and self._integration.suspended(desired) != job:
            await self._restore(job, originals)
            return
        await self._writer.change(self._jobs, job, desired)
        queue = conditions.cluster_queue(workload)
        self._recorder.event(job, NORMAL, "Started", f"Admitted by clusterQueue {queue}")

    async def _restore(self, job: Object, originals: Any) -> bool:
        """Restore the templates of a suspended job; False where only deleting it would."""
        write = self._integration.stop(job, originals)
        if write is None or write.delete:
            return False
        await self._writer.change(self._jobs, job, write.desired, write.subresource)
        return True

    # Stop

    async def stop(self, job: Object, originals: Any, why: str) -> bool:
        """Take the next step of stopping the job; whether it has stopped completely.

        `originals` are the Workload's pod sets, whose templates are restored; None where they are unknown.
        Whether it has stopped is read from the API server, not from the cache: quota is released because of
        it, and the cache may not have a start yet whose response was lost.
        """
        write = self._integration.stop(job, originals)
        if write is None:
            if self._integration.is_active(job) or self.awaits_pods(job) or await self._has_pods(job):
                return False
            stored = await self._writer.reread(self._jobs, key_of(job))
            return (
                stored is None
                or stored["metadata"].get("uid") != job["metadata"].get("uid")
                or (
                    self._integration.stop(stored, originals) is None
                    and not self._integration.is_active(stored)
                )
            )
        running = not self._integration.is_suspended(job)
        if write.delete:
            await self.terminate(job, why)
        else:
            await self._writer.change(self._jobs, job, write.desired, write.subresource)
        if running and not write.subresource:
            self._recorder.event(job, NORMAL, "Stopped", why)
        return False

    async def terminate(self, job: Object, why: str) -> None:
        """Stop what can only be stopped by deleting it; its status says first that this is our doing."""
        present = get(job, "status", "conditions") or ()
        changed = set_condition(
            present, names.TERMINATION_TARGET, "True", "StoppedByKueue", why, self._clock.time()
        )
        desired = replaced(job, ("status", "conditions"), changed)
        marked = await self._writer.change(self._jobs, job, desired, "status")
        await self._writer.delete(self._jobs, marked)


def _labelled(pod_sets: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a template has the label that only starting a job adds."""
    return any(names.POD_SET_LABEL in section(one, "template", "metadata", "labels") for one in pod_sets)
