"""`pykueue whatif`: the effect of changes and of jobs that are not submitted, on manifests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from schedule_inputs import QUEUES, workload

from pykueue.cli.whatif_options import whatif

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: urgent, labels: {kueue.x-k8s.io/queue-name: lq, kueue.x-k8s.io/priority-class: high}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: 4}}}]
"""
HIGH = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "high"},
    "value": 100,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two workloads of which one fits."""
    found = [*yaml.safe_load_all(QUEUES), workload("first", 4), workload("second", 4), HIGH]
    for each in found:
        if each["kind"] == "Workload":
            each["spec"]["maximumExecutionTimeSeconds"] = 600
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "all.yaml").write_text(yaml.safe_dump_all(found))
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def ask(folder: Path, *arguments: str) -> Result:
    options = ("--state", str(folder / "state"), "-n", "team", "--futures", "5", "--no-arrivals")
    return CliRunner().invoke(whatif, [*arguments, *options])


def test_more_quota_is_shown_beside_the_state_as_it_is(folder: Path) -> None:
    found = ask(folder, "second", "--quota", "cq/default/cpu=+4")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[:3] == [
        "team/second",
        "changes:",
        "  nominalQuota of cpu in flavor default of ClusterQueue cq: 4 -> 8",
    ]
    starts = {line[:20].strip(): line[20:] for line in lines[4:6]}
    assert starts["as it is"].split()[0::2] == ["in", "in", "in", "0.0"]
    assert starts["with the changes"].split() == [*["at", "once"] * 3, "0.0"]


def test_a_job_by_its_manifest_has_the_priority_of_its_class(folder: Path) -> None:
    found = ask(folder, "-f", str(folder / "job.yaml"), "-o", "json")
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert answer["workload"] == "team/job-urgent"
    assert (answer["submitted"], answer["before"]["started"], answer["before"]["ahead"]) == (False, 5, 0)
    effects = {one["workload"]: (one["later"], one["preempted"]) for one in answer["others"]}
    assert effects == {"team/first": (0.0, 1.0), "team/second": (1.0, 0.0)}


def test_manifests_replace_objects_of_the_same_name(folder: Path) -> None:
    queue = next(each for each in yaml.safe_load_all(QUEUES) if each["kind"] == "ClusterQueue")
    queue["spec"]["stopPolicy"] = "Hold"
    (folder / "held.yaml").write_text(yaml.safe_dump(queue))
    found = ask(folder, "second", "--with", str(folder / "held.yaml"), "-o", "json", "--no-alternatives")
    answer = json.loads(found.stdout)
    assert answer["changes"] == ["ClusterQueue cq: changed"]
    assert (answer["before"]["started"], answer["after"]["started"], answer["alternatives"]) == (5, 0, [])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["second"], 2, "nothing to compare"),
        (["second", "--quota", "cq/cpu=4"], 2, "accepted: CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT"),
        (["second", "--quota", "cq/default/gpu=4"], 1, "has no quota for default/gpu; accepted: default/cpu"),
        (["second", "--quota", "cq/default/cpu=four"], 1, "nominalQuota of ClusterQueue cq"),
        (["first", "--quota", "cq/default/cpu=8"], 1, "Workload team/first is admitted"),
        (["--stop", "team/lost"], 1, "LocalQueue team/lost does not exist"),
        (["--stop", "cq=Forever"], 2, "accepted: CLUSTERQUEUE[=POLICY]"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, arguments: list[str], status: int, message: str) -> None:
    found = ask(folder, *arguments)
    assert (found.exit_code, message in found.stderr) == (status, True), found.output
