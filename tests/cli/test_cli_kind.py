"""`pykueue kind test` and `rights`, and `pykueue schedule` with JobKinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from job_kind_manifests import job_kind
from pykueue.cli.main import main
from queue_manifests import cluster_queue, flavor, local_queue

KIND = job_kind(
    podSets=[
        {
            "forEach": ".spec.groups",
            "namePath": ".name",
            "template": ".template",
            "count": ".replicas",
            "reclaimablePods": "self.status.done",
        }
    ],
    active={"path": ".status.phase", "values": ["Running"]},
    succeeded={"condition": "Done"},
)
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
JOB: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "spec": {
        "groups": [{"name": "a", "replicas": 2, "template": TEMPLATE}, {"name": "b", "template": TEMPLATE}]
    },
}
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Widget", "plural": "widgets"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"groups": {"type": "array"}}}
                        },
                    }
                },
            }
        ],
    },
}
QUEUES = [
    flavor("f", nodeLabels={"pool": "a"}),
    cluster_queue("cq", {"f": {"cpu": 4}}),
    local_queue("q", "cq"),
]


def run(folder: Path, *words: str, objects: list[dict[str, Any]]) -> Result:
    path = folder / "input.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return CliRunner().invoke(main, [*words, "-f", str(path)])


def test_kind_test_prints_workload_start_and_stop(tmp_path: Path) -> None:
    job = {**JOB, "status": {"phase": "Running", "done": 1}}
    result = run(tmp_path, "kind", "test", objects=[KIND, job, QUEUES[0]])
    assert result.exit_code == 0, result.output
    titles = [line for line in result.stdout.splitlines() if line.startswith("# ")]
    names = ["Workload", "start", "stop", "state by its status"]
    assert titles == [f"# Widget default/w: {name}" for name in names]
    workload, start, stop, state = yaml.safe_load_all(result.stdout)
    assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("a", 2), ("b", 1)]
    assert start["spec"]["suspend"] is False
    assert start["spec"]["groups"][1]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert stop["spec"] == {"suspend": True, "groups": JOB["spec"]["groups"]}
    assert state == {
        "active": True,
        "ready": True,
        "outcome": None,
        "reclaimablePods": {"a": 1, "b": 1},
    }


def test_kind_test_names_the_field_of_a_wrong_job(tmp_path: Path) -> None:
    job = {**JOB, "spec": {"groups": [{"name": "a", "replicas": -1, "template": TEMPLATE}]}}
    result = run(tmp_path, "kind", "test", objects=[KIND, job])
    assert result.exit_code == 1
    assert "Widget default/w: spec.groups[0].replicas: Invalid value: -1" in result.stderr


def test_kind_test_compares_the_description_with_a_definition_among_the_files(tmp_path: Path) -> None:
    result = run(tmp_path, "kind", "test", objects=[KIND, JOB, CRD])
    assert result.exit_code == 2
    assert (
        'Error: JobKind widgets.example.com: spec.suspend: Invalid value: ".spec.suspend": .spec has no '
        "field 'suspend' in the schema of the kind; it has: groups"
    ) in result.stderr


@pytest.mark.parametrize("command", ["test", "rights"])
def test_a_built_in_kind_is_refused(tmp_path: Path, command: str) -> None:
    spec = {**KIND["spec"], "group": "ray.io", "kind": "RayJob"}
    kind = {**KIND, "metadata": {"name": "rayjobs.ray.io"}, "spec": spec}
    result = run(tmp_path, "kind", command, objects=[kind, JOB])
    assert result.exit_code == 2
    assert 'spec.kind: Invalid value: "RayJob": is queued by the built-in framework ray.io/rayjob' in (
        result.stderr
    )


def test_rights_are_those_of_one_resource_without_wildcards(tmp_path: Path) -> None:
    result = run(tmp_path, "kind", "rights", objects=[KIND])
    role, binding = yaml.safe_load_all(result.stdout)
    assert role["rules"] == [
        {
            "apiGroups": ["example.com"],
            "resources": ["widgets"],
            "verbs": ["get", "list", "watch", "patch"],
        },
        {"apiGroups": ["example.com"], "resources": ["widgets/finalizers"], "verbs": ["update"]},
    ]
    assert "aggregationRule" not in role
    assert "labels" not in role["metadata"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "kueue-job-kind-widgets.example.com"


def test_schedule_decides_on_jobs_of_a_described_kind(tmp_path: Path) -> None:
    path = tmp_path / "input.yaml"
    large = {**JOB, "metadata": {**JOB["metadata"], "name": "x"}}
    path.write_text(yaml.safe_dump_all([JOB, large, *QUEUES, KIND]))
    result = CliRunner().invoke(main, ["schedule", "-f", str(path), "-o", "json"])
    assert result.exit_code == 0, result.output
    states = {name: one["state"] for name, one in json.loads(result.stdout)["workloads"].items()}
    assert states == {"default/widget-w": "Admitted", "default/widget-x": "Pending"}


def test_schedule_refuses_a_wrong_job_kind(tmp_path: Path) -> None:
    kind = {**KIND, "spec": {**KIND["spec"], "suspend": ".status.suspend"}}
    path = tmp_path / "input.yaml"
    path.write_text(yaml.safe_dump_all([JOB, kind, *QUEUES]))
    result = CliRunner().invoke(main, ["schedule", "-f", str(path)])
    assert result.exit_code == 2
    assert "JobKind widgets.example.com: spec.suspend: Invalid value" in result.stderr
