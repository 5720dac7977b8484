"""Feature gates without an effect here: the manager sends the same requests with each of them on and off."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cache
from typing import Any

import pytest
from manager_stack import Stack, job, story

from pykueue.api.kueue.names import REQUIRED_TOPOLOGY_ANNOTATION
from pykueue.api.resources import JOBS, NODES, WORKLOADS
from pykueue.api.unsupported import GATES
from pykueue.kube.transport import MERGE_PATCH, Request, Transport, WatchEvent
from pykueue.manager.configuration.gates import DEFAULTS
from queue_manifests import cluster_queue, flavor, local_queue, priority, topology

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
#: Method, path, content type and body of a request.
Sent = tuple[str, str, str, Any]


class Recording:
    """Keeps the requests that go through it."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.sent: list[Sent] = []

    async def call(self, request: Request) -> Any:
        self.sent.append((request.method, request.path, request.content_type, request.body))
        return await self.inner.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self.inner.watch(request)

    async def close(self) -> None:
        await self.inner.close()


async def life(stack: Stack) -> list[Sent]:
    """What the manager sends for jobs that are admitted, placed, preempted, ended and deleted."""
    recording = stack.transport.inner = Recording(stack.transport.inner)
    for number in range(4):
        labels = {RACK: f"r{number // 2}", HOST: f"n{number}", "example.com/pool": "a"}
        node = {"metadata": {"name": f"n{number}", "labels": labels}}
        made = await stack.client.create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {
            "conditions": [ready],
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        }
        await stack.client.update(NODES, {**made, "status": status}, subresource="status")
    preemption = {"withinClusterQueue": "LowerPriority"}
    await stack.apply(
        [
            topology("racks", RACK, HOST),
            flavor("nodes", nodeLabels={"example.com/pool": "a"}, topologyName="racks"),
            cluster_queue("tas", {"nodes": {"cpu": 16, "memory": "32Gi"}}, preemption=preemption),
            local_queue("tas", "tas"),
            priority("high", 100),
        ]
    )
    await stack.settle()
    required = {REQUIRED_TOPOLOGY_ANNOTATION: RACK}
    for name, level in (("first", ""), ("second", ""), ("high", "high")):
        one = job(name, 3, cpu="2", queue="tas")
        template = one["spec"]["template"]
        template["metadata"] = {**template.get("metadata", {}), "annotations": required}
        template["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"
        if level:
            one["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = level
        await stack.apply(one)
        await stack.settle()
        if name == "high":
            await stack.stop_pods("second")
            await stack.settle()
        await stack.run_job(name)
        await stack.settle()
    await stack.finish_job("first")
    await stack.settle()
    await stack.apply(job("large", 99))
    await stack.settle()
    await stack.client.delete(WORKLOADS, (await stack.workload("high"))["metadata"]["name"], "default")
    await stack.settle()
    for name in ("second", "large"):
        await stack.client.delete(JOBS, name, "default", propagation="Background")
    await stack.settle()
    return recording.sent


@cache
def sent(gate: str = "") -> list[Sent]:
    """What is sent with the default gates, or with one of them flipped.

    The first writes of a process compile schemas step by step, and take other turns than later ones.
    """
    _warm_up()
    return story(life, f"featureGates: {{{gate}: {str(not DEFAULTS[gate]).lower()}}}" if gate else "")


@cache
def _warm_up() -> None:
    story(life)


@pytest.mark.parametrize("gate", sorted(GATES))
def test_gate_without_effect_changes_no_request(gate: str) -> None:
    assert sent(gate) == sent()


def test_the_story_has_what_the_gates_are_about() -> None:
    text = str(sent())
    for part in ("topologyAssignment", "Preempted", "'finalizers': None", "'memory'", "ExceedsMaxQuota"):
        assert part in text, part


def test_the_story_is_changed_by_a_gate_with_an_effect() -> None:
    assert sent("AssignQueueLabelsForPods") != sent()


@pytest.mark.parametrize("gate", ["", "WorkloadRequestUseMergePatch"])
def test_statuses_are_written_by_merge_patch(gate: str) -> None:
    written = {
        kind
        for method, path, kind, _ in sent(gate)
        if "/workloads/" in path and path.endswith("/status") and method != "GET"
    }
    assert written == {MERGE_PATCH}
