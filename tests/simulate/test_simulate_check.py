"""Policies before they are applied: what has no effect, and what goes wrong over time."""
# ruff: noqa: E501 (the tables of cases are one case a line)

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykueue.simulate.check.findings import Finding
from pykueue.simulate.check.formats import as_junit, as_markdown, as_sarif
from pykueue.simulate.check.past import past
from pykueue.simulate.check.policy import PolicyError, load
from pykueue.simulate.check.run import check

_API = "kueue.x-k8s.io/v1beta2"
EXAMPLES = Path(__file__).parents[2] / "examples" / "check"


def flavor(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def queue(
    name: str, *quotas: dict[str, Any], cohort: str = "", flavor_name: str = "f", **spec: Any
) -> dict[str, Any]:
    """A ClusterQueue with one flavor; quotas are those of its resources."""
    group = {
        "coveredResources": [one["name"] for one in quotas],
        "flavors": [{"name": flavor_name, "resources": list(quotas)}],
    }
    found: dict[str, Any] = {"namespaceSelector": {}, "queueingStrategy": "StrictFIFO"}
    found["resourceGroups"] = [group] if quotas else []
    if cohort:
        found["cohortName"] = cohort
    return {"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": found | spec}


def cohort(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def cpu(nominal: int, **limits: int) -> dict[str, Any]:
    return {"name": "cpu", "nominalQuota": nominal, **limits}


def group(name: str, quota: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"coveredResources": [quota["name"]], "flavors": [{"name": name, "resources": [quota]}]}]


def node(name: str, cpus: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpus}},
    }


def findings(folder: Path, *manifests: dict[str, Any], runs: int = 0) -> list[Finding]:
    (folder / "policy.yaml").write_text(yaml.safe_dump_all(manifests))
    return check(load(folder), runs)


A, B = queue("a", cpu(4), cohort="c"), queue("b", cpu(4), cohort="c")
LOCAL = {
    "apiVersion": _API,
    "kind": "LocalQueue",
    "metadata": {"name": "l", "namespace": "n"},
    "spec": {"clusterQueue": "aa"},
}
TWO_FLAVORS = queue("a") | {
    "spec": {
        "namespaceSelector": {},
        "cohortName": "c",
        "queueingStrategy": "StrictFIFO",
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": name, "resources": [cpu(4)]} for name in ("f", "g")],
            }
        ],
    }
}
OTHER = flavor("g", nodeLabels={"type": "other"})


@pytest.mark.parametrize(
    ("manifests", "rule", "text"),
    [
        ([queue("a", cpu(4))], "missing-object", "ClusterQueue a: ResourceFlavor f is not among the manifests"),
        ([flavor("f"), A, B, LOCAL], "missing-object", "LocalQueue n/l: ClusterQueue aa is not among the manifests"),
        ([flavor("f", topologyName="t", nodeLabels={"a": "b"}), A, B], "missing-object", "ResourceFlavor f: Topology t is not"),
        ([flavor("f"), queue("a", cpu(4), admissionChecksStrategy={"admissionChecks": [{"name": "k"}]})], "missing-object", "AdmissionCheck k is not"),
        ([flavor("f"), queue("a", cpu(4), namespaceSelector=None)], "unreachable-quota", "namespaceSelector is unset"),
        ([flavor("f"), queue("a", cpu(4), stopPolicy="Hold")], "unreachable-quota", "stopPolicy is Hold"),
        ([flavor("f"), queue("a", cpu(4), {"name": "memory", "nominalQuota": 0})], "unreachable-quota", "quota of cpu in flavor f serves only pods that request no memory"),
        ([flavor("f", nodeLabels={"t": "f"}), queue("a", cpu(64)), node("n", "32", t="f"), node("m", "64")], "unreachable-quota", "nominalQuota of cpu in flavor f is 64, and the 1 nodes with the labels of the flavor have 32"),
        ([flavor("f"), OTHER, A, B, cohort("c", resourceGroups=group("g", cpu(4)))], "unreachable-quota", "Cohort c: no ClusterQueue below has cpu in flavor g"),
        ([flavor("f"), queue("a", cpu(0, borrowingLimit=2), cohort="c"), queue("b", cpu(0, borrowingLimit=1), cohort="c"), cohort("c", resourceGroups=group("f", cpu(8)))], "unreachable-quota", "of 8 cpu in flavor f, the borrowing limits of the queues below let them use 3 at most"),
        ([flavor("f"), flavor("g"), TWO_FLAVORS, B], "hidden-flavor", "all nodes, as neither has nodeLabels as ResourceFlavor f"),
        ([flavor("f"), OTHER, TWO_FLAVORS, B], "hidden-flavor", "flavor g is used only when no more of f can be borrowed"),
        ([flavor("f"), OTHER, A, B], "hidden-flavor", "ResourceFlavor g: no ClusterQueue or Cohort has quota of it"),
        ([flavor("f"), queue("a", cpu(4, borrowingLimit=4), cohort="c"), B], "ineffective-limit", "borrowingLimit 4 of cpu in flavor f has no effect"),
        ([flavor("f"), queue("a", cpu(4, lendingLimit=4), cohort="c"), B], "ineffective-limit", "lendingLimit 4 of cpu in flavor f has no effect"),
        ([flavor("f"), queue("a", cpu(4), preemption={"reclaimWithinCohort": "Any"})], "ineffective-limit", "reclaimWithinCohort: Any has no effect without a cohort"),
        ([flavor("f"), queue("a", cpu(4), cohort="c", fairSharing={"weight": "2"}), B], "ineffective-limit", "fairSharing.weight has no effect: fair sharing is off"),
        ([flavor("f"), A], "dead-cohort", "Cohort c: ClusterQueue a is its only member"),
        ([flavor("f"), queue("a", cpu(4, lendingLimit=0), cohort="c"), queue("b", cpu(4, lendingLimit=0), cohort="c")], "dead-cohort", "limits, or different flavors, keep every queue from more"),
        ([flavor("f"), A, B, cohort("d")], "dead-cohort", "Cohort d: no ClusterQueue is below it"),
        ([flavor("f"), A, B, cohort("c", parentName="d"), cohort("d", parentName="c")], "dead-cohort", "its parents form a circle"),
    ],
)  # fmt: skip
def test_what_the_manifests_alone_show_is_found(
    tmp_path: Path, manifests: list[dict[str, Any]], rule: str, text: str
) -> None:
    found = [f"{one.object}: {one.message}" for one in findings(tmp_path, *manifests) if one.rule == rule]
    assert any(text in one for one in found), found


@pytest.mark.parametrize(
    "manifests",
    [
        [flavor("f"), A, B],
        [flavor("f"), queue("a", cpu(4, borrowingLimit=2, lendingLimit=1), cohort="c"), B],
        [flavor("f"), queue("a", cpu(4))],
    ],
)
def test_nothing_is_found_where_everything_has_an_effect(
    tmp_path: Path, manifests: list[dict[str, Any]]
) -> None:
    assert findings(tmp_path, *manifests) == []


def test_borrow_within_cohort_is_ineffective_under_fair_sharing(tmp_path: Path) -> None:
    policy = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    sharing = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}}
    objects = [configuration | sharing, flavor("f"), queue("a", cpu(4), cohort="c", preemption=policy), B]
    [found] = findings(tmp_path, *objects)
    assert (found.rule, found.place.line > 0) == ("ineffective-limit", True)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("preemption-loop", "preemption-loop"),
        ("ratio-stuck", "unreachable-share"),
        ("ratio-flapping", "preemption-loop"),
        ("blocked-borrowing", "blocked-borrowing"),
        ("starvation", "starvation"),
    ],
)
def test_pathology_is_found_with_a_counterexample_of_under_20_events(name: str, rule: str) -> None:
    found = check(load(EXAMPLES / f"{name}.yaml"))
    [one] = [one for one in found if one.rule == rule]
    assert 3 <= len(one.events) < 20
    assert one.place.file.endswith(f"{name}.yaml")


@pytest.mark.parametrize("name", ["preemption-loop", "ratio", "blocked-borrowing", "starvation"])
def test_repaired_policy_passes(name: str) -> None:
    assert check(load(EXAMPLES / f"{name}-repaired.yaml"), runs=200) == []


def test_counterexample_is_the_same_every_time() -> None:
    file = EXAMPLES / "ratio-flapping.yaml"
    assert check(load(file), runs=100) == check(load(file), runs=100)


def test_accepted_and_ignored_findings_are_left_out(tmp_path: Path) -> None:
    accepting = queue("a", cpu(4), cohort="c", queueingStrategy="BestEffortFIFO")
    assert [one.rule for one in findings(tmp_path, flavor("f"), accepting, B)] == ["starvation"]
    accepting["metadata"]["annotations"] = {"pykueue.io/accepted-findings": "hidden-flavor, starvation"}
    assert findings(tmp_path, flavor("f"), accepting, B) == []
    assert check(load(EXAMPLES / "starvation.yaml"), ignored={"starvation"}) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", "policy.yaml: document 1: line 2, column 1: "),
        ("kind: ClusterQueue\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: a}\nspec: {nominal: 1}", "policy.yaml: document 1 (line 1): ClusterQueue a: spec.nominal: unknown field"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nx: 1", "policy.yaml: document 1 (line 1): x: unknown field"),
        ("---\nkind: 7", "policy.yaml: document 1 (line 2): "),
    ],
)  # fmt: skip
def test_folder_that_cannot_be_read_is_refused_with_file_and_line(
    tmp_path: Path, text: str, error: str
) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    with pytest.raises(PolicyError) as raised:
        load(tmp_path)
    assert error in str(raised.value)


def test_formats_have_the_place_and_the_counterexample() -> None:
    found = check(load(EXAMPLES / "starvation.yaml"))
    [result] = json.loads(as_sarif(found))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
    assert len(result["codeFlows"][0]["threadFlows"][0]["locations"]) == len(found[0].events)
    assert '<failure message="A large workload' in as_junit(found)
    assert "1. w1 of batch (50 cpu) is created" in as_markdown(found)


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    found = [Finding("starvation", "ClusterQueue <img src=x>", "a | b", events=("<script>",))]
    text = as_markdown(found)
    assert "<img" not in text
    assert "<script>" not in text
    assert "a \\| b" in text
    assert "<img" not in as_junit(found)


def dumped_workload(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    times = {"creationTimestamp": "2026-01-05T00:00:00Z", "uid": name}
    return {
        "apiVersion": _API,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "n", **times},
        "spec": {
            "queueName": "l",
            "podSets": [{"name": "main", "count": 1, "template": template}],
            "maximumExecutionTimeSeconds": 3600,
        },
    }


def test_recorded_period_waits_longer_under_a_smaller_quota(tmp_path: Path) -> None:
    local = LOCAL | {"spec": {"clusterQueue": "a"}}
    jobs = [dumped_workload(f"w{number}") for number in range(4)]
    dump = tmp_path / "dump.yaml"
    dump.write_text(yaml.safe_dump_all([flavor("f"), queue("a", cpu(8)), local, *jobs]))
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "policy.yaml").write_text(yaml.safe_dump_all([flavor("f"), queue("a", cpu(2)), local]))
    policy = load(folder)
    [found] = past(policy, folder, dump)
    assert (found.rule, found.object) == ("longer-waits", "ClusterQueue a")
    assert re.search(r"90 % of its workloads wait up to \d+h.*, instead of 0s", found.message)
    (folder / "policy.yaml").write_text(yaml.safe_dump_all([flavor("f"), queue("a", cpu(9)), local]))
    assert list(past(load(folder), folder, dump)) == []
    with pytest.raises(PolicyError, match="recording: none"):
        list(past(policy, folder, tmp_path / "none"))
