"""Kinds that users describe, and kinds that other controllers queue, on worker clusters."""

from __future__ import annotations

from typing import Any

import pytest
from manager_stack import Object, Stack
from multikueue_world import ORIGIN, Clusters, dispatched

from job_kind_manifests import job_kind
from pykueue.api.resources import CLUSTER_ROLES, CRDS, WORKLOADS, Resource
from pykueue.api.userkinds import JOB_KINDS
from pykueue.manager.multikueue.access import ACCOUNT

WIDGETS = Resource("example.com", "v1", "widgets", "Widget", True)
MANAGED = {"managedBy": "kueue.x-k8s.io/multikueue"}
EXTERNAL = "multiKueue: {externalFrameworks: [{name: Widget.v1.example.com}]}\n"
CONTAINERS = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition() -> Object:
    schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
    }


def widget(**spec: Any) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default", "labels": labels},
        "spec": {"size": 2, "template": {"spec": {"containers": CONTAINERS}}, **spec},
    }


async def serve(c: Clusters) -> list[Stack]:
    stacks = [c.manager, *c.workers.values()]
    for stack in stacks:
        await stack.client.create(CRDS, definition())
    return stacks


async def grant(c: Clusters) -> None:
    """Give the manager's account the rights for widgets on the worker."""
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": verbs}
    role = await c.workers["w1"].client.get(CLUSTER_ROLES, ACCOUNT, None)
    patch = {"rules": [*role["rules"], rule]}
    await c.workers["w1"].client.patch(CLUSTER_ROLES, ACCOUNT, None, patch)


def test_job_of_a_described_kind_runs_on_a_worker() -> None:
    running = {"path": ".status.phase", "values": ["Running"]}
    states = {"active": running, "ready": running, "succeeded": {"condition": "Done"}}
    kind = job_kind(**states, managedBy={"path": ".spec.managedBy"}, suspend=".spec.suspend")

    async def test(c: Clusters) -> None:
        stacks = await serve(c)
        for stack in stacks:
            await stack.client.create(JOB_KINDS, kind)
        await c.wait(10)
        # A kind that the account may not read keeps nothing else from the worker.
        message = "Connected, without example.com/widget: no right to read"
        assert await c.active("w1") == ("True", "Active", message)
        await c.manager.client.create(WIDGETS, widget(suspend=True, **MANAGED))
        await c.wait()
        assert await c.copies() == []
        await grant(c)
        await c.wait(90)
        assert await c.active("w1") == ("True", "Active", "Connected")
        local = await c.manager.get(WIDGETS, "w")
        copy = await c.workers["w1"].get(WIDGETS, "w")
        assert (local["spec"]["managedBy"], local["spec"]["suspend"]) == (MANAGED["managedBy"], False)
        assert (copy["spec"].get("managedBy"), copy["spec"]["suspend"]) == (None, False)
        done = {"conditions": [{"type": "Done", "status": "True", "reason": "R", "message": "m"}]}
        await c.workers["w1"].patch(WIDGETS, "w", {"status": done}, "status")
        await c.wait()
        assert (await c.manager.conditions("w"))["Finished"] == ("True", "Succeeded")
        assert (await c.manager.get(WIDGETS, "w"))["status"] == done
        assert await c.workers["w1"].client.find(WIDGETS, "w", "default") is None

    dispatched(test, "w1")


async def queued_elsewhere(stack: Stack, name: str) -> None:
    """Create the Workload of a job as the controller of its kind would."""
    job = await stack.get(WIDGETS, "w")
    owner = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": job["metadata"]["uid"]}
    pods = {"name": "main", "count": 2, "template": {"spec": {"containers": CONTAINERS}}}
    metadata = {"name": name, "namespace": "default", "ownerReferences": [{**owner, "controller": True}]}
    spec = {"queueName": "lq", "podSets": [pods]}
    await stack.client.create(
        WORKLOADS,
        {"apiVersion": WORKLOADS.api_version, "kind": "Workload", "metadata": metadata, "spec": spec},
    )


def test_job_that_another_controller_queues_is_copied_and_its_status_brought_back() -> None:
    async def test(c: Clusters) -> None:
        await serve(c)
        await grant(c)
        await c.wait(90)
        await c.manager.client.create(WIDGETS, widget(**MANAGED))
        await queued_elsewhere(c.manager, "made-elsewhere")
        await c.wait()
        copy = await c.workers["w1"].get(WIDGETS, "w")
        assert "managedBy" not in copy["spec"]
        assert copy["metadata"]["labels"][ORIGIN] == "multikueue"
        assert copy["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] == "made-elsewhere"
        await c.workers["w1"].patch(WIDGETS, "w", {"status": {"phase": "Running"}}, "status")
        await c.wait()
        assert (await c.manager.get(WIDGETS, "w"))["status"] == {"phase": "Running"}
        end = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "m"}
        end["lastTransitionTime"] = c.manager.now()
        remote = await c.workers["w1"].get(WORKLOADS, "made-elsewhere")
        conditions = {"status": {"conditions": [*remote["status"]["conditions"], end]}}
        await c.workers["w1"].patch(WORKLOADS, "made-elsewhere", conditions, "status")
        await c.wait()
        assert (await c.manager.conditions("w"))["Finished"] == ("True", "Succeeded")
        assert await c.workers["w1"].client.find(WIDGETS, "w", "default") is None

    dispatched(test, "w1", configuration=EXTERNAL)


@pytest.mark.parametrize(
    ("spec", "gates", "copied"),
    [
        (MANAGED, "", True),
        ({}, "", False),
        (MANAGED, "featureGates: {MultiKueueAdaptersForCustomJobs: false}\n", False),
    ],
    ids=["gate on", "not handed over", "gate off"],
)
def test_job_of_another_controller_is_dispatched_or_rejected(spec: Object, gates: str, copied: bool) -> None:
    async def test(c: Clusters) -> None:
        await serve(c)
        await grant(c)
        await c.wait(90)
        await c.manager.client.create(WIDGETS, widget(**spec))
        await queued_elsewhere(c.manager, "made-elsewhere")
        await c.wait()
        assert (await c.manager.workload("w"))["spec"].get("active", True) is copied
        assert (await c.workers["w1"].client.find(WIDGETS, "w", "default") is not None) is copied

    dispatched(test, "w1", configuration=EXTERNAL + gates)
