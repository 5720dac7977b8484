"""Real kubectl and things that serve: rollout, scale, autoscale, expose of Deployments and StatefulSets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up

pytestmark = pytest.mark.kubectl

NODES = """
pools:
- name: node
  count: 2
  allocatable: {cpu: "16", memory: 64Gi, pods: "110"}
"""

SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  replicas: 2
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata:
      labels: {app: store}
      annotations: {sim.pykueue.io/run-time: forever}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "store:1"}]
"""


@pytest.fixture(scope="module")
def kubectl(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Kubectl:
    nodes: Path = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    return kubectl_for(start_up("--nodes", str(nodes)))


def test_a_deployment_through_its_rollouts(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=2")
    patch = (
        '{"spec":{"template":{"metadata":{"annotations":{"sim.pykueue.io/run-time":"forever"}},'
        '"spec":{"terminationGracePeriodSeconds":1}}}}'
    )
    kubectl("patch", "deployment", "web", "-p", patch)
    told = kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    assert told.endswith('deployment "web" successfully rolled out\n')
    kubectl("set", "image", "deployment/web", "web=web:2")
    kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    history = kubectl("rollout", "history", "deployment/web").splitlines()
    assert [line.split()[0] for line in history[2:] if line] == ["1", "2", "3"]
    assert "web:2" in kubectl("rollout", "history", "deployment/web", "--revision=3")
    assert kubectl("rollout", "undo", "deployment/web") == "deployment.apps/web rolled back\n"
    kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert kubectl("get", "deployment", "web", "-o", image) == "web:1"
    history = kubectl("rollout", "history", "deployment/web").splitlines()
    assert [line.split()[0] for line in history[2:] if line] == ["1", "3", "4"]
    assert kubectl("rollout", "restart", "deployment/web") == "deployment.apps/web restarted\n"
    kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    row = kubectl("get", "deployment", "web", "--no-headers").split()
    assert row[:4] == ["web", "2/2", "2", "2"]
    described = kubectl("describe", "deployment", "web")
    assert "NewReplicaSetAvailable" in described
    assert "Scaled up replica set web-" in described


def test_pause_and_resume(kubectl: Kubectl) -> None:
    kubectl("rollout", "pause", "deployment/web")
    kubectl("set", "image", "deployment/web", "web=web:9")
    out = kubectl.refused("rollout", "restart", "deployment/web")
    assert "can't restart paused deployment" in out
    kubectl("rollout", "resume", "deployment/web")
    kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    images = kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert "web:9" in images.split()


def test_scale_and_autoscale(kubectl: Kubectl) -> None:
    assert kubectl("scale", "deployment/web", "--replicas=3") == "deployment.apps/web scaled\n"
    kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    kubectl("autoscale", "deployment/web", "--min=1", "--max=2")
    kubectl("wait", "--for=jsonpath={.spec.replicas}=2", "deployment/web", "--timeout=60s")
    kubectl("wait", "--for=condition=ScalingActive=False", "hpa/web", "--timeout=60s")
    assert "this cluster does not measure its pods" in kubectl("describe", "hpa", "web")
    kubectl("delete", "hpa/web", "deployment/web")


def test_a_stateful_set_through_its_rollouts(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SET)
    kubectl("rollout", "status", "statefulset/store", "--timeout=90s")
    assert kubectl("get", "pods", "-l", "app=store", "-o", "name").split() == ["pod/store-0", "pod/store-1"]
    kubectl("set", "image", "statefulset/store", "main=store:2")
    kubectl("rollout", "status", "statefulset/store", "--timeout=90s")
    history = kubectl("rollout", "history", "statefulset/store").splitlines()
    assert [line.split()[0] for line in history[2:] if line] == ["1", "2"]
    kubectl("rollout", "undo", "statefulset/store")
    kubectl("rollout", "status", "statefulset/store", "--timeout=90s")
    images = "jsonpath={.items[*].spec.containers[0].image}"
    assert kubectl("get", "pods", "-l", "app=store", "-o", images) == "store:1 store:1"
    kubectl("rollout", "restart", "statefulset/store")
    kubectl("rollout", "status", "statefulset/store", "--timeout=90s")
    assert kubectl("get", "statefulset", "store", "--no-headers").split()[:2] == ["store", "2/2"]
    listed = kubectl("get", "controllerrevisions", "--no-headers").splitlines()
    assert {line.split()[1] for line in listed} == {"statefulset.apps/store"}
    kubectl("delete", "statefulset", "store")
