"""Pod templates of jobs that stop after their Workload was removed, and Workloads that are created again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from edited_statuses import STOPPING, running
from manager_stack import QUEUES, Stack, job, story

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, WORKLOADS
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request

Object = dict[str, Any]

ADDITIONS = "pykueue.io/template-additions"
LABELED = QUEUES.replace(
    "metadata: {name: default-flavor}",
    "metadata: {name: default-flavor}\n"
    "spec: {nodeLabels: {zone: a}, tolerations: [{key: spot, operator: Exists}]}",
)
TOLERATIONS = [{"key": "gpu", "operator": "Exists"}]


def selective() -> Object:
    """A pod template with a node selector and tolerations of its user."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"restartPolicy": "Never", "nodeSelector": {"disk": "ssd"}, "tolerations": TOLERATIONS}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {**spec, "containers": [container]}}


async def remove_workload(s: Stack, name: str) -> None:
    """A user removes the Workload in spite of its finalizer, while no webhook answers."""
    s.unregister_webhooks()
    await s.patch(WORKLOADS, name, {"metadata": {"finalizers": None}})
    await s.delete(WORKLOADS, name)


async def stopped(s: Stack, name: str = "a") -> Object:
    """The Job after its pods ended, with a queue that does not admit it again."""
    await s.stop_pods(name)
    await s.settle(60)
    found = await s.job(name)
    assert found["spec"]["suspend"]
    assert not {STOPPING, ADDITIONS} & set(found["metadata"].get("annotations") or {})
    return found


def test_templates_are_restored_when_the_workload_was_removed_while_no_manager_ran() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 2, template=selective()))
        await s.settle()
        await s.run_job("a")
        before = (await s.job("a"))["spec"]["template"]["spec"]
        assert before["nodeSelector"] == {"disk": "ssd", "zone": "a"}
        assert len(before["tolerations"]) == 2
        await s.stop_manager()
        await remove_workload(s, (await s.workload("a"))["metadata"]["name"])
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.start_manager()
        await s.settle()
        template = (await stopped(s))["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"disk": "ssd"}
        assert template["spec"]["tolerations"] == TOLERATIONS
        assert "kueue.x-k8s.io/podset" not in template["metadata"]["labels"]
        (pod_set,) = (await s.workload("a"))["spec"]["podSets"]
        assert pod_set["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}

    story(life, queues=LABELED)


def test_partly_admitted_job_gets_its_parallelism_back_when_its_workload_was_removed_before_a_restart() -> (
    None
):
    async def life(s: Stack) -> None:
        minimum = {"kueue.x-k8s.io/job-min-parallelism": "1"}
        await s.apply([job("b", 9), job("a", 2, annotations=minimum)])
        await s.settle()
        await s.run_job("a")
        assert (await s.job("a"))["spec"]["parallelism"] == 1
        name = (await s.workload("a"))["metadata"]["name"]
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await remove_workload(s, name)
        await s.settle()
        assert await s.suspended("a")
        await s.stop_manager()  # it knew what the Workload had been
        await s.start_manager()
        assert (await stopped(s))["spec"]["parallelism"] == 2
        (pod_set,) = (await s.workload("a"))["spec"]["podSets"]
        assert pod_set["count"] == 2

    story(life, queues=LABELED)


def test_job_copied_from_a_running_one_is_queued_with_the_templates_of_its_user() -> None:
    async def life(s: Stack) -> None:
        await running(s)
        source = await s.job("a")
        copy = job("b", 6, template={"spec": source["spec"]["template"]["spec"]})
        copy["metadata"]["annotations"] = source["metadata"]["annotations"]
        await s.apply(copy)
        await s.settle()
        (pod_set,) = (await s.workload("b"))["spec"]["podSets"]
        assert "nodeSelector" not in pod_set["template"]["spec"]

    story(life, queues=LABELED)


@pytest.mark.parametrize("text", ["{", "[]", '{"templates": [{"nodeSelector": 3}]}', '{"templates": []}'])
def test_record_that_its_user_damaged_is_ignored_and_the_workload_read_instead(text: str) -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.patch(JOBS, "a", {"metadata": {"annotations": {ADDITIONS: text}}})
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        assert "nodeSelector" not in (await stopped(s))["spec"]["template"]["spec"]

    story(life, queues=LABELED)


def test_record_that_its_user_forged_removes_only_what_a_start_may_add() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        forged = (
            '{"templates": [{"containers": ["main"], "new": ["containers", "x"], "nodeSelector": ["zone"]}]}'
        )
        await s.patch(JOBS, "a", {"metadata": {"annotations": {ADDITIONS: forged}}})
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        spec = (await stopped(s))["spec"]["template"]["spec"]
        assert len(spec["containers"]) == 1
        assert not spec.get("nodeSelector")

    story(life, queues=LABELED)


def test_what_a_user_adds_to_the_template_of_a_suspended_job_is_kept() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.stop_manager()
        s.unregister_webhooks()
        await s.patch(JOBS, "a", {"spec": {"suspend": True}})
        await s.stop_pods("a")
        await s.job_status("a", startTime=None)
        selector = {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}
        await s.patch(JOBS, "a", {"spec": selector})
        await remove_workload(s, name)
        await s.start_manager()
        await s.settle(30)
        assert (await s.job("a"))["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
        (pod_set,) = (await s.workload("a"))["spec"]["podSets"]
        assert pod_set["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}

    story(life, queues=LABELED)


def test_job_gets_a_workload_when_the_one_that_existed_goes_before_the_cache_has_it() -> None:
    async def life(s: Stack) -> None:
        inner, cut = s.transport.inner, asyncio.Event()
        call, watch = inner.call, inner.watch

        async def lost(request: Request) -> Any:
            """Requests that create Workloads are made, the first without an answer; lists are slow."""
            if request.method == "POST" and request.path.endswith("/workloads") and not cut.is_set():
                await call(request)
                cut.set()
                raise TimeoutError
            if request.method == "GET" and request.path.endswith("/workloads"):
                await s.clock.sleep(10)
            return await call(request)

        async def expiring(request: Request) -> AsyncGenerator[Any]:
            """The watch of Workloads ends with the first of them, and cannot go on where it was."""
            events = watch(request)
            if not request.path.endswith("/workloads") or cut.is_set():
                async for event in events:
                    yield event
                return
            while True:
                waiting = [asyncio.ensure_future(one) for one in (anext(events), cut.wait())]
                done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in left:
                    task.cancel()
                if waiting[1] in done:
                    raise ApiError(410, "Expired", "too old resource version")
                yield waiting[0].result()

        inner.call, inner.watch = lost, expiring  # type: ignore[method-assign]
        await s.stop_manager()
        s.manager_transport = lambda: inner  # type: ignore[method-assign]
        await s.start_manager()
        await s.apply(job("a"))
        await s.settle(5)
        (workload,) = await s.workloads()
        await s.patch(WORKLOADS, workload["metadata"]["name"], {"metadata": {"finalizers": None}})
        await s.delete(WORKLOADS, workload["metadata"]["name"])
        await s.settle(60)
        assert not await s.suspended("a")

    story(life)
