"""Real kubectl, plain pods, a pod group and what serves, in one queue of 4 cpu."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cli_processes import Kubectl, Up

from queue_manifests import cluster_queue, flavor, local_queue

pytestmark = pytest.mark.kubectl

NODES = """
pools:
- name: node
  count: 2
  allocatable: {cpu: "16", memory: 64Gi, pods: "110"}
"""

QUEUES = yaml.safe_dump_all([flavor(), cluster_queue("cq", {"cpu": 4}), local_queue("team", "cq")])

POD = """
apiVersion: v1
kind: Pod
metadata:
  generateName: NAME-
  labels: {app: NAME, kueue.x-k8s.io/queue-name: team}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: busybox, command: [sleep, "TIME"], resources: {requests: {cpu: "CPU"}}}]
"""

MEMBER = POD.replace(
    "queue-name: team}",
    "queue-name: team, kueue.x-k8s.io/pod-group-name: gang}\n"
    '  annotations: {kueue.x-k8s.io/pod-group-total-count: "3"}',
)

SERVICE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {kueue.x-k8s.io/queue-name: team}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {sim.pykueue.io/run-time: forever}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: web, resources: {requests: {cpu: "2"}}}]
"""


def manifest(text: str, name: str, cpu: int, time: int) -> str:
    return text.replace("NAME", name).replace("CPU", str(cpu)).replace("TIME", str(time))


@pytest.fixture(scope="module")
def kubectl(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Kubectl:
    nodes: Path = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    kubectl = kubectl_for(start_up("--nodes", str(nodes)))
    kubectl("apply", "-f", "-", stdin=QUEUES)
    kubectl("wait", "--for=condition=Active", "localqueue/team", "--timeout=60s")
    return kubectl


def shown(kubectl: Kubectl, app: str) -> list[str]:
    """The STATUS column of its pods."""
    rows = kubectl("get", "pods", "-l", f"app={app}", "--no-headers").splitlines()
    return sorted(row.split()[2] for row in rows)


def test_a_group_waits_for_its_last_pod_and_ends_as_one(kubectl: Kubectl) -> None:
    for _ in range(2):
        kubectl("create", "-f", "-", stdin=manifest(MEMBER, "gang", 1, 3))
    assert shown(kubectl, "gang") == ["SchedulingGated", "SchedulingGated"]
    kubectl("create", "-f", "-", stdin=manifest(MEMBER, "gang", 1, 3))
    kubectl("wait", "--for=create", "workload/gang", "--timeout=60s")
    kubectl("wait", "--for=condition=Admitted", "workload/gang", "--timeout=60s")
    kubectl("wait", "--for=condition=Finished", "workload/gang", "--timeout=60s")
    assert shown(kubectl, "gang") == ["Completed"] * 3
    assert "Pods succeeded: 3/3." in kubectl("describe", "workload", "gang")
    kubectl("delete", "pods", "-l", "app=gang")
    kubectl("wait", "--for=delete", "workload/gang", "--timeout=60s")


def test_pods_and_deployments_share_a_queue(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SERVICE)
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/web", "--timeout=60s")
    assert shown(kubectl, "web") == ["Running", "Running", "SchedulingGated"]
    kubectl("create", "-f", "-", stdin=manifest(POD, "single", 2, 1))
    kubectl("scale", "deployment/web", "--replicas=1")
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod", "-l", "app=single", "--timeout=60s")
    out = kubectl.refused("label", "deployment/web", "kueue.x-k8s.io/queue-name-")
    assert "cannot be removed" in out
    kubectl("delete", "deployment/web")
    kubectl("wait", "--for=delete", "pods", "-l", "app=web", "--timeout=60s")


def test_group_name_without_total_count_is_rejected(kubectl: Kubectl) -> None:
    half = manifest(MEMBER, "half", 1, 1).replace('kueue.x-k8s.io/pod-group-total-count: "3"', "")
    assert "both the name and the total count of a group are needed" in kubectl.refused(
        "create", "-f", "-", stdin=half
    )
