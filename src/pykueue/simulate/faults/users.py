"""What users and administrators do to a cluster during faults, and how it is repaired afterwards.

Their requests go straight to the API server. What it refuses (a rule says no, the manager's webhooks are
down) they note and leave.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from pykueue.api import conditions
from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGETS
from pykueue.api.jobkinds.trainjob import CLUSTER_RUNTIMES
from pykueue.api.kueue.names import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from pykueue.api.objects import Object, controller_of, is_deleting
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    DEVICE_CLASSES,
    JOB_SETS,
    JOBS,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

from .jobkinds import QUEUED, ended, ends, is_part
from .scenario import NAMESPACE, PRIORITIES, Scenario
from .trace import Trace

_RESOURCES: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        ADMISSION_CHECKS,
        BACKFILL_POLICIES,
        BUDGETS,
        CLUSTER_QUEUES,
        COHORTS,
        DEVICE_CLASSES,
        LOCAL_QUEUES,
        PODS,
        PREEMPTION_POLICIES,
        RESOURCE_CLAIM_TEMPLATES,
        RESERVATIONS,
        RESOURCE_FLAVORS,
        TOPOLOGIES,
        WORKLOAD_PRIORITY_CLASSES,
        CLUSTER_RUNTIMES,
        *QUEUED.values(),
    )
}
#: The one LimitRange there may be.
LIMITS = "limits"
#: Seconds after which a user tries again to create what the server did not take.
AGAIN = 2.0
#: Seconds after which something that is being deleted must be gone.
PATIENCE = 4 * 3600.0


class Users:
    """The users and administrators of a run."""

    def __init__(
        self, client: Client, clock: Clock, rng: random.Random, scenario: Scenario, trace: Trace
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._scenario = scenario
        self._trace = trace
        #: What they queue.
        self.kinds: tuple[Resource, ...] = (JOBS, JOB_SETS, *(QUEUED[kind] for kind in scenario.kinds))
        self._acts: tuple[Callable[[], Awaitable[str]], ...] = (
            self._delete_job,
            self._delete_job,
            self._edit_job,
            self._edit_job,
            self._move_job,
            self._change_priority,
            self._stop_queue,
            self._stop_queue,
            self._stop_local_queue,
            self._change_quota,
            self._change_quota,
            self._deactivate,
            self._deactivate,
            self._activate,
            self._delete_workload,
            self._delete_local_queue,
            self._delete_cluster_queue,
            self._change_cohort,
            self._change_class,
            self._change_limits,
        )

    async def set_up(self) -> None:
        """Create the queues and what belongs to them."""
        for obj in self._scenario.objects:
            await self._create(_RESOURCES[obj["kind"]], obj)

    async def submit(self) -> None:
        """Create the jobs, each at its time."""
        start = self._clock.time()
        for at, job in self._scenario.jobs:
            await self._clock.sleep(start + at - self._clock.time())
            await self._create(_RESOURCES[job["kind"]], job)

    async def meddle(self) -> None:
        """Do one thing after the other, at random times."""
        rng = self._rng
        times = sorted(rng.uniform(0.0, self._scenario.trouble) for _ in range(self._scenario.acts))
        start = self._clock.time()
        for at in times:
            await self._clock.sleep(start + at - self._clock.time())
            act = rng.choice(self._acts)
            try:
                done = await act()
            except ApiError as error:
                done = f"{act.__name__[1:]} is refused: {error.message}"
            if done:
                self._trace.note("user", done)

    async def mend(self) -> None:
        """Delete jobs without an end, restore all queues, and activate half of what is deactivated."""
        self._trace.note("user", "mends everything")
        for kind in self._scenario.kinds:
            if not ends(kind):
                await self._delete_all(QUEUED[kind], owned=False)
        await self._limit(None)
        for kind in ("Cohort", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass"):
            for wanted in self._scenario.of_kind(kind):
                await self._restore(_RESOURCES[kind], wanted)
        for workload in await self._all(WORKLOADS):
            if not conditions.is_active(workload) and self._rng.random() < 0.5:
                await self._patch(WORKLOADS, workload, {"spec": {"active": True}})

    async def leave(self) -> None:
        """Delete all jobs."""
        self._trace.note("user", "deletes all jobs")
        for resource in self.kinds:
            await self._delete_all(resource)

    async def _delete_all(self, resource: Resource, owned: bool = True) -> None:
        """Delete all objects, or those that no other object controls."""
        for job in await self._all(resource):
            if not owned and controller_of(job) is not None:
                continue
            name = job["metadata"]["name"]
            await self._client.delete(resource, name, NAMESPACE, propagation="Background")

    async def _restore(self, resource: Resource, wanted: Object) -> None:
        name, namespace = wanted["metadata"]["name"], wanted["metadata"].get("namespace")
        gives_up = self._clock.time() + PATIENCE
        while True:
            try:
                known = await self._client.get(resource, name, namespace)
            except ApiError as error:
                if not error.not_found:
                    raise
                await self._create(resource, wanted)
                return
            if not is_deleting(known):
                break
            if self._clock.time() > gives_up:
                self._trace.violate(f"{name} is being deleted without end")
                return
            await self._clock.sleep(AGAIN)
        patch = {key: wanted[key] for key in ("spec", "value") if key in wanted}
        if resource is COHORTS or resource is CLUSTER_QUEUES:
            patch["spec"] = {
                **{key: None for key in known["spec"] if key not in wanted["spec"]},
                **patch["spec"],
            }
        await self._client.patch(resource, name, namespace, patch)

    # One thing at a time

    async def _all(self, resource: Resource) -> list[Object]:
        return (await self._client.list(resource)).items

    async def _one(
        self, resource: Resource, wanted: Callable[[Object], Any] = lambda _: True
    ) -> Object | None:
        found = [obj for obj in await self._all(resource) if wanted(obj)]
        return self._rng.choice(found) if found else None

    async def _create(self, resource: Resource, obj: Object) -> None:
        """Create, and retry while the server does not accept it."""
        for _ in range(200):
            try:
                await self._client.create(resource, obj)
                return
            except ApiError as error:
                if error.already_exists and resource in QUEUED.values():
                    return
                if error.code < 500 and not error.already_exists:
                    self._trace.violate(f"{obj['metadata']['name']} is refused: {error.message}")
                    return
                await self._clock.sleep(AGAIN)
        self._trace.violate(f"{obj['metadata']['name']} could not be created")

    async def _patch(self, resource: Resource, obj: Object, patch: Object) -> None:
        await self._client.patch(resource, obj["metadata"]["name"], obj["metadata"].get("namespace"), patch)

    async def _job(self) -> tuple[Resource, Object] | None:
        """One of the Jobs and JobSets that users made."""
        wanted = {job["metadata"]["name"] for _, job in self._scenario.jobs}
        found = [
            (resource, job)
            for resource in {_RESOURCES[job["kind"]]: None for _, job in self._scenario.jobs}
            for job in await self._all(resource)
            if job["metadata"]["name"] in wanted and not is_part(job)
        ]
        return self._rng.choice(found) if found else None

    async def _delete_job(self) -> str:
        found = await self._job()
        if found is None:
            return ""
        resource, job = found
        name = job["metadata"]["name"]
        await self._client.delete(resource, name, NAMESPACE, propagation="Background")
        if self._rng.random() < 0.3:
            again = next(job for _, job in self._scenario.jobs if job["metadata"]["name"] == name)
            await self._create(resource, again)
            return f"deletes job {name} and creates it again"
        return f"deletes job {name}"

    async def _edit_job(self) -> str:
        mine = {job["metadata"]["name"] for _, job in self._scenario.jobs}
        job = await self._one(
            JOBS, lambda job: job["metadata"]["name"] in mine and not ended(job) and not is_part(job)
        )
        if job is None:
            return ""
        parallelism = self._rng.randint(1, max(1, int(job["spec"]["parallelism"])))
        await self._patch(JOBS, job, {"spec": {"parallelism": parallelism}})
        return f"sets parallelism {parallelism} of job {job['metadata']['name']}"

    async def _move_job(self) -> str:
        found, queue = await self._job(), await self._one(LOCAL_QUEUES)
        if found is None or queue is None:
            return ""
        resource, job = found
        name = queue["metadata"]["name"]
        await self._patch(resource, job, {"metadata": {"labels": {QUEUE_LABEL: name}}})
        return f"moves job {job['metadata']['name']} to {name}"

    async def _change_priority(self) -> str:
        found, name = await self._job(), self._rng.choice(list(PRIORITIES))
        if found is None:
            return ""
        resource, job = found
        await self._patch(resource, job, {"metadata": {"labels": {PRIORITY_CLASS_LABEL: name}}})
        return f"gives job {job['metadata']['name']} priority {name}"

    async def _change_class(self) -> str:
        name, value = self._rng.choice(list(PRIORITIES)), self._rng.randint(1, 2000)
        await self._client.patch(WORKLOAD_PRIORITY_CLASSES, name, None, {"value": value})
        return f"makes priority {name} worth {value}"

    async def _change_limits(self) -> str:
        most = self._rng.choice((None, 1, 2))
        await self._limit(most)
        return "lifts all limits" if most is None else f"limits containers to {most} cpu"

    async def _limit(self, most: int | None) -> None:
        """Have the LimitRange say how much cpu a container may ask for, or nothing."""
        spec = {"limits": [{"type": "Container", "max": {"cpu": str(most)}}]}
        known = await self._all(LIMIT_RANGES)
        if most is None:
            for obj in known:
                await self._client.delete(LIMIT_RANGES, obj["metadata"]["name"], NAMESPACE)
        elif known:
            await self._client.patch(LIMIT_RANGES, LIMITS, NAMESPACE, {"spec": spec})
        else:
            metadata = {"name": LIMITS, "namespace": NAMESPACE}
            obj = {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": spec}
            await self._client.create(LIMIT_RANGES, obj)

    async def _stop_queue(self) -> str:
        queue, policy = await self._one(CLUSTER_QUEUES), self._rng.choice(("None", "Hold", "HoldAndDrain"))
        if queue is None:
            return ""
        await self._patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": policy}})
        return f"sets stopPolicy {policy} of {queue['metadata']['name']}"

    async def _stop_local_queue(self) -> str:
        queue, policy = await self._one(LOCAL_QUEUES), self._rng.choice(("None", "Hold", "HoldAndDrain"))
        if queue is None:
            return ""
        await self._patch(LOCAL_QUEUES, queue, {"spec": {"stopPolicy": policy}})
        return f"sets stopPolicy {policy} of {queue['metadata']['name']}"

    async def _change_quota(self) -> str:
        queue = await self._one(CLUSTER_QUEUES)
        if queue is None:
            return ""
        groups = queue["spec"]["resourceGroups"]
        flavor = self._rng.randrange(len(groups[0]["flavors"]))
        nominal = self._rng.choice((0, 2, 4, 10))
        changed = {"name": "cpu", "nominalQuota": nominal}
        flavors = [
            {**one, "resources": [changed, *one["resources"][1:]]} if number == flavor else one
            for number, one in enumerate(groups[0]["flavors"])
        ]
        await self._patch(
            CLUSTER_QUEUES, queue, {"spec": {"resourceGroups": [{**groups[0], "flavors": flavors}]}}
        )
        return f"sets quota {nominal} of {queue['metadata']['name']}"

    async def _change_cohort(self) -> str:
        queue = await self._one(CLUSTER_QUEUES, lambda queue: not _limits(queue))
        if queue is None:
            return ""
        name = self._rng.choice(("all", "left", "other", None))
        await self._patch(CLUSTER_QUEUES, queue, {"spec": {"cohortName": name}})
        return f"puts {queue['metadata']['name']} into cohort {name}"

    async def _deactivate(self) -> str:
        workload = await self._one(WORKLOADS)
        if workload is None:
            return ""
        await self._patch(WORKLOADS, workload, {"spec": {"active": False}})
        return f"deactivates {workload['metadata']['name']}"

    async def _activate(self) -> str:
        workload = await self._one(WORKLOADS, lambda workload: not conditions.is_active(workload))
        if workload is None:
            return ""
        await self._patch(WORKLOADS, workload, {"spec": {"active": True}})
        return f"activates {workload['metadata']['name']}"

    async def _delete_workload(self) -> str:
        workload = await self._one(WORKLOADS)
        if workload is None:
            return ""
        await self._client.delete(WORKLOADS, workload["metadata"]["name"], NAMESPACE)
        return f"deletes workload {workload['metadata']['name']}"

    async def _delete_local_queue(self) -> str:
        queue = await self._one(LOCAL_QUEUES)
        if queue is None:
            return ""
        await self._client.delete(LOCAL_QUEUES, queue["metadata"]["name"], NAMESPACE)
        return f"deletes {queue['metadata']['name']}"

    async def _delete_cluster_queue(self) -> str:
        queue = await self._one(CLUSTER_QUEUES)
        if queue is None:
            return ""
        await self._client.delete(CLUSTER_QUEUES, queue["metadata"]["name"])
        return f"deletes {queue['metadata']['name']}"


def _limits(queue: Object) -> bool:
    """Whether it has limits that have an effect only in a cohort."""
    resources = [
        resource
        for group in queue["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
    ]
    return any({"borrowingLimit", "lendingLimit"} & resource.keys() for resource in resources)
