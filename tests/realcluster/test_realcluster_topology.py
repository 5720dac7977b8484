"""Topology-aware scheduling on a real API server: definitions, gates, assignments, and a lost node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from realcluster_install import Installation
from realcluster_jobs import now
from realcluster_plane import Kubectl, Plane, until
from test_realcluster_pods import pod

from queue_manifests import cluster_queue, flavor, local_queue, topology

Object = dict[str, Any]

D = "kueue.x-k8s.io/"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
HOSTS = {"tas-a": "r1", "tas-b": "r1", "tas-c": "r1", "tas-d": "r2"}


def node(name: str, rack: str) -> Object:
    labels = {"tas": "yes", RACK: rack, HOST: name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


@pytest.fixture(scope="module")
def racks(running: Installation) -> Iterator[Plane]:
    """Ready nodes with two cpu each, without taints, and a queue on them."""
    plane = running.plane
    account = {"name": "default", "namespace": "default"}
    plane.kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    plane.kubectl.apply(*(node(name, rack) for name, rack in HOSTS.items()))
    for name in HOSTS:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now()}
        amounts = {"cpu": "2", "pods": "10"}
        status = {"conditions": [ready], "allocatable": amounts, "capacity": amounts}
        patch = {"status": status}
        plane.call("PATCH", f"/api/v1/nodes/{name}/status", patch, "application/merge-patch+json")
        plane.call(
            "PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "application/merge-patch+json"
        )
    tas = flavor("tas", nodeLabels={"tas": "yes"}, topologyName="tas")
    plane.kubectl.apply(
        topology("tas", RACK, HOST), tas, cluster_queue("tas", {"tas": {"cpu": 100}}), local_queue("tas")
    )
    yield plane
    for kind in ("localqueue", "clusterqueue", "resourceflavor", "topology"):
        plane.kubectl("delete", kind, "tas", "--wait=false")
    plane.kubectl("delete", "nodes", *HOSTS, "--ignore-not-found")


def spec_of(plane: Plane, name: str) -> Object:
    found = plane.kubectl.get("pod", name)
    assert found is not None
    spec: Object = found["spec"]
    return spec


def member(number: int, rank: int) -> Object:
    made = pod(f"tas-{number}", "tas", "tas-group", 2, cpu="2", rank=str(rank))
    made["metadata"]["annotations"] |= {
        f"{D}podset-required-topology": RACK,
        f"{D}pod-group-pod-index-label": "rank",
    }
    return made


def test_levels_of_a_topology_are_checked(kubectl: Kubectl, racks: Plane) -> None:
    refused = kubectl.refused("apply", "-f", "-", stdin=json.dumps(topology("tas", HOST, RACK)))
    assert "must be the lowest level" in refused
    refused = kubectl.refused("apply", "-f", "-", stdin=json.dumps(topology("tas", RACK, RACK)))
    assert "must be distinct" in refused


def test_pods_of_a_group_get_the_hosts_of_their_ranks_and_a_lost_one_is_replaced(racks: Plane) -> None:
    racks.kubectl.apply(member(0, 1), member(1, 0))
    until(lambda: not spec_of(racks, "tas-0").get("schedulingGates"), "tas-0 ungated")
    until(lambda: not spec_of(racks, "tas-1").get("schedulingGates"), "tas-1 ungated")
    found = {name: spec_of(racks, name)["nodeSelector"] for name in ("tas-0", "tas-1")}
    assert {name: labels[HOST] for name, labels in found.items()} == {"tas-0": "tas-b", "tas-1": "tas-a"}
    assert found["tas-0"]["tas"] == "yes"
    workload = racks.kubectl.get("workload", "tas-group")
    assert workload is not None
    (given,) = workload["status"]["admission"]["podSetAssignments"]
    assert given["topologyAssignment"]["levels"] == [HOST]
    old = racks.kubectl.get("workloads.v1beta1.kueue.x-k8s.io", "tas-group")
    assert old is not None
    (given,) = old["status"]["admission"]["podSetAssignments"]
    assert given["topologyAssignment"]["domains"] == [
        {"values": ["tas-a"], "count": 1},
        {"values": ["tas-b"], "count": 1},
    ]

    racks.kubectl("delete", "node", "tas-b")

    def replaced() -> bool:
        workload = racks.kubectl.get("workloads.v1beta1.kueue.x-k8s.io", "tas-group")
        assert workload is not None
        return '["tas-c"]' in json.dumps(workload["status"].get("admission"))

    until(replaced, "tas-c assigned in place of tas-b")

    def ended() -> bool:
        pod = racks.kubectl.get("pod", "tas-0")
        return pod is not None and pod["status"]["phase"] == "Failed"

    until(ended, "the pod that waited for tas-b ended")
    racks.kubectl("delete", "pods", "tas-0", "tas-1", "--wait=false")
