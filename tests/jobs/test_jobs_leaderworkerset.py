"""LeaderWorkerSets in queues (docs/reference/kueue-integrations.md 9.4); the test plays their operator."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kind_samples import FOLDER
from kind_worlds import frameworks, serve
from manager_stack import QUEUES, Stack, story

from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.objects import replaced
from pykueue.api.resources import PODS, STATEFUL_SETS, WORKLOADS
from pykueue.api.yaml import load_documents
from pykueue.kube.errors import ApiError

Object = dict[str, Any]
SETS = LEADER_WORKER_SET.resource
D, L = "kueue.x-k8s.io/", "leaderworkerset.sigs.k8s.io/"
ON = frameworks("leaderworkerset.x-k8s.io/leaderworkerset")


def sample(**spec: Any) -> Object:
    (found,) = load_documents((FOLDER / "leaderworkerset.yaml").read_text())
    return {**found, "spec": {**found["spec"], **spec}}


class Operator:
    """The operator of the sample's kind, as the test plays it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    async def create_group(self, index: int, name: str = "chat") -> None:
        """The pods of one group, as StatefulSets make them from the templates."""
        found = await self.stack.get(SETS, name)
        templates = found["spec"]["leaderWorkerTemplate"]
        for number in range(templates.get("size") or 1):
            leader = templates.get("leaderTemplate") if number == 0 else None
            template = leader or templates["workerTemplate"]
            metadata = template.get("metadata") or {}
            labels = {
                **metadata.get("labels", {}),
                f"{L}name": name,
                f"{L}group-index": str(index),
                f"{L}worker-index": str(number),
            }
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{index}" + (f"-{number}" if number else ""),
                    "namespace": "default",
                    "labels": labels,
                    "annotations": metadata.get("annotations", {}),
                },
                "spec": template["spec"],
            }
            await self.stack.client.create(PODS, pod)
        await self.stack.settle(3)

    async def gated(self) -> list[str]:
        return sorted(
            pod["metadata"]["name"]
            for pod in await self.stack.pods()
            if {"name": f"{D}admission"} in (pod["spec"].get("schedulingGates") or ())
        )

    async def of_group(self, index: int) -> Object:
        found = [
            one
            for one in await self.stack.workloads()
            if one["metadata"]["annotations"][f"{D}component-workload-index"] == str(index)
        ]
        (workload,) = found
        return workload


def play(test: Callable[[Stack, Operator], Awaitable[None]], queues: str = QUEUES) -> None:
    """Run a test on a cluster that serves the kind."""

    async def with_sets(stack: Stack) -> None:
        await serve(stack, SETS)
        await test(stack, Operator(stack))

    story(with_sets, ON, queues)


def test_each_group_gets_a_workload_ahead_of_its_pods() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        await stack.client.create(SETS, sample())
        await stack.settle()
        assert len(await stack.workloads()) == 2
        workload = await operator.of_group(0)
        assert workload["metadata"]["name"].startswith("leaderworkerset-chat-0-")
        sets = [(one["name"], one["count"]) for one in workload["spec"]["podSets"]]
        assert sets == [("leader", 1), ("worker", 2)]
        (owner,) = workload["metadata"]["ownerReferences"]
        assert (owner["kind"], owner.get("controller")) == ("LeaderWorkerSet", None)

    play(test)


def test_groups_without_a_leader_template_are_one_pod_set() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        found = sample()
        del found["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
        await stack.client.create(SETS, found)
        await stack.settle()
        workload = await operator.of_group(1)
        assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("main", 3)]

    play(test)


def test_groups_are_admitted_one_by_one_and_their_pods_ungated_together() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        await stack.client.create(SETS, sample(replicas=3))
        await stack.settle()
        for index in range(3):
            await operator.create_group(index)
        # Each group takes 4 of 10 cpu.
        assert await operator.gated() == ["chat-2", "chat-2-1", "chat-2-2"]
        leader = await stack.get(PODS, "chat-0")
        assert leader["metadata"]["labels"][f"{D}podset"] == "leader"
        worker = await stack.get(PODS, "chat-0-1")
        assert worker["metadata"]["labels"][f"{D}podset"] == "worker"

    play(test)


def test_scaled_down_set_gives_the_quota_of_its_last_group_back() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        await stack.client.create(SETS, sample(replicas=3))
        await stack.settle()
        for index in range(3):
            await operator.create_group(index)
        await stack.patch(SETS, "chat", {"spec": {"replicas": 1}})
        await stack.settle(5)
        assert len(await stack.workloads()) == 1
        assert (await stack.cluster_queue())["status"]["admittedWorkloads"] == 1
        assert [pod["metadata"]["name"] for pod in await stack.pods()] == ["chat-0", "chat-0-1", "chat-0-2"]

    play(test)


def test_evicted_group_loses_its_pods_and_is_admitted_again() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        await stack.client.create(SETS, sample(replicas=1))
        await stack.settle()
        await operator.create_group(0)
        assert await operator.gated() == []
        name = (await operator.of_group(0))["metadata"]["name"]
        await stack.patch(WORKLOADS, name, {"spec": {"active": False}})
        await stack.settle(40)
        assert await stack.pods() == []
        await stack.patch(WORKLOADS, name, {"spec": {"active": True}})
        await stack.settle()
        await operator.create_group(0)
        assert await operator.gated() == []

    play(test)


def test_shape_and_size_of_a_queued_set_do_not_change() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        await stack.client.create(SETS, sample())
        await stack.settle()
        worker = {"containers": [{"name": "serve", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}
        for change, field in (
            ({"size": 4}, "spec.leaderWorkerTemplate.size"),
            ({"workerTemplate": {"spec": worker}}, "spec.leaderWorkerTemplate.workerTemplate.spec"),
            ({"leaderTemplate": None}, "spec.leaderWorkerTemplate.leaderTemplate"),
        ):
            with pytest.raises(ApiError, match=field):
                await stack.patch(SETS, "chat", {"spec": {"leaderWorkerTemplate": change}})
        with pytest.raises(ApiError, match="queue-name"):
            await stack.patch(SETS, "chat", {"metadata": {"labels": {f"{D}queue-name": None}}})
        await stack.patch(SETS, "chat", {"spec": {"replicas": 4}})
        await stack.settle()
        assert len(await stack.workloads()) == 4

    play(test)


def test_workers_with_a_leader_are_ranked_from_one_on() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        created = await stack.client.create(SETS, sample())
        templates = created["spec"]["leaderWorkerTemplate"]
        assert templates["workerTemplate"]["metadata"]["annotations"][f"{D}pod-index-offset"] == "1"
        assert f"{D}pod-index-offset" not in templates["leaderTemplate"]["metadata"]["annotations"]

    play(test)


def test_stateful_sets_of_a_set_are_left_alone() -> None:
    async def test(stack: Stack, operator: Operator) -> None:
        template = sample()["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        labels = {f"{L}name": "chat", f"{D}queue-name": "lq"}
        found = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "chat", "namespace": "default", "labels": labels},
            "spec": {
                "serviceName": "chat",
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, **template},
            },
        }
        created = await stack.client.create(STATEFUL_SETS, found)
        assert not created["spec"]["template"]["metadata"].get("annotations")
        await stack.settle()
        assert await stack.workloads() == []

    async def with_both(stack: Stack) -> None:
        await test(stack, Operator(stack))

    story(with_both, frameworks("statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"))


_GROUP = "spec.leaderWorkerTemplate"
_WORKERS = f"{_GROUP}.workerTemplate"


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        (f"metadata.labels|{D}queue-name", "Not_A_Name", f"metadata.labels[{D}queue-name]"),
        (f"metadata.annotations|{D}elastic-job", "true", f"metadata.annotations[{D}elastic-job]"),
        (f"metadata.annotations|{D}admission-gated-by", "no", f"metadata.annotations[{D}admission-gated-by]"),
        ("spec.replicas", 1_000_001, "spec.replicas"),
        (f"{_GROUP}.size", "3", f"{_GROUP}.size"),
        (f"{_GROUP}.size", -1, f"{_GROUP}.size"),
        (_WORKERS, None, _WORKERS),
        (f"{_WORKERS}.spec.containers", [], f"{_WORKERS}.spec.containers"),
        (f"{_GROUP}.leaderTemplate", [], f"{_GROUP}.leaderTemplate"),
        (
            f"{_WORKERS}.metadata.annotations|{D}podset-required-topology",
            "not a label!",
            f"{_WORKERS}.metadata.annotations[{D}podset-required-topology]",
        ),
    ],
)
def test_broken_set_names_its_field(field: str, value: Any, error: str) -> None:
    path, _, key = field.partition("|")
    place = [*path.split("."), *([key] if key else [])]

    async def test(stack: Stack, operator: Operator) -> None:
        with pytest.raises(ApiError, match=re.escape(error)):
            await stack.client.create(SETS, replaced(sample(), place, value))
        await stack.client.create(SETS, sample())
        await stack.settle()
        assert len(await stack.workloads()) == sample()["spec"]["replicas"]

    play(test)
