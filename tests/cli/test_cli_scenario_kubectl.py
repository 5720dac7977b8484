"""Commands that the scenarios type, with real kubectl (docs/reference/cluster-workloads.md 5: W2-W4, W7c,
B2)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import EXAMPLE, Kubectl, Up

pytestmark = pytest.mark.kubectl

SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: late, labels: {kueue.x-k8s.io/queue-name: user-queue}}
spec:
  replicatedJobs:
  - name: worker
    template:
      spec:
        parallelism: 12
        completions: 12
        template:
          metadata: {annotations: {sim.pykueue.io/run-time: forever}}
          spec:
            containers:
            - {name: c, image: i, resources: {requests: {memory: 1Mi}}}
"""


@pytest.fixture(scope="module")
def up(start_up: Callable[..., Up]) -> Up:
    return start_up("--nodes", str(EXAMPLE / "nodes.yaml"))


@pytest.fixture(scope="module")
def kubectl(up: Up, kubectl_for: Callable[[Up], Kubectl]) -> Kubectl:
    return kubectl_for(up)


@pytest.mark.skipif(shutil.which("numfmt") is None, reason="numfmt is not installed")
def test_w3_shell_pipe_of_the_page_sums_the_memory_of_the_workers(kubectl: Kubectl) -> None:
    selector = "!node-role.kubernetes.io/master,!node-role.kubernetes.io/control-plane"
    path = '{range .items[*]}{.status.allocatable.memory}{"\\n"}{end}'
    listed = kubectl("get", "node", f"--selector={selector}", "-o", f"jsonpath={path}")
    # The page prints with `print s`, which some awks do in powers of ten.
    pipe = "numfmt --from=auto | awk '{s+=$1} END {printf \"%.0f\\n\", s}'"
    done = subprocess.run(["sh", "-c", pipe], input=listed, capture_output=True, text=True, check=True)
    assert done.stdout == "8838569984\n"


def test_w4_queues_are_active_and_no_workload_is_pending(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLE / "queues.yaml"))
    for queue in ("clusterqueue/cluster-queue", "localqueue/user-queue"):
        kubectl("wait", "--for=condition=Active", queue, "--timeout=60s")
    header, row = kubectl("get", "cq").splitlines()
    assert header.split() == ["NAME", "COHORT", "PENDING", "WORKLOADS"]
    assert row.split() == ["cluster-queue", "0"]
    header, row = kubectl("get", "cq", "-o", "wide").splitlines()
    columns = ["NAME", "COHORT", "STRATEGY", "PENDING", "WORKLOADS", "ADMITTED", "WORKLOADS"]
    assert header.split() == columns
    assert row.split() == ["cluster-queue", "BestEffortFIFO", "0", "0"]


def test_w2_there_is_a_namespace_in_which_to_delete_all_pods(kubectl: Kubectl) -> None:
    assert "No resources found" in kubectl.run("delete", "pods", "--all", "-n", "kueue-system")[1]


def test_b2_apply_names_kinds_without_a_crd_and_succeeds_once_it_exists(
    up: Up, kubectl_for: Callable[[Up], Kubectl], kubectl: Kubectl, tmp_path: Path
) -> None:
    definition = tmp_path / "definition.json"
    definition.write_text(kubectl("get", "crd", "jobsets.jobset.x-k8s.io", "-o", "json"))
    kubectl("delete", "crd", "jobsets.jobset.x-k8s.io")
    newcomer = kubectl_for(up)  # who has not asked for the kinds before; others remember them for hours
    assert 'no matches for kind "JobSet"' in newcomer.refused("apply", "-f", "-", stdin=SET)
    kubectl("create", "-f", str(definition))
    kubectl("wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io", "--timeout=60s")
    assert newcomer("apply", "-f", "-", stdin=SET) == "jobset.jobset.x-k8s.io/late created\n"
    ready = "--for=jsonpath={.status.replicatedJobsStatus[0].ready}=1"
    kubectl("wait", ready, "jobset/late", "--timeout=60s")


def test_w7c_pods_are_listed_by_name(kubectl: Kubectl) -> None:
    names = kubectl("get", "pods", "-o", "name").split()
    indexes = [name.split("-")[3] for name in names]
    assert indexes == ["0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"]
