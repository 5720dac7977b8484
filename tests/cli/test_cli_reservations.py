"""`pykueue reservations` on manifests: tables, one Reservation in full, and as data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from pykueue.api.meta import format_time, parse_time
from pykueue.cli.main import main
from pykueue.clock import Clock

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: nodes}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: hpc}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: nodes, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: hpc}
---
apiVersion: pykueue.io/v1alpha1
kind: BackfillPolicy
metadata: {name: all}
spec: {}
---
apiVersion: pykueue.io/v1alpha1
kind: Reservation
metadata: {name: night}
spec:
  clusterQueue: hpc
  purpose: Maintenance
  flavors: [{name: nodes, resources: [{name: cpu, quantity: 6}]}]
  start: "%s"
  duration: 2h
---
apiVersion: pykueue.io/v1alpha1
kind: Reservation
metadata: {name: course}
spec:
  clusterQueue: hpc
  flavors: [{name: nodes, resources: [{name: cpu, quantity: 2}]}]
  schedule: "0 8 * * mon"
  timeZone: Europe/Berlin
  duration: 4h
"""
WORKLOAD = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: %s, namespace: default, uid: %s, creationTimestamp: "2026-01-01T00:00:0%dZ"}
spec:
  queueName: main
  maximumExecutionTimeSeconds: %d
  podSets:
  - name: main
    count: 1
    template: {spec: {containers: [{name: c, resources: {requests: {cpu: %d}}}]}}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["reservations", *arguments])


def rows(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line) for line in text.splitlines()]


def folder(tmp_path: Path, start: str, *workloads: tuple[str, int, int]) -> str:
    text = QUEUES % start
    for number, (name, seconds, cpus) in enumerate(workloads):
        text += WORKLOAD % (name, name, number, seconds, cpus)
    (tmp_path / "all.yaml").write_text(text)
    return str(tmp_path)


def test_tables_have_windows_by_flavor_and_the_reservations_of_pending_workloads(tmp_path: Path) -> None:
    start = parse_time(format_time(Clock().time())) + 86400
    begin, end = format_time(start), format_time(start + 7200)
    path = folder(tmp_path, begin, ("first", 3600, 8), ("second", 3600, 8))
    result = run("-f", path)
    assert result.exit_code == 0, result.output
    titles, course, night, _, _, pending = rows(result.output)
    assert titles == [
        *("RESERVATION", "FOR", "PURPOSE", "FLAVOR", "RESOURCE", "QUANTITY", "STATE", "START", "END", "NEXT")
    ]
    assert night == [
        *("night", "ClusterQueue hpc", "Maintenance", "nodes", "cpu", "6", "Upcoming", begin, end, "-")
    ]
    assert course[:6] == ["course", "ClusterQueue hpc", "Capacity", "nodes", "cpu", "2"]
    assert parse_time(course[9]) - parse_time(course[7]) == pytest.approx(7 * 86400, abs=3600)
    assert pending[:3] == ["default/second", "hpc", "8 cpu in nodes"]
    assert pending[5:] == ["declared", "all"]


def test_one_reservation_is_shown_with_what_it_keeps_free_and_holds_back(tmp_path: Path) -> None:
    start = parse_time(format_time(Clock().time())) - 3600
    path = folder(tmp_path, format_time(start), ("large", 3600, 8), ("small", 3600, 3))
    shown = run("night", "-f", path)
    assert shown.output.splitlines() == [
        "Reservation night of quota of ClusterQueue hpc, for maintenance: Open",
        "nodes: 6 cpu, 6 kept free now",
        f"{format_time(start)} to {format_time(start + 7200)} (open now)",
        "Holds back 1: default/large",
    ]
    missing = run("other", "-f", path)
    assert (missing.exit_code, missing.output) == (1, "Error: there is no Reservation other\n")
    assert not shown.stderr


def test_data_follows_the_printed_schema(tmp_path: Path) -> None:
    path = folder(tmp_path, format_time(Clock().time() - 3600))
    data = json.loads(run("-f", path, "-o", "json").output)
    jsonschema_rs.validate(json.loads(run("--print-schema").output), data)
    assert [each["name"] for each in data["reservations"]] == ["course", "night"]
    assert data["reservations"][1]["state"] == "Open"
