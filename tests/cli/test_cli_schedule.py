"""`pykueue schedule`: manifests in, decisions out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from schedule_inputs import QUEUES, admitted, decide, run, workload


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    (tmp_path / "queues.yaml").write_text(QUEUES)
    return tmp_path


def test_one_cycle_is_one_head_of_each_queue(queues: Path) -> None:
    report = decide(queues, workload("a", 1), workload("b", 1), options=("--cycles", "1"))
    assert report["now"] == "2026-01-02T00:00:00Z"
    assert report["cycles"] == 1
    started = report["workloads"]["team/a"]
    assert started.pop("admission") == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1}
        ],
    }
    assert started == {
        "state": "Admitted",
        "clusterQueue": "cq",
        "reason": "QuotaReserved",
        "message": "",
        "queue": None,
        "preemptedBy": None,
        "preemptionReason": None,
    }
    waiting = report["workloads"]["team/b"]
    assert (waiting["state"], waiting["reason"], waiting["queue"]) == (
        "Pending",
        "PendingEvaluation",
        "active",
    )
    assert report["clusterQueues"] == {"cq": {"active": ["team/b"], "inadmissible": []}}
    assert [decision["kind"] for decision in report["decisions"]] == ["Admit"]


def test_preemption_is_shown_after_one_cycle_and_carried_out_until_stable(queues: Path) -> None:
    objects = admitted("low", 4), workload("high", 3, 10)
    once = decide(queues, *objects, options=("--cycles", "1"))["workloads"]
    assert once["team/low"]["state"] == "Preempted"
    assert once["team/low"]["preemptedBy"] == "team/high"
    assert once["team/low"]["preemptionReason"] == "InClusterQueue"
    assert once["team/high"]["reason"] == "WaitingForPreemptedWorkloads"
    stable = decide(queues, *objects, options=("--until-stable",))
    assert stable["workloads"]["team/high"]["state"] == "Admitted"
    low = stable["workloads"]["team/low"]
    assert (low["state"], low["reason"], low["queue"]) == ("Pending", "WaitingForQuota", "inadmissible")
    assert low["preemptedBy"] == "team/high"


def test_a_wait_is_explained(queues: Path) -> None:
    report = decide(queues, workload("big", 5))
    big = report["workloads"]["team/big"]
    assert big["reason"] == "ExceedsMaxQuota"
    assert "maximum capacity (4)" in big["message"]


def test_states_of_workloads_that_are_not_waiting(queues: Path) -> None:
    done = admitted("done", 1)
    finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "fine"}
    done["status"]["conditions"].append({**finished, "lastTransitionTime": "2026-01-01T01:00:00Z"})
    leaving = admitted("leaving", 1)
    evicted = {"type": "Evicted", "status": "True", "reason": "ClusterQueueStopped", "message": ""}
    leaving["status"]["conditions"].append({**evicted, "lastTransitionTime": "2026-01-01T01:00:00Z"})
    lost = workload("lost", 1)
    lost["spec"]["queueName"] = "nowhere"
    report = decide(queues, done, leaving, lost, workload("off", 1, active=False))
    found = {
        key.removeprefix("team/"): (it["state"], it["reason"]) for key, it in report["workloads"].items()
    }
    assert found == {
        "done": ("Finished", "Succeeded"),
        "leaving": ("Evicted", "QuotaReserved"),
        "lost": ("Pending", "Misconfigured"),
        "off": ("Inactive", "Deactivated"),
    }


def test_the_table_names_what_starts_and_what_waits_for_what(queues: Path) -> None:
    objects = [admitted("low", 4), workload("high", 3, 10), workload("big", 5)]
    (queues / "workloads.yaml").write_text(yaml.safe_dump_all(objects))
    result = run("-f", str(queues))
    assert result.exit_code == 0
    assert "ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota" in result.stdout
    assert "team/high" in result.stdout
    assert "cpu 3 on default" in result.stdout
    assert "displaces" in result.stdout
    assert "1 admitted, 2 pending" in result.stdout


def test_a_set_of_jobs_is_decided_on_as_a_whole(queues: Path) -> None:
    def group(name: str, replicas: int, pods: int) -> dict[str, Any]:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        job = {"parallelism": pods, "completions": pods, "template": pod}
        return {"name": name, "replicas": replicas, "template": {"spec": job}}

    def jobset(name: str, *groups: dict[str, Any]) -> dict[str, Any]:
        labels = {"kueue.x-k8s.io/queue-name": "lq"}
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, "namespace": "team", "labels": labels},
            "spec": {"replicatedJobs": list(groups)},
        }

    sets = (
        jobset("fits", group("leader", 1, 1), group("workers", 1, 3)),
        jobset("large", group("leader", 1, 1), group("workers", 2, 2)),
    )
    workloads = decide(queues, *sets, options=("--until-stable",))["workloads"]
    fits = workloads["team/jobset-fits"]
    assert fits["state"] == "Admitted"
    counts = {one["name"]: one["count"] for one in fits["admission"]["podSetAssignments"]}
    assert counts == {"leader": 1, "workers": 3}
    assert workloads["team/jobset-large"]["state"] == "Pending"


def test_schedule_decides_on_pods_groups_deployments_and_stateful_sets(queues: Path) -> None:
    queue = {"kueue.x-k8s.io/queue-name": "lq"}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}

    def pod(name: str, group: str = "", total: int = 0) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "namespace": "team", "labels": dict(queue)}
        if group:
            metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = group
            metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def serving(kind: str, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "team", "labels": queue},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        }

    objects = (
        pod("single"),
        pod("a", "gang", 2),
        pod("b", "gang", 2),
        pod("c", "half", 3),
        serving("Deployment", "web"),
        serving("StatefulSet", "db"),
    )
    workloads = decide(queues, *objects, options=("--until-stable",))["workloads"]
    assert set(workloads) == {
        "team/pod-single",
        "team/gang",
        "team/deployment-web-0",
        "team/deployment-web-1",
        "team/statefulset-db",
    }
    counts = {
        name: sum(one["count"] for one in found["admission"]["podSetAssignments"])
        for name, found in workloads.items()
        if found["state"] == "Admitted"
    }
    assert sum(counts.values()) == 4
    result = run("-f", str(queues))
    assert "pod group half waits for its other pods: 1 of 3 are there" in result.stderr


def test_jobs_count_as_the_workloads_they_become(queues: Path) -> None:
    job = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
---
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: lq, kueue.x-k8s.io/priority-class: high}
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
"""
    result = run("-f", str(queues), "-f", "-", "-o", "yaml", stdin=job)
    assert result.exit_code == 0
    assert "ignored: 1 Service" in result.stderr
    report = yaml.safe_load(result.stdout)
    given = report["workloads"]["team/job-train"]["admission"]["podSetAssignments"]
    assert given[0]["resourceUsage"] == {"cpu": "4"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("kind: Workload\n", "bad.yaml: document 1 (line 1): apiVersion is missing"),
        ("a: [\n", "bad.yaml: document 1"),
        (
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {}\n",
            "LocalQueue: metadata.name: Required value",
        ),
        (
            QUEUES.replace("nominalQuota: 4", "nominalQuota: four"),
            "bad.yaml: document 2 (line 6): ClusterQueue cq: "
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        (QUEUES.replace("LowerPriority", "Sometimes"), "spec.preemption.withinClusterQueue"),
        (QUEUES.replace("nominalQuota: 4", "nominalQuota: -4"), "Invalid value"),
        (QUEUES + "---" + QUEUES, "is in"),
    ],
)
def test_invalid_input_is_reported_with_its_document_and_field(
    tmp_path: Path, text: str, wanted: str
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    result = run("-f", str(tmp_path / "bad.yaml"))
    assert result.exit_code == 2
    assert wanted in result.stderr
    assert "Traceback" not in result.output


def test_names_that_a_server_would_make_are_made_the_same_each_time(queues: Path) -> None:
    """The pods of docs/use/pods.md, as they are created there: one manifest, three times."""
    page = (Path(__file__).parents[2] / "docs" / "use" / "pods.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    (queues / "pods.yaml").write_text("---\n".join([example] * 3))
    (queues / "lone.yaml").write_text(
        "---\n".join([re.sub(r".*pod-group-.*\n|  annotations:\n", "", example)] * 2)
    )
    (queues / "default.yaml").write_text(QUEUES.split("---\n")[2].replace("lq, namespace: team", "team-a"))
    results = [run("-f", str(queues), "-o", "json") for _ in range(2)]
    assert results[0].exit_code == 0, results[0].output
    assert results[0].stdout == results[1].stdout
    report = json.loads(results[0].stdout)["workloads"]
    names = {"default/experiment-7", "default/pod-worker-00001", "default/pod-worker-00002"}
    assert set(report) == names
    assert sum(one["state"] == "Admitted" for one in report.values()) == 2


def test_the_configuration_changes_decisions(queues: Path) -> None:
    config = queues.parent / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "resources: {quotaCheckStrategy: IgnoreUndeclared}\n"
    )
    odd = workload("odd", 1)
    odd["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["gpu"] = "1"
    assert decide(queues, odd)["workloads"]["team/odd"]["reason"] == "NoMatchingFlavor"
    report = decide(queues, odd, options=("--config", str(config)))
    assert report["workloads"]["team/odd"]["state"] == "Admitted"


def test_a_job_whose_workload_is_there_counts_once(queues: Path) -> None:
    """As `kubectl get jobs,workloads,... -o yaml` prints a cluster."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "low",
            "namespace": "team",
            "uid": "u1",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {"template": workload("low", 4)["spec"]["podSets"][0]["template"]},
    }
    held = admitted("job-low-12345", 4)
    held["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "low", "uid": "u1", "controller": True}
    ]
    report = decide(queues, job, held)
    assert list(report["workloads"]) == ["team/job-low-12345"]


def test_deployment_with_its_replica_sets_and_pods_counts_once(queues: Path) -> None:
    """A Deployment one of whose pods has no Workload yet, a StatefulSet and a group, as they run."""
    queue = {"kueue.x-k8s.io/queue-name": "lq"}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}

    def owner(kind: str, name: str, controller: bool = True) -> dict[str, Any]:
        version = "v1" if kind == "Pod" else "apps/v1"
        return {"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": controller}

    def pod(name: str, controller: str = "", group: str = "", **labels: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "namespace": "team", "uid": name, "labels": queue | labels}
        if controller:
            metadata["ownerReferences"] = [
                owner("ReplicaSet" if controller == "web-1" else "StatefulSet", controller)
            ]
        if group:
            metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = group
            metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def serving(kind: str, name: str, replicas: int) -> dict[str, Any]:
        labels = {"app": name}
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "team", "labels": queue, "uid": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }

    def held(name: str, *owners: dict[str, Any], **labels: str) -> dict[str, Any]:
        result = admitted(name, 1)
        result["metadata"]["ownerReferences"] = list(owners)
        result["spec"]["podSets"][0]["template"]["metadata"] = {"labels": labels}
        return result

    web, db = serving("Deployment", "web", 3), serving("StatefulSet", "db", 2)
    replica_set = serving("ReplicaSet", "web-1", 3)
    web_pods = [pod(f"web-1-{letter}", "web-1", app="web") for letter in "abc"]
    db_pods = [pod(f"db-{number}", "db", "statefulset-db-x", app="db") for number in range(2)]
    gang = [pod(f"gang-{number}", group="gang") for number in range(2)]
    workloads = [
        held("pod-a-x", owner("Pod", "web-1-a"), app="web"),
        held("pod-b-x", owner("Pod", "web-1-b"), app="web"),
        held(
            "statefulset-db-x",
            owner("StatefulSet", "db", False),
            *(owner("Pod", f"db-{n}", False) for n in (0, 1)),
        ),
        held("gang", *(owner("Pod", f"gang-{n}", False) for n in (0, 1))),
    ]
    known = {f"team/{one['metadata']['name']}" for one in workloads}
    for objects, more in (
        ((web, replica_set, db, *web_pods, *db_pods, *gang, *workloads), {"team/pod-web-1-c"}),
        ((web, db, *workloads), {"team/deployment-web-2"}),
        ((*db_pods, *gang, *workloads), set()),
    ):
        assert set(decide(queues, *objects)["workloads"]) == known | more
    without = decide(queues, web, replica_set, db, *web_pods, *db_pods, *gang)["workloads"]
    pods = {f"team/pod-web-1-{letter}" for letter in "abc"}
    assert set(without) == {"team/statefulset-db", "team/gang"} | pods


def test_files_with_other_suffixes_in_a_directory_are_ignored(queues: Path) -> None:
    values = queues / "values.yaml"
    values.write_text("replicas: 3")
    result = run("-f", str(queues))
    assert result.exit_code == 0
    assert "apiVersion is missing" in result.stderr
    assert "the file is left out" in result.stderr
    assert run("-f", str(values)).exit_code == 2


def test_wrong_options_are_refused(queues: Path) -> None:
    result = run("-f", str(queues), "--cycles", "0")
    assert result.exit_code == 2
    result = run("-f", str(queues), "--cycles", "1", "--until-stable")
    assert result.exit_code == 2


def test_the_package_runs_as_the_command(queues: Path) -> None:
    command = [sys.executable, "-m", "pykueue", "schedule", "-f", str(queues), "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["workloads"] == {}


def test_story_of_a_workload_is_printed_in_place_of_the_table(queues: Path) -> None:
    objects = admitted("low", 4), workload("high", 3, 10)
    report = decide(queues, *objects, options=("--story", "team/low"))
    texts = [entry["text"] for entry in report["stories"]["team/low"]["entries"]]
    assert texts[0] == "created in LocalQueue lq (priority 0; pod set main: 1 pod)"
    assert texts[1] == "quota reserved"
    assert "preempted by team/high in /cq due to prioritization in the ClusterQueue" in texts
    printed = run("-f", str(queues), "--story", "team/low").stdout
    assert [line[33:] for line in printed.splitlines()] == texts
    assert "cycle 1  preempted by team/high" in printed


def test_story_of_an_unknown_workload_is_refused_with_the_near_names(queues: Path) -> None:
    (queues / "w.json").write_text(json.dumps(workload("train", 1)))
    result = run("-f", str(queues), "--story", "team/trian")
    assert result.exit_code == 2
    expected = "--story: workload team/trian is not among the objects; did you mean team/train?"
    assert result.stderr.strip() == expected


def test_variants_compete_for_each_flavor() -> None:
    example = Path(__file__).parents[2] / "examples" / "concurrent-admission"
    files = [word for name in ("queues", "jobs") for word in ("-f", str(example / f"{name}.yaml"))]
    ended = run("--config", str(example / "configuration.yaml"), *files, "-o", "json")
    found = json.loads(ended.stdout)["workloads"]
    states = {re.sub("-[0-9a-f]{5}$", "", name): each["state"] for name, each in found.items()}
    assert states == {
        "default/job-first-variant-reserved": "Admitted",
        "default/job-first-variant-spot": "Inactive",
        "default/job-second-variant-reserved": "Pending",
        "default/job-second-variant-spot": "Admitted",
    }
