"""Real kubectl against `pykueue up`: the commands a newcomer types, asserted on what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cli_processes import EXAMPLE, Kubectl, Up

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def kubectl(start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]) -> Kubectl:
    kubectl = kubectl_for(start_up("--nodes", str(EXAMPLE / "nodes.yaml")))
    kubectl("create", "-f", str(EXAMPLE / "queues.yaml"))
    return kubectl


def job(
    name: str, *, pods: int = 2, memory: str = "1Mi", run_time: str = "200ms", queue: str = "user-queue"
) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "template": {
                    "metadata": {"annotations": {"sim.pykueue.io/run-time": run_time}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "main",
                                "image": "busybox",
                                "resources": {"requests": {"memory": memory}},
                            }
                        ],
                    },
                },
            },
        }
    )


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()[1:]]


def workload_of(kubectl: Kubectl, name: str) -> str:
    names = kubectl("get", "workloads", "-o", "name").split()
    return next(found for found in names if f"/job-{name}-" in found)


def test_create_wait_get_and_delete(kubectl: Kubectl, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(job("whole"))
    assert kubectl("create", "-f", str(manifest)) == "job.batch/whole created\n"
    assert (
        kubectl("wait", "--for=condition=complete", "job/whole", "--timeout=60s")
        == "job.batch/whole condition met\n"
    )
    assert kubectl("get", "jobs").splitlines()[0].split() == [
        "NAME",
        "STATUS",
        "COMPLETIONS",
        "DURATION",
        "AGE",
    ]
    assert rows(kubectl("get", "job", "whole"))[0][:3] == ["whole", "Complete", "2/2"]
    pods = kubectl("get", "pods", "-l", "job-name=whole")
    assert pods.splitlines()[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row[1:4] for row in rows(pods)] == [["0/1", "Completed", "0"]] * 2
    stored = yaml.safe_load(kubectl("get", "job", "whole", "-o", "yaml"))
    assert stored["status"]["succeeded"] == 2
    assert stored["spec"]["suspend"] is False
    assert kubectl("delete", "-f", str(manifest)) == 'job.batch "whole" deleted\n'
    kubectl("wait", "--for=delete", "pods", "-l", "job-name=whole", "--timeout=60s")


def test_apply_twice_changes_nothing(kubectl: Kubectl, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(job("applied"))
    assert kubectl("apply", "-f", str(manifest)) == "job.batch/applied created\n"
    assert kubectl("apply", "-f", str(manifest)) == "job.batch/applied unchanged\n"
    kubectl("wait", "--for=condition=complete", "job/applied", "--timeout=60s")
    kubectl("delete", "-f", str(manifest))


def test_queues_and_workloads_show_what_is_used(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=job("used", run_time="1h"))
    kubectl("wait", "--for=condition=Admitted", workload_of(kubectl, "used"), "--timeout=60s")
    kubectl("wait", "--for=jsonpath={.status.admittedWorkloads}=1", "cq/cluster-queue", "--timeout=60s")
    table = kubectl("get", "cq", "-o", "wide")
    assert table.splitlines()[0].split("  ")[0] == "NAME"
    assert "STRATEGY" in table
    assert "ADMITTED WORKLOADS" in table
    assert rows(table)[0] == ["cluster-queue", "BestEffortFIFO", "0", "1"]
    header, *lines = kubectl("get", "workloads").splitlines()
    assert header.split() == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE"]
    assert any(line.split()[1:4] == ["user-queue", "cluster-queue", "True"] for line in lines)
    told = kubectl("describe", "workload", workload_of(kubectl, "used").partition("/")[2])
    assert "Quota reserved in ClusterQueue cluster-queue" in told
    assert "Admitted" in told
    assert "Events:" in told
    kubectl("delete", "job", "used")
    kubectl("wait", "--for=jsonpath={.status.admittedWorkloads}=0", "cq/cluster-queue", "--timeout=60s")


def test_watching_pods_shows_their_life(kubectl: Kubectl) -> None:
    with kubectl.popen("get", "pods", "-w", "-l", "job-name=watched") as watch:
        try:
            kubectl("create", "-f", "-", stdin=job("watched", pods=1))
            assert watch.stdout is not None
            assert watch.stdout.readline().split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
            seen = []
            while "Completed" not in seen:
                seen.append(watch.stdout.readline().split()[2])
        finally:
            watch.terminate()
            watch.communicate()
    life = list(dict.fromkeys(seen))
    assert life == ["Pending", "ContainerCreating", "Running", "Completed"]
    kubectl("delete", "job", "watched")


def test_a_job_too_large_says_what_it_waits_for(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=job("large", memory="10000Mi"))
    kubectl("wait", "--for=jsonpath={.status.conditions[0].type}=Suspended", "job/large", "--timeout=60s")
    name = workload_of(kubectl, "large")
    kubectl("wait", "--for=condition=QuotaReserved=False", name, "--timeout=60s")
    told = kubectl("describe", "workload", name.partition("/")[2])
    assert "ExceedsMaxQuota" in told
    assert "memory" in told
    kubectl("delete", "job", "large")


class TestBadManifests:
    """What a cluster would answer, with the field named; and the cluster goes on."""

    @pytest.fixture(autouse=True)
    def _goes_on(self, kubectl: Kubectl) -> None:
        assert rows(kubectl("get", "nodes"))[0][1] == "Ready"

    def test_text_that_is_not_yaml(self, kubectl: Kubectl) -> None:
        assert "error converting YAML to JSON" in kubectl.refused(
            "create", "-f", "-", stdin="this: is: not: yaml"
        )

    def test_negative_quantity_in_a_job(self, kubectl: Kubectl) -> None:
        error = kubectl.refused("create", "-f", "-", stdin=job("negative", memory="-1"))
        assert 'The Job "negative" is invalid' in error
        assert "spec.template.spec.containers[0].resources.requests" in error
        assert "must be greater than or equal to 0" in error

    def test_negative_quota(self, kubectl: Kubectl) -> None:
        queue = (
            (EXAMPLE / "queues.yaml")
            .read_text()
            .replace("16858Mi", "-1Mi")
            .replace("cluster-queue", "negative")
        )
        error = kubectl.refused("create", "-f", "-", stdin=queue.split("---")[1])
        assert "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota" in error

    def test_unknown_field(self, kubectl: Kubectl) -> None:
        error = kubectl.refused(
            "create", "-f", "-", stdin=job("unknown").replace("parallelism:", "paralelism:")
        )
        assert 'unknown field "spec.paralelism"' in error

    def test_queue_that_does_not_exist(self, kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=job("lost", queue="no-such-queue"))
        kubectl("wait", "--for=condition=suspended", "job/lost", "--timeout=60s")
        name = workload_of(kubectl, "lost")
        kubectl("wait", "--for=condition=QuotaReserved=False", name, "--timeout=60s")
        told = kubectl("describe", "workload", name.partition("/")[2])
        assert "no-such-queue" in told
        assert "Misconfigured" in told
        kubectl("delete", "job", "lost")

    def test_local_queue_to_a_missing_cluster_queue(self, kubectl: Kubectl) -> None:
        queue = """
            apiVersion: kueue.x-k8s.io/v1beta1
            kind: LocalQueue
            metadata: {name: dangling}
            spec: {clusterQueue: no-such-cluster-queue}
        """
        kubectl("create", "-f", "-", stdin=queue)
        kubectl("wait", "--for=condition=Active=False", "localqueue/dangling", "--timeout=60s")
        assert "ClusterQueueDoesNotExist" in kubectl("get", "localqueue", "dangling", "-o", "yaml")
        kubectl("delete", "localqueue", "dangling")
