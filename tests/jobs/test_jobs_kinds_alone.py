"""What single kinds have that others have not (docs/reference/kueue-integrations.md 9.4)."""

from __future__ import annotations

from typing import Any

import pytest
from kind_samples import SAMPLES, with_status

from pykueue.api.jobkinds import value_at, with_value
from pykueue.jobs.base import MissingReferenceError
from pykueue.jobs.job import BatchJob
from pykueue.jobs.kinds import BUILT_IN
from pykueue.jobs.podsets import PodSetConflictError, PodSetInfo

Object = dict[str, Any]
OWN = "kueue.x-k8s.io/manager"


def changed(name: str, **fields: Any) -> Object:
    """A sample with fields of its spec replaced."""
    job = SAMPLES[name].job()
    return {**job, "spec": {**job["spec"], **fields}}


# Kubeflow


def test_pods_are_ranked_by_replica_index() -> None:
    sample = SAMPLES["paddlejob"]
    annotations = ("spec", "paddleReplicaSpecs", "Worker", "template", "metadata", "annotations")
    rack = {"kueue.x-k8s.io/podset-preferred-topology": "cloud/rack"}
    (workers,) = sample.integration.pod_sets(with_value(sample.job(), annotations, rack))
    label = "training.kubeflow.org/replica-index"
    assert workers["topologyRequest"] == {"preferred": "cloud/rack", "podIndexLabel": label}


def test_priority_class_of_the_scheduling_policy_comes_first() -> None:
    sample = SAMPLES["tfjob"]
    job = sample.job()
    assert sample.integration.priority_class(job) == "nightly"
    job["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["priorityClassName"] = "other"
    assert sample.integration.priority_class(job) == "nightly"
    del job["spec"]["runPolicy"]
    assert sample.integration.priority_class(job) == "other"


def test_launcher_that_works_too_shifts_the_ranks_of_the_workers() -> None:
    sample = SAMPLES["mpijob"]
    offset = ("spec", "mpiReplicaSpecs", "Worker", "template", "metadata", "annotations")
    assert value_at(sample.integration.default(sample.job()), offset) is None
    job = changed("mpijob", runLauncherAsWorker=True)
    found = sample.integration.default(job)
    assert value_at(found, offset) == {"kueue.x-k8s.io/pod-index-offset": "1"}
    assert sample.integration.default(found) == found
    launcher = ("spec", "mpiReplicaSpecs", "Launcher", "template", "metadata", "annotations")
    grouped = with_value(job, (*launcher, "kueue.x-k8s.io/podset-group-name"), "one")
    assert value_at(sample.integration.default(grouped), offset) is None


# Ray


def test_autoscaler_counts_on_the_head() -> None:
    sample = SAMPLES["raycluster"]
    containers = [
        one["template"]["spec"]["containers"]
        for one in sample.integration.pod_sets(changed("raycluster", enableInTreeAutoscaling=True))
    ]
    assert [len(each) for each in containers] == [2, 1, 1]
    assert containers[0][1]["resources"] == {"requests": {"cpu": "500m", "memory": "512Mi"}}
    options = {"resources": {"requests": {"cpu": "2"}}}
    job = changed("raycluster", enableInTreeAutoscaling=True, autoscalerOptions=options)
    head = sample.integration.pod_sets(job)[0]["template"]["spec"]["containers"]
    assert head[1]["resources"] == options["resources"]


def test_clean_up_of_an_external_store_counts_apart_from_the_head() -> None:
    job = changed("raycluster", gcsFaultToleranceOptions={"redisAddress": "redis:6379"})
    head = SAMPLES["raycluster"].integration.pod_sets(job)[0]["template"]["spec"]
    assert len(head["containers"]) == 1
    assert head["initContainers"][0]["resources"] == {"requests": {"cpu": "200m", "memory": "256Mi"}}


def test_submitter_is_a_pod_beside_the_head_or_nothing() -> None:
    kind = SAMPLES["rayjob"].integration
    names = {
        mode: [
            (one["name"], len(one["template"]["spec"]["containers"]))
            for one in kind.pod_sets(changed("rayjob", submissionMode=mode))
        ]
        for mode in ("K8sJobMode", "SidecarMode", "HTTPMode")
    }
    assert names["K8sJobMode"] == [("head", 1), ("workers", 1), ("submitter", 1)]
    assert names["SidecarMode"] == [("head", 2), ("workers", 1)]
    assert names["HTTPMode"] == [("head", 1), ("workers", 1)]


def test_submitter_template_of_the_job_is_kept() -> None:
    container = {"name": "mine", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    job = changed("rayjob", suspend=True, submitterPodTemplate={"spec": {"containers": [container]}})
    kind = SAMPLES["rayjob"].integration
    pod_sets = kind.pod_sets(job)
    assert pod_sets[2]["template"]["spec"]["containers"] == [container]
    started = kind.started(job, [PodSetInfo(one["name"], 1, {"a": "b"}) for one in pod_sets])
    assert started["spec"]["submitterPodTemplate"]["metadata"]["labels"] == {"a": "b"}
    stop = kind.stop(started, pod_sets)
    assert stop is not None
    assert stop.desired == job


def test_ray_job_that_its_operator_refuses_is_on_hold() -> None:
    status = {"jobDeploymentStatus": "ValidationFailed", "message": "rayVersion is missing"}
    job = with_status(SAMPLES["rayjob"].job(), status)
    assert SAMPLES["rayjob"].integration.on_hold(job) == "rayVersion is missing"


def test_ray_job_that_was_stopped_by_hand_is_no_success() -> None:
    status = {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}
    outcome = SAMPLES["rayjob"].integration.outcome(with_status(SAMPLES["rayjob"].job(), status))
    assert outcome is not None
    assert not outcome.succeeded


# TrainJob

PATCH = ("spec", "runtimePatches")


def test_train_job_is_filled_into_its_runtime() -> None:
    sample = SAMPLES["trainjob"]
    initializer, node = sample.integration.pod_sets(sample.job())
    assert initializer["template"]["spec"]["containers"][0]["image"] == "registry.example.com/fetch:1"
    (container,) = node["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == (
        "registry.example.com/tune:2",
        ["torchrun", "/app/train.py"],
    )
    assert node["topologyRequest"] == {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 1,
    }


def test_patches_of_other_managers_count_and_the_own_one_does_not() -> None:
    def patch(manager: str, key: str) -> Object:
        pod = {"spec": {"nodeSelector": {key: "x"}, "containers": [{"name": "node", "env": [{"name": key}]}]}}
        job = {"name": "node", "template": {"spec": {"template": pod}}}
        return {
            "manager": manager,
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
        }

    job = changed("trainjob", runtimePatches=[patch("a.example.com/b", "theirs"), patch(OWN, "ours")])
    node = SAMPLES["trainjob"].integration.pod_sets(job)[1]["template"]["spec"]
    assert node["nodeSelector"] == {"theirs": "x"}
    assert node["containers"][0]["env"] == [{"name": "theirs"}]


def test_admission_is_written_into_the_own_runtime_patch() -> None:
    sample = SAMPLES["trainjob"]
    job = sample.integration.default(sample.integration.suspended(sample.job()))
    assert value_at(job, PATCH) == [{"manager": OWN}]
    toleration = {"key": "spot", "operator": "Exists"}
    infos = [
        PodSetInfo("model-initializer", 1),
        PodSetInfo(
            "node",
            4,
            node_selector={"flavor": "f"},
            tolerations=(toleration,),
            template=sample.integration.pod_sets(job)[1]["template"],
        ),
    ]
    started = sample.integration.started(job, infos)
    (entry,) = value_at(started, PATCH)
    (only,) = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert only["name"] == "node"
    # A patch replaces the runtime's tolerations, so they are repeated.
    assert only["template"]["spec"]["template"]["spec"] == {
        "nodeSelector": {"flavor": "f"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}, toleration],
    }


def test_own_patch_is_taken_back_when_no_job_is_active() -> None:
    sample = SAMPLES["trainjob"]
    job = sample.integration.default(sample.integration.suspended(sample.job()))
    started = sample.integration.started(job, [PodSetInfo("node", 4, {"a": "b"})])
    stop = sample.integration.stop(with_status(started, sample.running), None)
    assert stop is not None
    suspended = stop.desired
    assert value_at(suspended, PATCH) == value_at(started, PATCH)
    assert sample.integration.stop(suspended, None) is None, "Jobs are still active"
    stop = sample.integration.stop(with_status(suspended, sample.stopped), None)
    assert stop is not None
    assert stop.desired["spec"] == job["spec"]


def test_pods_of_replicated_jobs_that_succeeded_are_reclaimable() -> None:
    sample = SAMPLES["trainjob"]
    job = with_status(sample.job(), sample.running)
    assert sample.integration.reclaimable(job) == {"model-initializer": 1}


def test_missing_runtime() -> None:
    job = changed("trainjob", runtimeRef={"name": "other"})
    with pytest.raises(MissingReferenceError, match="ClusterTrainingRuntime other doesn't exist"):
        SAMPLES["trainjob"].integration.pod_sets(job)


# AppWrapper


def test_admission_is_written_beside_the_components() -> None:
    sample = SAMPLES["appwrapper"]
    job = sample.integration.suspended(sample.job())
    pod_sets = sample.integration.pod_sets(job)
    infos = [PodSetInfo(one["name"], 1, node_selector={"flavor": one["name"]}) for one in pod_sets]
    started = sample.integration.started(job, infos)
    found = [component.get("podSetInfos") for component in started["spec"]["components"]]
    assert found == [
        None,
        [{"nodeSelector": {"flavor": "render-0"}}],
        [{"nodeSelector": {"flavor": "render-1"}}],
    ]
    stop = sample.integration.stop(started, pod_sets)
    assert stop is not None
    assert stop.desired == job


def test_conflict_with_a_wrapped_template_is_found_before_the_start() -> None:
    sample = SAMPLES["appwrapper"]
    job = sample.job()
    pod = ("spec", "components", 1, "template", "spec", "template", "spec", "nodeSelector")
    job = with_value(job, pod, {"zone": "a"})
    infos = [PodSetInfo(name, 1, node_selector={"zone": "b"}) for name in ("render-0", "render-1")]
    with pytest.raises(PodSetConflictError):
        sample.integration.started(job, infos)


def wrapped(template: Object) -> list[tuple[str, int]]:
    job = changed("appwrapper", components=[{"template": template}])
    return [(one["name"], one["count"]) for one in SAMPLES["appwrapper"].integration.pod_sets(job)]


def test_pod_sets_of_wrapped_kinds_are_inferred() -> None:
    assert wrapped({"apiVersion": "v1", "kind": "Pod", "spec": {}}) == [("render-0", 1)]
    apps = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3}}
    assert wrapped(apps) == [("render-0", 3)]
    assert wrapped(SAMPLES["pytorchjob"].job()) == [("render-0", 1), ("render-1", 3)]
    assert wrapped(SAMPLES["raycluster"].job()) == [("render-0", 1), ("render-1", 4), ("render-2", 1)]
    assert wrapped(SAMPLES["rayjob"].job()) == [("render-0", 1), ("render-1", 2)]
    assert wrapped({"apiVersion": "v1", "kind": "Service"}) == []


# Spark


def test_requests_of_the_roles_are_folded_from_their_fields() -> None:
    driver, executor = SAMPLES["sparkapplication"].integration.pod_sets(SAMPLES["sparkapplication"].job())
    requests = [
        one["template"]["spec"]["containers"][0]["resources"]["requests"] for one in (driver, executor)
    ]
    assert requests == [
        {"cpu": "1", "memory": f"{2048 + 384}Mi"},
        {"cpu": "1500m", "memory": f"{8192 + 819}Mi"},
    ]
    assert driver["template"]["spec"]["nodeSelector"] == {"zone": "a"}
    assert driver["template"]["metadata"]["labels"] == {"team": "web"}


def test_python_applications_have_more_memory_beside_the_heap() -> None:
    job = changed("sparkapplication", type="Python")
    executor = SAMPLES["sparkapplication"].integration.pod_sets(job)[1]
    (container,) = executor["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == f"{8192 + 3276}Mi"
    job["spec"]["executor"]["memoryOverhead"] = "1g"
    (container,) = SAMPLES["sparkapplication"].integration.pod_sets(job)[1]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == "9216Mi"


def test_start_leaves_the_fields_of_the_roles_alone() -> None:
    sample = SAMPLES["sparkapplication"]
    job = sample.job()
    infos = [
        PodSetInfo(name, 1, {"podset": name}, {}, {"zone": "a", "f": "x"}) for name in ("driver", "executor")
    ]
    started = sample.integration.started(job, infos)
    assert started["spec"]["driver"] == {
        **job["spec"]["driver"],
        "template": {
            "metadata": {"labels": {"podset": "driver"}},
            "spec": {"nodeSelector": {"f": "x"}, "tolerations": [{"key": "batch", "operator": "Exists"}]},
        },
    }


def test_stop_removes_the_empty_fields_that_the_webhook_writes_into_a_template() -> None:
    """The Spark operator's webhook answers with whole templates: fields without a value are null."""
    sample = SAMPLES["sparkapplication"]
    job = sample.job()
    assert "template" not in job["spec"]["executor"]
    infos = [PodSetInfo(name, 1, {"podset": name}, {}, {"f": "x"}) for name in ("driver", "executor")]
    started = sample.integration.started(job, infos)
    template = started["spec"]["executor"]["template"]
    template["metadata"] = {**template["metadata"], "creationTimestamp": None}
    template["spec"] = {**template["spec"], "containers": None}
    stopped = sample.integration.stop(started, sample.integration.pod_sets(job))
    assert stopped is not None
    assert stopped.desired["spec"] == {**job["spec"], "suspend": True}


def test_application_is_ready_with_all_its_executors() -> None:
    sample = SAMPLES["sparkapplication"]
    states = {"sessions-exec-1": "RUNNING", "sessions-exec-2": "COMPLETED", "sessions-exec-3": "PENDING"}
    status = {"applicationState": {"state": "RUNNING"}, "executorState": states}
    assert not sample.integration.pods_ready(with_status(sample.job(), status))
    states["sessions-exec-3"] = "RUNNING"
    assert sample.integration.pods_ready(with_status(sample.job(), status))


def test_gate_that_is_set_to_false_switches_its_kind_off() -> None:
    name, gate = "sparkoperator.k8s.io/sparkapplication", "SparkApplicationIntegration"
    assert name in BUILT_IN.enabled([name]).jobs
    assert name in BUILT_IN.enabled([name], {gate: True}).jobs
    assert name not in BUILT_IN.enabled([name], {gate: False}).jobs


def test_job_with_fewer_completions_than_parallelism_gives_back_no_running_pod() -> None:
    """It is admitted with 3 pods; one has succeeded, two run."""
    job = {
        "spec": {"parallelism": 4, "completions": 3, "template": {}},
        "status": {"active": 2, "succeeded": 1},
    }
    assert BatchJob().reclaimable(job) == {"main": 1}
