"""Jobs on a real API server, the manager behind webhooks and RBAC: what users and administrators see.

No kubelet runs: the tests act as the Job controller.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from realcluster_install import NAMESPACE, USER, Installation, rendered
from realcluster_jobs import NEVER_READY, JobController, Queues, job
from realcluster_plane import Kubectl, Plane, until

from pykueue.embedded.jobset.definition import definition
from queue_manifests import priority

#: Validating webhooks that are there whatever is queued.
KUEUE_WEBHOOKS = {"vclusterqueue.kb.io", "vcohort.kb.io", "vresourceflavor.kb.io", "vworkload.kb.io"}
POLICY_WEBHOOKS = {"vbackfillpolicy.kb.io", "vbudget.kb.io", "vpreemptionpolicy.kb.io", "vreservation.kb.io"}


@pytest.fixture(scope="module")
def jobs(running: Installation) -> Iterator[JobController]:
    with JobController(running.plane) as controller:
        yield controller


def test_a_job_waits_runs_and_makes_room(plane: Plane, jobs: JobController) -> None:
    queues = Queues(plane, "room", cpu="2")
    queues.submit("room-first", cpu="2")
    queues.wait_running("room-first")
    assert queues.wait_for("room-first", "Admitted")["reason"] == "Admitted"
    queues.submit("room-second", cpu="2")
    assert queues.job("room-second")["spec"]["suspend"] is True
    waiting = queues.wait_for("room-second", "QuotaReserved", "False")
    assert "insufficient unused quota" in waiting["message"]
    jobs.finish("room-first")
    queues.wait_for("room-first", "Finished")
    queues.wait_running("room-second")
    jobs.finish("room-second")
    queues.wait_for("room-second", "Finished")
    until(
        lambda: (plane.kubectl.get("clusterqueue", "room") or {})["status"].get("reservingWorkloads") == 0,
        "the queue empty again",
    )


def test_a_job_without_a_queue_is_left_alone(plane: Plane, jobs: JobController) -> None:
    free = job("free", "none")
    free["metadata"]["labels"] = {"plain": "yes"}
    plane.kubectl.apply(free)
    found = plane.call("GET", "/apis/batch/v1/namespaces/default/jobs/free")
    assert found["spec"]["suspend"] is False
    until(
        lambda: plane.call("GET", "/apis/batch/v1/namespaces/default/jobs/free")["status"].get("active"),
        "pods",
    )


def test_the_urgent_take_from_the_rest(plane: Plane, jobs: JobController) -> None:
    plane.kubectl.apply(priority("urgent", 1000))
    queues = Queues(plane, "ranks", cpu="2", preemption={"withinClusterQueue": "LowerPriority"})
    queues.submit("ranks-usual", cpu="2")
    queues.wait_running("ranks-usual")
    queues.submit("ranks-urgent", cpu="2", **{"kueue.x-k8s.io/priority-class": "urgent"})
    queues.wait_for("ranks-usual", "Preempted", reason="InClusterQueue")
    queues.wait_stopped("ranks-usual")
    queues.wait_running("ranks-urgent")
    assert queues.admitted() == {"ranks-urgent"}
    jobs.finish("ranks-urgent")
    queues.wait_running("ranks-usual")
    jobs.finish("ranks-usual")
    queues.wait_for("ranks-usual", "Finished")


def test_queues_are_held_drained_and_opened(plane: Plane, jobs: JobController) -> None:
    queues = Queues(plane, "holding", cpu="2")
    queues.submit("holding-one")
    queues.wait_running("holding-one")

    def stop_policy(policy: str) -> None:
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        plane.kubectl("patch", "clusterqueue", "holding", "--type=merge", "-p", patch)

    stop_policy("Hold")
    queues.submit("holding-two")
    queues.wait_for("holding-two", "QuotaReserved", "False")
    assert queues.admitted() == {"holding-one"}
    stop_policy("HoldAndDrain")
    queues.wait_for("holding-one", "Evicted", reason="ClusterQueueStopped")
    queues.wait_stopped("holding-one")
    stop_policy("None")
    for name in ("holding-one", "holding-two"):
        queues.wait_running(name)
        jobs.finish(name)
        queues.wait_for(name, "Finished")


def test_a_workload_is_deactivated_and_activated(plane: Plane, jobs: JobController) -> None:
    queues = Queues(plane, "active")
    queues.submit("active-one")
    queues.wait_running("active-one")
    workload = queues.workload("active-one")
    assert workload is not None

    def set_active(value: bool) -> None:
        patch = json.dumps({"spec": {"active": value}})
        plane.kubectl("patch", "workload", workload["metadata"]["name"], "--type=merge", "-p", patch)

    set_active(False)
    queues.wait_stopped("active-one")
    assert queues.condition("active-one", "Evicted")["reason"] == "Deactivated"
    set_active(True)
    queues.wait_running("active-one")
    jobs.finish("active-one")
    queues.wait_for("active-one", "Finished")


def test_deleted_job_releases_its_quota(plane: Plane, jobs: JobController) -> None:
    queues = Queues(plane, "gone")
    queues.submit("gone-one", cpu="2")
    queues.wait_running("gone-one")
    queues.submit("gone-two", cpu="2")
    queues.wait_for("gone-two", "QuotaReserved", "False")
    workload = queues.workload("gone-one")
    assert workload is not None
    plane.kubectl("delete", "job", "gone-one")
    # As the garbage collector does, once its owner is gone; the manager removes its finalizer.
    plane.kubectl("delete", "workload", workload["metadata"]["name"])
    queues.wait_running("gone-two")
    jobs.finish("gone-two")


def test_borrowing_within_a_cohort_and_giving_back(plane: Plane, jobs: JobController) -> None:
    spec: dict[str, Any] = {"cohortName": "two", "preemption": {"reclaimWithinCohort": "Any"}}
    lender, borrower = Queues(plane, "lender", **spec), Queues(plane, "borrower", **spec)
    borrower.submit("borrower-large", cpu="4")
    borrower.wait_running("borrower-large")
    lender.submit("lender-own", cpu="2")
    borrower.wait_for("borrower-large", "Preempted", reason="InCohortReclamation")
    lender.wait_running("lender-own")
    jobs.finish("lender-own")
    borrower.wait_running("borrower-large")
    jobs.finish("borrower-large")
    borrower.wait_for("borrower-large", "Finished")


def test_jobsets_once_their_kind_arrives(running: Installation, jobs: JobController) -> None:
    """The manager was started on a cluster that does not know JobSets."""
    plane = running.plane
    plane.kubectl.apply(definition())
    until(lambda: plane.kubectl.run("get", "jobsets").returncode == 0, "JobSets served")
    queues = Queues(plane, "sets")
    template = {"spec": job("unused", "none", cpu="1")["spec"]}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "sets"}},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]},
    }
    plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump(jobset))
    until(
        lambda: (plane.kubectl.get("jobset", "set") or {})["spec"].get("suspend") is False,
        "the JobSet started",
    )
    assert queues.admitted() == {"set"}
    plane.kubectl("delete", "jobset", "set")


def test_the_pods_of_the_manager_are_admitted(kubectl: Kubectl) -> None:
    """They keep to the restricted security standard that their namespace demands."""
    found = kubectl.get("deployment", "kueue-controller-manager", NAMESPACE)
    assert found is not None
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trial", "namespace": NAMESPACE},
        "spec": found["spec"]["template"]["spec"],
    }
    kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    del pod["spec"]["securityContext"]["runAsNonRoot"]
    error = kubectl.refused("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    assert "violates PodSecurity" in error


def test_metrics_need_the_right_to_read_them(running: Installation, kubectl: Kubectl) -> None:
    def read(token: str | None) -> tuple[int, str]:
        secret = kubectl.get("secret", "kueue-webhook-server-cert", NAMESPACE)
        assert secret is not None
        context = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
        context.check_hostname = False  # it is reached by address here, not by its Service's name
        port = running.replicas[0].ports["metrics"]
        request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "scraper", "namespace": "default"},
        }
    )
    token = kubectl("create", "token", "scraper").strip()
    assert read(None)[0] == 401
    assert read(token)[0] == 403
    kubectl.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "scraper"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "kueue-metrics-reader",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}],
        }
    )
    other = kubectl("create", "token", "scraper").strip()

    def allowed() -> str | None:
        status, text = read(other)
        return text if status == 200 else None

    text = until(allowed, "metrics", patience=90)
    assert "kueue_admitted_workloads_total" in text


def test_pods_that_never_get_ready_give_their_quota_back(running: Installation, jobs: JobController) -> None:
    waiting = {"timeout": "3s", "requeuingStrategy": {"backoffLimitCount": 0}}
    running.end(running.replicas[0])
    replica = running.start_replica(waitForPodsReady=waiting)
    try:
        queues = Queues(running.plane, "ready")
        queues.submit("ready-never", cpu="2", **{NEVER_READY: "yes"})
        queues.wait_running("ready-never")
        queues.wait_for("ready-never", "Evicted")
        queues.wait_stopped("ready-never")
        workload = queues.workload("ready-never")
        assert workload is not None
        assert workload["spec"]["active"] is False
        queues.submit("ready-soon", cpu="2")
        queues.wait_running("ready-soon")
        queues.wait_for("ready-soon", "PodsReady")
        jobs.finish("ready-soon")
    finally:
        running.end(replica)
        running.start_replica()


def test_the_manager_was_never_refused(plane: Plane, jobs: JobController) -> None:
    """Of all that it asked the API server for, nothing lay outside the rights it was given."""
    refused = {
        (record["verb"], record["requestURI"].partition("?")[0], record["responseStatus"].get("message"))
        for record in plane.requests_of(USER)
        if record["responseStatus"]["code"] in (401, 403)
    }
    # For half a minute the server cannot say who may wait for owners of a kind it has just learned of.
    refused = {one for one in refused if "cannot find RESTMapping" not in (one[2] or "")}
    assert not refused


def test_the_manager_was_never_warned(running: Installation, jobs: JobController) -> None:
    """Nothing it wrote had fields that the server does not know."""
    told = [line for one in running.replicas for line in one.process.text().splitlines()]
    assert [line for line in told if "unknown field" in line] == []


def test_what_the_manager_writes_is_not_sent_back_to_it(plane: Plane, jobs: JobController) -> None:
    """So its work does not wait for its own replicas; writes of all other clients are checked."""

    def reviews() -> int:
        """How often the API server has asked about Workloads."""
        lines = plane.kubectl("get", "--raw", "/metrics").splitlines()
        name = 'apiserver_admission_webhook_request_total{code="200",name="vworkload.kb.io"'
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(name))

    queues = Queues(plane, "own")
    before = reviews()
    queues.submit("own-job")
    queues.wait_running("own-job")
    jobs.finish("own-job")
    queues.wait_for("own-job", "Finished")
    assert reviews() == before
    workload = queues.workload("own-job")
    assert workload is not None
    patch = json.dumps({"metadata": {"labels": {"seen": "yes"}}})
    plane.kubectl("patch", "workload", workload["metadata"]["name"], "--type=merge", "-p", patch)
    assert reviews() == before + 1


def test_a_job_kind_is_switched_off_by_applying_again(running: Installation, tmp_path: Path) -> None:
    """The webhooks of its kind go, those of others stay trusted."""
    kubectl = running.plane.kubectl
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "integrations: {frameworks: [batch/job]}\n"
    )

    def webhooks(text: str) -> set[str]:
        kubectl("apply", "--server-side", "-f", "-", stdin=text)
        found = kubectl.get("validatingwebhookconfiguration", "kueue-validating-webhook-configuration")
        assert found is not None
        return {webhook["name"] for webhook in found["webhooks"]}

    everything = webhooks(rendered())
    assert {"vjob.kb.io", "vjobset.kb.io", "vpod.kb.io", "vworkload.kb.io"} <= everything
    assert webhooks(rendered("--config", str(file))) == {"vjob.kb.io", *KUEUE_WEBHOOKS, *POLICY_WEBHOOKS}
    assert running.is_trusted()
    assert webhooks(rendered()) == everything
    # The pods are replaced by that, and new ones tell of the authority at once.
    running.end(running.replicas[0])
    running.start_replica()
