"""Pods, pod groups and what serves, on a real API server; the tests play scheduler and kubelet."""

from __future__ import annotations

from typing import Any

import pytest
from realcluster_install import Installation
from realcluster_jobs import QUEUE_LABEL, Object, Queues, now
from realcluster_plane import Plane, until

D = "kueue.x-k8s.io/"


def pod(name: str, queue: str, group: str = "", total: int = 0, cpu: str = "1", **labels: str) -> Object:
    annotations: dict[str, str] = {}
    if group:
        labels[f"{D}pod-group-name"] = group
        annotations[f"{D}pod-group-total-count"] = str(total)
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {QUEUE_LABEL: queue, **labels},
            "annotations": annotations,
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


class Kubelet:
    """What happens to pods, and what is seen of them."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def get(self, name: str) -> Object | None:
        return self._plane.kubectl.get("pod", name)

    def is_gated(self, name: str) -> bool:
        found = self.get(name)
        assert found is not None
        return {"name": f"{D}admission"} in found["spec"].get("schedulingGates", ())

    def wait_let_go(self, name: str) -> Object:
        until(lambda: not self.is_gated(name), f"{name} let go")
        found = self.get(name)
        assert found is not None
        return found

    def _path(self, name: str, part: str) -> str:
        return f"/api/v1/namespaces/default/pods/{name}/{part}"

    def run(self, name: str) -> None:
        """Bind the pod and let it be ready."""
        target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._plane.call("POST", self._path(name, "binding"), binding)
        self._write(name, "Running", "True")

    def end(self, name: str, phase: str = "Succeeded") -> None:
        self._write(name, phase, "False")

    def _write(self, name: str, phase: str, ready: str) -> None:
        found = self.get(name)
        assert found is not None
        conditions = [one for one in found["status"].get("conditions", ()) if one["type"] != "Ready"]
        conditions.append({"type": "Ready", "status": ready, "lastTransitionTime": now()})
        status = {**found["status"], "phase": phase, "conditions": conditions}
        self._plane.call("PUT", self._path(name, "status"), {**found, "status": status})

    def remove(self, name: str) -> None:
        """The kubelet's last delete."""
        self._plane.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")


@pytest.fixture(scope="module", autouse=True)
def _account(plane: Plane) -> None:
    """What a controller that is not here gives to every namespace."""
    metadata = {"name": "default", "namespace": "default"}
    plane.kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


@pytest.fixture
def kubelet(running: Installation) -> Kubelet:
    return Kubelet(running.plane)


def conditions(workload: Object | None) -> dict[str, tuple[str, str]]:
    found = (workload or {}).get("status", {}).get("conditions", ())
    return {one["type"]: (one["status"], one["reason"]) for one in found}


def owned(plane: Plane, name: str) -> Object | None:
    """The Workload that an object of this name owns."""
    for workload in plane.kubectl.list("workloads"):
        if any(owner["name"] == name for owner in workload["metadata"].get("ownerReferences", ())):
            return workload
    return None


def test_a_pod_waits_runs_and_ends(plane: Plane, kubelet: Kubelet) -> None:
    Queues(plane, "pods", cpu="1")
    plane.kubectl.apply(pod("pods-one", "pods"))
    running = kubelet.wait_let_go("pods-one")
    assert running["metadata"]["labels"][f"{D}podset"] == "main"
    plane.kubectl.apply(pod("pods-two", "pods"))
    assert kubelet.is_gated("pods-two")
    kubelet.run("pods-one")
    kubelet.end("pods-one")
    until(lambda: conditions(owned(plane, "pods-one")).get("Finished") == ("True", "Succeeded"), "the end")
    until(lambda: "finalizers" not in (kubelet.get("pods-one") or {})["metadata"], "no finalizer")
    kubelet.wait_let_go("pods-two")
    kubelet.run("pods-two")
    workload = owned(plane, "pods-two")
    assert workload is not None
    plane.kubectl(
        "patch", "workload", workload["metadata"]["name"], "--type=merge", "-p", '{"spec":{"active":false}}'
    )

    def stopped() -> bool:
        found = kubelet.get("pods-two")
        return found is None or bool(found["metadata"].get("deletionTimestamp"))

    until(stopped, "pods-two deleted")
    kubelet.remove("pods-two")
    until(lambda: kubelet.get("pods-two") is None, "pods-two gone")


def test_a_group_runs_and_ends_as_one(plane: Plane, kubelet: Kubelet) -> None:
    Queues(plane, "groups", cpu="2")
    plane.kubectl.apply(pod("member-one", "groups", "crew", 2))
    assert kubelet.is_gated("member-one")
    plane.kubectl.apply(pod("member-two", "groups", "crew", 2))
    for name in ("member-one", "member-two"):
        kubelet.wait_let_go(name)
        kubelet.run(name)
    workload = plane.kubectl.get("workload", "crew")
    assert workload is not None
    owners = {one["name"] for one in workload["metadata"]["ownerReferences"]}
    assert owners == {"member-one", "member-two"}
    kubelet.end("member-one", "Failed")

    def waits() -> bool:
        found = conditions(plane.kubectl.get("workload", "crew"))
        return found.get("WaitingForReplacementPods") == ("True", "PodsFailed")

    until(waits, "waiting for a replacement")
    plane.kubectl.apply(pod("member-three", "groups", "crew", 2))
    kubelet.wait_let_go("member-three")
    kubelet.run("member-three")
    for name in ("member-two", "member-three"):
        kubelet.end(name)
    until(
        lambda: conditions(plane.kubectl.get("workload", "crew")).get("Finished") == ("True", "Succeeded"),
        "the end of the group",
    )
    for name in ("member-one", "member-two", "member-three"):
        until(lambda name=name: "finalizers" not in (kubelet.get(name) or {})["metadata"], f"{name} free")


def test_group_name_without_total_count_is_rejected(plane: Plane, running: Installation) -> None:
    half = pod("half", "none", "half", 2)
    del half["metadata"]["annotations"]
    with pytest.raises(AssertionError, match="both the name and the total count of a group are needed"):
        plane.kubectl.apply(half)


def serving(kind: str, name: str, queue: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": {QUEUE_LABEL: queue}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
            **spec,
        },
    }


def test_what_serves_queues_through_its_pods(plane: Plane, running: Installation) -> None:
    Queues(plane, "serving", cpu="4")
    plane.kubectl.apply(
        serving("Deployment", "site", "serving"), serving("StatefulSet", "store", "serving", serviceName="s")
    )
    for kind, name in (("deployment", "site"), ("statefulset", "store")):
        found = plane.kubectl.get(kind, name)
        assert found is not None
        template = found["spec"]["template"]["metadata"]
        assert template["labels"][QUEUE_LABEL] == "serving"
        assert template["annotations"][f"{D}pod-suspending-parent"] == kind
    until(lambda: conditions(owned(plane, "store")).get("Admitted", ("",))[0] == "True", "the set admitted")
    refusal = plane.kubectl.refused("scale", "statefulset/store", "--replicas=3")
    assert "can only change from or to 0" in refusal
    plane.kubectl("scale", "statefulset/store", "--replicas=0")

    def parked() -> bool:
        return conditions(owned(plane, "store")).get("QuotaReserved") == ("False", "OnHold")

    until(parked, "the set parked")
    plane.kubectl("delete", "deployment/site", "statefulset/store")
