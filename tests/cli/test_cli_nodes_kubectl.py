"""Real kubectl and nodes: describe, cordon, drain with and without a budget, taint, delete, failing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_processes import PATIENCE, Kubectl, Up

pytestmark = pytest.mark.kubectl

NODES = """
pools:
- name: node
  count: 3
  allocatable: {cpu: "16", memory: 64Gi, pods: "110"}
  simulation: {startDelay: 0s, runTime: forever}
"""


@pytest.fixture(scope="module")
def kubectl(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    tmp_path_factory: pytest.TempPathFactory,
) -> Kubectl:
    nodes: Path = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    return kubectl_for(start_up("--nodes", str(nodes)))


def appears(kubectl: Kubectl, *nodes: str) -> None:
    """Wait for nodes that are not there yet, as kubectl before 1.31 cannot."""
    for _ in range(300):
        if kubectl.run("get", "node", *nodes)[0] == 0:
            return
    raise AssertionError(f"{', '.join(nodes)} did not appear")


def declare(kubectl: Kubectl, folder: Path, text: str) -> None:
    """As docs/use/nodes.md says to change pools while the cluster runs."""
    file = folder / "nodes.yaml"
    file.write_text(text)
    made = kubectl(
        "create",
        "configmap",
        "node-pools",
        "-n",
        "kube-system",
        f"--from-file=pools.yaml={file}",
        "-o",
        "yaml",
        "--dry-run=client",
    )
    kubectl("apply", "-f", "-", stdin=made)


def pod(name: str, node: str, **spec: Any) -> str:
    labels = {"app": name}
    container = {"name": "main", "image": "busybox:1"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, **spec.pop("metadata", {})},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **spec,
            },
        }
    )


def ready(kubectl: Kubectl, *names: str) -> None:
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", *(f"pod/{name}" for name in names))


def drain(kubectl: Kubectl, node: str, *options: str) -> str:
    return kubectl("drain", node, "--timeout=60s", *options)


def test_describe_shows_the_lease_and_what_happened(kubectl: Kubectl) -> None:
    text = kubectl("describe", "node", "node-0")
    lease = text[text.index("Lease:") : text.index("Conditions:")]
    assert "HolderIdentity:  node-0" in lease
    assert "RenewTime:       <unset>" not in lease
    assert "Failed to get lease" not in text
    assert "KubeletReady" in text
    rows = kubectl("get", "leases", "-n", "kube-node-lease").splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [[f"node-{n}", f"node-{n}"] for n in range(3)]


def test_cordon_and_uncordon(kubectl: Kubectl) -> None:
    assert kubectl("cordon", "node-2") == "node/node-2 cordoned\n"
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", "node-2")
    kubectl(
        "wait",
        "node/node-2",
        "--for=jsonpath={.spec.taints[0].key}=node.kubernetes.io/unschedulable",
        "--timeout=30s",
    )
    kubectl("create", "-f", "-", stdin=pod("cordoned", "node-2"))
    kubectl("wait", "pod/cordoned", "--for=condition=PodScheduled=false", "--timeout=30s")
    assert "node(s) were unschedulable" in kubectl("get", "pod", "cordoned", "-o", "yaml")
    assert kubectl("uncordon", "node-2") == "node/node-2 uncordoned\n"
    ready(kubectl, "cordoned")
    kubectl("delete", "pod", "cordoned", "--now")


def test_drain_names_what_it_refuses_without_options_and_succeeds_with_them(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=1")
    change = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}, "terminationGracePeriodSeconds": 1}
    kubectl("patch", "deployment", "web", "-p", json.dumps({"spec": {"template": {"spec": change}}}))
    kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    kubectl("create", "-f", "-", stdin=pod("bare", "node-0"))
    volumes = [{"name": "v", "emptyDir": {}}]
    kubectl("create", "-f", "-", stdin=pod("local", "node-0", volumes=volumes))
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"app": "daemon"}},
            "template": {
                "metadata": {"labels": {"app": "daemon"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    made = json.loads(kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(daemons)))
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "d",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    tolerations = [{"operator": "Exists"}]
    kubectl(
        "create",
        "-f",
        "-",
        stdin=pod("daemon", "node-0", metadata={"ownerReferences": [owner]}, tolerations=tolerations),
    )
    ready(kubectl, "bare", "local", "daemon")
    error = kubectl.refused("drain", "node-0", "--timeout=60s")
    assert "--ignore-daemonsets to ignore" in error
    assert "--force to override" in error
    assert "--delete-emptydir-data to override" in error
    told = drain(kubectl, "node-0", "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    for name in ("bare", "local"):
        assert f"pod/{name} evicted\n" in told
    assert told.endswith("node/node-0 drained\n")
    left = kubectl("get", "pods", "-o", "name", "--field-selector", "spec.nodeName=node-0").split()
    assert left == ["pod/daemon"]
    kubectl("uncordon", "node-0")
    kubectl("delete", "deployment/web", "daemonset/d", "--wait=false")


def test_a_drain_waits_for_a_budget(kubectl: Kubectl) -> None:
    for name in ("guarded", "spare"):
        body = json.loads(pod(name, "node-1" if name == "guarded" else "node-2"))
        body["metadata"]["labels"]["app"] = "guarded"
        kubectl("create", "-f", "-", stdin=json.dumps(body))
    ready(kubectl, "guarded", "spare")
    kubectl("create", "poddisruptionbudget", "pdb", "--selector=app=guarded", "--min-available=2")
    kubectl("wait", "pdb/pdb", "--for=jsonpath={.status.currentHealthy}=2", "--timeout=30s")
    assert kubectl("get", "pdb").splitlines()[1].split()[:4] == ["pdb", "2", "N/A", "0"]
    with kubectl.popen("drain", "node-1", "--force", "--timeout=100s") as draining:
        assert draining.stderr is not None
        for line in draining.stderr:
            if "Cannot evict pod as it would violate the pod's disruption budget." in line:
                assert "(will retry after 5s)" in line
                break
        else:
            raise AssertionError("the budget did not hold the drain up")
        assert kubectl("get", "pod", "guarded", "-o", "name") == "pod/guarded\n"
        kubectl("patch", "pdb", "pdb", "-p", '{"spec":{"minAvailable":1}}')
        out, _ = draining.communicate(timeout=PATIENCE)
        assert "pod/guarded evicted\n" in out
        assert draining.returncode == 0
    kubectl("uncordon", "node-1")
    kubectl("delete", "pdb/pdb", "pod/spare")


def test_a_taint_evicts(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=pod("leaves", "node-2"))
    ready(kubectl, "leaves")
    kubectl("taint", "node", "node-2", "fire=hot:NoExecute")
    kubectl("wait", "pod/leaves", "--for=delete", "--timeout=60s")
    events = kubectl("get", "events", "--field-selector", "involvedObject.name=leaves")
    assert "TaintManagerEviction" in events
    kubectl("taint", "node", "node-2", "fire:NoExecute-")


def test_node_that_reports_not_ready_is_displayed_so_and_recovers(kubectl: Kubectl) -> None:
    kubectl("annotate", "node", "node-2", "sim.pykueue.io/fail=not-ready")
    kubectl("wait", "node/node-2", "--for=condition=Ready=false", "--timeout=30s")
    assert " NotReady " in kubectl("get", "node", "node-2")
    kubectl("annotate", "node", "node-2", "sim.pykueue.io/fail-")
    kubectl("wait", "node/node-2", "--for=condition=Ready", "--timeout=30s")


def test_a_machine_is_taken_back_and_replaced_and_pools_grow_and_shrink(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    spot = """- name: spot
  count: {count}
  allocatable: {{cpu: "4", pods: "110"}}
  simulation: {{startDelay: 0s, runTime: forever}}
  life: {{reclaimNotice: 2s, replaceAfter: 1s}}
"""
    declare(kubectl, tmp_path, NODES + spot.format(count=2))
    appears(kubectl, "spot-0", "spot-1")
    kubectl("wait", "node/spot-0", "node/spot-1", "--for=condition=Ready", "--timeout=30s")
    kubectl("create", "-f", "-", stdin=pod("on-spot", "spot-0", restartPolicy="Never"))
    ready(kubectl, "on-spot")
    uid = kubectl("get", "node", "spot-0", "-o", "jsonpath={.metadata.uid}")
    kubectl("annotate", "node", "spot-0", "sim.pykueue.io/reclaim=true")
    kubectl("wait", "pod/on-spot", "--for=condition=DisruptionTarget", "--timeout=30s")
    assert kubectl("get", "pod", "on-spot", "-o", "jsonpath={.status.reason}") == "Terminated"
    kubectl("wait", "node/spot-0", "--for=delete", "--timeout=30s")
    appears(kubectl, "spot-0")
    assert kubectl("get", "node", "spot-0", "-o", "jsonpath={.metadata.uid}") != uid
    kubectl("create", "-f", "-", stdin=pod("drained", "spot-1"))
    ready(kubectl, "drained")
    declare(kubectl, tmp_path, NODES + spot.format(count=1))
    kubectl("wait", "node/spot-1", "--for=delete", "--timeout=60s")
    assert "NotFound" in kubectl.refused("get", "pod", "drained")
    declare(kubectl, tmp_path, NODES)
    kubectl("wait", "node/spot-0", "--for=delete", "--timeout=60s")


def test_a_deleted_node_is_gone_and_so_is_its_lease(kubectl: Kubectl) -> None:
    assert kubectl("delete", "node", "node-2") == 'node "node-2" deleted\n'
    kubectl("wait", "lease/node-2", "-n", "kube-node-lease", "--for=delete", "--timeout=60s")
    assert "node-2" not in kubectl("get", "nodes")
