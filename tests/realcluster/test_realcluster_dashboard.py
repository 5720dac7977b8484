"""The dashboard on a real API server, with the rights of its installed account and those of users."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from realcluster_dashboard import User, running_dashboard
from realcluster_install import NAMESPACE, Installation, rendered
from realcluster_jobs import Queues
from realcluster_plane import Kubectl, until


@pytest.fixture(scope="module")
def url(running: Installation, kubectl: Kubectl) -> Iterator[str]:
    """Address of a dashboard that runs with nothing but the token of its account."""
    plane = running.plane
    Queues(plane, "shown", cpu="1").submit("waits", cpu="2")
    manifests = [obj for obj in yaml.safe_load_all(rendered("--dashboard")) if obj]
    objects = [obj for obj in manifests if obj["metadata"]["name"] == "kueue-dashboard"]
    kubectl.apply(*objects)
    token = kubectl("create", "token", "kueue-dashboard", "-n", NAMESPACE).strip()
    kubeconfig = plane.kubeconfig("dashboard", token=token)
    with running_dashboard(kubeconfig, kubeconfig.with_name("dashboard.log")) as found:
        yield found
    kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(objects))


def test_an_administrator_sees_every_page(url: str, kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "dashboard-admin")
    kubectl("create", "clusterrolebinding", "dashboard-admin", "--clusterrole=cluster-admin",
            "--serviceaccount=default:dashboard-admin")  # fmt: skip
    user = User(url, kubectl("create", "token", "dashboard-admin").strip())
    pages = ("/", "/workloads", "/cluster-queues", "/cluster-queues/shown", "/local-queues", "/cohorts",
             "/resource-flavors", "/nodes", "/preemptions", "/trends")  # fmt: skip

    def listed() -> bool:
        return "waits" in user.get("/workloads")[1]

    until(listed, "the Workload in the list")
    for path in pages:
        status, text = user.get(path)
        assert status == 200, path
        assert "Not everything could be read" not in text, path
    link = re.search(r'href="(/workloads/default/[^"]+)"', user.get("/workloads")[1])
    assert link is not None
    assert "Why it is pending" in user.get(link[1])[1]


def test_a_user_without_rights_sees_nothing(url: str, kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "dashboard-nothing")
    user = User(url, kubectl("create", "token", "dashboard-nothing").strip())
    for path in ("/workloads", "/cluster-queues", "/local-queues"):
        status, text = user.get(path)
        assert status == 403, path
        assert "waits" not in text
