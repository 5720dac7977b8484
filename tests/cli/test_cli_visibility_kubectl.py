"""Real kubectl and the visibility API of `pykueue up`: raw requests, discovery, and who may look."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import EXAMPLE, Kubectl, Up
from click.testing import CliRunner

from pykueue.cli.main import main

pytestmark = pytest.mark.kubectl

BASE = "/apis/visibility.kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def up(start_up: Callable[..., Up]) -> Up:
    return start_up("--in-memory")


@pytest.fixture(scope="module")
def kubectl(up: Up, kubectl_for: Callable[[Up], Kubectl]) -> Kubectl:
    found = kubectl_for(up)
    found("create", "-f", str(EXAMPLE / "queues.yaml"))
    return found


def test_pending_workloads_can_be_read_with_kubectl(kubectl: Kubectl) -> None:
    (queue,) = json.loads(kubectl("get", "localqueues", "-o", "json"))["items"]
    name = queue["spec"]["clusterQueue"]
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1000000"}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "huge", "labels": {"kueue.x-k8s.io/queue-name": queue["metadata"]["name"]}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(job))
    kubectl("wait", "--for=jsonpath={.status.conditions[0].type}=QuotaReserved", "workload", "--all")
    (item,) = json.loads(kubectl("get", "--raw", f"{BASE}/clusterqueues/{name}/pendingworkloads"))["items"]
    assert item["metadata"]["ownerReferences"][0]["name"] == "huge"
    assert (item["positionInClusterQueue"], item["positionInLocalQueue"]) == (0, 0)
    path = f"{BASE}/namespaces/default/localqueues/{queue['metadata']['name']}/pendingworkloads?limit=5"
    assert json.loads(kubectl("get", "--raw", path))["items"] == [item]


def test_kubectl_get_prints_when_pending_workloads_start(kubectl: Kubectl) -> None:
    for _ in range(20):  # a request waits for 5 s at most, for a process that may not have begun
        header, row = kubectl("get", "pendingworkloads").splitlines()
        if "<unknown>" not in row:
            break
    assert header.split() == ["NAME", "LOCALQUEUE", "POSITION", "EARLIEST", "LATEST", "SCORE", "AGE"]
    name, _, position, earliest, latest, _, _ = row.split()
    assert (name.partition("-huge-")[0], position) == ("job", "0")
    # It never fits.
    assert (earliest, latest) == (">24h", ">24h")
    assert "CLUSTERQUEUE" in kubectl("get", "pwl", "-A", "-o", "wide")
    assert kubectl("get", "pwl", "-o", "name").strip() == f"pendingworkload.visibility.kueue.x-k8s.io/{name}"
    item = json.loads(kubectl("get", "pendingworkloads", name, "-o", "json"))
    assert (item["kind"], item["start"]["started"]) == ("PendingWorkload", 0)
    code, _, error = kubectl.run("get", "pendingworkloads", "--as=guest")
    assert code == 1
    assert "Forbidden" in error


def test_dry_run_warns_when_the_job_would_start_and_a_create_does_not(kubectl: Kubectl) -> None:
    (queue,) = json.loads(kubectl("get", "localqueues", "-o", "json"))["items"]
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1000000"}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "larger", "labels": {"kueue.x-k8s.io/queue-name": queue["metadata"]["name"]}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    text = json.dumps(job)
    for _ in range(40):  # a dry run waits for 2 s at most, for a process that may not have begun
        code, _, warnings = kubectl.run("create", "--dry-run=server", "-f", "-", stdin=text)
        assert code == 0
        if "not known yet" not in warnings:
            break
    assert "Warning: would not start within 24h in " in warnings
    code, _, warnings = kubectl.run("create", "-f", "-", stdin=text)
    assert (code, warnings) == (0, "")
    kubectl("delete", "job", "larger")


def test_the_names_of_queues_still_mean_the_queues(kubectl: Kubectl) -> None:
    assert kubectl("get", "clusterqueues", "-o", "name").startswith("clusterqueue.kueue.x-k8s.io/")
    assert "visibility.kueue.x-k8s.io/v1beta2" in kubectl("api-versions")
    listed = kubectl("get", "apiservices", "v1beta1.visibility.kueue.x-k8s.io")
    assert "Local" in listed
    assert "True" in listed


def test_dump_of_a_running_cluster_is_read_by_schedule(up: Up, kubectl: Kubectl, tmp_path: Path) -> None:
    dumped = CliRunner().invoke(main, ["dump", "--kubeconfig", str(up.kubeconfig)])
    assert (dumped.exit_code, dumped.stderr) == (0, "")
    assert json.loads(dumped.stdout)["items"][-1]["kind"] == "EngineState"
    (tmp_path / "dump.json").write_text(dumped.stdout)
    decided = CliRunner().invoke(main, ["schedule", "-f", str(tmp_path / "dump.json"), "-o", "json"])
    assert (decided.exit_code, decided.stderr) == (0, "")


def test_reading_pending_workloads_requires_permission(kubectl: Kubectl) -> None:
    path = f"{BASE}/clusterqueues/none/pendingworkloads"
    for each in (path, f"{BASE}/enginestates/engine"):
        code, _, error = kubectl.run("get", "--raw", each, "--as=guest")
        assert code == 1
        assert "Forbidden" in error
    code, _, error = kubectl.run("get", "--raw", path)
    assert code == 1
    assert "NotFound" in error


def test_the_roles_of_an_installation_are_there_to_be_bound(kubectl: Kubectl) -> None:
    kubectl(
        "create",
        "clusterrolebinding",
        "ann-administers",
        "--clusterrole=kueue-batch-admin-role",
        "--user=ann",
    )
    pending = "clusterqueues.visibility.kueue.x-k8s.io/any"
    for verb, what in (("create", "localqueues"), ("patch", "workloads"), ("get", pending)):
        extra = ["--subresource=pendingworkloads"] if what is pending else []
        assert kubectl("auth", "can-i", verb, what, *extra, "--as=ann").strip() == "yes"
    assert "forbidden" in kubectl.refused("get", "workloads", "--as=bob")
