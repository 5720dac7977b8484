"""Nodes that fail, are drained and come back in scenarios: which jobs stop, and where they go on."""
# ruff: noqa: E501 (the tables of cases are one case a line)

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_simulate_scenarios import CHECK, job, of, once, outcome_of, queue, simulated

from pykueue.simulate.figures import figure
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import prepare
from pykueue.simulate.runs import run
from pykueue.simulate.scenario.reading import ScenarioError, parse

HOSTNAME = "kubernetes.io/hostname"
API = "kueue.x-k8s.io/v1beta2"


def node(name: str, **labels: str) -> dict[str, Any]:
    """A node of one CPU in rack `r`."""
    status = {"allocatable": {"cpu": 1, "pods": 9}, "conditions": [{"type": "Ready", "status": "True"}]}
    found = {HOSTNAME: name, "rack": "r", **labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": found},
        "status": status,
    }


def rack(nodes: int, *levels: str, **spec: Any) -> list[dict[str, Any]]:
    """A queue whose flavor has the topology of rack and host, and nodes `n0`, `n1` and so on."""
    topology = {"levels": [{"nodeLabel": level} for level in levels or ("rack", HOSTNAME)]}
    flavor, *others = queue(cpu=9, **spec)
    return [
        {"apiVersion": API, "kind": "Topology", "metadata": {"name": "t"}, "spec": topology},
        {**flavor, "spec": {"nodeLabels": {"rack": "r"}, "topologyName": "t"}},
        *others,
        *(node(f"n{number}") for number in range(nodes)),
    ]


def at(time: str, **change: Any) -> dict[str, Any]:
    """An intervention: what is done to which nodes, by their names."""
    return {"at": time, "nodes": {name: {"names": list(names)} for name, names in change.items()}}


def pods(count: int, name: str = "job", **more: Any) -> dict[str, Any]:
    """A job of ten minutes with pods of one CPU."""
    return job(name, podSets=[{"count": count, "requests": {"cpu": 1}}], **more)


#: interventions -> figures: end of the job in minutes, losses of nodes, evictions, lost CPU-seconds.
CASES: dict[str, tuple[int, dict[str, Any], list[dict[str, Any]], tuple[float, ...]]] = {
    "another node takes its place": (3, {}, [at("5m", fail=["n0"])], (15, 1, 0, 600)),
    "the failure is noticed later": (3, {"nodeFailure": {"fixed": "1m"}}, [at("5m", fail=["n0"])], (16, 1, 0, 600)),
    "pods take time to start": (3, {"podStart": {"fixed": "30s"}}, [at("5m", fail=["n0"])], (15.5, 1, 0, 540)),
    "a node without pods changes nothing": (3, {}, [at("5m", fail=["n2"])], (10, 0, 0, 0)),
    "evicted without another node, and admitted when it is back": (2, {}, [at("5m", fail=["n0"]), at("20m", restore=["n0"])], (30, 1, 1, 600)),
    "back before it is noticed": (2, {"nodeFailure": {"fixed": "5m"}}, [at("5m", fail=["n0"]), at("7m", restore=["n0"])], (17, 1, 0, 600)),
    "two nodes at once evict it": (4, {}, [at("5m", fail=["n0", "n1"])], (15, 1, 1, 600)),
    "a drained node": (3, {"eviction": {"fixed": "1m"}}, [at("5m", drain=["n0"])], (16, 1, 0, 600)),
    "the other node is drained too": (3, {}, [at("5m", drain=["n0"]), at("8m", drain=["n2"])], (28, 2, 1, 600 + 360)),
    "a deleted Node": (3, {}, [{"at": "5m", "delete": [{"kind": "Node", "name": "n0"}]}], (15, 1, 0, 600)),
    "a cordoned node keeps its pods": (3, {}, [{"at": "5m", "patches": [{"kind": "Node", "name": "n0", "patch": {"spec": {"unschedulable": True}}}]}], (10, 0, 0, 0)),
    "a node that fails again": (3, {}, [at("2m", fail=["n0"]), at("3m", restore=["n0"]), at("4m", fail=["n2"])], (14, 2, 0, 240 + 240)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_job_on_two_nodes(tmp_path: Path, name: str) -> None:
    nodes, latencies, interventions, expected = CASES[name]
    if name == "the other node is drained too":
        interventions = [*interventions, at("18m", restore=["n0"])]
    found = simulated(
        tmp_path, once(pods(2)), objects=rack(nodes), latencies=latencies, interventions=interventions
    )
    figures = ("nodeLosses", "evictions", "lostWork")
    assert (found.makespan / 60, *(figure(found, each) for each in figures)) == expected
    assert found.unfinished == 0


def test_checkpoints_limit_what_is_lost(tmp_path: Path) -> None:
    found = simulated(
        tmp_path,
        once(pods(2, checkpointEvery="2m")),
        objects=rack(3),
        interventions=[at("5m", fail=["n0"])],
    )
    assert (figure(found, "lostWork"), found.makespan) == (2 * 60, 11 * 60)


def test_other_jobs_do_not_get_the_failed_node(tmp_path: Path) -> None:
    found = simulated(
        tmp_path,
        once(pods(1, "later"), at="6m"),
        objects=rack(1),
        interventions=[at("5m", fail=["n0"]), at("1h", restore=["n0"])],
    )
    assert figure(found, "wait.max", of("later")) == 54 * 60


def test_without_replacement_a_job_stops_until_its_node_is_back(tmp_path: Path) -> None:
    gates = ("TASFailedNodeReplacement", "TASFailedNodeReplacementFailFast", "TASReplaceNodeOnPodTermination", "TASReplaceNodeOnNodeTaints")  # fmt: skip
    found = simulated(
        tmp_path,
        once(pods(2)),
        objects=rack(3),
        configuration={"featureGates": dict.fromkeys(gates, False)},
        interventions=[at("5m", fail=["n0"]), at("1h", restore=["n0"])],
    )
    assert (found.makespan, figure(found, "evictions")) == (70 * 60, 0)


def test_node_that_fails_while_checks_are_pending_stops_the_job_when_it_is_admitted(tmp_path: Path) -> None:
    objects = [*rack(3, admissionChecksStrategy={"admissionChecks": [{"name": "c"}]}), CHECK]
    found = simulated(
        tmp_path,
        once(pods(2)),
        objects=objects,
        latencies={"checks": {"fixed": "5m"}},
        interventions=[at("2m", fail=["n0"])],
    )
    assert (found.makespan, figure(found, "nodeLosses"), found.unfinished) == (15 * 60, 1, 0)


def test_pods_are_placed_after_provisioning(tmp_path: Path) -> None:
    check = {**CHECK, "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"}}
    objects = [*rack(2, admissionChecksStrategy={"admissionChecks": [{"name": "c"}]}), check]
    found = simulated(tmp_path, once(pods(2)), objects=objects, latencies={"checks": {"fixed": "5m"}})
    assert (found.makespan, figure(found, "wait.max"), found.unfinished) == (15 * 60, 300, 0)


def test_topology_without_hosts_does_not_say_where_pods_are(tmp_path: Path) -> None:
    found = simulated(tmp_path, once(pods(2)), objects=rack(3, "rack"), interventions=[at("5m", fail=["n0"])])
    assert (found.makespan, figure(found, "nodeLosses")) == (600, 0)


def test_decision_log_has_lost_and_assigned_nodes(tmp_path: Path) -> None:
    document = {
        "apiVersion": "pykueue.io/v1alpha1",
        "kind": "Scenario",
        "name": "t",
        "manifests": ["queues.yaml"],
        "arrivals": [once(pods(2))],
        "interventions": [{"at": "5m", "nodes": {"fail": {"labels": {"zone": "a"}}}}],
    }
    objects = rack(2)
    objects[-2]["metadata"]["labels"]["zone"] = "a"
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all([*objects, node("n2")]))
    prepared = prepare(parse(yaml.safe_dump(document)), tmp_path)
    run(prepared, prepared.variants[0], 0, tmp_path)
    with gzip.open(tmp_path / "decisions-baseline-0.jsonl.gz") as file:
        entries = [json.loads(line) for line in file]
    assert [(each["what"], each.get("nodes")) for each in entries[2:]] == [
        ("LoseNodes", ["n0"]),
        ("Move", ["n1", "n2"]),
        ("End", None),
    ]


def outcome(folder: Path, objects: list[dict[str, Any]], *interventions: dict[str, Any]) -> Outcome:
    (folder / "queues.yaml").write_text(yaml.safe_dump_all(objects))
    document = {"name": "t", "manifests": ["queues.yaml"], "interventions": list(interventions)}
    return outcome_of(folder, document)


@pytest.mark.parametrize(
    ("objects", "nodes", "error"),
    [
        (rack(1), {"fail": {"names": ["x"]}}, "interventions[0].nodes.fail.names: Node x is not among the manifests"),
        (rack(1), {"fail": {"labels": {"a": "b"}}}, "interventions[0].nodes.fail: no node has these labels"),
        (rack(1), {"drain": {}}, "interventions[0].nodes.drain: one of names and labels is required"),
        (rack(1), {}, "interventions[0].nodes: one of fail, drain, restore is required"),
        ([*queue(), node("n0")], {"fail": {"names": ["n0"]}}, "interventions[0].nodes: no flavor has a topology, and quota alone does not say where pods are; patch the nominalQuota instead"),
    ],
)  # fmt: skip
def test_intervention_without_effect_is_refused(
    tmp_path: Path, objects: list[dict[str, Any]], nodes: dict[str, Any], error: str
) -> None:
    with pytest.raises(ScenarioError) as raised:
        outcome(tmp_path, objects, {"at": "1m", "nodes": nodes})
    assert error in str(raised.value)
