"""Runs whose jobs change their size while they run, on the cluster's own controllers, scheduler and nodes.

Troubles, queues and most of what users do are those of every run; what must hold of slices is added. In some
runs RayClusters, RayJobs and RayServices are mixed with Jobs, and an autoscaler changes the RayClusters that
these make.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue.names import ELASTIC_JOB_ANNOTATION, ELASTIC_JOB_GATE
from pykueue.api.objects import Object, get, is_deleting, key_of, replaced
from pykueue.api.pods import has_gate, is_terminal
from pykueue.api.resources import JOBS, PODS, WORKLOADS, Resource
from pykueue.clock import Clock
from pykueue.jobs.slices import (
    OUT_OF_SYNC,
    REPLACED,
    claimable,
    counts_of,
    is_elastic,
    replaced_key,
    reserved_counts,
)
from pykueue.kube.client import Client
from pykueue.manager.indexes import job_uid

from .invariants import Invariants
from .jobkinds import QUEUED, ended, is_part, requests, written_templates
from .kindmanifests import manifest
from .quota import holds_quota, taken_over
from .run import Report, Run, play_run
from .scenario import Scenario, job, job_labels, scenario
from .trace import Trace
from .users import Users

#: The kinds besides Job that can be elastic.
RAY_KINDS = ("RayCluster", "RayJob", "RayService")


def elastic_scenario(rng: random.Random) -> Scenario:
    """A scenario most of whose jobs are elastic, in a third of the runs also some of Ray."""
    plan = scenario(rng)
    kinds = RAY_KINDS if rng.random() < 1 / 3 else ()
    jobs: list[tuple[float, Object]] = []
    for number in range(rng.randint(2, 6)):
        at = rng.uniform(0.0, plan.trouble * 0.6)
        labels = job_labels(rng, rng.choice(plan.of_kind("LocalQueue")))
        size = rng.randint(1, plan.room())
        annotations = {ELASTIC_JOB_ANNOTATION: "true"} if rng.random() < 0.8 else {}
        kind = rng.choice(("Job", *kinds))
        made = job(f"e{number}", labels, annotations, size, 1, size * rng.randint(1, 4))
        if kind != "Job":
            ray = manifest(kind, f"e{number}", labels, max(2, size), 1)
            if requests(ray)["cpu"] <= plan.room() * 1000:
                made = {**ray, "metadata": {**ray["metadata"], "annotations": annotations}}
        jobs.append((at, made))
    frameworks = ("batch/job", *(f"ray.io/{kind.lower()}" for kind in kinds))
    acts = plan.acts + (8 if kinds else 0)
    return replace(plan.with_jobs(jobs, frameworks), kinds=kinds, acts=acts)


class ResizingUsers(Users):
    """Users who also let jobs grow."""

    def __init__(
        self, client: Client, clock: Clock, rng: random.Random, scenario: Scenario, trace: Trace
    ) -> None:
        super().__init__(client, clock, rng, scenario, trace)
        ray = [self._resize_ray] * 30 if scenario.kinds else []
        self._acts = (*self._acts, *[self._resize] * 10, *ray)

    async def _resize(self) -> str:
        found = await self._one(JOBS, lambda job: not ended(job))
        if found is None:
            return ""
        size = self._rng.randint(1, self._scenario.room())
        await self._patch(JOBS, found, {"spec": {"parallelism": size}})
        return f"sets parallelism {size} of job {found['metadata']['name']}"

    async def _resize_ray(self) -> str:
        """Change a RayCluster as its user does, or the autoscaler where a RayJob or RayService made it."""
        found = await self._one(QUEUED["RayCluster"])
        groups = get(found or {}, "spec", "workerGroupSpecs")
        if found is None or not groups:
            return ""
        size = self._rng.randint(1, max(1, self._scenario.room() - 1))
        changed = [{**groups[0], "replicas": size}, *groups[1:]]
        await self._patch(QUEUED["RayCluster"], found, {"spec": {"workerGroupSpecs": changed}})
        return f"sets replicas {size} of RayCluster {found['metadata']['name']}"


class ElasticInvariants(Invariants):
    """Every pod without the gate has quota, and no quota is counted twice for one job."""

    def objects(self, resource: Resource) -> list[Object]:
        """Slices whose quota was taken over, or that wait for nothing any more, are left out."""
        found = super().objects(resource)
        if resource is not WORKLOADS:
            return found
        former = taken_over(found)
        return [one for one in found if not _is_over(one) and (job_uid(one), key_of(one)) not in former]

    def reclaimable(self, workload: Mapping[str, Any]) -> Mapping[str, int] | None:
        own = super().reclaimable(workload)
        job = self.job_of(workload)
        if own is None or job is None or job["kind"] != "Job" or not is_elastic(job):
            return own
        return claimable(job, workload, own)

    def written(self, job: Object) -> list[bytes]:
        """Users change the sizes of RayClusters."""
        groups = get(job, "spec", "workerGroupSpecs")
        if not groups:
            return super().written(job)
        unsized = [{**group, "replicas": 0} for group in groups]
        return written_templates(replaced(job, ("spec", "workerGroupSpecs"), unsized))

    def goes_on(self, workload: Mapping[str, Any]) -> bool:
        return holds_quota(workload) and replaced_key(workload) is not None

    def _workload(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or _is_over(before) or not _is_over(after):
            super()._workload(before, after)
        elif conditions.reason(after, conditions.FINISHED) == OUT_OF_SYNC:
            if holds_quota(before):
                self._violate(after, "ended as outdated with quota")
        else:
            self._taken_over(before)
        self._covered(self.job_of(after or before or {}))

    def _taken_over(self, workload: Object) -> None:
        """The replacement has at least the quota of the slice, without pods that will not run again."""
        given_back = self.reclaimable(workload) or {}
        counts = counts_of(get(workload, "spec", "podSets"))
        sizes = {
            name: min(reserved, counts[name] - given_back.get(name, 0))
            for name, reserved in reserved_counts(workload).items()
        }
        if holds_quota(workload) and not any(
            holds_quota(other)
            and replaced_key(other) == key_of(workload)
            and all(count <= reserved_counts(other)[name] for name, count in sizes.items())
            for other in self.objects(WORKLOADS)
            if job_uid(other) == job_uid(workload)
        ):
            self._violate(workload, "was replaced, and no slice has its quota")

    def _started(self, job: Object) -> None:
        if not is_elastic(job):
            super()._started(job)
        elif not any(holds_quota(one) for one in self.workloads_of(job)):
            self._violate(job, "the job was started without an admitted workload")

    def _pod(self, before: Object | None, after: Object | None) -> None:
        super()._pod(before, after)
        if after is not None:
            for job in self.owners(after):
                self._covered(job)

    def _covered(self, job: Object | None) -> None:
        """No more pods of an elastic job are without the gate than it has quota for."""
        if job is None or is_part(job) or not is_elastic(job) or self._just_stopped(job):
            return
        scheduled = sum(
            not has_gate(pod, ELASTIC_JOB_GATE) and not is_terminal(pod) and not is_deleting(pod)
            for pod in self.owned(PODS, job)
        )
        reserved = max(
            (
                sum(reserved_counts(self.counted(one)).values())
                for one in self.workloads_of(job)
                if holds_quota(one)
            ),
            default=0,
        )
        if scheduled > reserved:
            self._violate(job, f"{scheduled} pods are not gated, quota is reserved for {reserved}")


def _is_over(workload: Mapping[str, Any]) -> bool:
    return conditions.is_finished(workload) and conditions.reason(workload, conditions.FINISHED) in (
        REPLACED,
        OUT_OF_SYNC,
    )


class ElasticRun(Run):
    """A run of elastic jobs."""

    invariants_class = ElasticInvariants
    users_class = ResizingUsers


def play_elastic(seed: int) -> Report:
    """Play the run of this seed, in virtual time."""
    rng = random.Random(seed)
    report = play_run(ElasticRun, seed, elastic_scenario(rng), rng, True)
    return replace(report, options=" --elastic")
