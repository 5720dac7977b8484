"""Every question beside Kueue's own manager: changes that `why` prints are made there, and Kueue admits."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from besidekueue_cluster import Beside

from pykueue.questions import Why


def change(answer: Why, kind: str, text: str = "") -> list[object]:
    assert answer.head is not None
    found = [each for each in answer.head.changes if each.kind == kind and text in each.text]
    assert found, f"no change {kind}: {[each.text for each in answer.head.changes]}"
    return list(found[0].edits)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Quota", "on-demand"),
        ("Quota", "spot"),
        ("PodCount", ""),
        ("Queue", "production"),
        ("BorrowingLimit", ""),
    ],
)
def test_change_admits_what_it_promises(beside: Beside, kind: str, text: str) -> None:
    lab = beside.full_lab()
    for edit in change(lab.why("training"), kind, text):
        lab.make(edit, "training")
    lab.wait_admitted("training")


def test_higher_priority_preempts_as_promised(beside: Beside) -> None:
    lab = beside.full_lab(pods=3)
    for edit in change(lab.why("training"), "Priority"):
        lab.make(edit, "training")
    lab.wait_admitted("training")
    assert lab.condition("survey", "QuotaReserved")["status"] == "False"


def test_looser_preemption_policy_preempts_as_promised(beside: Beside) -> None:
    lab = beside.lab(preemption="{withinClusterQueue: Never}")
    lab.submit("survey", 3, "2", priority=-5)
    lab.wait_admitted("survey")
    lab.submit("training", 3, "1500m")
    lab.wait_evaluated("training")
    for edit in change(lab.why("training"), "PreemptionPolicy"):
        lab.make(edit, "training")
    # Kueue does not consider it again for a change of spec.preemption alone; deleting another job makes it.
    lab.submit("other", 1, "100m")
    lab.wait_admitted("other")
    lab.beside.kubectl("delete", "job", "other", "-n", lab.namespace)
    lab.wait_admitted("training")


def test_facts_are_those_of_kueue(beside: Beside) -> None:
    lab = beside.full_lab()
    answer = lab.why("training")
    assert (answer.state, answer.unread) == ("Pending", [])
    said = lab.condition("training", "QuotaReserved")["message"]
    for part in ("insufficient unused quota for cpu in flavor on-demand", "maximum capacity"):
        assert part in said
        assert part in answer.message
    queue = beside.kubectl.get("clusterqueue", f"research-{lab.number}") or {}
    used = {
        (flavor["name"], each["name"]): each["total"]
        for flavor in queue["status"]["flavorsReservation"]
        for each in flavor["resources"]
    }
    assert used[f"on-demand-{lab.number}", "cpu"] == "6"
    (fact,) = [each for each in answer.flavors if each.short and each.flavor.startswith("on-demand")]
    assert fact.levels[0].used == "6"


def test_top_share_and_used_read_what_kueue_wrote(beside: Beside) -> None:
    lab = beside.full_lab()
    top = json.loads(beside.pykueue("top", "-o", "json"))
    assert f'"research-{lab.number}"' in json.dumps(top)
    text = beside.pykueue("top")
    assert re.search(rf"on-demand-{lab.number}: 6 of 8 cpu", text)
    share = json.loads(beside.pykueue("share", "-o", "json"))
    assert f'"research-{lab.number}"' in json.dumps(share)
    used = json.loads(beside.pykueue("used", "-o", "json"))
    assert f"research-{lab.number}" in [group["group"] for group in used["groups"]]


def test_story_tells_what_objects_and_events_retain(beside: Beside) -> None:
    lab = beside.full_lab()
    workload = lab.workload("survey")
    assert workload is not None
    text = beside.pykueue("story", workload["metadata"]["name"], "-n", lab.namespace)
    created, *rest = text.splitlines()
    assert "created in LocalQueue research (priority 0; pod set main: 3 pods)" in created
    assert any("Quota reserved in ClusterQueue" in line for line in rest)


def test_shadow_finds_no_decision_of_its_own(beside: Beside) -> None:
    """Kueue decides about a few jobs while the shadow follows; differences of timing may occur."""
    command = [sys.executable, "-m", "pykueue.cli.main", "shadow", "--for", "20s", "-o", "json"]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(beside.kubeconfig)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "comparing decisions" in line:
            break
    lab = beside.full_lab()
    lab.submit("urgent", 4, "1", priority=50)
    lab.wait_admitted("urgent")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    report = json.loads(out)
    assert report["kinds"]["Admit"]["decisions"] >= 1
    assert not set(report["causes"]) & {"Decision", "NotDetermined", "Unsupported"}
