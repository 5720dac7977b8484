"""kubectl reads: every way of getting, watching, describing and explaining, asserted on what it prints."""

from __future__ import annotations

import json

import pytest
import yaml
from clients_harness import Kubectl, config_map, line_of, pod, readable, widget

pytest_plugins = ["kubectl_fixtures"]
pytestmark = pytest.mark.kubectl


@pytest.fixture
def fruit(kubectl: Kubectl) -> Kubectl:
    """Three config maps in a namespace of their own."""
    for name, colour, weight in (("apple", "red", "3"), ("banana", "yellow", "1"), ("cherry", "red", "2")):
        kubectl.put(config_map(name, {"colour": colour}, weight=weight))
    return kubectl


class TestGet:
    def test_a_table(self, fruit: Kubectl) -> None:
        header, *rows = fruit.rows("get", "configmaps")
        assert header == ["NAME", "DATA", "AGE"]
        assert [row[:2] for row in rows] == [["apple", "1"], ["banana", "1"], ["cherry", "1"]]

    def test_no_headers_and_labels(self, fruit: Kubectl) -> None:
        assert fruit.rows("get", "cm", "apple", "--no-headers", "--show-labels")[0][3] == "colour=red"
        assert fruit.rows("get", "cm", "-L", "colour")[0][-1] == "COLOUR"

    @pytest.mark.parametrize(
        ("output", "printed"),
        [
            ("name", "configmap/apple\nconfigmap/banana\nconfigmap/cherry\n"),
            ("jsonpath={.items[*].data.weight}", "3 1 2"),
            ('jsonpath-as-json={.items[?(@.data.weight=="1")].metadata.name}', '[\n    "banana"\n]\n'),
            ("go-template={{range .items}}{{.metadata.name}},{{end}}", "apple,banana,cherry,"),
            (
                "custom-columns=N:.metadata.name,W:.data.weight",
                "N        W\napple    3\nbanana   1\ncherry   2\n",
            ),
        ],
    )
    def test_chosen_fields(self, fruit: Kubectl, output: str, printed: str) -> None:
        assert fruit("get", "cm", "-o", output) == printed

    def test_whole_objects(self, fruit: Kubectl) -> None:
        assert json.loads(fruit("get", "cm", "apple", "-o", "json"))["data"] == {"weight": "3"}
        listed = yaml.safe_load(fruit("get", "cm", "-o", "yaml"))
        assert listed["kind"] == "List"
        assert [one["kind"] for one in listed["items"]] == ["ConfigMap"] * 3

    def test_wide(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("small", color="blue"))
        assert kubectl.rows("get", "widgets")[0] == ["NAME", "SIZE", "AGE"]
        header, row = kubectl.rows("get", "wd", "-o", "wide")
        assert header == ["NAME", "SIZE", "COLOR", "AGE"]
        assert row[:3] == ["small", "3", "blue"]

    def test_sorted(self, fruit: Kubectl) -> None:
        rows = fruit.rows("get", "cm", "--sort-by={.data.weight}", "--no-headers")
        assert [row[0] for row in rows] == ["banana", "cherry", "apple"]

    def test_in_chunks(self, fruit: Kubectl) -> None:
        assert len(fruit.rows("get", "cm", "--chunk-size=1", "--no-headers")) == 3
        assert fruit("get", "cm", "--chunk-size=2", "-o", "name").count("\n") == 3

    @pytest.mark.parametrize(
        ("selector", "names"),
        [
            ("colour=red", ["apple", "cherry"]),
            ("colour!=red", ["banana"]),
            ("colour in (red,yellow)", ["apple", "banana", "cherry"]),
            ("colour notin (red)", ["banana"]),
            ("!colour", []),
            ("colour", ["apple", "banana", "cherry"]),
        ],
    )
    def test_label_selectors(self, fruit: Kubectl, selector: str, names: list[str]) -> None:
        assert fruit("get", "cm", "-l", selector, "-o", "name").split() == [f"configmap/{n}" for n in names]

    def test_field_selectors(self, fruit: Kubectl) -> None:
        for selector in ("metadata.name=apple", "metadata.name!=banana,metadata.name!=cherry"):
            assert fruit("get", "cm", "--field-selector", selector, "-o", "name") == "configmap/apple\n"
        fruit.put(widget("w", color="red"))
        assert fruit("get", "wd", "--field-selector=spec.color=red", "-o", "name") == "widget.example.com/w\n"
        assert fruit("get", "wd", "--field-selector=spec.color=blue", "-o", "name") == ""
        assert "field label not supported: spec.size" in fruit.refused(
            "get", "wd", "--field-selector=spec.size=3"
        )

    def test_pods_by_node_and_phase(self, kubectl: Kubectl) -> None:
        kubectl.put(pod("still", nodeSelector={"nowhere": "x"}))
        assert kubectl("get", "pods", "--field-selector=status.phase=Pending", "-o", "name") == "pod/still\n"
        assert kubectl("get", "pods", "--field-selector=spec.nodeName=node-0", "-o", "name") == ""

    def test_several_kinds_and_all(self, fruit: Kubectl) -> None:
        fruit.put(pod("one", nodeSelector={"nowhere": "x"}))
        assert fruit("get", "cm/apple", "pod/one", "-o", "name") == "configmap/apple\npod/one\n"
        assert fruit("get", "cm,pods", "-l", "app=one", "-o", "name") == "pod/one\n"
        assert fruit("get", "all", "-o", "name") == "pod/one\n"

    def test_all_namespaces(self, fruit: Kubectl) -> None:
        header, *rows = fruit.rows("get", "cm", "-A")
        assert header[0] == "NAMESPACE"
        assert [fruit.namespace, "apple"] in [row[:2] for row in rows]

    def test_subresource(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        assert kubectl.object("get", "widget", "w", "--subresource=scale")["kind"] == "Scale"
        assert kubectl.rows("get", "widget", "w", "--subresource=status")[1][0] == "w"

    def test_raw(self, fruit: Kubectl) -> None:
        path = f"/api/v1/namespaces/{fruit.namespace}/configmaps/apple"
        assert json.loads(fruit("get", "--raw", path))["metadata"]["name"] == "apple"
        assert fruit("get", "--raw", "/readyz") == "ok"
        assert "apiserver_storage_objects" in fruit("get", "--raw", "/metrics")

    def test_what_is_not_there(self, kubectl: Kubectl) -> None:
        assert kubectl.refused("get", "cm", "nope") == (
            'Error from server (NotFound): configmaps "nope" not found\n'
        )
        assert kubectl.refused("get", "nopes") == 'error: the server doesn\'t have a resource type "nopes"\n'
        assert kubectl("get", "cm", "nope", "--ignore-not-found") == ""
        assert kubectl.run("get", "pods")[2] == f"No resources found in {kubectl.namespace} namespace.\n"


class TestWatch:
    def test_a_list(self, fruit: Kubectl) -> None:
        with fruit.following("get", "cm", "-w", "-l", "colour=red") as watch:
            assert line_of(watch).split() == ["NAME", "DATA", "AGE"]
            assert [line_of(watch).split()[0] for _ in range(2)] == ["apple", "cherry"]
            fruit("label", "cm", "banana", "colour=red", "--overwrite")
            assert line_of(watch).split()[:2] == ["banana", "1"]

    def test_one_object_by_events(self, fruit: Kubectl) -> None:
        with fruit.following("get", "cm", "apple", "-w", "--output-watch-events") as watch:
            assert line_of(watch).split() == ["EVENT", "NAME", "DATA", "AGE"]
            seen = [line_of(watch).split()]
            fruit("annotate", "cm", "apple", "eaten=half")
            fruit("delete", "cm", "apple")
            while seen[-1][0] != "DELETED":
                seen.append(line_of(watch).split())
            assert [row[0] for row in seen] == ["ADDED", "MODIFIED", "DELETED"]
            assert {row[1] for row in seen} == {"apple"}

    def test_only_what_changes(self, fruit: Kubectl) -> None:
        with fruit.following("get", "cm", "--watch-only", "-o", "name") as watch:
            # It says nothing when it begins: change something until it speaks.
            for number in range(200):
                fruit("annotate", "cm", "cherry", f"n={number}", "--overwrite")
                if readable(watch):
                    break
            assert line_of(watch) == "configmap/cherry\n"

    def test_a_custom_kind(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w"))
        with kubectl.following("get", "wd", "-w") as watch:
            assert line_of(watch).split() == ["NAME", "SIZE", "AGE"]
            assert line_of(watch).split()[:2] == ["w", "3"]
            kubectl("patch", "wd", "w", "--type=merge", "-p", '{"spec":{"size":5}}')
            assert line_of(watch).split()[:2] == ["w", "5"]


class TestDescribe:
    def test_a_pod_with_its_events(self, kubectl: Kubectl) -> None:
        kubectl.put(pod("hello"))
        kubectl("wait", "--for=condition=Ready", "pod/hello", "--timeout=60s")
        told = kubectl("describe", "pod", "hello")
        for part in ("Node:             node-", "Image:          busybox:1", "QoS Class:", "Scheduled"):
            assert part in told

    def test_by_prefix(self, fruit: Kubectl) -> None:
        assert "Name:         banana" in fruit("describe", "cm", "ban")
        assert "not found" in fruit.refused("describe", "cm", "zebra")

    def test_a_custom_object(self, kubectl: Kubectl) -> None:
        kubectl.put(widget("w", color="red"))
        told = kubectl("describe", "widget", "w")
        assert "API Version:  example.com/v1" in told
        assert "Color:  red" in told
        assert "Events:   <none>" in told

    def test_a_node(self, kubectl: Kubectl) -> None:
        told = kubectl("describe", "node", "node-0")
        for part in ("Allocatable:", "KubeletReady", "Non-terminated Pods:", "Allocated resources:"):
            assert part in told

    def test_a_namespace_with_quota_and_limits(self, kubectl: Kubectl) -> None:
        kubectl("create", "quota", "few", "--hard=pods=5,requests.cpu=4")
        kubectl.put(
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": {"name": "limits"},
                "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]},
            }
        )
        told = kubectl("describe", "namespace", kubectl.namespace)
        assert "Status:       Active" in told
        assert "few" in told
        assert "500m" in told

    @pytest.mark.parametrize(
        ("create", "kind", "part"),
        [
            (("secret", "generic", "one", "--from-literal=a=b"), "secret", "a:  1 bytes"),
            (("service", "clusterip", "one", "--tcp=80"), "service", "Port:                     80  80/TCP"),
            (("role", "one", "--verb=get", "--resource=pods"), "role", "pods       []"),
            (("cronjob", "one", "--image=b", "--schedule=@hourly"), "cronjob", "@hourly"),
            (("deployment", "one", "--image=b"), "deployment", "StrategyType:           RollingUpdate"),
            (("ingress", "one", "--rule=a.com/=s:80"), "ingress", "a.com"),
            (("pdb", "one", "--selector=a=b", "--min-available=1"), "pdb", "Min available:  1"),
        ],
    )  # fmt: skip
    def test_kinds(self, kubectl: Kubectl, create: tuple[str, ...], kind: str, part: str) -> None:
        kubectl("create", *create)
        assert part in kubectl("describe", kind, "one")

    def test_a_definition(self, kubectl: Kubectl) -> None:
        told = kubectl("describe", "crd", "widgets.example.com")
        assert "Established" in told


class TestEvents:
    EVENT = {  # noqa: RUF012 (never changed)
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "apple.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "Rotten",
        "note": "it was left lying about",
        "action": "Looked",
        "reportingController": "example.com/fruit",
        "reportingInstance": "fruit-1",
    }

    def written(self, fruit: Kubectl) -> Kubectl:
        regarding = {"apiVersion": "v1", "kind": "ConfigMap", "name": "apple", "namespace": fruit.namespace}
        fruit.put({**self.EVENT, "regarding": regarding})
        return fruit

    def test_events(self, fruit: Kubectl) -> None:
        header, row = self.written(fruit).rows("events")
        assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
        assert row[1:] == ["Warning", "Rotten", "ConfigMap/apple", "it was left lying about"]
        assert "Rotten" in fruit("events", "--for", "configmap/apple", "--types=Warning")
        assert "No events found" in "".join(fruit.run("events", "--for", "configmap/banana")[1:])

    def test_get_events(self, fruit: Kubectl) -> None:
        header, row = self.written(fruit).rows("get", "events")
        assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
        assert row[1:] == ["Warning", "Rotten", "configmap/apple", "it was left lying about"]
        assert fruit("get", "events.events.k8s.io", "-o", "name") == "event.events.k8s.io/apple.1\n"
        assert fruit("get", "events", "--field-selector=reason=Rotten", "-o", "name") == "event/apple.1\n"

    def test_watched_events_begin_with_those_there(self, fruit: Kubectl) -> None:
        self.written(fruit)
        with fruit.following("events", "-w") as watch:
            assert line_of(watch).split()[0] == "LAST"
            assert "Rotten" in line_of(watch)


class TestExplain:
    def test_built_in_kinds(self, kubectl: Kubectl) -> None:
        told = kubectl("explain", "pod.spec.containers.image")
        assert told.startswith("KIND:       Pod\nVERSION:    v1\n\nFIELD: image <string>")
        assert "Container image name." in told
        told = kubectl("explain", "jobs", "--recursive")
        for part in ("podFailurePolicy\t<PodFailurePolicy>", "template\t<PodTemplateSpec> -required-"):
            assert part in told
        assert 'error: field "nope" does not exist' in kubectl.refused("explain", "pod.spec.nope")

    def test_custom_kinds(self, kubectl: Kubectl) -> None:
        told = kubectl("explain", "widget")
        assert "Widget is a thing to be counted." in told
        told = kubectl("explain", "wd.spec", "--recursive")
        for part in ("size\t<integer>", "parts\t<[]Object>", "name\t<string> -required-"):
            assert part in told
        assert "Size in metres." in kubectl("explain", "widget.spec.size")

    def test_another_version(self, kubectl: Kubectl) -> None:
        told = kubectl("explain", "hpa.spec", "--api-version=autoscaling/v1")
        assert "VERSION:    v1" in told
        assert "targetCPUUtilizationPercentage" in told


class TestDiscovery:
    def test_versions(self, kubectl: Kubectl) -> None:
        versions = kubectl("api-versions").split()
        assert versions == sorted(versions)
        assert {"v1", "apps/v1", "batch/v1", "autoscaling/v1", "autoscaling/v2", "example.com/v1"} <= {
            *versions
        }

    def test_resources(self, kubectl: Kubectl) -> None:
        rows = kubectl.rows("api-resources", "--no-headers")
        assert ["widgets", "wd", "example.com/v1", "true", "Widget"] in rows
        assert ["configmaps", "cm", "v1", "true", "ConfigMap"] in rows
        assert ["nodes", "no", "v1", "false", "Node"] in rows
        wide = kubectl("api-resources", "--api-group=example.com", "-o", "wide", "--no-headers")
        assert "create,delete,deletecollection,get,list,patch,update,watch" in wide
        assert "bindings" in kubectl("api-resources", "-o", "name", "--verbs=create")
        assert "bindings" not in kubectl("api-resources", "-o", "name", "--verbs=list").split()

    def test_a_new_kind_is_known_at_once(self, kubectl: Kubectl) -> None:
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.example.org"},
            "spec": {
                "group": "example.org",
                "scope": "Cluster",
                "names": {"plural": "gadgets", "kind": "Gadget"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                    }
                ],
            },
        }
        kubectl("apply", "-f", "-", stdin=crd)
        kubectl("wait", "--for=condition=Established", "crd/gadgets.example.org", "--timeout=60s")
        assert kubectl("get", "gadgets") == ""
        kubectl("delete", "crd", "gadgets.example.org")
        # Known from the discovery cache, gone on the server.
        assert "the server could not find the requested resource" in kubectl.refused("get", "gadgets")
        assert "gadgets" not in kubectl("api-resources", "-o", "name")

    def test_version_and_cluster_info(self, kubectl: Kubectl) -> None:
        version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
        assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")
        assert f"control plane is running at {kubectl.server.url}" in kubectl(
            "cluster-info", TERM="dumb"
        ).replace("\x1b[0m", "").replace("\x1b[0;32m", "").replace("\x1b[0;33m", "")
