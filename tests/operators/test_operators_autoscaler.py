"""ProvisioningRequests that the cluster autoscaler answers, with its provider that creates Node objects.

`$PYKUEUE_OPERATORS/autoscaler/operator` is its program, built with that provider (`-tags kwok`); the nodes
that it creates are simulated by `pykueue up`, which runs without its own autoscaler.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_processes import Kubectl, Up
from operators_programs import VARIABLE
from realcluster_jobs import job
from realcluster_plane import Process, free_port, until

from pykueue.api.objects import condition_of
from queue_manifests import cluster_queue, flavor, local_queue

Object = dict[str, Any]

NAMESPACE = "default"
GROUP = "group"
CPUS = 4
#: Nodes of the group that the autoscaler changes in size.
LARGEST = 6
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
#: A bound on how long a step may take before the test gives up: the autoscaler looks every few seconds.
PATIENCE = 240.0
NODES = yaml.safe_dump(
    {
        "pools": [
            {"name": "base", "count": 1, "allocatable": {"cpu": str(CPUS), "memory": "16Gi", "pods": "110"}}
        ]
    }
)


def node_template() -> Object:
    amounts = {"cpu": str(CPUS), "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "template",
            "labels": {GROUP: "large", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            "annotations": {"cluster-autoscaler.kwok.nodegroup/max-count": str(LARGEST)},
        },
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def settings() -> list[Object]:
    """ConfigMaps of the autoscaler's provider: one group of nodes."""
    config = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": GROUP},
        "nodes": {"skipTaint": True, "gpuConfig": {"gpuLabelKey": "gpu", "availableGPUTypes": {"none": {}}}},
        "configmap": {"name": "templates"},
    }
    nodes = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [node_template()]})

    def config_map(name: str, key: str, text: str) -> Object:
        metadata = {"name": name, "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}}

    return [
        config_map("kwok-provider-config", "config", yaml.safe_dump(config)),
        config_map("templates", "templates", nodes),
    ]


def queues(name: str, provisioning_class: str) -> list[Object]:
    """A ClusterQueue and a LocalQueue whose jobs wait for requests of that class."""
    kueue = "kueue.x-k8s.io"
    return [
        {
            "apiVersion": f"{kueue}/v1beta2",
            "kind": "ProvisioningRequestConfig",
            "metadata": {"name": name},
            "spec": {"provisioningClassName": provisioning_class, "retryStrategy": {"backoffLimitCount": 0}},
        },
        {
            "apiVersion": f"{kueue}/v1beta2",
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {
                "controllerName": f"{kueue}/provisioning-request",
                "parameters": {"apiGroup": kueue, "kind": "ProvisioningRequestConfig", "name": name},
            },
        },
        cluster_queue(
            name, {"cloud": {"cpu": 1000}}, admissionChecksStrategy={"admissionChecks": [{"name": name}]}
        ),
        local_queue(name, of=name, namespace=NAMESPACE),
    ]


class Scaled:
    """A cluster whose nodes the cluster autoscaler adds."""

    def __init__(self, kubectl: Kubectl, autoscaler: Process) -> None:
        self.kubectl, self._autoscaler = kubectl, autoscaler

    def until(self, look: Any, what: str) -> Any:
        try:
            return until(lambda: (self._autoscaler.check(), look())[1], what, PATIENCE)
        except AssertionError as error:
            log = "\n".join(self._autoscaler.text().splitlines()[-25:])
            raise AssertionError(f"{error}\n{log}") from None

    def get(self, kind: str) -> list[Object]:
        found: list[Object] = json.loads(self.kubectl("get", kind, "-n", NAMESPACE, "-o", "json"))["items"]
        return found

    def submit(self, name: str, queue: str, pods: int) -> None:
        made = job(name, queue, cpu=str(CPUS - 1), pods=pods)
        made["spec"]["template"]["metadata"] = {"annotations": {"sim.pykueue.io/run-time": "10s"}}
        self.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(made))

    def workload(self, job_name: str) -> Object:
        return next(
            one for one in self.get("workloads") if one["metadata"]["ownerReferences"][0]["name"] == job_name
        )

    def holds(self, job_name: str, condition: str) -> bool:
        found = condition_of(self.workload(job_name).get("status"), condition)
        return found is not None and found["status"] == "True"

    def provisioned(self, job_name: str) -> str:
        """What the autoscaler says of the job's ProvisioningRequest; empty while it does not."""
        owner = self.workload(job_name)["metadata"]["name"]
        for request in self.get("provisioningrequests"):
            if request["metadata"]["ownerReferences"][0]["name"] == owner:
                return str((condition_of(request.get("status"), "Provisioned") or {}).get("status", ""))
        return ""


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scaled]:
    name = os.environ.get(VARIABLE, "")
    program = Path(name) / "autoscaler" / "operator"
    if not name or not program.exists():
        pytest.skip(f"{VARIABLE}={name}: autoscaler/operator does not exist (docs/develop/testing.md)")
    folder = tmp_path_factory.mktemp("autoscaler")
    (folder / "nodes.yaml").write_text(NODES)
    up = Up(folder / "up", f"--nodes={folder / 'nodes.yaml'}", "--in-memory", "--no-autoscaler")
    kubectl = Kubectl(up.start(), folder / "home")
    autoscaler = Process(
        [
            str(program),
            "--cloud-provider=kwok",
            f"--kubeconfig={up.kubeconfig}",
            "--enable-provisioning-requests",
            "--leader-elect=false",
            "--scan-interval=2s",
            "--scale-down-unneeded-time=20s",
            "--scale-down-delay-after-add=10s",
            f"--namespace={NAMESPACE}",
            f"--address=127.0.0.1:{free_port()}",
            "--v=2",
        ],
        folder / "autoscaler.log",
        {
            **os.environ,
            "KUBECONFIG": str(up.kubeconfig),
            "KWOK_PROVIDER_MODE": "local",
            "POD_NAMESPACE": NAMESPACE,
        },
    )
    try:
        objects = [*settings(), flavor("cloud"), *queues("atomic", ATOMIC), *queues("check", CHECK_CAPACITY)]
        kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
        autoscaler.start()
        yield Scaled(kubectl, autoscaler)
    finally:
        autoscaler.kill()
        up.stop()


def test_nodes_come_for_all_pods_of_a_job_and_it_finishes(scaled: Scaled) -> None:
    # One of its pods fits on the node that is there.
    scaled.submit("whole", "atomic", 4)
    scaled.until(lambda: scaled.get("provisioningrequests"), "a ProvisioningRequest")
    scaled.until(lambda: scaled.provisioned("whole") == "True", "nodes for the whole job")
    scaled.until(lambda: scaled.holds("whole", "Admitted"), "the job is admitted")
    assert len([node for node in scaled.get("nodes") if node["metadata"]["labels"].get(GROUP)]) == 3
    scaled.until(lambda: scaled.holds("whole", "Finished"), "the job is finished")


def test_job_larger_than_the_group_gets_no_node_and_is_rejected(scaled: Scaled) -> None:
    before = len(scaled.get("nodes"))
    scaled.submit("large", "atomic", LARGEST + 10)
    scaled.until(lambda: scaled.provisioned("large"), "an answer")
    assert scaled.provisioned("large") == "False"
    assert not scaled.holds("large", "Admitted")
    assert len(scaled.get("nodes")) <= before


def test_job_that_fits_on_the_nodes_of_the_cluster_is_admitted_by_a_check_of_capacity(scaled: Scaled) -> None:
    scaled.submit("small", "check", 1)
    scaled.until(lambda: scaled.provisioned("small") == "True", "the capacity is checked")
    scaled.until(lambda: scaled.holds("small", "Finished"), "the job is finished")
