"""kubectl and a cluster at work: waiting, logs, nodes, access, and what is not served."""

from __future__ import annotations

import pytest
from clients_harness import Kubectl, config_map, pod, widget

pytest_plugins = ["kubectl_fixtures"]
pytestmark = pytest.mark.kubectl


class TestWait:
    def test_for_a_condition_of_a_pod(self, kubectl: Kubectl) -> None:
        kubectl.put(pod("p"))
        told = kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
        assert told == "pod/p condition met\n"
        assert kubectl.rows("get", "pod", "p")[1][:3] == ["p", "1/1", "Running"]

    def test_for_a_condition_that_comes_later(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        with kubectl.popen("wait", "--for=condition=Done", "widget/w", "--timeout=60s") as waiting:
            status = '{"status":{"conditions":[{"type":"Done","status":"True"}]}}'
            kubectl("patch", "wd", "w", "--type=merge", "--subresource=status", "-p", status)
            assert waiting.communicate()[0] == "widget.example.com/w condition met\n"

    def test_for_a_value(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        with kubectl.popen("wait", "--for=jsonpath={.spec.size}=8", "wd/w", "--timeout=60s") as waiting:
            kubectl("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"size":8}}')
            assert waiting.communicate()[0] == "widget.example.com/w condition met\n"

    def test_for_deletion(self, kubectl: Kubectl) -> None:
        kubectl.put(config_map("c"))
        with kubectl.popen("wait", "--for=delete", "cm/c", "--timeout=60s") as waiting:
            kubectl("delete", "cm", "c")
            waiting.communicate()
            assert waiting.returncode == 0

    def test_in_vain(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        error = kubectl.refused("wait", "--for=condition=Done", "widget/w", "--timeout=1s")
        assert error == "error: timed out waiting for the condition on widgets/w\n"

    def test_for_a_job(self, kubectl: Kubectl) -> None:
        kubectl.put(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "short"},
                "spec": {
                    "template": {
                        "metadata": {"annotations": {"sim.pykueue.io/run-time": "1ms"}},
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "main", "image": "busybox:1"}],
                        },
                    }
                },
            }
        )
        kubectl("wait", "--for=condition=Complete", "job/short", "--timeout=60s")
        assert kubectl.rows("get", "jobs")[1][:3] == ["short", "Complete", "1/1"]


class TestLogs:
    @pytest.fixture(autouse=True)
    def _running(self, kubectl: Kubectl) -> None:
        kubectl.put(pod("p"))
        kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")

    def test_of_a_pod(self, kubectl: Kubectl) -> None:
        whole = "p/main says 0\np/main says 1\np/main says 2\n"
        assert kubectl("logs", "p") == whole
        assert kubectl("logs", "-f", "p") == whole
        assert kubectl("logs", "p", "--tail=1") == "p/main says 2\n"
        assert kubectl("logs", "-l", "app=p", "--prefix").startswith("[pod/p/main] p/main says 0\n")

    def test_what_has_none(self, kubectl: Kubectl) -> None:
        assert 'previous terminated container "main" in pod "p" not found' in kubectl.refused(
            "logs", "p", "--previous"
        )
        assert "container nope is not valid for pod p" in kubectl.refused("logs", "p", "-c", "nope")
        kubectl.put(pod("waits", nodeSelector={"nowhere": "x"}))
        assert "(BadRequest)" in kubectl.refused("logs", "waits")
        assert '(NotFound): pods "gone" not found' in kubectl.refused("logs", "gone")


class TestNodes:
    @pytest.fixture
    def node(self, kubectl: Kubectl) -> str:
        """A node of one's own, that nothing is placed on but by name."""
        name = f"node-{kubectl.namespace}"
        kubectl.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        return name

    def test_a_table(self, kubectl: Kubectl) -> None:
        header, *rows = kubectl.rows("get", "nodes", "-o", "wide")
        assert header[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
        assert rows[0][:2] == ["node-0", "Ready"]

    def test_cordon(self, kubectl: Kubectl, node: str) -> None:
        assert kubectl("cordon", node) == f"node/{node} cordoned\n"
        assert "SchedulingDisabled" in kubectl("get", "node", node)
        assert kubectl("cordon", node) == f"node/{node} already cordoned\n"
        assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
        assert "unschedulable" not in kubectl.object("get", "node", node)["spec"]

    def test_taint(self, kubectl: Kubectl, node: str) -> None:
        assert kubectl("taint", "node", node, "only=me:NoSchedule") == f"node/{node} tainted\n"
        assert "already has only taint(s)" in kubectl.refused("taint", "node", node, "only=you:NoSchedule")
        kubectl("taint", "node", node, "only=you:NoSchedule", "--overwrite")
        taints = kubectl.object("get", "node", node)["spec"]["taints"]
        assert {"key": "only", "value": "you", "effect": "NoSchedule"} in taints
        assert kubectl("taint", "node", node, "only-") == f"node/{node} untainted\n"

    def test_drain(self, kubectl: Kubectl) -> None:
        kubectl.put(pod("p", nodeName="node-1"))
        kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
        selector = ("--pod-selector=app=p", "--grace-period=1")
        try:
            assert "cannot delete Pods that declare no controller" in kubectl.refused(
                "drain", "node-1", *selector
            )
            told = kubectl("drain", "node-1", "--force", *selector)
            assert f"evicting pod {kubectl.namespace}/p" in told
            assert "node/node-1 drained" in told
            assert kubectl("get", "pods", "-o", "name") == ""
        finally:
            kubectl("uncordon", "node-1")

    def test_a_disruption_budget_holds_an_eviction(self, kubectl: Kubectl) -> None:
        kubectl.put(pod("p", nodeName="node-0"))
        kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
        kubectl("create", "pdb", "none", "--selector=app=p", "--min-available=1")
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/p/eviction"
        error = kubectl.refused("create", "--raw", path, "-f", "-", stdin=eviction)
        assert "Cannot evict pod as it would violate the pod's disruption budget" in error
        assert kubectl("get", "pods", "-o", "name") == "pod/p\n"


class TestAccess:
    def test_who_and_what(self, kubectl: Kubectl) -> None:
        assert kubectl("auth", "can-i", "delete", "nodes") == "yes\n"
        assert kubectl("auth", "can-i", "get", "pods", "--subresource=log", "-A").endswith("yes\n")
        assert kubectl("auth", "can-i", "get", "/metrics") == "yes\n"
        assert kubectl.run("auth", "can-i", "get", "pods", "--as=guest")[:2] == (1, "no\n")
        assert ["Username", "kubernetes-admin"] in kubectl.rows("auth", "whoami")
        assert "*.*" in kubectl("auth", "can-i", "--list")

    def test_impersonation(self, kubectl: Kubectl) -> None:
        kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
        kubectl("create", "rolebinding", "readers", "--role=reader", "--group=fruit")
        as_bob = ("--as=bob", "--as-group=fruit")
        assert kubectl("auth", "can-i", "list", "configmaps", *as_bob) == "yes\n"
        assert kubectl("get", "cm", "-o", "name", *as_bob) == ""
        error = kubectl.refused("get", "secrets", *as_bob)
        assert error == (
            'Error from server (Forbidden): secrets is forbidden: User "bob" cannot list resource "secrets" '
            f'in API group "" in the namespace "{kubectl.namespace}"\n'
        )
        assert ["Username", "bob"] in kubectl.rows("auth", "whoami", *as_bob)
        listed = kubectl("auth", "can-i", "--list", *as_bob)
        assert "configmaps" in listed
        assert "*.*" not in listed

    def test_without_credentials(self, kubectl: Kubectl) -> None:
        anonymous = ("--kubeconfig=/dev/null", f"--server={kubectl.server.url}",
                  f"--certificate-authority={kubectl.server.ca_file}", "--token=wrong")  # fmt: skip
        assert "Unauthorized" in kubectl.refused("get", "--raw", "/api/v1/pods", *anonymous)


class TestNotServed:
    def test_metrics_of_nodes_and_pods(self, kubectl: Kubectl) -> None:
        assert kubectl.refused("top", "nodes") == "error: Metrics API not available\n"
        assert kubectl.refused("top", "pods") == "error: Metrics API not available\n"

    def test_commands_in_containers(self, kubectl: Kubectl) -> None:
        kubectl.put(pod("p"))
        kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
        # By what kind of connection kubectl asks depends on its version.
        said = kubectl.refused("exec", "p", "--", "ls")
        assert "exec is not available" in said or "exec needs WebSockets" in said
        assert "no attach or port-forward" in kubectl.refused("attach", "p")
