"""Each kind through its whole life on a cluster: queued, started, evicted, started again, finished.

The tests play the operators: they write the status that an operator would. Sources:
docs/reference/kueue-integrations.md 9.3 and 9.4.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kind_samples import SAMPLES, Sample, place, runtime
from kind_worlds import frameworks, serve
from manager_stack import Stack, job, story

from pykueue.api.jobkinds import value_at
from pykueue.api.jobkinds.trainjob import CLUSTER_RUNTIMES, RUNTIMES
from pykueue.api.resources import CLUSTER_QUEUES, WORKLOADS
from pykueue.kube.errors import ApiError
from queue_manifests import NIGHTLY, cluster_queue, flavor, local_queue

Object = dict[str, Any]

#: A flavor with a node label and a toleration, and the priority class of the samples.
FLAVORS = [
    flavor("spot", nodeLabels={"kind": "spot"}, tolerations=[{"key": "spot", "operator": "Exists"}]),
    cluster_queue("cq", {"spot": {"cpu": 12, "memory": "100Gi"}}),
    local_queue("lq", "cq"),
    NIGHTLY,
]

every_kind = pytest.mark.parametrize("sample", SAMPLES.values(), ids=list(SAMPLES))


def configuration(sample: Sample) -> str:
    return frameworks(sample.framework) + "waitForPodsReady: {}\n"


async def prepared(stack: Stack, sample: Sample) -> None:
    await serve(stack, sample.kind.resource, *sample.kind.references)
    if CLUSTER_RUNTIMES in sample.kind.references:
        await stack.client.create(CLUSTER_RUNTIMES, runtime())


async def suspended(stack: Stack, sample: Sample) -> bool:
    found = await stack.get(sample.kind.resource, sample.name)
    return bool(value_at(found, place(sample.suspend)))


async def status(stack: Stack, sample: Sample, value: Object) -> None:
    old = (await stack.get(sample.kind.resource, sample.name)).get("status") or {}
    removed = {key: None for key in old if key not in value}
    await stack.patch(sample.kind.resource, sample.name, {"status": {**value, **removed}}, "status")
    await stack.settle()


@every_kind
def test_job_is_queued_started_evicted_started_again_and_finished(sample: Sample) -> None:
    async def test(stack: Stack) -> None:
        await prepared(stack, sample)
        created = await stack.client.create(sample.kind.resource, sample.job())
        assert value_at(created, place(sample.suspend)) is True, "suspended by the webhook"
        await stack.settle()
        assert not await suspended(stack, sample)
        workload = await stack.workload(sample.name)
        found = [(one["name"], one["count"]) for one in workload["spec"]["podSets"]]
        assert found == [(name, count) for name, count, _ in sample.pod_sets]
        started = await stack.get(sample.kind.resource, sample.name)
        for at in sample.templates:
            assert value_at(started, place(at))["spec"]["nodeSelector"]["kind"] == "spot"

        await status(stack, sample, sample.running)
        assert (await stack.conditions(sample.name))["PodsReady"] == ("True", "Started")

        name = workload["metadata"]["name"]
        await stack.patch(WORKLOADS, name, {"spec": {"active": False}})
        await stack.settle()
        assert await suspended(stack, sample)
        has_quota = (await stack.conditions(sample.name))["QuotaReserved"][0] == "True"
        assert has_quota is sample.reports_pods, "it has not stopped"
        await status(stack, sample, sample.stopped)
        await stack.settle()
        assert (await stack.conditions(sample.name))["QuotaReserved"][0] == "False"
        stopped = await stack.get(sample.kind.resource, sample.name)
        assert json.dumps(stopped["spec"], sort_keys=True) == json.dumps(created["spec"], sort_keys=True)

        await stack.patch(WORKLOADS, name, {"spec": {"active": True}})
        await stack.settle()
        assert not await suspended(stack, sample)
        if sample.ends:
            await status(stack, sample, sample.running)
            await status(stack, sample, sample.succeeded)
            assert (await stack.conditions(sample.name))["Finished"] == ("True", "Succeeded")
            assert (await stack.cluster_queue())["status"]["reservingWorkloads"] == 0
        (only,) = await stack.workloads()
        assert only["metadata"]["name"] == name

    story(test, configuration(sample), FLAVORS)


@every_kind
def test_job_that_does_not_fit_stays_suspended_and_a_running_one_is_stopped(sample: Sample) -> None:
    async def test(stack: Stack) -> None:
        await prepared(stack, sample)
        full = {"spec": {"stopPolicy": "Hold"}}
        await stack.patch(CLUSTER_QUEUES, "cq", full)
        await stack.client.create(sample.kind.resource, sample.job())
        await stack.settle()
        assert await suspended(stack, sample)
        path = place(sample.suspend)
        change: Any = False
        for key in reversed(path):
            change = {key: change}
        await stack.patch(sample.kind.resource, sample.name, change)
        await stack.settle()
        assert await suspended(stack, sample), "started by hand"

    story(test, configuration(sample), FLAVORS)


def test_missing_definitions_disturb_no_other_kind() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(job("plain"))
        await stack.settle()
        assert not await stack.suspended("plain")
        sample = SAMPLES["pytorchjob"]
        await serve(stack, sample.kind.resource)
        await stack.client.create(sample.kind.resource, sample.job())
        await stack.settle()
        assert not await suspended(stack, sample)

    story(test, frameworks(*(sample.framework for sample in SAMPLES.values())), FLAVORS)


def test_train_job_waits_for_its_runtime() -> None:
    sample = SAMPLES["trainjob"]

    async def test(stack: Stack) -> None:
        await serve(stack, sample.kind.resource, RUNTIMES, CLUSTER_RUNTIMES)
        await stack.client.create(sample.kind.resource, sample.job())
        await stack.settle()
        assert await stack.workloads() == []
        assert "ErrWorkloadCompose" in await stack.events(sample.name)
        await stack.client.create(CLUSTER_RUNTIMES, runtime())
        await stack.settle(15)
        assert not await suspended(stack, sample)
        await stack.delete(CLUSTER_RUNTIMES, "torch")
        await stack.stop_manager()
        await stack.start_manager()
        await stack.settle(5)
        assert not await suspended(stack, sample), "its runtime was read once"

    story(test, configuration(sample), FLAVORS)


def test_ray_job_on_a_cluster_that_exists_is_left_alone() -> None:
    sample = SAMPLES["rayjob"]

    async def test(stack: Stack) -> None:
        await prepared(stack, sample)
        found = sample.job()
        found["spec"] = {"entrypoint": "x", "clusterSelector": {"ray.io/cluster": "notebooks"}}
        created = await stack.client.create(sample.kind.resource, found)
        await stack.settle()
        assert "suspend" not in created["spec"]
        assert await stack.workloads() == []

    story(test, configuration(sample), FLAVORS)


@every_kind
def test_label_of_a_running_job_cannot_be_removed(sample: Sample) -> None:
    async def test(stack: Stack) -> None:
        await prepared(stack, sample)
        await stack.client.create(sample.kind.resource, sample.job())
        await stack.settle()
        for change in ({"kueue.x-k8s.io/queue-name": None}, {"kueue.x-k8s.io/priority-class": "high"}):
            with pytest.raises(ApiError, match=next(iter(change))):
                await stack.patch(sample.kind.resource, sample.name, {"metadata": {"labels": change}})

    story(test, configuration(sample), FLAVORS)
