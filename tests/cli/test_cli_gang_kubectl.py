"""Real kubectl and pods placed as a group: what a user of Volcano or coscheduling types and reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up

pytestmark = pytest.mark.kubectl

NODES = "pools: [{name: n, count: 3, allocatable: {cpu: 1, memory: 1Gi, pods: 10}}]\n"
JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  annotations: {{scheduling.volcano.sh/group-min-member: "{size}"}}
spec:
  parallelism: {size}
  completions: {size}
  template:
    metadata:
      labels: {labels}
      annotations: {{sim.pykueue.io/run-time: "{run_time}"}}
    spec:
      schedulerName: {scheduler}
      restartPolicy: Never
      containers: [{{name: main, image: i, resources: {{requests: {{cpu: 1}}}}}}]
"""
GROUP = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: small}
spec: {minMember: 2, scheduleTimeoutSeconds: 30}
"""


@pytest.fixture(scope="module")
def kubectl(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Kubectl:
    nodes = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    return kubectl_for(start_up("--nodes", str(nodes), "--kube-api-qps", "0"))


@pytest.fixture(scope="module")
def native(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Kubectl:
    nodes = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    return kubectl_for(start_up("--nodes", str(nodes), "--feature-gates", "GenericWorkload=true"))


def apply(kubectl: Kubectl, folder: Path, text: str) -> None:
    manifest = folder / "manifest.yaml"
    manifest.write_text(text)
    kubectl("apply", "-f", str(manifest))


def test_job_of_volcano_gets_a_pod_group_that_kubectl_shows(kubectl: Kubectl, tmp_path: Path) -> None:
    waits = "--for=jsonpath={.status.phase}=Running"
    apply(
        kubectl,
        tmp_path,
        JOB.format(name="whole", size=3, labels="{}", scheduler="volcano", run_time="forever"),
    )
    kubectl("wait", "--for=jsonpath={.status.ready}=3", "job/whole", "--timeout=60s")
    (name,) = kubectl("get", "podgroups.scheduling.volcano.sh", "-o", "name").split()
    kubectl("wait", waits, name, "--timeout=60s")
    # The phase follows from pods that are scheduled; how many run is counted as they start.
    kubectl("wait", "--for=jsonpath={.status.running}=3", name, "--timeout=60s")
    header, row = kubectl("get", "podgroups.scheduling.volcano.sh", "-o", "wide").splitlines()
    assert header.split() == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS", "AGE", "QUEUE"]
    found = row.split()
    assert (found[1:4], found[5]) == (["Running", "3", "3"], "default")

    apply(
        kubectl, tmp_path, JOB.format(name="next", size=2, labels="{}", scheduler="volcano", run_time="100ms")
    )
    kubectl("wait", "--for=jsonpath={.status.active}=2", "job/next", "--timeout=60s")
    pod = kubectl("get", "pods", "-l", "job-name=next", "-o", "name").split()[0]
    kubectl("wait", "--for=condition=PodScheduled=false", pod, "--timeout=60s")
    kubectl("delete", "job", "whole")
    kubectl("wait", "--for=condition=Complete", "job/next", "--timeout=60s")
    kubectl("wait", "--for=delete", name, "--timeout=60s")


def test_pods_name_a_group_of_coscheduling_by_label(kubectl: Kubectl, tmp_path: Path) -> None:
    labels = "{scheduling.x-k8s.io/pod-group: small}"
    text = JOB.format(name="small", size=2, labels=labels, scheduler="default-scheduler", run_time="100ms")
    apply(kubectl, tmp_path, GROUP + "---" + text)
    kubectl("wait", "--for=condition=Complete", "job/small", "--timeout=60s")
    kubectl("wait", "--for=jsonpath={.status.phase}=Finished", "podgroups.scheduling.x-k8s.io/small")


NATIVE = """
apiVersion: scheduling.k8s.io/v1alpha2
kind: Workload
metadata: {name: training}
spec:
  podGroupTemplates:
  - {name: workers, schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: training-workers}
spec:
  podGroupTemplateRef: {workload: {workloadName: training, podGroupTemplateName: workers}}
  schedulingPolicy: {gang: {minCount: 2}}
"""
MEMBER = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{sim.pykueue.io/run-time: 100ms}}}}
spec:
  restartPolicy: Never
  schedulingGroup: {{podGroupName: training-workers}}
  containers: [{{name: main, image: i, resources: {{requests: {{cpu: 1}}}}}}]
"""


def test_the_groups_of_kubernetes_itself_are_served_when_asked_for(native: Kubectl, tmp_path: Path) -> None:
    apply(native, tmp_path, NATIVE)
    apply(native, tmp_path, MEMBER.format(name="one"))
    apply(native, tmp_path, MEMBER.format(name="two"))
    group = "podgroups.scheduling.k8s.io/training-workers"
    native("wait", "--for=condition=PodGroupScheduled", group, "--timeout=60s")
    native("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/one", "pod/two", "--timeout=60s")
    header, row = native("get", "podgroups.scheduling.k8s.io").splitlines()
    assert header.split() == ["NAME", "POLICY", "MIN-COUNT", "SCHEDULED", "AGE"]
    assert row.split()[:4] == ["training-workers", "Gang", "2", "True"]
    assert "workloads.scheduling.k8s.io" in native(
        "api-resources", "-o", "name", "--api-group=scheduling.k8s.io"
    )
    native("delete", group)


def test_by_default_workloads_is_an_unambiguous_resource_name(kubectl: Kubectl) -> None:
    names = kubectl("api-resources", "-o", "name").split()
    assert [name for name in names if name.startswith("workloads.")] == ["workloads.kueue.x-k8s.io"]


def test_there_is_a_queue_that_groups_are_in_by_default(kubectl: Kubectl) -> None:
    header, row = kubectl("get", "queues.scheduling.volcano.sh").splitlines()
    assert header.split() == ["NAME", "WEIGHT", "STATE", "PARENT", "AGE"]
    assert row.split()[:2] == ["default", "1"]
