"""Uninstalling, as docs/use/install.md says: last, for afterwards there is nothing left to test."""

from __future__ import annotations

import yaml
from realcluster_install import Installation
from realcluster_jobs import Queues, job
from realcluster_plane import until

ALL_NAMESPACED = "workloads,localqueues"
ALL_OTHERS = "clusterqueues,cohorts,resourceflavors,topologies,admissionchecks,workloadpriorityclasses"


def test_nothing_is_left_and_jobs_run_without_queues(running: Installation) -> None:
    plane, kubectl = running.plane, running.plane.kubectl
    queues = Queues(plane, "last")
    queues.submit("last")
    queues.wait_for("last", "Admitted")
    kubectl("delete", "jobs", "-A", "-l", "kueue.x-k8s.io/queue-name")
    kubectl("delete", ALL_NAMESPACED, "-A", "--all", "--timeout=60s")
    kubectl("delete", ALL_OTHERS, "--all", "--timeout=60s")
    text = yaml.safe_dump_all(running.manifests)
    # There is no namespace controller here that would let the namespace go.
    kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text)
    running.stop()

    def left() -> list[str]:
        kinds = "crds,clusterroles,mutatingwebhookconfigurations,validatingwebhookconfigurations,apiservices"
        return [obj["metadata"]["name"] for obj in kubectl.list(kinds) if "kueue" in obj["metadata"]["name"]]

    until(lambda: not left(), "everything gone")
    kubectl.apply(job("free-at-last", "last"))
    assert (kubectl.get("job", "free-at-last") or {})["spec"]["suspend"] is False
