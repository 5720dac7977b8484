"""Forecasts, changes and dumps beside Kueue's own manager, by a user with the right to read only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from besidekueue_cluster import QUEUES, Beside, Lab, pykueue
from realcluster_plane import Kubectl

ACCOUNT = "forecast-reader"
METADATA = {"metadata": {"name": ACCOUNT}}
RBAC = "rbac.authorization.k8s.io"
READER: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": "default"},
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        **METADATA,
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        **METADATA,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    },
)


@pytest.fixture(scope="module")
def reader(beside: Beside, tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """The cluster as a user sees it who has the right to read everything, and no other."""
    beside.kubectl.apply(*READER)
    config = yaml.safe_load(beside.kubeconfig.read_text())
    token = beside.kubectl("create", "token", ACCOUNT).strip()
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    folder: Path = tmp_path_factory.mktemp("reader")
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    file.chmod(0o600)
    found = Beside(file, Kubectl(file, folder))
    assert found.kubectl("auth", "can-i", "list", "workloads.kueue.x-k8s.io").strip() == "yes"
    assert found.kubectl.run("auth", "can-i", "patch", "workloads.kueue.x-k8s.io").stdout.strip() == "no"
    return found


def ask(reader: Beside, lab: Lab, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        reader.pykueue(*arguments, "-n", lab.namespace, "--futures", "5", "-o", "json")
    )
    assert answer["unread"] == []
    return answer


def name_of(lab: Lab, job: str) -> str:
    workload = lab.workload(job)
    assert workload is not None
    return f"{lab.namespace}/{workload['metadata']['name']}"


def test_workload_starts_after_the_end_that_is_forecast(
    beside: Beside, reader: Beside, tmp_path: Path
) -> None:
    lab = beside.full_lab()
    answer = ask(reader, lab, "when", "job/training", "--no-arrivals", "--scores", str(tmp_path / "scores"))
    assert (answer["workload"], answer["started"]) == (name_of(lab, "training"), 5)
    assert [each["workload"] for each in answer["triggers"]] == [name_of(lab, "survey")]
    beside.kubectl("delete", "job", "survey", "-n", lab.namespace)
    lab.wait_admitted("training")


def test_changed_quota_starts_what_whatif_says(beside: Beside, reader: Beside) -> None:
    lab = beside.full_lab()
    change = f"research-{lab.number}/on-demand-{lab.number}/cpu=+5"
    answer = ask(reader, lab, "whatif", "job/training", "--quota", change, "--no-alternatives")
    assert answer["before"]["earliest"] > answer["now"]
    assert answer["after"]["latest"] == answer["now"]
    queue = beside.kubectl.get("clusterqueue", f"research-{lab.number}") or {}
    [groups] = queue["spec"]["resourceGroups"]
    [cpu] = [each for each in groups["flavors"][0]["resources"] if each["name"] == "cpu"]
    assert cpu["nominalQuota"] == "8"
    cpu["nominalQuota"] = "13"
    beside.kubectl("replace", "-f", "-", stdin=yaml.safe_dump(queue))
    lab.wait_admitted("training")


def test_dump_is_checked_simulated_and_asked(beside: Beside, reader: Beside, tmp_path: Path) -> None:
    lab = beside.full_lab()
    dump = tmp_path / "dump.json"
    dump.write_text(reader.pykueue("dump"))
    kinds = {each["kind"] for each in json.loads(dump.read_text())["items"]}
    assert {"ClusterQueue", "LocalQueue", "ResourceFlavor", "Workload"} <= kinds
    question = ("when", "training", "-n", lab.namespace, "-f", str(dump), "--futures", "5", "--no-arrivals")
    answer = json.loads(pykueue(*question, "-o", "json"))
    assert answer["triggers"][0]["workload"] == name_of(lab, "survey")

    policy = tmp_path / "policy"
    policy.mkdir()
    text = QUEUES.format(n=lab.number, preemption="{}")
    (policy / "queues.yaml").write_text(text.replace("nominalQuota: 8,", "nominalQuota: 6,"))
    found = json.loads(pykueue("check", str(policy), "--recording", str(dump), "-o", "json", status=1))
    [longer] = [each for each in found["findings"] if each["rule"] == "longer-waits"]
    assert longer["object"] == f"ClusterQueue research-{lab.number}"
