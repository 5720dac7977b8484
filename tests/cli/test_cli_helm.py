"""The chart's life on an API server: Helm installs, upgrades, rolls back and uninstalls it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from cli_processes import PATIENCE, ROOT, Kubectl, Up, helm_program

pytestmark = pytest.mark.kubectl

CHART = str(ROOT / "charts" / "pykueue")
NAMESPACE = "kueue-system"


class Cluster:
    """An API server without a manager, and the two clients."""

    def __init__(self, up: Up, kubectl: Kubectl, home: Path) -> None:
        self.kubectl = kubectl
        self._program = helm_program()
        self._environment = {**os.environ, "KUBECONFIG": str(up.kubeconfig), "HOME": str(home)}

    def helm(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._program, *arguments, "--namespace", NAMESPACE],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def deployment(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(
            self.kubectl("get", "deployment", "kueue-controller-manager", "-n", NAMESPACE, "-o", "json")
        )
        return found


@pytest.fixture(scope="module")
def cluster(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Cluster:
    helm_program()
    up = start_up("--only", "apiserver,kube")
    found = Cluster(up, kubectl_for(up), tmp_path_factory.mktemp("helm"))
    # Before the webhooks, which no manager answers here.
    found.kubectl("apply", "-f", str(ROOT / "examples" / "team-queue.yaml"))
    # The server has the kinds already, as a cluster has that Kueue was installed on.
    found.helm("install", "pykueue", CHART, "--create-namespace", "--take-ownership")
    return found


def test_installed_release_has_the_version_of_the_chart(cluster: Cluster) -> None:
    (release,) = orjson.loads(cluster.helm("list", "-o", "json"))
    assert release["status"] == "deployed"
    assert release["chart"] == f"pykueue-{release['app_version']}"
    (container,) = cluster.deployment()["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"pykueue:{release['app_version']}"


def test_upgrade_changes_what_is_chosen_and_keeps_queues_and_the_certificate(cluster: Cluster) -> None:
    secret = ("get", "secret", "kueue-webhook-server-cert", "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}")
    uids = cluster.kubectl(*secret), cluster.kubectl("get", "cq", "team", "-o", "jsonpath={.metadata.uid}")
    before = cluster.deployment()["spec"]["template"]["metadata"]["annotations"]
    config = "config=apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    cluster.helm("upgrade", "pykueue", CHART, "--set", "replicas=3", "--set", config)
    after = cluster.deployment()
    assert after["spec"]["replicas"] == 3
    # Another configuration starts new pods.
    assert after["spec"]["template"]["metadata"]["annotations"] != before
    assert uids == (
        cluster.kubectl(*secret),
        cluster.kubectl("get", "cq", "team", "-o", "jsonpath={.metadata.uid}"),
    )
    cluster.helm("rollback", "pykueue", "1")
    assert cluster.deployment()["spec"]["replicas"] == 2
    assert cluster.deployment()["spec"]["template"]["metadata"]["annotations"] == before


def test_upgrade_adds_the_dashboard_with_its_ingress_and_removes_it(cluster: Cluster) -> None:
    chosen = ("dashboard.enabled=true", "dashboard.host=queues.example.org", "dashboard.ingress.enabled=true")
    cluster.helm("upgrade", "pykueue", CHART, *(f"--set={each}" for each in chosen))
    names = ("get", "deployment,service,ingress", "-n", NAMESPACE, "-o", "name")
    ours = {"deployment.apps/kueue-dashboard", "service/kueue-dashboard"}
    ours.add("ingress.networking.k8s.io/kueue-dashboard")
    assert ours <= set(cluster.kubectl(*names).split())
    cluster.helm("upgrade", "pykueue", CHART, "--reset-values")
    assert not ours & set(cluster.kubectl(*names).split())


def test_upgrade_to_the_same_values_changes_nothing(cluster: Cluster) -> None:
    generation = cluster.deployment()["metadata"]["generation"]
    cluster.helm("upgrade", "pykueue", CHART, "--reset-values")
    assert cluster.deployment()["metadata"]["generation"] == generation
