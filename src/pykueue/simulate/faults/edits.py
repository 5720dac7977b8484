"""Users who write by hand what controllers own: statuses, admissions, annotations and finalizers.

They may write everything (cluster administrators do); admission rules still refuse some of it.
"""

from __future__ import annotations

import random
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import with_value
from pykueue.api.kueue import names
from pykueue.api.objects import Object, get
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.kube.client import Client

from .jobkinds import SERVING, end_conditions, ended, suspend_field, suspended, with_conditions
from .quota import holds_quota
from .scenario import Scenario
from .trace import Trace
from .users import Users
from .writers import writing_as

#: Conditions that are set at random on Workloads.
_CONDITIONS = (
    conditions.QUOTA_RESERVED,
    conditions.ADMITTED,
    conditions.FINISHED,
    conditions.PODS_READY,
    conditions.REQUEUED,
    conditions.PREEMPTED,
)


class EditingUsers(Users):
    """Users who also edit by hand, as often as all else they do."""

    def __init__(
        self, client: Client, clock: Clock, rng: random.Random, scenario: Scenario, trace: Trace
    ) -> None:
        super().__init__(client, clock, rng, scenario, trace)
        self._workload_edits = (
            self._clear_status,
            self._clear_status,
            self._forge_condition,
            self._forge_condition,
            self._forge_condition,
            self._clear_admission,
            self._forge_requeue_state,
            self._clear_checks,
            self._remove_finalizers,
            self._remove_workload,
            self._forge_queue_status,
            self._forge_queue_status,
            self._forge_reclaimable,
            self._remove_owner,
        )
        job_edits = (
            self._annotate_job,
            self._annotate_job,
            self._suspend_by_hand,
            self._clear_job_status,
            self._end_job,
        )
        self._acts = (*self._acts, *self._workload_edits, *job_edits)

    async def _edit(
        self, resource: Resource, obj: Object, patch: dict[str, Any], subresource: str | None = None
    ) -> None:
        metadata = obj["metadata"]
        with writing_as("editor"):
            await self._client.patch(
                resource, metadata["name"], metadata.get("namespace"), patch, subresource=subresource
            )

    # Workloads

    async def _held(self) -> Object | None:
        """A Workload, rather one with quota than another."""
        held = await self._one(WORKLOADS, holds_quota)
        return held if held is not None and self._rng.random() < 0.8 else await self._one(WORKLOADS)

    async def _unfinished(self) -> Object | None:
        workload = await self._held()
        return None if workload is None or conditions.is_finished(workload) else workload

    async def _clear_status(self) -> str:
        workload = await self._unfinished()
        if workload is None:
            return ""
        await self._edit(WORKLOADS, workload, {"status": None}, "status")
        return f"clears the status of {workload['metadata']['name']}"

    async def _clear_admission(self) -> str:
        workload = await self._unfinished()
        if workload is None:
            return ""
        denied = self._conditions(workload, "False", conditions.QUOTA_RESERVED)
        await self._edit(WORKLOADS, workload, {"status": {"admission": None, "conditions": denied}}, "status")
        return f"clears the admission of {workload['metadata']['name']}"

    async def _forge_condition(self) -> str:
        workload = await self._unfinished()
        if workload is None:
            return ""
        kind, status = self._rng.choice(_CONDITIONS), self._rng.choice(("True", "False"))
        present = self._conditions(workload, status, kind)
        await self._edit(WORKLOADS, workload, {"status": {"conditions": present}}, "status")
        return f"sets {kind}={status} of {workload['metadata']['name']}"

    def _conditions(self, obj: Object, status: str, *kinds: str) -> list[Object]:
        return with_conditions(obj, kinds, status, "ByHand", format_time(self._clock.time()))

    async def _forge_requeue_state(self) -> str:
        workload = await self._unfinished()
        if workload is None:
            return ""
        until = format_time(self._clock.time() + self._rng.choice((-60, 5, 600)))
        state = self._rng.choice((None, {"count": self._rng.randint(1, 5), "requeueAt": until}))
        await self._edit(WORKLOADS, workload, {"status": {"requeueState": state}}, "status")
        return f"sets requeueState {state} of {workload['metadata']['name']}"

    async def _clear_checks(self) -> str:
        workload = await self._unfinished()
        if workload is None:
            return ""
        await self._edit(WORKLOADS, workload, {"status": {"admissionChecks": None}}, "status")
        return f"clears the checks of {workload['metadata']['name']}"

    async def _remove_workload(self) -> str:
        workload = await self._held()
        if workload is None:
            return ""
        await self._edit(WORKLOADS, workload, {"metadata": {"finalizers": None}})
        with writing_as("editor"):
            await self._client.delete(
                WORKLOADS, workload["metadata"]["name"], workload["metadata"]["namespace"]
            )
        return f"removes workload {workload['metadata']['name']} in spite of its finalizer"

    async def _forge_reclaimable(self) -> str:
        workload = await self._unfinished()
        if workload is None:
            return ""
        pod_set = self._rng.choice(workload["spec"]["podSets"])
        count = self._rng.randint(1, int(pod_set.get("count", 1)))
        forged = [{"name": pod_set["name"], "count": count}]
        await self._edit(WORKLOADS, workload, {"status": {"reclaimablePods": forged}}, "status")
        return f"sets {count} reclaimable pods of {workload['metadata']['name']}"

    async def _remove_owner(self) -> str:
        workload = await self._held()
        if workload is None:
            return ""
        await self._edit(WORKLOADS, workload, {"metadata": {"ownerReferences": None}})
        return f"removes the owner of {workload['metadata']['name']}"

    # Jobs

    async def _open_job(self) -> tuple[Resource, Object] | None:
        """One of the jobs, where it has not ended."""
        found = await self._job()
        return None if found is None or ended(found[1]) else found

    async def _end_job(self) -> str:
        """Say that a job has ended that has not."""
        found = await self._open_job()
        if found is None:
            return ""
        resource, job = found
        known = end_conditions(resource)
        if not known:
            return ""
        kinds = self._rng.choice(known)
        status: Object = {"conditions": self._conditions(job, "True", *kinds)}
        if resource is JOBS:
            now = format_time(self._clock.time())
            status |= {"active": 0, "ready": 0, "startTime": get(job, "status", "startTime") or now}
            status["completionTime"] = now if "Complete" in kinds else None
        await self._edit(resource, job, {"status": status}, "status")
        return f"sets {kinds[-1]}=True of job {job['metadata']['name']}"

    async def _annotate_job(self) -> str:
        found = await self._job()
        if found is None:
            return ""
        resource, job = found
        value = self._rng.choice(("true", "true", "no", None))
        await self._edit(resource, job, {"metadata": {"annotations": {names.STOPPING_ANNOTATION: value}}})
        return f"sets the annotation {names.STOPPING_ANNOTATION}={value} of {job['metadata']['name']}"

    async def _suspend_by_hand(self) -> str:
        found = await self._open_job()
        if found is None or found[0].kind in SERVING:
            return ""
        resource, job = found
        suspend = not suspended(job)
        await self._edit(resource, job, with_value({}, suspend_field(resource.kind), suspend))
        return f"sets suspend {suspend} of {job['metadata']['name']}"

    async def _clear_job_status(self) -> str:
        found = await self._open_job()
        if found is None:
            return ""
        resource, job = found
        await self._edit(resource, job, {"status": None}, "status")
        return f"clears the status of job {job['metadata']['name']}"

    # Queues

    async def _remove_finalizers(self) -> str:
        resource = self._rng.choice((CLUSTER_QUEUES, RESOURCE_FLAVORS, WORKLOADS))
        obj = await self._one(resource)
        if obj is None:
            return ""
        await self._edit(resource, obj, {"metadata": {"finalizers": None}})
        return f"removes the finalizers of {obj['metadata']['name']}"

    async def _forge_queue_status(self) -> str:
        resource = self._rng.choice((CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS))
        obj = await self._one(resource)
        if obj is None:
            return ""
        status: Any = None
        if resource is not COHORTS and self._rng.random() < 0.7:
            status = {
                "pendingWorkloads": self._rng.randint(0, 9),
                "reservingWorkloads": self._rng.randint(0, 9),
                "admittedWorkloads": self._rng.randint(0, 9),
                "conditions": self._conditions(obj, self._rng.choice(("True", "False")), "Active"),
            }
        await self._edit(resource, obj, {"status": status}, "status")
        return f"sets the status of {obj['metadata']['name']}"
