"""A job kind is a description: what follows from it, tried on a kind that this project does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from manager_stack import Stack, story
from toy_kind import DEFINITION, EXPERIMENT, EXPERIMENTS, KINDS

from pykueue.api.resources import CRDS, WORKLOADS
from pykueue.jobs.described import DescribedJob
from pykueue.jobs.identifiers import Identifiers
from pykueue.jobs.kinds import BUILT_IN
from pykueue.jobs.podsets import PodSetInfo
from pykueue.jobs.remote import Origin, remote_copy, with_remote_job_status, with_remote_status
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.roles import component_rules

Object = dict[str, Any]


def experiment(name: str, samples: int, cpu: str = "1") -> Object:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "science.example.com/v1",
        "kind": "Experiment",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"samples": samples, "runner": {"spec": {"containers": [container]}}},
    }


async def paused(stack: Stack, name: str) -> bool:
    return bool((await stack.get(EXPERIMENTS, name))["spec"]["paused"])


def test_described_kind_is_queued_started_evicted_and_finished() -> None:
    async def test(stack: Stack) -> None:
        await stack.client.create(CRDS, DEFINITION)
        await stack.settle(15)
        await stack.client.create(EXPERIMENTS, experiment("first", 6))
        await stack.client.create(EXPERIMENTS, experiment("second", 6))
        await stack.settle()
        assert [await paused(stack, name) for name in ("first", "second")] == [False, True]
        workload = await stack.workload("first")
        (pod_set,) = workload["spec"]["podSets"]
        assert (pod_set["name"], pod_set["count"]) == ("main", 6)
        assert (await stack.conditions("second"))["QuotaReserved"] == ("False", "WaitingForQuota")

        await stack.patch(EXPERIMENTS, "first", {"status": {"running": 6}}, "status")
        await stack.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
        await stack.settle()
        assert await paused(stack, "first")
        assert await paused(stack, "second"), "quota is not given back while pods run"
        await stack.patch(EXPERIMENTS, "first", {"status": {"running": 0}}, "status")
        await stack.settle()
        assert not await paused(stack, "second")

        done = [{"type": "Concluded", "status": "True", "message": "42"}]
        await stack.patch(EXPERIMENTS, "second", {"status": {"conditions": done}}, "status")
        await stack.settle()
        assert (await stack.conditions("second"))["Finished"] == ("True", "Succeeded")

    story(test, kinds=KINDS)


def test_rights_follow_from_the_description() -> None:
    mine = [rule for rule in component_rules(Configuration(), KINDS) if rule.group == EXPERIMENTS.group]
    assert [(rule.resources, rule.verbs) for rule in mine] == [
        (("experiments",), ("get", "list", "watch", "patch", "delete")),
        (("experiments/finalizers",), ("update",)),
    ]


def test_webhook_rules_follow_from_the_description() -> None:
    async def test(stack: Stack) -> None:
        paths = {hook.path for hook in stack.manager.webhooks()}
        name = "science-example-com-v1-experiment"
        assert {f"/mutate-{name}", f"/validate-{name}"} <= paths

    story(test, kinds=KINDS)


@pytest.mark.parametrize("annotations", [True, False])
def test_copy_for_a_worker_cluster_names_its_workload_and_no_other_controller(annotations: bool) -> None:
    job = BUILT_IN.jobs["batch/job"]
    template = {"metadata": {"labels": {"job-name": "j", "x": "y"}}, "spec": {"nodeSelector": {"a": "b"}}}
    original = {"metadata": {"labels": {"x": "y"}}, "spec": {}}
    workload = {
        "metadata": {"name": "job-j-1234"},
        "spec": {"podSets": [{"name": "main", "template": original}]},
    }
    local = {
        "metadata": {"name": "j", "namespace": "default", "uid": "u", "labels": {"a": "b"}},
        "spec": {
            "managedBy": "kueue.x-k8s.io/multikueue",
            "parallelism": 2,
            "selector": {"matchLabels": {"controller-uid": "u"}},
            "suspend": False,
            "template": template,
        },
    }
    copy = remote_copy(job, local, workload, Origin("here", Identifiers(annotations)))
    assert copy["spec"] == {"parallelism": 2, "suspend": True, "template": original}
    assert copy["metadata"]["labels"] == {
        "a": "b",
        "kueue.x-k8s.io/multikueue-origin": "here",
        "kueue.x-k8s.io/prebuilt-workload-name": "job-j-1234",
    }
    named = {"kueue.x-k8s.io/prebuilt-workload-name": "job-j-1234"}
    assert copy["metadata"].get("annotations", {}) == (named if annotations else {})
    assert "uid" not in copy["metadata"]
    assert with_remote_status(local, {"status": {"active": 2}})["status"] == {"active": 2}


EARLY, END, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"
NO_PODS = {"active": 0}
SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True"}]}


@pytest.mark.parametrize(
    ("suspend", "here", "there", "expected"),
    [
        pytest.param(False, None, {"active": 1}, {"active": 1}, id="first"),
        pytest.param(False, {"failed": 2}, {"active": 1}, {"active": 1, "failed": 2}, id="new copy"),
        pytest.param(False, {"failed": 1}, {"failed": 2}, {"failed": 2}, id="counter grows"),
        pytest.param(False, {"startTime": EARLY}, {"startTime": LATE}, {"startTime": EARLY}, id="restarted"),
        pytest.param(
            False, {"startTime": EARLY}, {"active": 0}, {"active": 0, "startTime": EARLY}, id="stopped"
        ),
        pytest.param(True, NO_PODS, NO_PODS | {"startTime": LATE}, NO_PODS, id="suspended here"),
        pytest.param(
            False, {"startTime": EARLY} | SUSPENDED, {"startTime": LATE}, {"startTime": LATE}, id="resumed"
        ),
        pytest.param(
            False,
            {"startTime": LATE},
            {"startTime": EARLY, "completionTime": END},
            {"startTime": LATE, "completionTime": LATE},
            id="ended before it started here",
        ),
    ],
)
def test_status_of_a_job_follows_its_copy_as_far_as_the_api_server_takes_it(
    suspend: bool, here: dict[str, Any] | None, there: dict[str, Any], expected: dict[str, Any]
) -> None:
    local: dict[str, Any] = {"spec": {"suspend": suspend}} | ({"status": here} if here else {})
    assert with_remote_job_status(local, {"status": there})["status"] == expected


def test_templates_of_a_described_kind_are_restored_when_it_stops() -> None:
    job = experiment("e", 2)
    sets = EXPERIMENT.pod_sets(job)
    started = EXPERIMENT.started(job, [PodSetInfo("main", 2, node_selector={"zone": "a"})])
    assert started["spec"]["runner"]["spec"]["nodeSelector"] == {"zone": "a"}
    stop = EXPERIMENT.stop(started, sets)
    assert stop is not None
    assert stop.desired["spec"] == {**job["spec"], "paused": True}


class HeldBack(DescribedJob):
    """An experiment that is not to be queued while it says so."""

    def on_hold(self, job: Mapping[str, Any]) -> str:
        return str(job["spec"].get("waitingFor") or "")


def test_job_on_hold_gets_no_workload_and_a_pending_one_waits() -> None:
    async def test(stack: Stack) -> None:
        await stack.client.create(CRDS, DEFINITION)
        await stack.settle(15)
        held = experiment("held", 2)
        held["spec"]["waitingFor"] = "samples are cooling"
        await stack.client.create(EXPERIMENTS, held)
        await stack.client.create(EXPERIMENTS, experiment("large", 20))
        await stack.settle()
        assert len(await stack.workloads()) == 1

        await stack.patch(EXPERIMENTS, "large", {"spec": {"waitingFor": "samples are cooling"}})
        await stack.settle()
        assert (await stack.conditions("large"))["QuotaReserved"] == ("False", "OnHold")
        assert await stack.message("large") == "samples are cooling"

        for name in ("held", "large"):
            await stack.patch(EXPERIMENTS, name, {"spec": {"waitingFor": None}})
        await stack.settle()
        assert not await paused(stack, "held")
        assert (await stack.conditions("large"))["QuotaReserved"][1] != "OnHold"

    story(test, kinds=BUILT_IN.with_job(HeldBack(EXPERIMENT.kind)))
