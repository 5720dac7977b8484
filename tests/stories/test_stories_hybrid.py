"""Jobs that are split over flavors, on a whole cluster: pods run where their part is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from stories_world import SIMULATION, Story, job, play

from pykueue.api.hybrid import parts_in
from pykueue.api.kueue.names import (
    FLAVOR_LABEL,
    HYBRID_ASSIGNMENT_ANNOTATION,
    HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION,
)
from pykueue.api.resources import CLUSTER_QUEUES, JOBS, NODES, PODS, WORKLOADS
from pykueue.embedded.nodes.pool import NodePool, load_pools
from pykueue.kube.errors import ApiError
from queue_manifests import cluster_queue, flavor, local_queue, priority

Object = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "hybrid"
INDEX = "batch.kubernetes.io/job-completion-index"
SPOT_TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


def pools() -> list[NodePool]:
    """Nodes of 4 cpu: three reserved ones, and three spot ones with a taint."""
    amounts = {"cpu": "4", "memory": "64Gi", "pods": "110"}
    return [
        NodePool(name="reserved", count=3, allocatable=amounts, labels={"capacity": "reserved"}),
        NodePool(name="spot", count=3, allocatable=amounts, labels={"capacity": "spot"}, taints=[SPOT_TAINT]),
    ]


def queues(permitted: bool = True, **spec: Any) -> list[Object]:
    """A queue `q` with 12 reserved and 10 spot cpus."""
    spot = {"nodeLabels": {"capacity": "spot"}, "nodeTaints": [SPOT_TAINT]}
    spot["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    queue = cluster_queue("q", {"reserved": {"cpu": 12}, "spot": {"cpu": 10}}, **spec)
    if permitted:
        queue["metadata"]["annotations"] = {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true"}
    reserved = flavor("reserved", nodeLabels={"capacity": "reserved"})
    return [reserved, flavor("spot", **spot), queue, local_queue("q"), priority("high", 100)]


def split(made: Object, *flavors: Any, slice_size: int = 1) -> Object:
    """The job with a request for flavors: names, or objects as in the annotation."""
    named = [each if isinstance(each, dict) else {"name": each} for each in flavors or ("reserved", "spot")]
    annotations = made["spec"]["template"]["metadata"].setdefault("annotations", {})
    annotations[HYBRID_ASSIGNMENT_ANNOTATION] = json.dumps({"flavors": named, "sliceSize": slice_size})
    return made


def on(story: Callable[[Story], Awaitable[None]], *, permitted: bool = True, **spec: Any) -> None:
    play(story, nodes=pools(), objects=queues(permitted, **spec))


async def parts(s: Story, name: str) -> list[tuple[str, int]]:
    admission = (await s.workload(name))["status"]["admission"]
    return [tuple(part) for each in admission["podSetAssignments"] for part in parts_in(each)]


async def pools_by_index(s: Story, prefix: str) -> dict[int, str]:
    """By completion index: the pool of the node that a pod runs on."""
    return {
        int(pod["metadata"]["labels"][INDEX]): pod["spec"]["nodeName"].partition("-")[0]
        for pod in await s.pods(prefix)
        if pod["status"]["phase"] == "Running"
    }


def test_first_pods_run_on_the_preferred_flavor_and_the_rest_on_the_next() -> None:
    async def story(s: Story) -> None:
        await s.create(split(job("a", 20, {"cpu": 1}, run_time="1h")))
        await s.wait(20)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        assert await pools_by_index(s, "a-") == {i: "reserved" if i < 12 else "spot" for i in range(20)}
        labels = Counter(pod["metadata"]["labels"][FLAVOR_LABEL] for pod in await s.pods("a-"))
        assert labels == {"reserved": 12, "spot": 8}
        assert await s.used("q") == "12 8"
        local = (await s.local_queue("q"))["flavorsReservation"]
        assert {one["name"]: one["resources"][0]["total"] for one in local} == {"reserved": "12", "spot": "8"}
        (given,) = (await s.workload("a"))["status"]["admission"]["podSetAssignments"]
        assert given["flavors"] == {"cpu": "reserved"}
        assert given["resourceUsage"] == {"cpu": "20"}
        template = (await s.get(JOBS, "a"))["spec"]["template"]
        assert "nodeSelector" not in template["spec"]
        await s.wait(3700)
        assert await s.ended("a") == "Complete"
        assert await s.used("q") == "0 0"

    on(story)


def test_example_runs_on_reserved_and_spot_nodes() -> None:
    async def story(s: Story) -> None:
        await s.create((EXAMPLE / "train.yaml").read_text())
        await s.wait(20)
        assert await parts(s, "train") == [("reserved", 12), ("spot", 8)]
        assert await pools_by_index(s, "train-") == {i: "reserved" if i < 12 else "spot" for i in range(20)}
        await s.wait(120)
        assert await s.ended("train") == "Complete"

    play(story, nodes=load_pools(EXAMPLE / "nodes.yaml"), objects=[(EXAMPLE / "queues.yaml").read_text()])


def test_jobs_of_a_job_set_are_on_the_flavors_in_their_order() -> None:
    async def story(s: Story) -> None:
        pods = split(job("w", 5, run_time="1h"), slice_size=5)["spec"]
        workers = {"name": "w", "replicas": 4, "template": {"spec": pods}}
        metadata = {"name": "s", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
        spec = {"replicatedJobs": [workers]}
        api = "jobset.x-k8s.io/v1alpha2"
        await s.create({"apiVersion": api, "kind": "JobSet", "metadata": metadata, "spec": spec})
        await s.wait(20)
        assert await parts(s, "s") == [("reserved", 10), ("spot", 10)]
        of_job = {
            (pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], pod["spec"]["nodeName"][:4])
            for pod in await s.pods("s-")
        }
        assert of_job == {("s-w-0", "rese"), ("s-w-1", "rese"), ("s-w-2", "spot"), ("s-w-3", "spot")}

    configuration = "integrations: {frameworks: [jobset.x-k8s.io/jobset]}\n"
    play(story, configuration=configuration, nodes=pools(), objects=queues())


def test_a_pod_that_is_replaced_returns_to_the_flavor_of_its_index() -> None:
    async def story(s: Story) -> None:
        await s.create(split(job("a", 20, {"cpu": 1}, run_time="1h")))
        await s.wait(20)
        for index in (3, 15):
            name = next(
                pod["metadata"]["name"]
                for pod in await s.pods("a-")
                if pod["metadata"]["labels"][INDEX] == str(index)
            )
            await s.delete(PODS, name)
        await s.wait(60)
        assert await pools_by_index(s, "a-") == {i: "reserved" if i < 12 else "spot" for i in range(20)}

    on(story)


def test_evicted_job_returns_all_quota_and_may_be_split_otherwise() -> None:
    async def story(s: Story) -> None:
        await s.create(split(job("a", 20, {"cpu": 1}, run_time="1h")))
        await s.wait(20)
        await s.create(job("b", 6, run_time="30s", labels={"kueue.x-k8s.io/priority-class": "high"}))
        await s.wait(15)
        assert await s.suspended("a")
        template = (await s.get(JOBS, "a"))["spec"]["template"]
        assert not template["spec"].get("schedulingGates")
        assert await s.used("q") == "6 0"
        await s.wait(120)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        assert await s.running("a-") == 20

    on(story, preemption={"withinClusterQueue": "LowerPriority"})


def test_job_that_is_admitted_again_without_pods_that_have_succeeded_keeps_its_size() -> None:
    async def story(s: Story) -> None:
        await s.create(split(job("a", 20, {"cpu": 1}, run_time="1h")))
        await s.wait(20)
        first = (await s.pods("a-"))[0]["metadata"]["name"]
        await s.patch(PODS, first, {"status": {"phase": "Succeeded"}}, "status")
        await s.wait(5)
        name = (await s.workload("a"))["metadata"]["name"]
        for active in (False, True):
            await s.patch(WORKLOADS, name, {"spec": {"active": active}})
            await s.wait(60)
        (given,) = (await s.workload("a"))["status"]["admission"]["podSetAssignments"]
        assert (given["count"], (await s.get(JOBS, "a"))["spec"]["parallelism"]) == (19, 20)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 7)]
        assert await s.running("a-") == 19

    on(story)


def test_loss_of_the_spot_nodes_evicts_the_job_where_pods_must_be_ready() -> None:
    configuration = "waitForPodsReady: {timeout: 2m, recoveryTimeout: 1m, blockAdmission: false}\n"

    async def story(s: Story) -> None:
        await s.create(split(job("a", 20, {"cpu": 1}, run_time="1h", backoffLimit=100)))
        await s.wait(30)
        for number in range(3):
            await s.patch(
                NODES, f"spot-{number}", {"metadata": {"annotations": {f"{SIMULATION}fail": "crash"}}}
            )
        await s.wait(600)
        assert await s.reason("a", "Evicted") == ("True", "PodsReadyTimeout")

    play(story, configuration=configuration, nodes=pools(), objects=queues())


def test_a_queue_that_does_not_permit_it_gives_all_pods_one_flavor() -> None:
    async def story(s: Story) -> None:
        await s.create(split(job("a", 10, {"cpu": 1}, run_time="1h")))
        await s.create(split(job("b", 20, {"cpu": 1}, run_time="1h")))
        await s.wait(20)
        assert await parts(s, "a") == []
        assert await s.used("q") == "10 0"
        assert not await s.admitted("b")
        await s.patch(
            CLUSTER_QUEUES,
            "q",
            {"metadata": {"annotations": {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true"}}},
        )
        await s.delete(JOBS, "a")
        await s.wait(20)
        assert await parts(s, "b") == [("reserved", 12), ("spot", 8)]

    on(story, permitted=False)


#: What a job says beside its request for flavors, and why it is refused.
CONTRADICTIONS: list[tuple[Object, str]] = [
    ({"elastic": "true"}, "cannot be combined with kueue.x-k8s.io/elastic-job"),
    ({"topology": "rack"}, "cannot be combined with kueue.x-k8s.io/podset-required-topology"),
    ({"slice_size": 3}, "the number of pods, 20, is not a multiple of sliceSize 3"),
    ({"max": 4}, "the max of all flavors together is less than 20 pods"),
]


def test_contradictions_are_refused_and_name_both() -> None:
    async def story(s: Story) -> None:
        for change, text in CONTRADICTIONS:
            bound = {"max": change["max"]} if "max" in change else {}
            flavors = [{"name": "reserved", **bound}, {"name": "spot", **bound}]
            made = split(job("a", 20), *flavors, slice_size=change.get("slice_size", 1))
            if "elastic" in change:
                made["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
            if "topology" in change:
                annotations = made["spec"]["template"]["metadata"]["annotations"]
                annotations["kueue.x-k8s.io/podset-required-topology"] = change["topology"]
            with pytest.raises(ApiError) as refused:
                await s.create(made)
            assert text in str(refused.value)
            assert HYBRID_ASSIGNMENT_ANNOTATION in str(refused.value)

    on(story)


def test_pods_that_are_queued_themselves_are_refused_and_so_are_queues_with_variants() -> None:
    async def story(s: Story) -> None:
        template = split(job("a", 2))["spec"]["template"]
        metadata = {**template["metadata"], "name": "p", "namespace": "default"}
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        with pytest.raises(ApiError, match="pods that are queued themselves cannot be split over flavors"):
            await s.create(pod)
        for annotation, spec, text in (
            ("maybe", {}, "must be true or false"),
            (
                "true",
                {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}},
                "cannot be combined with spec.concurrentAdmissionPolicy",
            ),
        ):
            queue = cluster_queue("other", {"reserved": {"cpu": 1}}, **spec)
            queue["metadata"]["annotations"] = {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: annotation}
            with pytest.raises(ApiError, match=text):
                await s.create(queue)

    configuration = (
        "featureGates: {ConcurrentAdmission: true}\nintegrations: {frameworks: [batch/job, pod]}\n"
    )
    play(story, configuration=configuration, nodes=pools(), objects=queues())
