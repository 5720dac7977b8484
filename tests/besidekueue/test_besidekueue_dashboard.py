"""The dashboard beside Kueue's own manager: every page, its stream, and what users may change."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from besidekueue_cluster import Beside, Lab, condition_of
from realcluster_dashboard import User, running_dashboard
from realcluster_plane import until

READER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dashboard-reader}
rules:
- {apiGroups: ["", kueue.x-k8s.io], resources: ["*"], verbs: [get, list, watch]}
"""


@pytest.fixture(scope="module")
def url(beside: Beside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("dashboard")
    with running_dashboard(beside.kubeconfig, folder / "dashboard.log") as found:
        yield found


@pytest.fixture(scope="module")
def lab(beside: Beside) -> Lab:
    """A job that holds quota was preempted by one of higher priority; another is too large."""
    found = beside.lab()
    found.submit("survey", 3, "2")
    found.wait_admitted("survey")
    found.submit("training", 4, "2", priority=100)
    found.wait_admitted("training")
    found.submit("giant", 100, "2")
    found.wait_evaluated("giant")
    return found


def signed_in(beside: Beside, url: str, account: str, role: str) -> User:
    """A user with the rights of a ClusterRole."""
    for manifest in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": "default"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
        },
    ):
        beside.kubectl.apply(manifest)
    return User(url, beside.kubectl("create", "token", account).strip())


def pages(lab: Lab) -> list[str]:
    """Every page, those of objects for objects of the lab."""
    names = [(lab.workload(job) or {})["metadata"]["name"] for job in ("survey", "training", "giant")]
    return [
        "/",
        "/workloads",
        "/cluster-queues",
        f"/cluster-queues/research-{lab.number}",
        "/local-queues",
        f"/local-queues/{lab.namespace}/research",
        "/cohorts",
        f"/cohorts/lab-{lab.number}",
        "/resource-flavors",
        f"/resource-flavors/on-demand-{lab.number}",
        "/nodes",
        "/preemptions",
        "/trends",
        f"/objects/ClusterQueue/research-{lab.number}",
        *(f"/workloads/{lab.namespace}/{name}" for name in names),
    ]


def test_reader_sees_every_page_and_its_stream(beside: Beside, url: str, lab: Lab) -> None:
    beside.kubectl.apply(yaml.safe_load(READER))
    user = signed_in(beside, url, "dashboard-reader", "dashboard-reader")
    until(lambda: "giant" in user.get("/workloads")[1], "the jobs in the list")
    for path in pages(lab):
        status, text = user.get(path)
        assert status == 200, path
        assert "Not everything could be read" not in text, path
        assert "/actions/" not in text, path
        if not path.startswith("/objects/"):
            assert user.stream(path) == "page", path


def test_pages_show_what_kueue_decided(beside: Beside, url: str, lab: Lab) -> None:
    user = signed_in(beside, url, "dashboard-viewer", "cluster-admin")
    until(lambda: "giant" in user.get("/workloads")[1], "the jobs in the list")
    names = {job: (lab.workload(job) or {})["metadata"]["name"] for job in ("survey", "giant")}
    giant = html.unescape(user.get(f"/workloads/{lab.namespace}/{names['giant']}")[1])
    assert "Why it is pending" in giant
    assert lab.condition("giant", "QuotaReserved")["message"] in giant
    survey = user.get(f"/workloads/{lab.namespace}/{names['survey']}")[1]
    assert "Preempted" in survey
    assert "training" in user.get("/preemptions")[1]
    queue = user.get(f"/cluster-queues/research-{lab.number}")[1]
    assert "8 of 8" in queue


def test_queue_is_stopped_with_the_rights_of_the_user(beside: Beside, url: str, lab: Lab) -> None:
    user = signed_in(beside, url, "dashboard-admin", "cluster-admin")
    name = f"production-{lab.number}"
    page = user.get(f"/cluster-queues/{name}")[1]
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)
    assert csrf is not None
    form = {"csrf": csrf[1], "kind": "clusterqueue", "namespace": "", "name": name}
    assert user.post("/actions/stop", policy="Hold", **form)[0] == 200
    until(
        lambda: condition_of(beside.kubectl.get("clusterqueue", name), "Active").get("reason") == "Stopped",
        "Kueue stopped the queue",
    )
    until(lambda: "Stopped: Hold" in user.get(f"/cluster-queues/{name}")[1], "the page shows it")
    user.post("/actions/resume", **form)
    until(
        lambda: condition_of(beside.kubectl.get("clusterqueue", name), "Active").get("status") == "True",
        "Kueue resumed the queue",
    )
