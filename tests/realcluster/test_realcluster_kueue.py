"""Moving from Kueue, as docs/use/install.md says: what runs goes on, what waits is admitted in its turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from realcluster_install import USER, Installation
from realcluster_jobs import JobController, Queues
from realcluster_kueue import GROUP, Kueue
from realcluster_plane import Plane, assets, until

PAGE = Path(__file__).parents[2] / "docs" / "use" / "install.md"


def commands() -> str:
    """What the page says to type."""
    _, _, rest = PAGE.read_text().partition("\n## Moving from Kueue\n")
    section = rest.partition("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A cluster on which Kueue has been stopped.

    Two pods run in a ClusterQueue of one: the other one's quota is that of the root of its tree.
    """
    plane = Plane(assets(), tmp_path_factory.mktemp("kueue"))
    try:
        plane.start()
        leave_as_kueue(plane)
        yield plane
    finally:
        plane.stop()


def leave_as_kueue(plane: Plane) -> None:
    kueue = Kueue(plane)
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
    }
    kueue.queue("Topology", "racks", in_use=True, spec={"levels": [{"nodeLabel": "rack"}]})
    racked = {"nodeLabels": {"pool": "racked"}, "topologyName": "racks"}
    kueue.queue("ResourceFlavor", "racked", in_use=True, spec=racked)
    kueue.queue("ResourceFlavor", "plain", in_use=True, spec={"nodeLabels": {"pool": "plain"}})
    kueue.queue("Cohort", "org", spec={"resourceGroups": [group]})
    kueue.queue("Cohort", "lab", spec={"parent": "org"})
    preemption = {"withinClusterQueue": "LowerPriority"}
    team = {"cohort": "lab", "namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption}
    kueue.queue("ClusterQueue", "team", in_use=True, spec=team)
    kueue.queue("LocalQueue", "team", spec={"clusterQueue": "team"})
    for value in (-1, -2, -3):
        kueue.queue("WorkloadPriorityClass", f"low{value}", value=value)

    queues = Queues.that_are_there(plane, "team")
    with JobController(plane) as jobs:
        done = kueue.waiting("done", "team")
        kueue.admit(done, "team", "plain", 1)
        jobs.finish("done")
        kueue.finish(done)
        kueue.admit(kueue.waiting("running", "team"), "team", "plain", 1)
        kueue.admit(kueue.waiting("partly", "team", pods=3, least=1, **of_class(-1)), "team", "plain", 1)
        kueue.waiting("first", "team", **of_class(-2))
        kueue.waiting("second", "team", **of_class(-3))
        for name in ("running", "partly"):
            queues.wait_running(name)
    kueue.install()


def of_class(value: int) -> Any:
    """A Workload's priority. Each has its own: of two made in the same second, either might be first."""
    source = f"{GROUP}/workloadpriorityclass"
    return {"priority": value, "priorityClassName": f"low{value}", "priorityClassSource": source}


@pytest.fixture(scope="module")
def moved(old: Plane) -> Iterator[Installation]:
    """The same after what the page says, and a manager ready."""
    folder = old.folder / "moving"
    folder.mkdir()
    old.kubectl.shell(commands(), folder)
    installed = Installation(old, (folder / "pykueue.yaml").read_text())
    try:
        installed.start_replica(apiVersion="config.kueue.x-k8s.io/v1beta2")
        yield installed
    finally:
        installed.stop()


@pytest.fixture(scope="module")
def jobs(moved: Installation) -> Iterator[JobController]:
    with JobController(moved.plane) as controller:
        yield controller


@pytest.fixture(scope="module")
def queues(moved: Installation) -> Queues:
    return Queues.that_are_there(moved.plane, "team")


def test_what_runs_is_not_touched(moved: Installation, queues: Queues) -> None:
    queues.wait_for("first", "QuotaReserved", "False", "WaitingForQuota")
    assert queues.admitted() == {"running", "partly"}
    written = [one for one in moved.plane.requests_of(USER) if writes_jobs(one)]
    assert [(one["verb"], one["objectRef"]["name"]) for one in written] == []
    for name in ("running", "partly"):
        (given,) = (queues.workload(name) or {})["status"]["admission"]["podSetAssignments"]
        assert (given["flavors"], given["count"]) == ({"cpu": "plain"}, 1)
    assert len(moved.plane.kubectl.list("workloads")) == 5


def writes_jobs(record: dict[str, Any]) -> bool:
    about = record.get("objectRef", {})
    return about.get("resource") == "jobs" and record["verb"] in ("create", "update", "patch", "delete")


def test_quota_in_use_is_counted_over_the_whole_tree(moved: Installation) -> None:
    def usage() -> Any:
        (flavor,) = (moved.plane.kubectl.get("clusterqueue", "team") or {})["status"]["flavorsUsage"]
        return flavor["resources"] == [{"name": "cpu", "total": "2", "borrowed": "1"}]

    until(usage, "usage")


def test_both_versions_say_what_v1alpha1_said(moved: Installation) -> None:
    for version in ("v1beta1", "v1beta2"):
        found = moved.plane.call("GET", f"/apis/{GROUP}/{version}/cohorts/lab")
        assert found["spec"] == {"parentName": "org"}
    # Managed fields of the old version do not keep the new one from being applied.
    cohort = {"apiVersion": f"{GROUP}/v1beta2", "kind": "Cohort", "metadata": {"name": "lab"}}
    moved.plane.kubectl.apply({**cohort, "spec": {"parentName": "org"}})
    shown = moved.plane.kubectl(
        "get", "workloads", "--no-headers", "--field-selector=metadata.name=job-done-0792a"
    )
    assert shown.split()[1:5] == ["team", "team", "True", "True"]


def test_what_kueue_admitted_can_be_preempted(queues: Queues, jobs: JobController) -> None:
    """Nothing that Kueue created remains, whatever its owner."""
    queues.submit("urgent")
    queues.wait_running("urgent")
    assert queues.admitted() == {"running", "urgent"}
    stopped = queues.job("partly")["spec"]
    assert (stopped["suspend"], stopped["parallelism"]) == (True, 3)
    assert "nodeSelector" not in stopped["template"]["spec"]
    assert not stopped["template"]["metadata"].get("annotations")
    status = (queues.workload("partly") or {})["status"]
    assert "admission" not in status
    assert queues.condition("partly", "Admitted")["status"] == "False"


def test_what_waited_is_admitted_in_its_turn(queues: Queues, jobs: JobController) -> None:
    for ends, starts in (("running", "partly"), ("urgent", "first"), ("partly", "second")):
        jobs.finish(ends)
        queues.wait_running(starts)
        assert starts in queues.admitted()
        assert len(queues.admitted()) == 2
    assert queues.job("partly")["spec"]["parallelism"] == 1


def test_queues_and_flavors_in_use_are_deleted_when_no_longer_used(moved: Installation) -> None:
    kubectl = moved.plane.kubectl
    kubectl("delete", "topology", "racks", "--wait=false")
    assert (kubectl.get("topology", "racks") or {})["metadata"]["finalizers"]
    kubectl("delete", "resourceflavor", "racked", "--timeout=30s")
    until(lambda: kubectl.get("topology", "racks") is None, "the topology gone")
