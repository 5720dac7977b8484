"""`pykueue top`, `share`, `used` and `preemptions` on manifests: text, data, status, examples of the docs."""

from __future__ import annotations

import json
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner, Result

from pykueue.cli.amounts import rounded, weighted_share
from pykueue.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "why")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("command", ["top", "share", "used", "preemptions"])
def test_data_follows_the_printed_schema(command: str) -> None:
    schema = json.loads(run(command, "--print-schema").output)
    result = run(command, "-f", EXAMPLE, "-o", "json")
    assert result.exit_code == 0
    jsonschema_rs.validate(schema, json.loads(result.output))
    in_yaml = yaml.safe_load(run(command, "-f", EXAMPLE, "-o", "yaml").output)
    assert in_yaml.keys() == json.loads(result.output).keys()


@pytest.fixture
def ending_server() -> Iterator[str]:
    """The URL of a server that closes every connection within its first response."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"items": [')

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "arguments",
    [("why", "w"), ("story", "w"), ("top",), ("share",), ("used",), ("shadow",), ("list", "workload")],
    ids=lambda arguments: arguments[0],
)
def test_server_that_goes_away_within_a_response_is_one_line(
    ending_server: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": ending_server}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    content = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    kubeconfig.write_text(yaml.safe_dump({**content, "current-context": "c"}))
    result = run(*arguments, "--kubeconfig", str(kubeconfig))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {ending_server}: the connection ended within a response\n"


def test_wrong_groups_and_windows_are_status_2() -> None:
    result = run("used", "-f", EXAMPLE, "--by", "team")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: --by: 'team' is no group; accepted: ")
    for value, message in (("-1h", "must be greater than 0"), ("soon", "'soon' is not a duration")):
        result = run("used", "-f", EXAMPLE, f"--since={value}")
        assert (result.exit_code, message in result.stderr) == (2, True)


def test_examples_of_the_page_print_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "use" / "shares.md").read_text()
    blocks = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for command, shown in blocks:
        assert run(*shlex.split(command)[1:]).output == shown, command


UNEVEN = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: { name: f }
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: { name: team }
spec:
  resourceGroups:
    - coveredResources: [cpu, memory]
      flavors:
        - name: f
          resources: [{ name: cpu, nominalQuota: 10 }, { name: memory, nominalQuota: 10G }]
"""
MEMBER = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{ name: {name} }}
spec: {{ cohortName: team, namespaceSelector: {{}} }}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{ name: {name}, namespace: default }}
spec: {{ clusterQueue: {name} }}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {{ name: of-{name}, namespace: default, uid: {name} }}
spec:
  queueName: {name}
  podSets:
    - name: main
      count: 1
      template:
        spec: {{ containers: [{{ name: c, resources: {{ requests: {{ cpu: 8, memory: 8G }} }} }}] }}
"""


PAST = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: a, fairSharing: {weight: 2}}
status:
  fairSharing:
    weightedShare: 0
    admissionFairSharingStatus:
      consumedResources: {cpu: 2500m, memory: 3Gi}
      lastUpdate: "2026-01-01T00:05:00Z"
"""


def test_share_prints_the_past_usage_of_local_queues(tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(UNEVEN + PAST)
    tables = run("share", "-f", str(path)).output.split("\n\n")
    assert [line.split() for line in tables[1].splitlines()] == [
        ["NAMESPACE", "LOCALQUEUE", "CLUSTERQUEUE", "WEIGHT", "RESOURCE", "PAST-USAGE", "LAST-UPDATE"],
        ["team", "lq", "a", "2", "cpu", "2500m", "2026-01-01T00:05:00Z"],
        ["memory", "3Gi", "2026-01-01T00:05:00Z"],
    ]
    (queue,) = json.loads(run("share", "-f", str(path), "-o", "json").output)["pastUsage"]
    assert (queue["name"], queue["amounts"]) == ("lq", {"cpu": "2500m", "memory": "3Gi"})


def test_bytes_are_rounded_as_kubectl_does_in_text_and_exact_in_data(tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(UNEVEN + "".join(MEMBER.format(name=name) for name in "abc"))
    text = run("share", "-f", str(path)).output
    assert "7629Mi" in text  # 8G
    assert "3178Mi" in text  # a third of 10G
    data = json.loads(run("share", "-f", str(path), "-o", "json").output)
    (entitled,) = {
        each["entitled"]
        for queue in data["queues"]
        for each in queue["resources"]
        if queue["kind"] == "ClusterQueue" and each["resource"] == "memory"
    }
    assert entitled == "3333333333"
    assert "0 of 9536Mi memory" in run("top", "-f", str(path)).output


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("memory", "3333333333", "3178Mi"),
        ("memory", "-3333333333", "-3178Mi"),
        ("memory", "15901304Ki", "15528Mi"),
        ("memory", "12Gi", "12Gi"),
        ("hugepages-2Mi", "3000k", "2Mi"),
        ("ephemeral-storage", "100k", "97Ki"),
        ("memory", "1", "1"),
        ("memory", "0", "0"),
        ("memory", "unlimited", "unlimited"),
        ("cpu", "3333m", "3333m"),
        ("nvidia.com/gpu", "3333333333", "3333333333"),
    ],
)
def test_only_bytes_are_rounded(resource: str, amount: str, shown: str) -> None:
    assert rounded(resource, amount) == shown


def test_weighted_share_is_rounded_up_as_in_the_status() -> None:
    assert [weighted_share(share) for share in (0.0, 333.333, 1_234_567.0, None)] == [
        "0",
        "334",
        "1234567",
        "infinite",
    ]


def test_section_without_content_says_so() -> None:
    result = run("top", "nodes", "-f", EXAMPLE)
    assert (result.stdout, result.exit_code) == ("No nodes found\n", 0)


PREEMPTED = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: first, namespace: lab, uid: u1}
spec: {queueName: none, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c}]}}}]}
status:
  conditions:
  - type: Preempted
    status: "True"
    reason: InCohortReclamation
    message: "Preempted to accommodate a workload (UID: u2, JobUID: j) due to reclamation within the cohort;
      preemptor path: /all/b; preemptee path: /all/a"
    lastTransitionTime: "2026-01-01T10:00:00Z"
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: second, namespace: lab, uid: u2}
spec: {queueName: none, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c}]}}}]}
---
apiVersion: pykueue.io/v1alpha1
kind: PreemptionPolicy
metadata: {name: all}
spec: {}
status:
  recent:
  - time: "2026-01-01T09:00:00Z"
    workload: lab/gone
    clusterQueue: a
    preemptorUID: u3
    preemptorClusterQueue: b
    reason: InCohortFairSharing
    lostResourceSeconds: {cpu: 7200, memory: 7730941132800}
  totals:
  - {preemptorClusterQueue: b, clusterQueue: a, count: 3, lostResourceSeconds: {cpu: 10800}}
"""


def test_preemptions_come_from_policies_and_from_conditions(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(PREEMPTED)
    result = run("preemptions", "-f", str(tmp_path))
    assert result.exit_code == 0, result.output
    lines = [re.split(r"\s{2,}", line) for line in result.output.splitlines()]
    assert lines[1] == [
        "2026-01-01T10:00:00Z",
        "lab/first",
        "a",
        "lab/second",
        "b",
        "InCohortReclamation",
        "-",
    ]
    lost = "2.00 hours of cpu, 2.00 Gi-hours of memory"
    assert lines[2] == ["2026-01-01T09:00:00Z", "lab/gone", "a", "u3", "b", "InCohortFairSharing", lost]
    assert lines[-1] == ["b", "a", "3", "3.00 hours of cpu", "all"]
    assert len(run("preemptions", "-f", str(tmp_path), "--limit", "1").output.splitlines()) == 5
