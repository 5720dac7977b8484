"""Admission checks on a real API server: ProvisioningRequests, and the example of an external controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from realcluster_install import Installation
from realcluster_jobs import JobController, Queues, now
from realcluster_plane import Plane, until

from autoscaler_definition import autoscaler_definition

EXAMPLE = Path(__file__).parents[2] / "examples" / "admission-check" / "budget.py"
V1BETA2 = "kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module", autouse=True)
def _jobs(running: Installation) -> Iterator[None]:
    with JobController(running.plane):
        yield


def checked(plane: Plane, name: str, controller: str, **spec: Any) -> Queues:
    """Queues with a check of that controller."""
    check = {"apiVersion": V1BETA2, "kind": "AdmissionCheck", "metadata": {"name": name}}
    plane.kubectl.apply({**check, "spec": {"controllerName": controller, **spec}})
    return Queues(plane, name, cpu="10", admissionChecksStrategy={"admissionChecks": [{"name": name}]})


def active(plane: Plane, name: str) -> bool:
    found = plane.kubectl.get("admissioncheck", name) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Active", "True") for one in conditions)


def state(queues: Queues, job: str) -> str:
    checks = (queues.workload(job) or {}).get("status", {}).get("admissionChecks") or [{}]
    return str(checks[0].get("state"))


def test_job_gets_its_capacity_from_a_provisioning_request(plane: Plane) -> None:
    plane.kubectl.apply(autoscaler_definition())
    config = {"apiVersion": V1BETA2, "kind": "ProvisioningRequestConfig", "metadata": {"name": "capacity"}}
    plane.kubectl.apply({**config, "spec": {"provisioningClassName": "vendor.example.com"}})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "capacity"}
    controller = "kueue.x-k8s.io/provisioning-request"
    queues = checked(plane, "capacity", controller, parameters=parameters)
    until(lambda: active(plane, "capacity"), "the check is active")
    queues.submit("capacity-job", pods=2)
    workload = until(lambda: queues.workload("capacity-job"), "a Workload")
    name = f"{workload['metadata']['name']}-capacity-1"
    request = until(lambda: plane.kubectl.get("provisioningrequest", name), "a request")
    template = f"ppt-{name}-main"
    assert request["spec"]["podSets"] == [{"count": 2, "podTemplateRef": {"name": template}}]

    def owned() -> bool:
        found = plane.kubectl.get("podtemplate", template) or {"metadata": {}}
        owners = found["metadata"].get("ownerReferences", [])
        return any(one["uid"] == request["metadata"]["uid"] for one in owners)

    until(owned, "the template belongs to the request")
    condition = {"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "m"}
    change = {"status": {"conditions": [{**condition, "lastTransitionTime": now()}]}}
    arguments = ("--subresource=status", "--type=merge", "-p", json.dumps(change))
    plane.kubectl("patch", "provisioningrequest", name, *arguments)
    queues.wait_running("capacity-job")
    annotations = queues.job("capacity-job")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["autoscaling.x-k8s.io/consume-provisioning-request"] == name
    assert state(queues, "capacity-job") == "Ready"


def test_example_controller_admits_and_rejects(plane: Plane, tmp_path: Path) -> None:
    kubeconfig = plane.kubeconfig("budget", certificate=plane.authority.issue("budget", ["system:masters"]))
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    plane.kubectl("annotate", "namespace", "default", "example.com/budget=3", "--overwrite")
    queues = checked(plane, "budget", "example.com/budget")
    controller = subprocess.Popen([sys.executable, str(EXAMPLE)], env=environment)
    try:
        until(lambda: active(plane, "budget"), "the check is active")
        queues.submit("budget-large", pods=4)
        until(lambda: queues.condition("budget-large", "Evicted"), "the Workload is evicted")
        assert "4 pods exceed the budget of 3" in queues.condition("budget-large", "Evicted")["message"]
        plane.kubectl("annotate", "namespace", "default", "example.com/budget-", "--overwrite")
        queues.submit("budget-small", pods=1)
        queues.wait_running("budget-small")
    finally:
        controller.kill()
        controller.wait()
