"""Other versions of kubectl: the requests that changed between them, on the same server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from clients_harness import Kubectl, deployment, line_of, other_kubectls, pod, widget

from pykueue.testing import RunningServer

pytest_plugins = ["kubectl_fixtures"]
pytestmark = pytest.mark.kubectl

_NONE = pytest.param(None, marks=pytest.mark.skip(reason="no kubectl.1.NN beside the kubectl on PATH"))


@pytest.fixture(scope="module", params=other_kubectls() or [_NONE], ids=lambda path: path and path.name)
def program(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def kubectl(kubectl_cluster: RunningServer, program: Path, tmp_path: Path) -> Kubectl:
    """One of the other versions, in a fresh namespace and with a home of its own."""
    return Kubectl(kubectl_cluster, tmp_path / program.name, program).in_new_namespace()


def test_the_life_of_an_object(kubectl: Kubectl, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(widget("w", color="red")))
    assert kubectl("apply", "-f", str(path)) == "widget.example.com/w created\n"
    path.write_text(yaml.safe_dump(widget("w", color="blue")))
    assert kubectl("apply", "-f", str(path)) == "widget.example.com/w configured\n"
    assert kubectl("apply", "--server-side", "-f", str(path)) == "widget.example.com/w serverside-applied\n"
    assert kubectl.rows("get", "wd", "-o", "wide")[1][:3] == ["w", "3", "blue"]
    assert "Color:  blue" in kubectl("describe", "wd", "w")
    assert kubectl("label", "wd", "w", "a=b") == "widget.example.com/w labeled\n"
    kubectl("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    assert kubectl("scale", "wd/w", "--replicas=5") == "widget.example.com/w scaled\n"
    assert kubectl("edit", "wd", "w", KUBE_EDITOR="sed -i s/blue/red/") == "widget.example.com/w edited\n"
    assert 'unknown field "spec.colour"' in kubectl.refused(
        "create", "-f", "-", stdin=widget("v", colour="x")
    )
    assert kubectl("delete", "wd", "w", "-o", "name") == "widget.example.com/w\n"


def test_typed_commands(kubectl: Kubectl) -> None:
    assert kubectl("create", "configmap", "c", "--from-literal=a=b") == "configmap/c created\n"
    assert kubectl("create", "job", "j", "--image=busybox") == "job.batch/j created\n"
    assert kubectl("create", "quota", "q", "--hard=pods=9", "--dry-run=server") == (
        "resourcequota/q created (server dry run)\n"
    )
    kubectl("create", "serviceaccount", "robot")
    assert kubectl("create", "token", "robot").count(".") == 2
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "kubernetes-admin" in kubectl("auth", "whoami")
    kubectl.put(deployment("app", replicas=0))
    assert kubectl("scale", "deploy/app", "--replicas=1") == "deployment.apps/app scaled\n"
    assert kubectl("set", "image", "deploy/app", "main=b:2") == "deployment.apps/app image updated\n"


def test_watching_waiting_and_explaining(kubectl: Kubectl) -> None:
    kubectl.put(pod("p"))
    assert kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s") == "pod/p condition met\n"
    with kubectl.following("get", "pods", "-w") as watch:
        assert line_of(watch).split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert line_of(watch).split()[:3] == ["p", "1/1", "Running"]
    assert kubectl("logs", "p", "--tail=1") == "p/main says 2\n"
    assert "Scheduled" in kubectl("describe", "pod", "p")
    assert "Scheduled" in kubectl("get", "events")
    assert "busybox:1" in kubectl("get", "pod", "p", "-o", "jsonpath={.spec.containers[*].image}")
    assert "Size in metres." in kubectl("explain", "widget.spec.size")
    assert "widgets" in kubectl("api-resources", "-o", "name")
    assert kubectl("delete", "pod", "p", "--now", "-o", "name") == "pod/p\n"
