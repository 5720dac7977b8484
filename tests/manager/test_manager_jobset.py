"""JobSets in queues: one set, one Workload (docs/reference/kueue-integrations.md 9.4, cluster-workloads.md
2.13).

The test plays the JobSet controller, so it says what happens when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from manager_stack import Manifests, Stack, job, story

from pykueue.api.resources import CRDS, JOB_SETS, JOBS
from pykueue.embedded.jobset.admission import webhooks
from pykueue.embedded.jobset.definition import definition
from pykueue.kube.errors import ApiError
from queue_manifests import cluster_queue, flavor, local_queue, priority

Object = dict[str, Any]

BOTH = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}\n"

#: Two flavors with node labels and a taint; 4 cpu of the first, 4 of the second.
FLAVORS = [
    flavor("spot", nodeLabels={"kind": "spot"}, tolerations=[{"key": "spot", "operator": "Exists"}]),
    flavor("fixed", nodeLabels={"kind": "fixed"}),
    cluster_queue(
        "cq",
        {"spot": {"cpu": 4}, "fixed": {"cpu": 4}},
        preemption={"withinClusterQueue": "LowerPriority"},
    ),
    local_queue("lq", "cq"),
    priority("high", 100),
]


def replicated(name: str, replicas: int = 1, pods: int = 1, cpu: str = "1", **pod: Any) -> Object:
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers, **pod}}
    job = {"parallelism": pods, "completions": pods, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": job}}


def jobset(
    *jobs: Object,
    name: str = "js",
    queue: str | None = "lq",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    queued = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "labels": {**queued, **(labels or {})}},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


class Sets:
    """JobSets of a stack, and their controller as the test plays it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    async def create(self, *jobs: Object, **options: Any) -> Object:
        return await self.stack.client.create(JOB_SETS, jobset(*jobs, **options))

    async def get(self, name: str = "js") -> Object:
        return await self.stack.get(JOB_SETS, name)

    async def suspended(self, name: str = "js") -> bool:
        return bool((await self.get(name))["spec"].get("suspend"))

    async def report(self, counts: dict[str, tuple[int, int, int]], name: str = "js") -> None:
        """How many Jobs of each replicated job are active, ready, succeeded."""
        found = [
            {"name": each, "active": a, "ready": r, "succeeded": s, "failed": 0, "suspended": 0}
            for each, (a, r, s) in counts.items()
        ]
        await self._status(name, {"replicatedJobsStatus": found})

    async def condition(self, type_: str, value: str, name: str = "js") -> None:
        conditions = (await self.get(name)).get("status", {}).get("conditions") or []
        new = {
            "type": type_,
            "status": value,
            "reason": "R",
            "message": "why",
            "lastTransitionTime": self.stack.now(),
        }
        await self._status(name, {"conditions": [c for c in conditions if c["type"] != type_] + [new]})

    async def _status(self, name: str, status: Object) -> None:
        await self.stack.patch(JOB_SETS, name, {"status": {"restarts": 0, **status}}, "status")

    async def pod_template(self, number: int = 0, name: str = "js") -> Object:
        found: Object = (await self.get(name))["spec"]["replicatedJobs"][number]["template"]["spec"][
            "template"
        ]
        return found


def told(
    test: Callable[[Stack, Sets], Awaitable[None]], configuration: str = BOTH, queues: Manifests = FLAVORS
) -> None:
    """Run a test on a cluster that serves JobSets."""

    async def with_sets(stack: Stack) -> None:
        await stack.server.install_crds([definition()])
        for webhook in webhooks(stack.server):
            stack.server.admission.register(webhook)
        await stack.settle(10)
        await test(stack, Sets(stack))

    story(with_sets, configuration, queues)


def test_a_set_is_one_workload_with_a_pod_set_per_replicated_job() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        created = await sets.create(replicated("leader"), replicated("workers", 2, 3, cpu="100m"))
        assert created["spec"]["suspend"] is True
        await stack.settle()
        (workload,) = await stack.workloads()
        assert workload["metadata"]["name"].startswith("jobset-js-")
        pod_sets = workload["spec"]["podSets"]
        assert [(one["name"], one["count"]) for one in pod_sets] == [("leader", 1), ("workers", 6)]
        assert pod_sets[1]["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m"}
        assert workload["spec"]["queueName"] == "lq"

    told(test)


def test_started_each_template_gets_what_its_flavor_says() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await sets.create(replicated("small"), replicated("large", 2, 2))
        await stack.settle()
        assert not await sets.suspended()
        small, large = await sets.pod_template(0), await sets.pod_template(1)
        assert small["spec"]["nodeSelector"] == {"kind": "spot"}
        assert small["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
        assert small["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "small"
        assert large["spec"]["nodeSelector"] == {"kind": "fixed"}
        assert "tolerations" not in large["spec"]
        assert "Started" in await stack.events("js")

    told(test)


def test_a_set_that_does_not_fit_waits_whole() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await sets.create(replicated("a"), replicated("b", 3, 3))
        await stack.settle()
        assert await sets.suspended()
        assert (await stack.conditions("js"))["QuotaReserved"][0] == "False"

    told(test)


def test_set_without_a_queue_is_not_suspended() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        created = await sets.create(replicated("a"), queue=None)
        await stack.settle()
        assert not created["spec"].get("suspend")
        assert await stack.workloads() == []

    told(test)


def test_finished_with_the_set() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        for name, type_, reason in (("good", "Completed", "Succeeded"), ("bad", "Failed", "Failed")):
            await sets.create(replicated("a"), name=name)
            await stack.settle()
            await sets.condition(type_, "True", name)
            await stack.settle()
            assert (await stack.conditions(name))["Finished"] == ("True", reason)
        assert (await stack.cluster_queue())["status"]["admittedWorkloads"] == 0

    told(test)


def test_jobs_that_succeeded_give_their_pods_quota_back() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await sets.create(replicated("a", 2, 2), replicated("b"))
        await stack.settle()
        await sets.report({"a": (1, 1, 1), "b": (1, 1, 0)})
        await stack.settle()
        workload = await stack.workload("js")
        assert workload["status"]["reclaimablePods"] == [{"name": "a", "count": 2}]
        await sets.create(replicated("c", 1, 2), name="next")
        await stack.settle()
        assert not await sets.suspended("next")

    told(test)


def test_ready_when_every_job_is() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await sets.create(replicated("a", 2), replicated("b"))
        await stack.settle()
        await sets.report({"a": (2, 1, 0), "b": (1, 1, 0)})
        await stack.settle()
        assert (await stack.conditions("js"))["PodsReady"][0] == "False"
        await sets.report({"a": (1, 1, 1), "b": (1, 1, 0)})
        await stack.settle()
        assert (await stack.conditions("js"))["PodsReady"] == ("True", "Started")

    told(test)


def test_set_that_is_not_ready_in_time_is_stopped_and_requeued() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await sets.create(replicated("a", 2))
        await stack.settle()
        await sets.report({"a": (2, 1, 0)})
        await stack.settle(70)
        assert await sets.suspended()
        assert (await stack.conditions("js"))["Evicted"] == ("True", "PodsReadyTimeout")
        assert (await stack.workload("js"))["status"].get("admission"), "pods are still there"
        await sets.report({"a": (0, 0, 0)})
        await stack.settle(1)
        template = await sets.pod_template()
        assert "nodeSelector" not in template["spec"]
        await stack.settle(70)
        assert not await sets.suspended()

    told(test, BOTH + "waitForPodsReady: {timeout: 1m}\n")


def test_preempted_it_keeps_its_quota_until_its_pods_are_gone() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await sets.create(replicated("a", 4, 1), replicated("b", 4, 1), name="low")
        await stack.settle()
        await sets.condition("Suspended", "False", "low")
        await sets.report({"a": (4, 4, 0), "b": (4, 4, 0)}, "low")
        await sets.create(replicated("a", 4), name="high", labels={"kueue.x-k8s.io/priority-class": "high"})
        await stack.settle()
        assert await sets.suspended("low")
        assert (await stack.conditions("low"))["Evicted"] == ("True", "Preempted")
        assert await sets.suspended("high")
        await sets.report({"a": (0, 0, 0), "b": (0, 0, 0)}, "low")
        await stack.settle()
        assert await sets.suspended("high"), "its controller has not said yet that it stopped"
        await sets.condition("Suspended", "True", "low")
        await stack.settle()
        assert not await sets.suspended("high")
        template = await sets.pod_template(0, "low")
        assert "nodeSelector" not in template["spec"]
        assert "tolerations" not in template["spec"]
        assert not (template.get("metadata") or {}).get("labels")

    told(test)


def test_jobs_of_a_queued_set_have_no_workloads_of_their_own_and_do_not_run_before_it() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        created = await sets.create(replicated("a", 9, 1))
        await stack.settle()
        owner = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "js",
            "uid": created["metadata"]["uid"],
            "controller": True,
        }
        child = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "js-a-0", "namespace": "default", "ownerReferences": [owner]},
            "spec": created["spec"]["replicatedJobs"][0]["template"]["spec"],
        }
        await stack.client.create(JOBS, child)
        await stack.settle()
        assert await stack.suspended("js-a-0")
        assert len(await stack.workloads()) == 1

    told(test)


def test_priority_comes_from_the_first_template_that_names_a_class() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await stack.apply("""
            apiVersion: scheduling.k8s.io/v1
            kind: PriorityClass
            metadata: {name: urgent}
            value: 7
        """)
        await sets.create(replicated("a"), replicated("b", priorityClassName="urgent"))
        await stack.settle()
        workload = await stack.workload("js")
        assert workload["spec"]["priority"] == 7
        assert workload["spec"]["priorityClassRef"]["name"] == "urgent"

    told(test)


def test_the_rules_for_jobs_hold_for_sets() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        with pytest.raises(ApiError, match="queue-name"):
            await sets.create(replicated("a"), queue="Not_a_name")
        await sets.create(replicated("a"))
        await stack.settle()
        assert not await sets.suspended()
        label = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
        with pytest.raises(ApiError, match="immutable while the job is not suspended"):
            await stack.patch(JOB_SETS, "js", label)

    told(test)


def test_a_restarted_manager_goes_on() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        await sets.create(replicated("a", 4), name="first")
        await sets.create(replicated("a", 6), name="second")
        await stack.settle(0.5)
        await stack.stop_manager()
        await stack.start_manager()
        await stack.settle()
        assert not await sets.suspended("first")
        assert await sets.suspended("second")
        await sets.condition("Completed", "True", "first")
        await stack.settle()
        assert await sets.suspended("second"), "6 cpu fit in no flavor"
        assert len(await stack.workloads()) == 2

    told(test)


def test_the_manager_works_without_the_kind_and_starts_with_it() -> None:
    async def run(stack: Stack) -> None:
        await stack.apply(job("plain"))
        await stack.settle()
        assert not await stack.suspended("plain")
        await stack.client.create(CRDS, definition())
        await stack.settle(10)
        sets = Sets(stack)
        await sets.create(replicated("a"))
        await stack.settle()
        assert len(await stack.workloads()) == 2
        await stack.client.delete(CRDS, "jobsets.jobset.x-k8s.io")
        await stack.settle(30)
        await stack.apply(job("later"))
        await stack.settle()
        assert not await stack.suspended("later")

    story(run, BOTH)


def test_sets_are_left_alone_where_the_configuration_does_not_name_them() -> None:
    async def test(stack: Stack, sets: Sets) -> None:
        created = await sets.create(replicated("a"))
        await stack.settle()
        assert not created["spec"].get("suspend")
        assert await stack.workloads() == []

    told(test, "")
