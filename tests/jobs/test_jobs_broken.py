"""Broken manifests of every kind: each is refused with the field named, and a broken job stops no other.

A row is a sample, the field that is replaced, its new value (None removes it) and the field of the error.
"""

from __future__ import annotations

from typing import Any

import pytest
from kind_samples import SAMPLES, place
from kind_worlds import frameworks, serve
from manager_stack import Stack, job, story

from pykueue.api.jobkinds import value_at, with_value
from pykueue.api.objects import replaced
from pykueue.jobs.topology import topology_errors
from pykueue.kube.errors import ApiError
from pykueue.manager.webhooks.metadata import common_errors

Object = dict[str, Any]
D = "kueue.x-k8s.io/"
_LABEL, _NOTE = "metadata.labels", "metadata.annotations"
_PYTORCH = "spec.pytorchReplicaSpecs"
_RAY = "spec.workerGroupSpecs"
_CONTAINER = {"name": "c", "image": "i"}
_TEMPLATE = {"spec": {"containers": [_CONTAINER]}}


def group(name: Any, **fields: Any) -> Object:
    return {"groupName": name, "replicas": 1, "template": _TEMPLATE, **fields}


BROKEN: list[tuple[str, str, Any, str]] = [
    # What all kinds have in common.
    ("pytorchjob", f"{_LABEL}|{D}queue-name", "Not_A_Name", f"{_LABEL}[{D}queue-name]"),
    ("mpijob", f"{_LABEL}|{D}max-exec-time-seconds", "0", f"{_LABEL}[{D}max-exec-time-seconds]"),
    ("tfjob", f"{_LABEL}|{D}max-exec-time-seconds", "soon", f"{_LABEL}[{D}max-exec-time-seconds]"),
    ("trainjob", f"{_LABEL}|{D}prebuilt-workload-name", "A", f"{_LABEL}[{D}prebuilt-workload-name]"),
    ("jaxjob", f"{_LABEL}|{D}prebuilt-workload-name", "w", f"{_LABEL}[{D}prebuilt-workload-name]"),
    ("sparkapplication", f"{_LABEL}|{D}prebuilt-workload-name", "w", f"{_LABEL}[{D}prebuilt-workload-name]"),
    ("raycluster", f"{_NOTE}|{D}admission-gated-by", "nonsense", f"{_NOTE}[{D}admission-gated-by]"),
    ("pytorchjob", f"{_NOTE}|{D}elastic-job", "true", f"{_NOTE}[{D}elastic-job]"),
    # Kubeflow
    ("pytorchjob", _PYTORCH, None, _PYTORCH),
    ("pytorchjob", _PYTORCH, {}, _PYTORCH),
    ("pytorchjob", _PYTORCH, [], _PYTORCH),
    ("pytorchjob", f"{_PYTORCH}.worker", {"template": _TEMPLATE}, _PYTORCH),
    ("pytorchjob", f"{_PYTORCH}.Worker", "many", f"{_PYTORCH}.Worker"),
    ("pytorchjob", f"{_PYTORCH}.Worker.replicas", -1, f"{_PYTORCH}.Worker.replicas"),
    ("pytorchjob", f"{_PYTORCH}.Worker.replicas", "3", f"{_PYTORCH}.Worker.replicas"),
    ("pytorchjob", f"{_PYTORCH}.Worker.replicas", 2.5, f"{_PYTORCH}.Worker.replicas"),
    ("pytorchjob", f"{_PYTORCH}.Worker.template", None, f"{_PYTORCH}.Worker.template"),
    ("pytorchjob", f"{_PYTORCH}.Worker.template", [], f"{_PYTORCH}.Worker.template"),
    ("tfjob", "spec.tfReplicaSpecs.PS.template.spec", [], "spec.tfReplicaSpecs.PS.template.spec"),
    (
        "tfjob",
        "spec.tfReplicaSpecs.PS.template.spec.containers",
        [],
        "spec.tfReplicaSpecs.PS.template.spec.containers",
    ),
    (
        "xgboostjob",
        "spec.xgbReplicaSpecs.Master.template.spec.containers",
        ["xgboost"],
        "spec.xgbReplicaSpecs.Master.template.spec.containers[0]",
    ),
    (
        "paddlejob",
        "spec.paddleReplicaSpecs.Worker.template.spec.nodeSelector",
        ["a"],
        "spec.paddleReplicaSpecs.Worker.template.spec.nodeSelector",
    ),
    (
        "jaxjob",
        "spec.jaxReplicaSpecs.Worker.template.spec.tolerations",
        {"key": "a"},
        "spec.jaxReplicaSpecs.Worker.template.spec.tolerations",
    ),
    (
        "mpijob",
        "spec.mpiReplicaSpecs.Worker.template.metadata.labels",
        "a=b",
        "spec.mpiReplicaSpecs.Worker.template.metadata.labels",
    ),
    ("mpijob", "spec.mpiReplicaSpecs.Master", {"template": _TEMPLATE}, "spec.mpiReplicaSpecs"),
    # Topology
    (
        "jaxjob",
        f"spec.jaxReplicaSpecs.Worker.template.metadata.annotations|{D}podset-required-topology",
        "not a label!",
        f"spec.jaxReplicaSpecs.Worker.template.metadata.annotations[{D}podset-required-topology]",
    ),
    (
        "raycluster",
        f"spec.headGroupSpec.template.metadata.annotations|{D}podset-unconstrained-topology",
        "maybe",
        f"spec.headGroupSpec.template.metadata.annotations[{D}podset-unconstrained-topology]",
    ),
    (
        "mpijob",
        f"spec.mpiReplicaSpecs.Worker.template.metadata.annotations|{D}podset-slice-size",
        "2",
        f"spec.mpiReplicaSpecs.Worker.template.metadata.annotations[{D}podset-slice-required-topology]",
    ),
    # TrainJob
    ("trainjob", "spec.runtimeRef", None, "spec.runtimeRef.name"),
    ("trainjob", "spec.runtimeRef.kind", "Deployment", "spec.runtimeRef.kind"),
    ("trainjob", "spec.runtimeRef.apiGroup", "apps", "spec.runtimeRef.apiGroup"),
    ("trainjob", "spec.trainer.numNodes", 0, "spec.trainer.numNodes"),
    ("trainjob", "spec.trainer.numNodes", "4", "spec.trainer.numNodes"),
    # Ray
    ("raycluster", "spec.headGroupSpec", None, "spec.headGroupSpec.template"),
    ("raycluster", _RAY, {"groupName": "a"}, _RAY),
    ("raycluster", _RAY, [group("head")], f"{_RAY}[0].groupName"),
    ("raycluster", _RAY, [group("a"), group("A")], f"{_RAY}[1].groupName"),
    ("raycluster", _RAY, [group("a b")], f"{_RAY}[0].groupName"),
    ("raycluster", _RAY, [group(None)], f"{_RAY}[0].groupName"),
    ("raycluster", _RAY, [group("a", numOfHosts=-2)], f"{_RAY}[0].numOfHosts"),
    ("raycluster", _RAY, [group("a", template={"spec": {}})], f"{_RAY}[0].template.spec.containers"),
    ("raycluster", _RAY, [group(f"g{n}") for n in range(18)], _RAY),
    ("raycluster", "spec.enableInTreeAutoscaling", True, "spec.enableInTreeAutoscaling"),
    ("rayjob", "spec.shutdownAfterJobFinishes", False, "spec.shutdownAfterJobFinishes"),
    ("rayjob", "spec.shutdownAfterJobFinishes", None, "spec.shutdownAfterJobFinishes"),
    ("rayjob", "spec.clusterSelector", {"ray.io/cluster": "c"}, "spec.clusterSelector"),
    ("rayjob", "spec.rayClusterSpec", None, "spec.rayClusterSpec.headGroupSpec.template"),
    (
        "rayjob",
        "spec.submitterPodTemplate",
        {"spec": {"containers": []}},
        "spec.submitterPodTemplate.spec.containers",
    ),
    ("rayservice", "spec.rayClusterConfig", None, "spec.rayClusterConfig.headGroupSpec.template"),
    # AppWrapper
    ("appwrapper", "spec.components", [], "spec.components"),
    ("appwrapper", "spec.components", [{"podSets": []}], "spec.components[0].template"),
    ("appwrapper", "spec.components[2].podSets[0].path", "spec.x", "spec.components[2].podSets[0].path"),
    (
        "appwrapper",
        "spec.components[2].podSets[0].path",
        "template.spec.other",
        "spec.components[2].podSets[0].path",
    ),
    ("appwrapper", "spec.components[2].podSets[0].replicas", -1, "spec.components[2].podSets[0].replicas"),
    (
        "appwrapper",
        "spec.components[1].podSets",
        [{"path": "template.spec.template", "replicas": 3}],
        "spec.components[1].podSets[0].replicas",
    ),
    ("appwrapper", "spec.components[0].template.kind", "AppWrapper", "spec.components[0].template.kind"),
    # Spark
    ("sparkapplication", "spec.mode", "client", "spec.mode"),
    ("sparkapplication", "spec.dynamicAllocation", {"enabled": True}, "spec.dynamicAllocation.enabled"),
    ("sparkapplication", "spec.executor.instances", -1, "spec.executor.instances"),
    ("sparkapplication", "spec.executor.memory", "lots", "spec.executor.memory"),
    ("sparkapplication", "spec.driver.cores", 0, "spec.driver.cores"),
    ("sparkapplication", "spec.driver.coreRequest", "half", "spec.driver.coreRequest"),
    ("sparkapplication", "spec.driver", None, "spec.driver"),
    ("sparkapplication", "spec.executor.template", "file.yaml", "spec.executor.template"),
]


def broken(name: str, field: str, value: Any) -> Object:
    """The sample with one field replaced; a label or annotation stands behind a `|`."""
    path, _, key = field.partition("|")
    found = SAMPLES[name].job()
    at = (*place(path), key) if key else place(path)
    if value_at(found, at[:-1]) is None or not any(isinstance(step, int) for step in at):
        return replaced(found, [str(step) for step in at], value)
    result: Object = with_value(found, at, value)
    return result


@pytest.mark.parametrize(
    ("name", "field", "value", "error"), BROKEN, ids=[f"{row[0]}-{row[1]}-{row[2]}"[:60] for row in BROKEN]
)
def test_broken_manifest_names_its_field(name: str, field: str, value: Any, error: str) -> None:
    sample = SAMPLES[name]
    found = broken(name, field, value)
    errors = [
        *common_errors(found, sample.kind),
        *topology_errors(found, sample.kind, layers=True),
        *sample.integration.validate(found, None),
    ]
    assert error in [each.path for each in errors]


def test_server_refuses_each_and_takes_what_follows() -> None:
    async def test(stack: Stack) -> None:
        for sample in SAMPLES.values():
            await serve(stack, sample.kind.resource)
        for name, field, value, error in BROKEN:
            with pytest.raises(ApiError) as caught:
                await stack.client.create(SAMPLES[name].kind.resource, broken(name, field, value))
            assert error in str(caught.value)
        await stack.apply(job("plain"))
        await stack.settle()
        assert not await stack.suspended("plain")

    story(test, frameworks(*(sample.framework for sample in SAMPLES.values())))


@pytest.mark.parametrize(
    ("name", "field", "value", "error"), BROKEN, ids=[f"{row[0]}-{row[1]}-{row[2]}"[:60] for row in BROKEN]
)
def test_job_with_an_old_error_can_still_be_changed(name: str, field: str, value: Any, error: str) -> None:
    """So that finalizers of one that came while no webhook answered can be removed."""
    found = broken(name, field, value)
    changed = {**found, "metadata": {**found["metadata"], "finalizers": ["a/b"]}}
    assert list(SAMPLES[name].integration.validate(changed, found)) == []


def test_jobs_that_came_past_the_webhooks_stop_no_other() -> None:
    async def test(stack: Stack) -> None:
        for sample in SAMPLES.values():
            await serve(stack, sample.kind.resource)
        for hook in stack.manager.webhooks():
            stack.server.admission.unregister(hook.name)
        rows = [row for row in BROKEN if row[1].startswith("spec")]
        for number, (name, field, value, _) in enumerate(rows):
            found = broken(name, field, value)
            found["metadata"]["name"] = f"broken-{number}"
            await stack.client.create(SAMPLES[name].kind.resource, found)
        await stack.apply(job("plain", cpu="100m", suspend=True))
        await stack.settle(20)
        assert not await stack.suspended("plain")

    story(test, frameworks(*(sample.framework for sample in SAMPLES.values())))
