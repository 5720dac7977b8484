"""Real kubectl, a JobSet and its queue: apply, delete, patch quota to 0 and back, a hard quota beside it.

With the commands as users type them; source: docs/reference/cluster-workloads.md 5.7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up

from queue_manifests import BOOKSTORE_QUEUES

pytestmark = pytest.mark.kubectl

NODES = """
pools:
- name: node
  count: 2
  allocatable: {cpu: "16", memory: 64Gi, pods: "110", nvidia.com/gpu: "8"}
"""

SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: recommender-train
  namespace: bookstore-ml
  labels: { kueue.x-k8s.io/queue-name: bookstore-ml-lq }
spec:
  replicatedJobs:
    - name: worker
      replicas: 1
      template:
        spec:
          parallelism: 2
          completions: 2
          template:
            metadata:
              labels: { app.kubernetes.io/component: recommender-train }
              annotations: { sim.pykueue.io/run-time: RUN_TIME }
            spec:
              restartPolicy: Never
              containers:
              - { name: train, image: busybox, resources: { requests: { cpu: 500m } } }
"""

N = ("-n", "bookstore-ml")
JOBSET = ("jobset/recommender-train", *N)
PODS = ("pods", *N, "-l", "app.kubernetes.io/component=recommender-train")


@pytest.fixture(scope="module")
def kubectl(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Kubectl:
    nodes: Path = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    kubectl = kubectl_for(start_up("--nodes", str(nodes)))
    kubectl("create", "namespace", "bookstore-ml")
    kubectl("apply", "-f", "-", stdin=BOOKSTORE_QUEUES)
    return kubectl


def set_quota(kubectl: Kubectl, value: str) -> None:
    patch = (
        '[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota",'
        f'"value":"{value}"}}]'
    )
    out = kubectl("patch", "clusterqueue", "bookstore-ml-cq", "--type=json", "-p", patch)
    assert out == "clusterqueue.kueue.x-k8s.io/bookstore-ml-cq patched\n"


def test_the_kind_is_served_from_the_start(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources")
    assert any("jobset.x-k8s.io/v1alpha2" in line and "JobSet" in line for line in listed.splitlines())
    assert "replicatedJobs" in kubectl("explain", "jobset.spec")
    assert "maxRestarts" in kubectl("explain", "jobset.spec.failurePolicy")


def test_a_gang_from_apply_to_its_end(kubectl: Kubectl) -> None:
    created = kubectl("apply", "-f", "-", stdin=SET.replace("RUN_TIME", "2s"))
    assert created == "jobset.jobset.x-k8s.io/recommender-train created\n"
    kubectl("wait", "--for=condition=Completed", "jobset/recommender-train", *N, "--timeout=60s")
    header, row = kubectl("get", "jobset", *N).splitlines()
    assert header.split() == ["NAME", "TERMINALSTATE", "RESTARTS", "COMPLETED", "SUSPENDED", "AGE"]
    assert row.split()[:5] == ["recommender-train", "Completed", "0", "True", "false"]
    workload = kubectl("get", "workloads", *N).splitlines()[1].split()
    assert workload[0].startswith("jobset-recommender-train-")
    assert workload[1:4] == ["bookstore-ml-lq", "bookstore-ml-cq", "True"]
    pods = kubectl("get", *PODS, "--no-headers").splitlines()
    assert [line.split()[2] for line in pods] == ["Completed", "Completed"]
    told = kubectl("describe", "jobset", "recommender-train", *N)
    assert "jobset completed successfully" in told


def test_job_waits_while_quota_is_0_and_starts_when_it_is_restored(kubectl: Kubectl) -> None:
    kubectl("delete", "jobset", "recommender-train", *N, "--ignore-not-found")
    kubectl("wait", "--for=delete", *PODS, "--timeout=60s")
    set_quota(kubectl, "0")
    kubectl("apply", "-f", "-", stdin=SET.replace("RUN_TIME", "1h"))
    workload = ""
    while not workload:
        workload = kubectl("get", "workloads", *N, "-o", "name").strip()
    kubectl("wait", "--for=condition=QuotaReserved=False", workload, *N, "--timeout=60s")
    assert kubectl("get", *PODS, "-o", "name") == ""
    assert kubectl("get", "jobset", *N, "--no-headers").split()[2] == "true"
    set_quota(kubectl, "4")
    kubectl("wait", "--for=condition=Admitted", workload, *N, "--timeout=60s")
    kubectl("wait", "--for=jsonpath={.status.replicatedJobsStatus[0].ready}=1", *JOBSET, "--timeout=60s")
    assert len(kubectl("get", *PODS, "-o", "name").split()) == 2
    kubectl("delete", "jobset", "recommender-train", *N)


def test_resource_quota_beside_the_queue_limits_pods(kubectl: Kubectl) -> None:
    manifest = kubectl(
        "create",
        *N,
        "quota",
        "gpu-quota",
        "--hard=requests.nvidia.com/gpu=4",
        "--dry-run=client",
        "-o",
        "yaml",
    )
    assert kubectl("apply", *N, "-f", "-", stdin=manifest) == "resourcequota/gpu-quota created\n"
    assert "gpu-quota" in kubectl("get", "resourcequota", *N)


def test_change_of_an_immutable_field_is_rejected_by_name(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SET.replace("RUN_TIME", "1h"))
    error = kubectl.refused("apply", "-f", "-", stdin=SET.replace("RUN_TIME", "1h").replace("500m", "400m"))
    assert "spec.replicatedJobs: Invalid value" in error
    assert "field is immutable" in error
    kubectl("delete", "jobset", "recommender-train", *N)
