"""A cluster whose parts run in separate processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_processes import EXAMPLE, PATIENCE, Kubectl, Up
from test_cli_manager import ManagerProcess, managers

__all__ = ["managers"]

pytestmark = pytest.mark.kubectl


def test_an_api_server_alone_stays_up_and_the_other_parts_work_on_it(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]
) -> None:
    server = start_up("--only", "apiserver")
    kubectl = kubectl_for(server)
    others = Up(server.folder, "--only", "kube,manager", "--nodes", str(EXAMPLE / "nodes.yaml")).start()
    try:
        kubectl("create", "-f", str(EXAMPLE / "queues.yaml"), "-f", str(EXAMPLE / "quick-job.yaml"))
        kubectl("wait", "--for=condition=complete", "job/quick-job", f"--timeout={PATIENCE}s")
    finally:
        assert others.stop() == 0
    assert kubectl("get", "nodes", "-o", "name") == "node/node-0\n"
    assert server.stop() == 0


NEGATIVE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: negative}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: -5}]
"""
HELD = """
apiVersion: batch/v1
kind: Job
metadata: {name: held, labels: {kueue.x-k8s.io/queue-name: nowhere}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {requests: {cpu: 1}}}]
"""


def check_rules(kubectl: Kubectl) -> None:
    """Jobs are suspended when they are created, and what is invalid is refused."""
    kubectl("create", "-f", "-", stdin=HELD)
    assert kubectl("get", "job/held", "-o", "jsonpath={.spec.suspend}") == "true"
    assert "nominalQuota" in kubectl.run("create", "-f", "-", stdin=NEGATIVE)[2]
    kubectl("delete", "job/held")


def test_a_manager_in_a_process_of_its_own_brings_its_admission_rules(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]
) -> None:
    server = start_up("--only", "apiserver,kube")
    kubectl = kubectl_for(server)
    for _ in range(2):  # again after a restart, on another port
        manager = Up(server.folder, "--only", "manager").start()
        try:
            check_rules(kubectl)
        finally:
            assert manager.stop() == 0
    assert "failed calling webhook" in kubectl.run("create", "-f", "-", stdin=HELD)[2]
    assert server.stop() == 0


def test_rules_of_another_process_go_when_the_whole_cluster_starts(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]
) -> None:
    server = start_up("--only", "apiserver,kube")
    manager = Up(server.folder, "--only", "manager").start()
    assert manager.stop() == 0
    assert server.stop() == 0
    whole = Up(server.folder).start()
    try:
        kubectl = kubectl_for(whole)
        check_rules(kubectl)
        assert kubectl("get", "validatingwebhookconfigurations", "-o", "name") == ""
    finally:
        assert whole.stop() == 0


def test_the_managers_command_brings_its_rules_to_a_server_on_its_machine(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    managers: Callable[..., ManagerProcess],
) -> None:
    server = start_up("--only", "apiserver,kube")
    manager = managers(server)
    manager.until("admission rules: served")
    check_rules(kubectl_for(server))
    assert manager.stop() == 0
