"""An embedded cluster in virtual time that runs JobSets on simulated nodes; nothing queues them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pykueue.api.resources import EVENTS, JOB_SETS, JOBS, PODS, Resource
from pykueue.clock import Clock
from pykueue.cluster import Cluster
from pykueue.embedded.nodes.pool import NodePool
from pykueue.kube.errors import ApiError
from restartable_cluster import RestartableCluster, play_on

Object = dict[str, Any]

PREFIX = "jobset.sigs.k8s.io/"


class World(RestartableCluster):
    """What a test sees and does."""

    def __init__(self, clock: Clock, pools: list[NodePool], seed: int) -> None:
        super().__init__(clock)
        self._pools = pools
        self._rng = random.Random(seed)

    def make_cluster(self) -> Cluster:
        return Cluster(
            clock=self.clock,
            rng=random.Random(self._rng.random()),
            pools=self._pools,
            store=self.store,
            parts=("apiserver", "kube"),
        )

    # Users

    async def create(self, *replicated_jobs: Object, name: str = "js", **spec: Any) -> Object:
        return await self.client.create(JOB_SETS, jobset(*replicated_jobs, name=name, **spec))

    async def patch(self, patch: Object, name: str = "js") -> Object:
        return await self.client.patch(JOB_SETS, name, "default", patch)

    async def suspend(self, value: bool = True, name: str = "js") -> None:
        await self.patch({"spec": {"suspend": value}}, name)

    async def refused(self, obj: Object) -> list[str]:
        """Fields and messages of why the JobSet is not created."""
        with pytest.raises(ApiError) as caught:
            await self.client.create(JOB_SETS, obj)
        assert caught.value.code == 422, caught.value
        causes = (caught.value.details or {}).get("causes") or ()
        return [f"{cause.get('field')}: {cause['message']}" for cause in causes]

    # What they see

    async def jobset(self, name: str = "js") -> Object:
        return await self.client.get(JOB_SETS, name, "default")

    async def status(self, name: str = "js") -> Object:
        return (await self.jobset(name)).get("status") or {}

    async def conditions(self, name: str = "js") -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        conditions = (await self.status(name)).get("conditions") or ()
        return {one["type"]: (one["status"], one["reason"]) for one in conditions}

    async def counts(self, replicated_job: str, name: str = "js") -> Object:
        statuses = (await self.status(name))["replicatedJobsStatus"]
        return next(one for one in statuses if one["name"] == replicated_job)

    async def jobs(self) -> dict[str, Object]:
        found = (await self.client.list(JOBS, "default")).items
        return {job["metadata"]["name"]: job for job in found}

    async def pods(self, job: str | None = None) -> list[Object]:
        """Pods that are not going, by name; of one Job if given."""
        selector = f"batch.kubernetes.io/job-name={job}" if job else None
        found = (await self.client.list(PODS, "default", label_selector=selector)).items
        staying = [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]
        return sorted(staying, key=lambda pod: str(pod["metadata"]["name"]))

    async def running(self, job: str | None = None) -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in await self.pods(job))

    async def exists(self, resource: Resource, name: str) -> bool:
        try:
            await self.client.get(resource, name, "default")
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return True

    async def events(self, name: str = "js") -> list[tuple[str, str, str]]:
        """Type, reason and message of the events about an object, oldest first."""
        found = await self.client.list(EVENTS, "default", field_selector=f"involvedObject.name={name}")
        ordered = sorted(found.items, key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["type"], event["reason"], event["message"]) for event in ordered]


def replicated(
    name: str,
    replicas: int = 1,
    pods: int = 1,
    *,
    run_time: str = "forever",
    exit_code: str = "0",
    ready_delay: str | None = None,
    pod: Object | None = None,
    depends_on: list[Object] | None = None,
    annotations: dict[str, str] | None = None,
    **job: Any,
) -> Object:
    """A replicated job whose pods are simulated as given; `pod` is added to the pod's spec."""
    simulation = {"sim.pykueue.io/run-time": run_time, "sim.pykueue.io/exit-code": exit_code}
    if ready_delay is not None:
        simulation["sim.pykueue.io/ready-delay"] = ready_delay
    containers = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
    template: Object = {
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": simulation},
                "spec": {"restartPolicy": "Never", "containers": containers, **(pod or {})},
            },
            **job,
        }
    }
    if annotations:
        template["metadata"] = {"annotations": annotations}
    found: Object = {"name": name, "replicas": replicas, "template": template}
    return found if depends_on is None else {**found, "dependsOn": depends_on}


def jobset(
    *replicated_jobs: Object, name: str = "js", annotations: dict[str, str] | None = None, **spec: Any
) -> Object:
    metadata: Object = {"name": name, "namespace": "default"}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": list(replicated_jobs), **spec},
    }


def racks(count: int, nodes_per_rack: int, cpu: int = 8) -> list[NodePool]:
    """Nodes in racks, labelled `rack`."""
    return [
        NodePool(
            name=f"rack-{rack}",
            count=nodes_per_rack,
            allocatable={"cpu": cpu, "memory": "64Gi", "pods": 110},
            labels={"rack": f"r{rack}"},
        )
        for rack in range(count)
    ]


def tell(
    story: Callable[[World], Awaitable[None]], pools: list[NodePool] | None = None, seed: int = 1
) -> None:
    """Run a test's story on a fresh cluster in virtual time."""

    play_on(lambda clock: World(clock, racks(2, 4) if pools is None else pools, seed), story)
