"""`pykueue importer import`, and the roles of `pykueue populator` and `pykueue priority-booster`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pykueue.api.crds import crds
from pykueue.api.objects import Object
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from pykueue.cli.main import main
from pykueue.kube.client import Client
from pykueue.testing import RunningServer, running_server
from queue_manifests import NIGHTLY, cluster_queue, flavor, local_queue

NAMESPACE = "team"
MAPPING = ["--queuelabel=src", "--queuemapping=a=lq,b=missing"]


class World:
    """A server with queues and pods, and no manager."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.client = Client(server.cluster.transport("importer-test"))
        server.install_definitions(*crds())
        self.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.create(RESOURCE_FLAVORS, flavor())
        self.create(CLUSTER_QUEUES, cluster_queue("cq", {"cpu": "1", "memory": "1Gi"}))
        self.create(LOCAL_QUEUES, local_queue("lq", "cq", NAMESPACE))

    def create(self, resource: Resource, obj: Object) -> None:
        self.server.run(self.client.create(resource, obj))

    def pod(self, name: str, labels: dict[str, str], phase: str = "Running", **spec: Any) -> None:
        requests = spec.pop("requests", {"cpu": "500m", "memory": "64Mi"})
        containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        self.create(PODS, {**made, "spec": {"containers": containers, **spec}})
        status = {"status": {"phase": phase}}
        self.server.run(self.client.patch(PODS, name, NAMESPACE, status, subresource="status"))

    def run(self, *flags: str) -> Result:
        command = ["importer", "import", "-n", NAMESPACE, "--kubeconfig", str(self.server.kubeconfig), *flags]
        return CliRunner().invoke(main, command)

    def list(self, resource: Resource) -> list[Object]:
        return self.server.run(self.client.list(resource, NAMESPACE)).items


@pytest.fixture
def world() -> Iterator[World]:
    with running_server(seed=1) as server:
        yield World(server)


def test_running_pods_get_admitted_workloads(world: World) -> None:
    world.create(PRIORITY_CLASSES, {**NIGHTLY, "metadata": {"name": "high"}, "value": 9})
    world.pod("one", {"src": "a"}, priorityClassName="high")
    world.pod("done", {"src": "a"}, phase="Succeeded")
    before = world.list(PODS)
    checked = world.run(*MAPPING)
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert checked.stdout.splitlines() == [
        "1 pods: 1 checked, 0 skipped, 0 failed",
        '"dry-run" is enabled by default, use "--dry-run=false" to continue with the import',
    ]
    assert (world.list(PODS), world.list(WORKLOADS)) == (before, [])
    imported = world.run(*MAPPING, "--dry-run=false", "--add-labels=team=ml")
    assert (imported.exit_code, imported.stderr) == (0, "")
    assert imported.stdout.endswith("1 pods: 1 imported, 0 skipped, 0 failed\n")
    (workload,) = world.list(WORKLOADS)
    (pod,) = [one for one in world.list(PODS) if one["metadata"]["name"] == "one"]
    added = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true", "team": "ml"}
    assert added.items() <= pod["metadata"]["labels"].items()
    assert workload["metadata"]["labels"]["team"] == "ml"
    assert workload["metadata"]["ownerReferences"][0]["name"] == "one"
    assert (workload["spec"]["queueName"], workload["spec"]["priority"]) == ("lq", 9)
    assert workload["status"]["admission"] == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": "main",
                "count": 1,
                "flavors": {"cpu": "default-flavor", "memory": "default-flavor"},
                "resourceUsage": {"cpu": "500m", "memory": "64Mi"},
            }
        ],
    }
    conditions = {one["type"]: (one["status"], one["reason"]) for one in workload["status"]["conditions"]}
    assert conditions == {"QuotaReserved": ("True", "Imported"), "Admitted": ("True", "Imported")}
    # Importing again changes nothing.
    version = workload["metadata"]["resourceVersion"]
    assert world.run(*MAPPING, "--dry-run=false", "--add-labels=team=ml").exit_code == 0
    assert world.list(WORKLOADS)[0]["metadata"]["resourceVersion"] == version


def test_no_pod_is_imported_while_one_cannot_be(world: World, tmp_path: Path) -> None:
    world.pod("good", {"src": "a"})
    world.pod("unmapped", {})
    world.pod("lost", {"src": "b"})
    world.pod("uncovered", {"src": "a"}, requests={"ephemeral-storage": "1Gi"})
    world.pod("taken", {"src": "a", "kueue.x-k8s.io/queue-name": "other"})
    result = world.run(*MAPPING, "--dry-run=false")
    assert result.exit_code == 1
    assert result.stdout == "5 pods: 1 checked, 0 skipped, 4 failed\n"
    assert result.stderr.splitlines() == [
        "LocalQueue missing not found (1 pods, first team/lost)",
        'another local queue name is set "other" expecting "lq" (1 pods, first team/taken)',
        "no mapping found (1 pods, first team/unmapped)",
        'resource "ephemeral-storage" is not covered by ClusterQueue "cq" (1 pods, first team/uncovered)',
    ]
    assert world.list(WORKLOADS) == []
    rules = [
        {"match": {"labels": {"src": "b"}}, "skip": True},
        {"match": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}, "skip": True},
        {"match": {}, "toLocalQueue": "lq"},
    ]
    (tmp_path / "rules").write_text(yaml.safe_dump(rules))
    flags = [f"--queuemapping-file={tmp_path / 'rules'}", "--exclude-resource-prefixes=ephemeral-"]
    result = world.run(*flags, "--dry-run=false")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("5 pods: 3 imported, 2 skipped, 0 failed\n")
    owners = {one["metadata"]["ownerReferences"][0]["name"] for one in world.list(WORKLOADS)}
    assert owners == {"good", "unmapped", "uncovered"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give either --queuelabel and --queuemapping, or --queuemapping-file"),
        (["--queuelabel=a"], "--queuelabel and --queuemapping go together"),
        ([*MAPPING, "--dry-run=maybe"], "--dry-run: 'maybe'; accepted values: true, false"),
        ([*MAPPING, "--add-labels=x"], "--add-labels: 'x' is not KEY=VALUE"),
        ([*MAPPING, "--add-labels=a b=c"], "--add-labels"),
        (["--queuemapping-file=/nowhere"], "No such file"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["importer", "import", "-n", "a", *flags])
    assert result.exit_code in (1, 2)
    assert message in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b", "expected a list of rules"),
        ("[{match: {}}]", "[0]: toLocalQueue or skip must be set"),
        ("[{toLocalQueue: a, odd: 1}]", "[0]: unknown field 'odd'; accepted: match, toLocalQueue, skip"),
        ("[{match: {labels: {a: 1}}, skip: true}]", "[0].match.labels: values must be strings"),
        ("[", "while parsing"),
    ],
)
def test_wrong_mapping_file_is_refused_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "rules"
    path.write_text(text)
    result = CliRunner().invoke(main, ["importer", "import", "-n", "a", "--queuemapping-file", str(path)])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {path}: ")
    assert problem in line


@pytest.mark.parametrize("name", ["populator", "priority-booster"])
def test_role_of_a_controller_is_printed(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--print-role"])
    assert result.exit_code == 0, result.output
    role = yaml.safe_load(result.stdout)
    assert (role["kind"], role["metadata"]["name"]) == ("ClusterRole", f"kueue-{name}")
    assert {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    } in role["rules"]


def test_populator_runs_as_a_process_until_it_is_stopped(world: World) -> None:
    command = [sys.executable, "-m", "pykueue", "populator", "--kubeconfig", str(world.server.kubeconfig)]
    flags = ["--leader-elect", "--lease-namespace", NAMESPACE]

    async def created() -> None:
        watch = world.client.watch(LOCAL_QUEUES, NAMESPACE, field_selector="metadata.name=default")
        async with aclosing(watch) as events:
            async for event in events:
                if event.type == "ADDED":
                    return

    with subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True) as process:
        try:
            world.server.run(created())
        finally:
            process.send_signal(signal.SIGTERM)
        errors = process.communicate()[1]
    assert process.returncode == 0, errors


@pytest.mark.parametrize("name", ["populator", "priority-booster"])
def test_cluster_that_is_not_reachable_is_one_line(name: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    content = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    kubeconfig.write_text(yaml.safe_dump({**content, "current-context": "c"}))
    result = CliRunner().invoke(main, [name, "--kubeconfig", str(kubeconfig)])
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: http://127.0.0.1:1: Cannot connect")


@pytest.mark.parametrize("name", ["populator", "priority-booster"])
def test_manager_refuses_a_wrong_configuration_of_what_it_runs_too(name: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("unknownField: 1\n")
    result = CliRunner().invoke(
        main, ["manager", f"--{name}", str(tmp_path / "wrong.yaml"), "--print-config"]
    )
    assert result.exit_code == 1
    assert "unknownField" in result.stderr
