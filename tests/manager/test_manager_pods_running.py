"""Pods, groups and things that serve, queued and run: API server, controllers, scheduler, nodes, manager."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from manager_stack import QUEUES
from pods_world import D, member, pod

from pykueue.api import resources
from pykueue.api.resources import (
    DEPLOYMENTS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    STATEFUL_SETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from pykueue.api.yaml import load_documents
from pykueue.clock import Clock
from pykueue.cluster import Cluster
from pykueue.embedded.nodes.pool import NodePool
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import Configuration
from restartable_cluster import RestartableCluster, play_on

Object = dict[str, Any]

_KINDS = {one.kind: one for one in vars(resources).values() if isinstance(one, Resource)}


class World(RestartableCluster):
    """A whole cluster with a queue of 10 cpu on nodes that have more."""

    def __init__(self, clock: Clock, seed: int, configuration: Configuration | None) -> None:
        super().__init__(clock)
        self._seed, self._configuration = seed, configuration

    def make_cluster(self) -> Cluster:
        nodes = NodePool(name="n", count=4, allocatable={"cpu": 8, "memory": "64Gi", "pods": 110}, labels={})
        return Cluster(
            clock=self.clock,
            rng=random.Random(self._seed),
            configuration=self._configuration,
            pools=[nodes],
            store=self.store,
        )

    async def start(self) -> None:
        await super().start()
        await self.cluster.synced()
        for obj in load_documents(QUEUES):
            await self.client.create(_KINDS[obj["kind"]], obj)
        await self.wait()

    async def create(self, *objects: Object, then: float = 20.0) -> None:
        for obj in objects:
            await self.client.create(_KINDS[obj["kind"]], obj)
        await self.wait(then)

    async def change(self, resource: Resource, name: str, patch: Object, then: float = 60.0) -> None:
        await self.client.patch(resource, name, "default", patch)
        await self.wait(then)

    async def phases(self) -> dict[str, str]:
        """Phase by pod; Gated for those that wait for admission."""
        found = (await self.client.list(PODS, "default")).items
        return {
            one["metadata"]["name"]: "Gated" if one["spec"].get("schedulingGates") else one["status"]["phase"]
            for one in found
        }

    async def counts(self) -> dict[str, int]:
        """How many pods there are of each phase."""
        phases = list((await self.phases()).values())
        return {phase: phases.count(phase) for phase in sorted(set(phases))}

    async def workloads(self) -> list[Object]:
        return (await self.client.list(WORKLOADS, "default")).items

    async def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        workload = await self.client.get(WORKLOADS, name, "default")
        return {
            one["type"]: (one["status"], one["reason"]) for one in workload["status"].get("conditions") or ()
        }

    async def admitted(self) -> int:
        found = await self.workloads()
        return sum(
            any(
                c["type"] == "Admitted" and c["status"] == "True"
                for c in one["status"].get("conditions") or ()
            )
            and not any(c["type"] == "Finished" for c in one["status"]["conditions"])
            for one in found
        )


def tell(
    story: Callable[[World], Awaitable[None]], seed: int = 1, configuration: Configuration | None = None
) -> None:
    play_on(lambda clock: World(clock, seed, configuration), story)


def runs(seconds: int) -> dict[str, str]:
    return {"sim.pykueue.io/run-time": f"{seconds}s" if seconds else "forever"}


def serving(
    kind: str, replicas: int, cpu: str = "2", queue: str | None = "lq", name: str = "web", **spec: Any
) -> Object:
    labels = {f"{D}queue-name": queue} if queue else {}
    containers = [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": runs(0)},
                "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
            },
            **spec,
        },
    }


HIGH = {
    "apiVersion": f"{D}v1beta2",
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "high"},
    "value": 100,
}


def test_single_pods_are_admitted_as_quota_allows() -> None:
    async def story(world: World) -> None:
        await world.create(*(pod(f"p{n}", "4", annotations=runs(30)) for n in range(4)))
        assert await world.counts() == {"Gated": 2, "Running": 2}
        await world.wait(30)
        assert await world.counts() == {"Running": 2, "Succeeded": 2}
        await world.wait(60)
        assert await world.counts() == {"Succeeded": 4}
        for one in await world.workloads():
            assert (await world.conditions(one["metadata"]["name"]))["Finished"] == ("True", "Succeeded")

    tell(story)


def test_groups_start_and_end_as_one() -> None:
    async def story(world: World) -> None:
        for group in ("a", "b"):
            for number in range(6):
                made = member(f"{group}{number}", 6, group=group, annotations=runs(30))
                await world.client.create(PODS, made)
        await world.wait(20)
        assert await world.counts() == {"Gated": 6, "Running": 6}
        await world.wait(80)
        assert await world.counts() == {"Succeeded": 12}
        assert (await world.conditions("a"))["Finished"] == ("True", "Succeeded")
        assert (await world.conditions("b"))["Finished"] == ("True", "Succeeded")

    tell(story)


def test_garbage_of_groups_is_collected_with_their_last_pod() -> None:
    async def story(world: World) -> None:
        await world.create(*(member(f"p{n}", 2, annotations=runs(5)) for n in range(2)))
        await world.wait(30)
        await world.client.delete(PODS, "p0", "default")
        await world.wait(30)
        assert len(await world.workloads()) == 1
        await world.client.delete(PODS, "p1", "default")
        await world.wait(30)
        assert await world.workloads() == []

    tell(story)


def test_each_pod_of_a_deployment_queues_for_itself() -> None:
    async def story(world: World) -> None:
        await world.create(serving("Deployment", 7))
        assert await world.counts() == {"Gated": 2, "Running": 5}
        assert len(await world.workloads()) == 7
        template = (await world.client.get(DEPLOYMENTS, "web", "default"))["spec"]["template"]["metadata"]
        assert template["labels"] == {"app": "web", f"{D}queue-name": "lq", f"{D}managed": "true"}
        assert template["annotations"][f"{D}pod-suspending-parent"] == "deployment"
        await world.change(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
        assert await world.counts() == {"Running": 2}
        assert len(await world.workloads()) == 2

    tell(story)


def test_deployment_rollout_stays_within_quota() -> None:
    async def story(world: World) -> None:
        await world.create(serving("Deployment", 3))
        image = {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}
        patch = {"spec": {"template": image}}
        await world.client.patch(
            DEPLOYMENTS, "web", "default", patch, content_type="application/strategic-merge-patch+json"
        )
        await world.wait(120)
        found = (await world.client.list(PODS, "default")).items
        assert [one["spec"]["containers"][0]["image"] for one in found] == ["web:2"] * 3
        assert len(await world.workloads()) == 3
        assert await world.admitted() == 3

    tell(story)


def test_batch_job_of_higher_priority_preempts_serving_pods_which_return_later() -> None:
    async def story(world: World) -> None:
        await world.client.create(WORKLOAD_PRIORITY_CLASSES, HIGH)
        patch = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await world.client.patch(resources.CLUSTER_QUEUES, "cq", None, patch)
        await world.create(serving("Deployment", 5))
        assert await world.counts() == {"Running": 5}
        labels = {f"{D}priority-class": "high"}
        made = (member(f"g{n}", 3, labels=labels, annotations=runs(60), cpu="2") for n in range(3))
        await world.create(*made, then=40)
        phases = await world.phases()
        assert [phases[f"g{n}"] for n in range(3)] == ["Running"] * 3
        assert sorted(phase for name, phase in phases.items() if name.startswith("web")) == [
            *["Gated"] * 3,
            *["Running"] * 2,
        ]
        await world.wait(90)
        assert await world.counts() == {"Running": 5, "Succeeded": 3}

    tell(story)


def test_a_stateful_set_is_one_workload() -> None:
    async def story(world: World) -> None:
        await world.create(serving("StatefulSet", 3, serviceName="web"), then=40)
        (workload,) = await world.workloads()
        assert workload["metadata"]["name"].startswith("statefulset-web-")
        assert workload["metadata"]["annotations"][f"{D}job-owner-gvk"] == "apps/v1, Kind=StatefulSet"
        assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("main", 3)]
        assert await world.phases() == {f"web-{n}": "Running" for n in range(3)}
        owners = [one["kind"] for one in workload["metadata"]["ownerReferences"]]
        assert sorted(owners) == ["Pod", "Pod", "Pod", "StatefulSet"]
        found = await world.client.get(PODS, "web-0", "default")
        said = {**found["metadata"]["labels"], **found["metadata"]["annotations"]}
        assert said[f"{D}pod-group-name"] == workload["metadata"]["name"]
        assert said[f"{D}role-hash"] == "main"
        assert not found["metadata"].get("finalizers")
        await world.client.delete(STATEFUL_SETS, "web", "default")
        await world.wait(60)
        assert await world.phases() == {}
        assert await world.workloads() == []

    tell(story)


def test_stateful_set_without_quota_has_no_running_pod() -> None:
    async def story(world: World) -> None:
        await world.create(pod("busy", "6", annotations=runs(60)))
        await world.create(serving("StatefulSet", 3, serviceName="web"))
        assert await world.phases() == {"busy": "Running", "web-0": "Gated"}
        await world.wait(90)
        assert await world.counts() == {"Running": 3, "Succeeded": 1}

    tell(story)


def test_stateful_set_is_on_hold_at_0_replicas_and_requeued_with_a_new_size() -> None:
    async def story(world: World) -> None:
        await world.create(serving("StatefulSet", 3, serviceName="web"), then=40)
        with pytest.raises(ApiError, match="can only change from or to 0"):
            await world.client.patch(STATEFUL_SETS, "web", "default", {"spec": {"replicas": 2}})
        await world.change(STATEFUL_SETS, "web", {"spec": {"replicas": 0}})
        assert await world.phases() == {}
        (workload,) = await world.workloads()
        name = workload["metadata"]["name"]
        assert (await world.conditions(name))["QuotaReserved"] == ("False", "OnHold")
        await world.create(pod("other", "8", annotations=runs(20)), then=10)
        assert await world.phases() == {"other": "Running"}
        await world.wait(30)
        await world.change(STATEFUL_SETS, "web", {"spec": {"replicas": 5}})
        assert await world.counts() == {"Running": 5, "Succeeded": 1}
        workload = await world.client.get(WORKLOADS, name, "default")
        assert workload["spec"]["podSets"][0]["count"] == 5

    tell(story)


def test_a_stateful_set_that_is_evicted_queues_again() -> None:
    async def story(world: World) -> None:
        await world.create(serving("StatefulSet", 3, serviceName="web"), then=40)
        (workload,) = await world.workloads()
        name = workload["metadata"]["name"]
        await world.change(WORKLOADS, name, {"spec": {"active": False}})
        assert (await world.conditions(name))["Evicted"] == ("True", "Deactivated")
        assert "Running" not in await world.counts()
        await world.change(WORKLOADS, name, {"spec": {"active": True}})
        assert await world.counts() == {"Running": 3}

    tell(story)


def test_a_stateful_set_rolls_out_under_its_admission() -> None:
    async def story(world: World) -> None:
        await world.create(serving("StatefulSet", 2, serviceName="web"), then=40)
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}}
        await world.client.patch(
            STATEFUL_SETS, "web", "default", patch, content_type="application/strategic-merge-patch+json"
        )
        await world.wait(120)
        found = (await world.client.list(PODS, "default")).items
        assert [one["spec"]["containers"][0]["image"] for one in found] == ["web:2"] * 2
        assert await world.counts() == {"Running": 2}
        assert await world.admitted() == 1
        patch["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}  # type: ignore[assignment]
        with pytest.raises(ApiError, match="cannot change while the StatefulSet is managed by a queue"):
            await world.client.patch(
                STATEFUL_SETS, "web", "default", patch, content_type="application/strategic-merge-patch+json"
            )

    tell(story)


def test_queue_name_of_a_deployment_cannot_be_removed() -> None:
    async def story(world: World) -> None:
        await world.create(serving("Deployment", 1))
        for queue in (None, "other"):
            patch = {"metadata": {"labels": {f"{D}queue-name": queue}}}
            with pytest.raises(ApiError) as caught:
                await world.client.patch(DEPLOYMENTS, "web", "default", patch)
            assert caught.value.code == 403

    tell(story)


def test_deployment_without_a_queue_is_not_gated() -> None:
    async def story(world: World) -> None:
        await world.create(
            serving("Deployment", 2, queue=None), serving("StatefulSet", 2, queue=None, name="db")
        )
        assert await world.counts() == {"Running": 4}
        assert await world.workloads() == []

    tell(story)


def test_pods_of_a_job_are_not_queued_twice_where_a_default_queue_takes_all() -> None:
    async def story(world: World) -> None:
        default = {
            "apiVersion": f"{D}v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "default", "namespace": "default"},
            "spec": {"clusterQueue": "cq"},
        }
        await world.client.create(LOCAL_QUEUES, default)
        await world.wait()
        template = {
            "metadata": {"annotations": runs(5)},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "default"},
            "spec": {"parallelism": 3, "completions": 3, "template": template},
        }
        await world.client.create(JOBS, job)
        await world.wait(40)
        assert await world.counts() == {"Succeeded": 3}
        assert len(await world.workloads()) == 1

    tell(story)
