"""`pykueue schedule` with nodes among the manifests: pods are placed by their topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from schedule_inputs import run

from pykueue.api import decode_as, kueue
from pykueue.api.topologies import expand
from pykueue.cli.questions import why

V1BETA2 = "kueue.x-k8s.io/v1beta2"
RACK = "kueue.x-k8s.io/podset-required-topology"


def node(name: str, rack: str, cpu: int) -> dict[str, Any]:
    labels = {"pool": "gpu", "rack": rack, "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": {"cpu": str(cpu), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def job(name: str, pods: int) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": {RACK: "rack"}},
                "spec": {"restartPolicy": "Never", "containers": containers},
            },
        },
    }


def kueue_object(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    return {"apiVersion": V1BETA2, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


QUEUES = [
    kueue_object(
        "Topology", "racks", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    ),
    kueue_object("ResourceFlavor", "gpu", {"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"}),
    kueue_object(
        "ClusterQueue",
        "cq",
        {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": "100"}]}],
                }
            ],
        },
    ),
    kueue_object("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="default"),
]


def report(folder: Path, *objects: dict[str, Any]) -> dict[str, Any]:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all([*QUEUES, *objects]))
    found = run("-f", str(path), "-o", "json")
    assert found.exit_code == 0, found.output
    result: dict[str, Any] = json.loads(found.stdout)
    return result


def test_jobs_go_to_the_nodes_of_one_rack_or_wait(tmp_path: Path) -> None:
    nodes = [node("n1", "r1", 2), node("n2", "r1", 2), node("n3", "r2", 3)]
    workloads = report(tmp_path, *nodes, job("fits", 4), job("large", 5))["workloads"]
    (given,) = workloads["default/job-fits"]["admission"]["podSetAssignments"]
    assignment = decode_as(kueue.TopologyAssignment, given["topologyAssignment"])
    assert expand(assignment) == [(("n1",), 2), (("n2",), 2)]
    waits = workloads["default/job-large"]
    assert waits["reason"] == "TopologyPlacementFailed"
    assert "no domain of level rack holds 5 pods: the largest, r2, holds 3" in waits["message"]


def test_without_nodes_a_job_that_asks_for_a_topology_is_not_admitted(tmp_path: Path) -> None:
    waits = report(tmp_path, job("a", 1))["workloads"]["default/job-a"]
    assert waits["reason"] == "TopologyPlacementFailed"
    assert "no ready and schedulable node has all of the labels rack," in waits["message"]


def test_why_gives_the_reason_that_schedule_gives(tmp_path: Path) -> None:
    waits = report(tmp_path, node("n1", "r1", 2), job("large", 3))["workloads"]["default/job-large"]
    found = CliRunner().invoke(why, ["job/large", "-f", str(tmp_path), "-o", "json"])
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert (answer["reason"], answer["message"]) == (waits["reason"], waits["message"])
    assert waits["reason"] == "TopologyPlacementFailed"


def write(folder: Path, *objects: dict[str, Any]) -> str:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all([*QUEUES, *objects]))
    return str(path)


def test_the_table_shows_where_pods_are_placed(tmp_path: Path) -> None:
    nodes = [node("n1", "r1", 2), node("n2", "r1", 3), node("n3", "r2", 3), node("n4", "r3", 1)]
    found = run("-f", write(tmp_path, *nodes, job("large", 5), job("small", 2)))
    assert found.exit_code == 0, found.output
    picture = found.stdout.partition("Nodes of flavor gpu, topology racks:\n")[2].partition("\n\n")[0]
    assert [line.split() for line in picture.splitlines()] == [
        ["DOMAIN", "CPU", "PODS", "PODS"],
        ["r1"],
        ["n1", "2/2", "2/110", "default/job-large:", "2"],
        ["n2", "3/3", "3/110", "default/job-large:", "3"],
        ["r2"],
        ["n3", "2/3", "2/110", "default/job-small:", "2"],
        ["(1", "domain", "without", "pods)"],
    ]


def test_the_example_is_placed_on_the_nodes_of_its_node_pools() -> None:
    found = run("-f", str(Path(__file__).parents[2] / "examples" / "topology"))
    assert (found.exit_code, found.stderr) == (0, ""), found.output
    picture = found.stdout.partition("Nodes of flavor a100, topology data-center:\n")[2]
    assert [line.split() for line in picture.partition("\n\n")[0].splitlines()] == [
        ["DOMAIN", "CPU", "NVIDIA.COM/GPU", "PODS", "PODS"],
        ["gpu-block-0"],
        ["gpu-block-0-rack-0"],
        ["gpu-0", "2/64", "8/8", "2/110", "default/job-train:", "2"],
        ["gpu-1", "2/64", "8/8", "2/110", "default/job-train:", "2"],
        ["gpu-block-0-rack-1"],
        ["gpu-2", "4/64", "8/8", "4/110", "default/job-pairs:", "4"],
        ["gpu-3", "4/64", "8/8", "4/110", "default/job-pairs:", "4"],
        ["(1", "domain", "without", "pods)"],
    ]


def test_a_fault_of_a_node_pool_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("pools:\n- {name: n, allocatable: {cpu: many}}\n")
    found = run("-f", str(tmp_path))
    assert found.exit_code == 2
    assert f"{tmp_path}/nodes.yaml: pools[0].allocatable" in found.stderr


def test_pods_on_nodes_that_are_in_no_workload_use_their_nodes(tmp_path: Path) -> None:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]
    daemon = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "d", "namespace": "kube-system"},
        "spec": {"nodeName": "n1", "containers": containers},
    }
    found = report(tmp_path, node("n1", "r1", 2), daemon, job("two", 2), job("one", 1))
    assert {key: each["state"] for key, each in found["workloads"].items()} == {
        "default/job-one": "Admitted",
        "default/job-two": "Pending",
    }
    (placement,) = found["placements"]
    assert placement["available"] == {"cpu": "1500m", "pods": "109"}
    assert placement["used"] == {"cpu": "1", "pods": "1"}
    assert placement["workloads"] == {"default/job-one": 1}


def test_placements_count_the_pod_of_a_leader_that_requests_nothing(tmp_path: Path) -> None:
    """It is assigned no flavor, and is placed on a node of the flavor of its workers."""
    pod_sets = [
        {
            "name": name,
            "count": count,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}},
            "topologyRequest": {"required": "rack", "podSetGroupName": "g"},
        }
        for name, count, requests in (("leader", 1, {}), ("workers", 2, {"cpu": "1"}))
    ]
    group = kueue_object("Workload", "w", {"queueName": "lq", "podSets": pod_sets}, namespace="default")
    placements = report(tmp_path, node("n1", "r1", 2), group)["placements"]
    assert [each["used"] for each in placements] == [{"cpu": "2", "pods": "3"}]
    assert [each["workloads"] for each in placements] == [{"default/w": 3}]
