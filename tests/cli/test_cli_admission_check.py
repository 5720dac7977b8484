"""The example of an external check controller, run as a program against a served cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykueue.api.resources import NAMESPACES, WORKLOADS, Resource
from pykueue.api.yaml import load_documents
from pykueue.kube.client import Client
from pykueue.testing import RunningServer, running_server

EXAMPLE = Path(__file__).parents[2] / "examples" / "admission-check"
#: Seconds until a test gives up; nothing is asserted about how long things take.
PATIENCE = 120.0
_PLURALS = {"AdmissionCheck": "admissionchecks", "Job": "jobs"}


class Budgeted:
    """A served cluster with the example's objects, and its controller."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._client = Client(server.cluster.transport("system:apiserver"))

    def apply(self, file: str, count: int | None = None) -> None:
        """Create the objects of a file; a Job with `count` pods."""
        for obj in load_documents((EXAMPLE / file).read_text()):
            group, _, version = obj["apiVersion"].rpartition("/")
            plural = _PLURALS.get(obj["kind"], f"{obj['kind'].lower()}s")
            namespaced = obj["kind"] in ("Job", "LocalQueue")
            if obj["kind"] == "Job":
                obj["spec"] |= {"parallelism": count, "completions": count}
                obj["metadata"] = {**obj["metadata"], "namespace": "default", "name": f"pods-{count}"}
            resource = Resource(group, version, plural, obj["kind"], namespaced)
            self._server.run(self._client.create(resource, obj))

    def allow(self, pods: int) -> None:
        change = {"metadata": {"annotations": {"example.com/budget": str(pods)}}}
        self._server.run(self._client.patch(NAMESPACES, "default", None, change))

    def workload(self, job: str) -> dict[str, Any] | None:
        for one in self._server.run(self._client.list(WORKLOADS)).items:
            if one["metadata"]["ownerReferences"][0]["name"] == job:
                return one
        return None

    def has(self, job: str, kind: str, status: str, text: str = "") -> bool:
        """Whether the job's Workload has such a condition."""
        workload = self.workload(job)
        conditions = (workload or {}).get("status", {}).get("conditions", [])
        return any(
            (one["type"], one["status"]) == (kind, status) and text in one["message"] for one in conditions
        )


@pytest.fixture
def budgeted() -> Iterator[Budgeted]:
    with running_server(parts=("apiserver", "manager")) as server:
        command = [sys.executable, str(EXAMPLE / "budget.py")]
        controller = subprocess.Popen(command, env=dict(server.environment))
        try:
            yield Budgeted(server)
        finally:
            controller.kill()
            controller.wait()


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.1)


def test_example_controller_admits_delays_and_rejects(budgeted: Budgeted) -> None:
    budgeted.allow(3)
    budgeted.apply("check.yaml")
    budgeted.apply("job.yaml", 2)
    until(lambda: budgeted.has("pods-2", "Admitted", "True"))
    workload = budgeted.workload("pods-2")
    assert workload is not None
    (check,) = workload["status"]["admissionChecks"]
    assert check["podSetUpdates"] == [{"name": "main", "annotations": {"example.com/budget": "charged"}}]
    budgeted.apply("job.yaml", 3)
    until(lambda: budgeted.has("pods-3", "Evicted", "True", "2 of 3 pods are used, 3 more needed"))
    budgeted.apply("job.yaml", 4)
    until(lambda: budgeted.has("pods-4", "Evicted", "True", "4 pods exceed the budget of 3"))
    rejected = budgeted.workload("pods-4")
    assert rejected is not None
    assert rejected["spec"]["active"] is False
