"""`pykueue schedule` in front of a merge: what it refuses, how it fails, and what an override changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner
from schedule_inputs import QUEUES, admitted, decide, run, workload

from pykueue.cli.schedule import schedule
from pykueue.cli.schedule_report import schema_text

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
"""
JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 1
        template:
          spec:
            restartPolicy: Never
            containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: lone, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
"""
COHORT = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: all}\nspec: {parentName: root}\n"

#: (manifest, what is written wrong, how, what the error says)
MISSPELT = [
    (QUEUES, "nominalQuota: 4", "nominalQuota: 4, borowingLimit: 2", "borowingLimit", "borrowingLimit"),
    (QUEUES, "  preemption:", "  preemptoin:", "spec.preemptoin", "preemption"),
    (
        QUEUES,
        "withinClusterQueue:",
        "withinClusterqueue:",
        "spec.preemption.withinClusterqueue",
        "withinClusterQueue",
    ),
    (
        QUEUES,
        "  namespaceSelector:",
        "  stopPolcy: Hold\n  namespaceSelector:",
        "spec.stopPolcy",
        "stopPolicy",
    ),
    (
        QUEUES,
        "spec: {clusterQueue: cq}",
        "spec: {clusterQueue: cq, stopPolcy: Hold}",
        "spec.stopPolcy",
        "stopPolicy",
    ),
    (
        QUEUES,
        "metadata: {name: default}",
        "metadata: {name: default}\nspec: {nodeLabel: {a: b}}",
        "spec.nodeLabel",
        "nodeLabels",
    ),
    (QUEUES, "metadata: {name: lq,", "metadata: {name: lq, label: {a: b},", "metadata.label", "labels"),
    (COHORT, "parentName", "parent", "spec.parent", "parentName"),
    (JOB, "parallelism: 1", "paralelism: 1", "spec.paralelism", "parallelism"),
    (JOB, "requests:", "request:", "spec.template.spec.containers[0].resources.request", "requests"),
    (JOBSET, "replicas: 1", "replica: 1", "spec.replicatedJobs[0].replica", "replicas"),
    (JOBSET, "requests:", "reqests:", "containers[0].resources.reqests", "requests"),
    (POD, "spec:", "spec:\n  nodeSelecter: {a: b}", "spec.nodeSelecter", "nodeSelector"),
]


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    (tmp_path / "queues.yaml").write_text(QUEUES)
    return tmp_path


@pytest.mark.parametrize(("manifest", "right", "wrong", "field", "meant"), MISSPELT)
def test_an_unknown_field_is_an_error_with_object_field_and_what_was_meant(
    tmp_path: Path, manifest: str, right: str, wrong: str, field: str, meant: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(manifest)
    assert run("-f", str(file)).exit_code == 0
    file.write_text(manifest.replace(right, wrong, 1))
    strict = run("-f", str(file))
    assert strict.exit_code == 2
    assert strict.stdout == ""
    (line,) = (line for line in strict.stderr.splitlines() if f"{field}: unknown field" in line)
    assert line.startswith(f"{file}: document ")
    assert f"did you mean {meant}" in line
    relaxed = run("-f", str(file), "--no-strict")
    assert relaxed.exit_code == 0
    assert f"warning: {line}" in relaxed.stderr
    assert run("-f", str(file), "--no-strict", "--fail-on", "warnings").exit_code == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQeue\nmetadata: {name: a}\n",
            "kind ClusterQeue does not exist in kueue.x-k8s.io/v1beta2; did you mean ClusterQueue?",
        ),
        (
            "apiVersion: kueue.x-k8s.io/v1beta3\nkind: ClusterQueue\nmetadata: {name: a}\n",
            "ClusterQueue a: ClusterQueue does not exist in kueue.x-k8s.io/v1beta3; known versions: "
            "kueue.x-k8s.io/v1beta1, kueue.x-k8s.io/v1beta2",
        ),
        (
            "apiVersion: kueue.x-k8s.oi/v1beta2\nkind: ClusterQueue\nmetadata: {name: a}\n",
            "group kueue.x-k8s.oi of ClusterQueue is not known; did you mean kueue.x-k8s.io?",
        ),
        (
            JOB.replace("batch/v1", "batch/v1beta1"),
            "Job does not exist in batch/v1beta1; known versions: batch/v1",
        ),
        (JOB.replace("kind: Job", "kind: Jbo"), "kind Jbo does not exist in batch/v1; did you mean Job"),
        (JOBSET.replace("v1alpha2", "v1"), "known versions: jobset.x-k8s.io/v1alpha2"),
        (POD.replace("v1\n", "v2\n"), "Pod does not exist in v2; known versions: v1"),
    ],
)
def test_an_unknown_kind_or_version_of_a_group_that_is_read_is_an_error(
    queues: Path, text: str, wanted: str
) -> None:
    (queues / "wrong.yaml").write_text(text)
    strict = run("-f", str(queues))
    assert strict.exit_code == 2
    assert wanted in strict.stderr
    relaxed = run("-f", str(queues), "--no-strict")
    assert relaxed.exit_code == 0
    assert "ignored: 1 " in relaxed.stderr


def test_kinds_of_other_groups_are_ignored_and_counted(queues: Path) -> None:
    others = (
        ("v1", "Service"),
        ("kubeflow.org/v1", "PyTorchJob"),
        ("config.kueue.x-k8s.io/v1beta2", "Configuration"),
        ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    )
    objects = [{"apiVersion": version, "kind": kind, "metadata": {"name": "a"}} for version, kind in others]
    (queues / "others.yaml").write_text(yaml.safe_dump_all(objects))
    result = run("-f", str(queues))
    assert result.exit_code == 0
    assert all(f"ignored: 1 {kind}" in result.stderr for _, kind in others)


def test_a_kind_of_the_group_that_decides_nothing_is_checked_all_the_same(queues: Path) -> None:
    text = COHORT.replace("Cohort", "MultiKueueConfig").replace("parentName: root", "cluster: [b]")
    (queues / "config.yaml").write_text(text)
    result = run("-f", str(queues))
    assert result.exit_code == 2
    assert "MultiKueueConfig all: spec.cluster: unknown field; did you mean clusters?" in result.stderr


def test_the_cohort_of_a_v1beta1_queue_is_its_cohort(tmp_path: Path) -> None:
    lender = QUEUES.replace("name: cq", "name: lender").split("---\n")[1]
    queues = "---\n".join([QUEUES, lender]).replace("spec:\n", "spec:\n  cohort: all\n")
    (tmp_path / "queues.yaml").write_text(queues)
    assert decide(tmp_path, workload("w", 8))["workloads"]["team/w"]["state"] == "Admitted"
    (tmp_path / "queues.yaml").write_text(queues.replace("v1beta1", "v1beta2"))
    result = run("-f", str(tmp_path))
    assert result.exit_code == 2
    assert "ClusterQueue cq: spec.cohort: unknown field; did you mean cohortName?" in result.stderr


@pytest.mark.parametrize(
    ("manifest", "right", "wrong", "wanted"),
    [
        (
            JOB,
            "parallelism: 1",
            "parallelism: -1",
            "spec.parallelism: Invalid value: -1: must be greater than or",
        ),
        (JOB, "parallelism: 1", "parallelism: two", "spec.parallelism: Invalid value"),
        (JOB, "image: i, ", "", "spec.template.spec.containers[0].image: Required value"),
        (
            JOB,
            "restartPolicy: Never",
            "restartPolicy: Always",
            "spec.template.spec.restartPolicy: Required value: valid values",
        ),
        (JOB, "cpu: 1", "cpu: one", "resources.requests.cpu"),
        (JOB, "name: lq}", "name: 'a b'}", "metadata.labels: Invalid value"),
        (
            JOB,
            "queue-name: lq}",
            "queue-name: A_b}",
            "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value",
        ),
        (JOBSET, "name: workers", "name: Workers", "spec.replicatedJobs[0]"),
        (POD, "name: c,", "name: C_c,", "spec.containers[0].name: Invalid value"),
        (QUEUES, "nominalQuota: 4", "nominalQuota: -4", "nominalQuota: Invalid value"),
        (QUEUES, "LowerPriority", "Sometimes", "spec.preemption.withinClusterQueue: Unsupported value"),
        (QUEUES, "coveredResources: [cpu]", "coveredResources: [memory]", "spec.resourceGroups[0]"),
    ],
)
def test_manifest_that_an_api_server_rejects_is_an_error(
    tmp_path: Path, manifest: str, right: str, wrong: str, wanted: str
) -> None:
    (tmp_path / "file.yaml").write_text(manifest.replace(right, wrong, 1))
    result = run("-f", str(tmp_path))
    assert result.exit_code == 2, result.output
    assert wanted in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("objects", "conditions", "wanted"),
    [
        ((workload("fits", 1),), "pending,misconfigured,warnings", ""),
        ((workload("big", 5),), "", ""),
        ((workload("big", 5),), "misconfigured,warnings", ""),
        ((workload("big", 5),), "pending", "--fail-on pending: 1 workload pending"),
        ((workload("huge", 10**30),), "misconfigured", "--fail-on misconfigured: 1 workload misconfigured"),
        (
            (workload("low", 1), workload("lost", 1, queueName="nowhere")),
            "misconfigured",
            "1 workload misconfig",
        ),
    ],
)
def test_the_exit_status_follows_the_conditions_of_fail_on(
    queues: Path, objects: tuple[dict[str, Any], ...], conditions: str, wanted: str
) -> None:
    (queues / "workloads.yaml").write_text(yaml.safe_dump_all(objects))
    options = ("--fail-on", conditions) if conditions else ()
    result = run("-f", str(queues), *options)
    assert result.exit_code == (1 if wanted else 0), result.output
    assert wanted in result.stderr
    assert "after" in result.stdout  # the decisions are printed all the same


def test_a_condition_that_does_not_exist_is_refused(queues: Path) -> None:
    result = run("-f", str(queues), "--fail-on", "pendign")
    assert result.exit_code == 2
    text = " ".join(result.stderr.replace("│", " ").split())
    assert (
        "'pendign' is not accepted; accepted: pending, misconfigured, warnings; did you mean pending?" in text
    )


def test_problems_of_queues_are_reported_without_a_workload(queues: Path) -> None:
    text = (queues / "queues.yaml").read_text()
    cohorts = "".join(
        f"---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: {name}}}\n"
        f"spec: {{parentName: {parent}}}\n"
        for name, parent in (("a", "b"), ("b", "a"))
    )
    local = text.split("---\n")[2].replace("name: lq", "name: lost").replace("cq}", "gone}")
    incomplete = text.replace("- name: default", "- name: absent").replace(
        "spec:\n", "spec:\n  cohort: a\n", 1
    )
    (queues / "queues.yaml").write_text(f"{incomplete}---\n{local}{cohorts}")
    report = decide(queues)
    cycle = "parentName of Cohorts forms a cycle: a -> b -> a"
    assert report["problems"] == [
        {"object": "ClusterQueue cq", "reason": "CohortCycle", "message": cycle},
        {
            "object": "ClusterQueue cq",
            "reason": "FlavorNotFound",
            "message": "references missing ResourceFlavor(s): absent",
        },
        {"object": "Cohort a", "reason": "CohortCycle", "message": cycle},
        {"object": "Cohort b", "reason": "CohortCycle", "message": cycle},
        {
            "object": "LocalQueue team/lost",
            "reason": "ClusterQueueDoesNotExist",
            "message": "ClusterQueue gone doesn't exist",
        },
    ]
    result = run("-f", str(queues), "--fail-on", "misconfigured")
    assert result.exit_code == 1
    assert "--fail-on misconfigured: 5 problems of queues" in result.stderr
    assert "references missing ResourceFlavor(s): absent" in result.stdout


def test_a_stopped_queue_is_a_problem_but_not_misconfigured(queues: Path) -> None:
    text = (queues / "queues.yaml").read_text()
    (queues / "queues.yaml").write_text(text.replace("spec:\n", "spec:\n  stopPolicy: Hold\n", 1))
    report = decide(queues, options=("--fail-on", "misconfigured"))
    assert [problem["reason"] for problem in report["problems"]] == ["Stopped"]


def test_the_second_of_two_equal_workloads_has_the_message_of_the_first(queues: Path) -> None:
    report = decide(queues, workload("a", 5), workload("b", 5))["workloads"]
    assert report["team/a"]["message"] == report["team/b"]["message"]
    assert "maximum capacity (4)" in report["team/b"]["message"]


# --- overrides
# ---------------------------------------------------------------------------


@pytest.fixture
def smaller(queues: Path) -> str:
    """The ClusterQueue with less quota, in the other version, and a new queue."""
    queue = (
        QUEUES.split("---\n")[1].replace("v1beta1", "v1beta2").replace("nominalQuota: 4", "nominalQuota: 2")
    )
    more = QUEUES.split("---\n")[2].replace("name: lq", "name: more")
    folder = queues.parent / f"{queues.name}-override"
    folder.mkdir()
    (folder / "queue.yaml").write_text(f"{queue}---\n{more}---\n{QUEUES.split('---')[0]}")
    return str(folder)


def test_an_override_takes_the_place_of_an_object_and_prints_what_it_changes(
    queues: Path, smaller: str
) -> None:
    objects = workload("one", 2, 10), workload("two", 2), workload("big", 5)
    report = decide(queues, *objects, options=("--override", smaller))
    assert report["overrides"] == [
        "ClusterQueue cq: changed",
        "LocalQueue team/more: added",
        "ResourceFlavor default: unchanged",
    ]
    (change,) = report["changes"]
    assert change["workload"] == "team/two"
    assert change["before"]["state"] == "Admitted"
    assert change["after"] == report["workloads"]["team/two"]
    assert (change["after"]["state"], change["after"]["reason"]) == ("Pending", "WaitingForQuota")
    table = run("-f", str(queues), "--override", smaller)
    assert table.exit_code == 0
    rows = [line.split() for line in table.stdout.splitlines()]
    assert ["ClusterQueue", "cq:", "changed"] in rows
    (row,) = (row for row in rows if row[:1] == ["team/two"])
    assert row[1:7] == ["Admitted:", "cpu", "2", "on", "default", "Pending"]
    assert not any(row[:1] == ["team/one"] for row in rows)


def test_an_override_that_changes_no_decision_says_so(queues: Path, smaller: str) -> None:
    objects = (workload("one", 2),)
    assert decide(queues, *objects, options=("--override", smaller))["changes"] == []
    assert "No workload is decided otherwise." in run("-f", str(queues), "--override", smaller).stdout


def test_conditions_of_fail_on_are_those_with_the_override(queues: Path, smaller: str) -> None:
    (queues / "workloads.json").write_text(json.dumps(workload("one", 4)))
    assert run("-f", str(queues), "--fail-on", "pending").exit_code == 0
    assert run("-f", str(queues), "--fail-on", "pending", "--override", smaller).exit_code == 1


def test_a_wrong_override_is_refused_by_its_place(queues: Path, tmp_path: Path) -> None:
    override = tmp_path / "wrong.txt"
    override.write_text(QUEUES.split("---\n")[1].replace("preemption:", "preemtion:"))
    result = run("-f", str(queues / "queues.yaml"), "--override", str(override))
    assert result.exit_code == 2
    assert f"{override}: document 1 (line 1): ClusterQueue cq: spec.preemtion: unknown field" in result.stderr
    twice = run("-f", "-", "--override", "-", stdin="")
    assert twice.exit_code == 2


def test_the_output_fits_the_published_schema(queues: Path, smaller: str) -> None:
    printed = CliRunner().invoke(schedule, ["--print-schema"])
    assert printed.exit_code == 0
    assert printed.stdout == schema_text()
    validator = jsonschema_rs.Draft202012Validator(json.loads(printed.stdout))
    partial = workload("partial", 9)
    partial["spec"]["podSets"][0] |= {"count": 9, "minCount": 1}
    partial["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    objects = (
        admitted("low", 4),
        workload("high", 3, 10),
        workload("big", 5),
        workload("huge", 10**30),
        workload("off", 1, active=False),
        workload("lost", 1, queueName="nowhere"),
        partial,
    )
    kinds = set()
    for options in ((), ("--cycles", "1"), ("--override", smaller), ("--story", "team/big")):
        report = decide(queues, *objects, options=options)
        assert [error.message for error in validator.iter_errors(report)] == []
        kinds |= {decision["kind"] for decision in report["decisions"]}
        (queues / "workloads.json").unlink()
    assert kinds == {"Admit", "Preempt", "Requeue"}
    assert validator.is_valid(decide(queues))
    assert not validator.is_valid({"now": "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize("options", [(), ("--no-strict",)])
@pytest.mark.parametrize(
    ("manifest", "right", "wrong"),
    [
        (JOB, "parallelism: 1", "parallelism: two"),
        (JOB, "template:", "templates:\n  template: text\n  other:"),
        (JOB, "labels: {kueue.x-k8s.io/queue-name: lq}", "labels: text"),
        (JOB, "containers: [{name", "containers: {name: [{name"),
        (POD, "spec:", "status: 1\nspec:"),
        (QUEUES, "preemption: {withinClusterQueue: LowerPriority}", "preemption: always"),
        (QUEUES, "resourceGroups:", "resourceGroups: 3\n  other:"),
        (QUEUES, "namespace: team}", "namespace: [team]}"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_and_never_a_crash(
    tmp_path: Path, manifest: str, right: str, wrong: str, options: tuple[str, ...]
) -> None:
    text = manifest.replace(right, wrong, 1)
    (tmp_path / "file.yaml").write_text(text + ("]}\n" if "{name: [{name" in wrong else ""))
    result = run("-f", str(tmp_path), *options)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert "file.yaml: document" in result.stderr


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = run("-f", str(tmp_path / "missing.yaml"))
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert f"{tmp_path / 'missing.yaml'}: cannot be read: No such file or directory" in missing.stderr
    (tmp_path / "binary.yaml").write_bytes(b"a: \xff")
    binary = run("-f", str(tmp_path))
    assert binary.exit_code == 2
    assert f"{tmp_path / 'binary.yaml'}: not UTF-8 text: byte 3 is invalid start byte" in binary.stderr


def test_names_and_messages_with_brackets_are_printed_as_they_are(queues: Path) -> None:
    job = JOB.replace("labels: {", 'annotations: {kueue.x-k8s.io/job-min-parallelism: "0"}, labels: {')
    (queues / "job.yaml").write_text(job)
    result = run("-f", str(queues))
    assert result.exit_code == 2
    assert "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value" in result.stderr
    (queues / "job.yaml").write_text(json.dumps(workload("w", 1, queueName="[red]")))
    assert "LocalQueue [red] doesn't exist" in run("-f", str(queues)).stdout


def test_an_override_replaces_a_job_by_its_name(queues: Path, tmp_path: Path) -> None:
    (queues / "job.yaml").write_text(JOB)
    override = tmp_path / "job.txt"
    override.write_text(JOB.replace("parallelism: 1", "parallelism: 5"))
    result = run("-f", str(queues), "--override", str(override), "-o", "json")
    report = json.loads(result.stdout)
    assert report["overrides"] == ["Job team/train: changed"]
    assert list(report["workloads"]) == ["team/job-train"]
    (change,) = report["changes"]
    assert (change["before"]["state"], change["after"]["reason"]) == ("Admitted", "ExceedsMaxQuota")
    twice = run("-f", str(queues), "-f", str(override))
    assert twice.exit_code == 2
    assert "Job team/train: is in" in twice.stderr
