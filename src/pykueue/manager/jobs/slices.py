"""Elastic jobs: they change their size while they run, by workload slices.

The quota of a job is at any time at least that of the pods that may be scheduled. So its Workload shrinks
only after pods were deleted, and the scheduling gates of more pods are removed only after a replacement got
their quota. Both happen in the reconciliation of the job, so that neither overtakes the other.
Source: docs/reference/kueue-integrations.md 9.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import pod_count, pod_set_slots, value_at
from pykueue.api.jobkinds.ray import CLUSTER_LABEL, RAY_CLUSTER, RAY_JOB, RAY_SERVICE, ray_cluster_names
from pykueue.api.kueue.names import (
    DEFAULT_POD_SET,
    ELASTIC_JOB_GATE,
    MULTIKUEUE_CONTROLLER,
    POD_SET_LABEL,
    RESOURCE_IN_USE_FINALIZER,
)
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, labels_of, replaced, without_finalizer
from pykueue.api.pods import has_gate, without_gate
from pykueue.jobs import slices
from pykueue.jobs.job import JOB, parallelism, sized
from pykueue.jobs.slices import Slices
from pykueue.jobs.workload import equivalent, same_but_counts
from pykueue.kube.events import NORMAL
from pykueue.kube.informer import Handler, Informer
from pykueue.manager.indexes import pod_owners
from pykueue.manager.workloads import transitions
from pykueue.manager.writes import UnansweredWrites

from .context import JobContext

#: How many replaced slices of a job are kept, as its history; older ones are deleted.
HISTORY = 10


class ElasticJobs:
    """The elastic jobs of one kind."""

    def __init__(self, context: JobContext) -> None:
        self._integration = context.integration
        self._cluster = context.cluster
        self._writer = context.writer
        self._reservations = context.reservations
        self._recorder = context.recorder
        self._clock = context.clock
        #: Removals of the gates of pods, by uid of their job.
        self._ungating: UnansweredWrites[str] = UnansweredWrites(context.writer)
        self._kind = context.integration.kind
        gates = context.cluster.configuration.gates
        self._on = self._kind.elastic and gates["ElasticJobsViaWorkloadSlices"]

    def has(self, job: Mapping[str, Any]) -> bool:
        """Whether the job is elastic."""
        return self._on and slices.is_elastic(job)

    def _unfinished(self, job: Mapping[str, Any]) -> list[Object]:
        """The unfinished slices, also those whose status hides that they hold quota."""
        found = self._cluster.unfinished_of(str(job["metadata"].get("uid")))
        return [self._reservations.lost(key_of(one)) or one for one in found]

    async def tidy(self, job: Mapping[str, Any]) -> None:
        """Of several slices that wait, none of which has quota, leave the oldest."""
        found = slices.classify(self._unfinished(job))
        if found.active is None:
            await self._end(found.outdated)

    def match(self, job: Mapping[str, Any]) -> tuple[Object | None, list[Object]]:
        """The Workload that the job runs with or waits for, and those that are of no use to it.

        Not among these are slices beside the active one: `settle` ends them.
        """
        unfinished = self._unfinished(job)
        if not unfinished:
            over = (slices.REPLACED, slices.OUT_OF_SYNC)
            finished = self._cluster.workloads_of(job)
            last = [one for one in finished if conditions.reason(one, conditions.FINISHED) not in over]
            return (last[-1] if last else None), []
        found = slices.classify(unfinished)
        if self._integration.outcome(job) is not None:
            kept = found.active or found.pending
            return kept, [one for one in unfinished if one is not kept]
        if found.active is not None:
            fits = same_but_counts(found.active, job, self._integration)
            return (found.active, []) if fits else (None, [found.active])
        if found.pending is None:
            return None, []
        return (
            (found.pending, [])
            if equivalent(found.pending, job, self._integration)
            else (None, [found.pending])
        )

    def as_slice(
        self,
        workload: Object,
        job: Mapping[str, Any],
        old: Object | None,
        counts: Mapping[str, int] | None = None,
    ) -> Object:
        """A new Workload of an elastic job as a slice, which replaces `old` where there is one."""
        if old is not None and counts is not None:
            # The templates of a job that runs have what its start added to them.
            pod_sets = get(slices.with_counts(old, counts), "spec", "podSets")
            workload = replaced(workload, ("spec", "podSets"), pod_sets)
        known = self._cluster.workloads_of(job)
        # One that is gone may still be named by the slice that replaced it.
        taken = [name for _, name in (*map(key_of, known), *filter(None, map(slices.replaced_key, known)))]
        limit = self._cluster.configuration.workload_name_limit
        return slices.as_slice(workload, job, self._kind, old, limit, taken)

    def goes_on(self, job: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
        """Whether a job runs on although its active slice is not admitted: checks of its growth are pending.

        The pods that it grows by are gated until then.
        """
        return (
            self.has(job)
            and conditions.has_quota(workload)
            and not conditions.is_evicted(workload)
            and slices.replaced_key(workload) is not None
        )

    # Size

    async def settle(self, job: Mapping[str, Any], workload: Object) -> tuple[Object, dict[str, int]]:
        """Bring the slices of a job with quota to what it asks for.

        Returns the active slice as it is then, and the size of a larger one that is yet to be created; empty
        where none is needed.
        """
        found = slices.classify(self._unfinished(job))
        active = found.active
        if active is None or key_of(active) != key_of(workload):
            return workload, {}
        await self._ungating.learn_outcomes(str(job["metadata"].get("uid")), self._pod_cache)
        await self._finish_replaced(active, found)
        target: dict[str, int] = {}
        if not conditions.is_evicted(active) and conditions.is_active(active):
            active, target = await self._resized(job, active)
        pending = found.pending
        if self._cluster.identifiers.prebuilt_name(job):
            target = {}  # the manager cluster makes its slices
        if pending is not None and target:
            desired = slices.with_counts(pending, target)
            await self._writer.change(self._cluster.workloads, pending, desired)
            return active, {}
        await self._end(found.outdated if pending is None else (*found.outdated, pending))
        return active, target

    async def _resized(self, job: Mapping[str, Any], active: Object) -> tuple[Object, dict[str, int]]:
        """The active slice without the pods that the job has deleted, and the size that it lacks, if any."""
        wanted = self._wanted(job, active)
        over = self._integration.reclaimable(job)
        needed = {name: count - over.get(name, 0) for name, count in wanted.items()}
        _, scheduled = self._pods(job)
        before = slices.reserved_counts(active)
        after = {name: min(count, max(needed[name], scheduled[name])) for name, count in before.items()}
        if after != before:
            counts = slices.counts_of(get(active, "spec", "podSets"))
            smaller = {name: count - before[name] + after[name] for name, count in counts.items()}
            desired = slices.with_counts(active, smaller)
            active = await self._writer.change(self._cluster.workloads, active, desired)
        if all(needed[name] <= count for name, count in after.items()):
            return active, {}
        return active, {
            name: wanted[name] if needed[name] > count else count for name, count in after.items()
        }

    async def _finish_replaced(self, active: Object, found: Slices) -> None:
        """End the slices whose quota the active one took over."""
        message = f"Replaced by the workload slice {key_of(active)[1]} (UID: {active['metadata'].get('uid')})"

        def step(current: Object) -> Object | None:
            if conditions.is_finished(current):
                return None
            return transitions.finished(current, slices.REPLACED, message, self._clock.time())

        for old in found.replaced:
            with self._reservations.releasing(key_of(old)):
                written = await self._writer.update(self._cluster.workloads, key_of(old), step)
            if not conditions.is_active(old):
                # It was deactivated while its replacement was being admitted: that ends the job all the same.
                desired = replaced(active, ("spec", "active"), False)
                await self._writer.change(self._cluster.workloads, active, desired)
            if written is not None:
                self._recorder.event(written, NORMAL, slices.REPLACED, message)
        if found.replaced:
            await self._forget_history(active)

    async def _forget_history(self, active: Object) -> None:
        """Delete the oldest replaced slices of a job that has many."""
        uid = str((active["metadata"].get("ownerReferences") or [{}])[0].get("uid"))
        over = [
            one
            for one in self._cluster.workloads.by_index("owner", uid)
            if conditions.reason(one, conditions.FINISHED) == slices.REPLACED and not is_deleting(one)
        ]
        over.sort(key=lambda one: (conditions.since(one, conditions.FINISHED), conditions.created(one)))
        for one in over[:-HISTORY]:
            await self._writer.delete(self._cluster.workloads, one)

    async def _end(self, outdated: Iterable[Object]) -> None:
        """End slices that wait for quota that the job does not need."""
        for one in outdated:
            if is_deleting(one):
                desired = without_finalizer(one, RESOURCE_IN_USE_FINALIZER)
                await self._writer.change(self._cluster.workloads, one, desired)
            else:
                await self._writer.update(self._cluster.workloads, key_of(one), self._out_of_sync)

    def _out_of_sync(self, current: Object) -> Object | None:
        if conditions.is_finished(current) or conditions.has_quota(current):
            return None
        text = "The job does not ask for this size any more"
        return transitions.finished(current, slices.OUT_OF_SYNC, text, self._clock.time())

    # Pods

    def _pods(self, job: Mapping[str, Any]) -> tuple[dict[str, list[Object]], dict[str, int]]:
        """Live pods by pod set: those that are gated, and how many are not."""
        gated: dict[str, list[Object]] = defaultdict(list)
        others: dict[str, int] = defaultdict(int)
        for pod in self._live_pods(job):
            name = labels_of(pod).get(POD_SET_LABEL, DEFAULT_POD_SET)
            if has_gate(pod, ELASTIC_JOB_GATE):
                gated[name].append(pod)
            else:
                others[name] += 1
        return gated, others

    def _live_pods(self, job: Mapping[str, Any]) -> list[Object]:
        namespace = key_of(job)[0]
        if self._kind is JOB:
            return self._cluster.live_pods(namespace, str(job["metadata"].get("uid")))
        return [
            pod
            for name in ray_cluster_names(job, self._kind)
            for pod in self._cluster.live_ray_pods(namespace, name)
        ]

    @property
    def _pod_cache(self) -> Informer:
        pods = self._cluster.job_pods if self._kind is JOB else self._cluster.ray_pods
        assert pods is not None, "the gate is on"
        return pods

    def _wanted(self, job: Mapping[str, Any], active: Mapping[str, Any]) -> dict[str, int]:
        """The size that a job asks for, whose active slice this is.

        That of a RayJob or RayService is the size of the RayClusters that it has made: an autoscaler changes
        these, and a service has two of them while one replaces the other. KubeRay does not pass a changed
        size of the job on to them. Where they are in a worker cluster, the size remains that of the slice.
        """
        counts = slices.counts_of(self._integration.pod_sets(job))
        clusters = self._cluster.ray_clusters
        if self._kind not in (RAY_JOB, RAY_SERVICE) or clusters is None:
            return counts
        is_dispatched = value_at(job, self._kind.managed_by or ()) == MULTIKUEUE_CONTROLLER
        if is_dispatched and not self._integration.suspend_requested(job):
            return slices.counts_of(get(active, "spec", "podSets"))
        names = ray_cluster_names(job, self._kind)
        found = [one for name in names if (one := clusters.get(key_of(job)[0], name)) is not None]
        slots = [(slot, one) for one in found for slot in pod_set_slots(one, RAY_CLUSTER)]
        made: dict[str, int] = defaultdict(int)
        for slot, one in slots:
            made[slot.name] += pod_count(slot.element, slot.paths, one)
        return {name: made.get(name, count) for name, count in counts.items()}

    async def ungate(self, job: Mapping[str, Any], active: Mapping[str, Any]) -> None:
        """Let as many pods of a job be scheduled as the active slice was admitted with."""
        gated, scheduled = self._pods(job)
        if not gated:
            return
        counts = slices.reserved_counts(active)
        uid = str(job["metadata"].get("uid"))
        for name, pods in sorted(gated.items()):
            pods.sort(key=lambda pod: pod["metadata"]["name"])
            for pod in pods[: max(0, counts.get(name, 0) - scheduled[name])]:
                desired = without_gate(pod, ELASTIC_JOB_GATE)
                await self._ungating.change(uid, self._pod_cache, pod, desired)

    def jobs_of(self, pod: Mapping[str, Any]) -> Iterator[Key]:
        """The elastic jobs that a pod belongs to."""
        jobs = self._cluster.jobs[self._kind.framework]
        namespace, cluster = pod["metadata"]["namespace"], labels_of(pod).get(CLUSTER_LABEL)
        if self._kind is JOB:
            found = [job for uid in pod_owners(pod) for job in jobs.by_index("uid", uid)]
        else:
            found = jobs.by_index("rayCluster", (namespace, cluster)) if cluster else []
        yield from (key_of(job) for job in found if self.has(job))

    def subscriptions(self, pod_changed: Handler, cluster_changed: Handler) -> list[tuple[Informer, Handler]]:
        """The caches, other than those of every kind, whose changes concern elastic jobs."""
        if not self._on:
            return []
        if self._kind is JOB:
            return [(self._pod_cache, pod_changed)]
        kind = self._kind
        self._cluster.jobs[kind.framework].add_index(
            "rayCluster", lambda job: [(key_of(job)[0], name) for name in ray_cluster_names(job, kind)]
        )
        found = [(self._pod_cache, pod_changed)]
        if kind is RAY_JOB and self._cluster.ray_clusters is not None:
            found.append((self._cluster.ray_clusters, cluster_changed))
        return found

    def forget(self, job: Mapping[str, Any]) -> None:
        """The job is gone."""
        self._ungating.forget(str(job["metadata"].get("uid")))

    # What its pods tell

    def reclaimable(self, job: Mapping[str, Any], workload: Mapping[str, Any]) -> Mapping[str, int]:
        """Pods per pod set of a Workload with quota that will not run again.

        Of an elastic job, they are those beyond what the Workload has, not beyond what the job asks for, and
        never fewer than before.
        """
        if not self.has(job) or self._kind is not JOB:
            return self._integration.reclaimable(job)
        return slices.reclaimable(job, workload, self._integration)

    def pods_ready(self, job: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
        """Whether every pod is ready or has succeeded that the job has quota for."""
        if self.has(job) and self._kind is JOB:
            count = slices.reserved_counts(workload).get(DEFAULT_POD_SET, 0)
            job = sized(job, min(parallelism(job), count))
        return self._integration.pods_ready(job)
