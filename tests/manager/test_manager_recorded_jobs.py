"""Recorded jobs under other rules: `pykueue replay --with`, and recordings and dumps as scenarios."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from manager_stack import Stack, job, story
from recorder_world import record

from pykueue.api.resources import JOBS, WORKLOADS
from pykueue.cli.dump import collect
from pykueue.cli.replay import replay
from pykueue.cli.simulate import simulate
from pykueue.engine import Upsert
from pykueue.simulate.changes import decoded
from pykueue.simulate.futures import State
from pykueue.simulate.journal import DecisionLog
from pykueue.simulate.recorded.compare import in_order, plan_of
from pykueue.simulate.recorded.history import of_objects, of_recording
from pykueue.simulate.simulation import Simulation
from queue_manifests import cluster_queue, flavor, local_queue, priority

QUEUES = [flavor(), cluster_queue("a", {"cpu": 4}), local_queue("a"), priority("high", 100)]


async def work(s: Stack) -> None:
    """The first job runs for 60 s and the second, pending for as long, for 30 s; the third is given up."""
    await s.apply(job("first", 4, queue="a"))
    await s.settle(10)
    await s.apply(job("second", 2, queue="a"))
    await s.apply(job("third", 4, queue="a"))
    await s.settle(50)
    await s.finish_job("first")
    await s.settle(10)
    await s.run_job("second")
    third = await s.workload("third")
    await s.delete(JOBS, "third")
    await s.delete(WORKLOADS, third["metadata"]["name"])  # there is no garbage collector
    await s.settle(20)
    await s.finish_job("second")
    await s.settle(10)
    await s.apply(job("last", 1, queue="a"))
    await s.settle(10)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "flight"
    record(folder, work, QUEUES)
    return folder


def ask(recording: Path, *arguments: str) -> Result:
    return CliRunner().invoke(replay, [str(recording), *arguments])


def test_jobs_of_a_recording_arrive_run_and_leave_as_they_did(recording: Path) -> None:
    history = of_recording(recording)
    found = {each.name.split("-")[1]: each for each in history.jobs}
    assert list(found) == ["first", "second", "third", "last"]
    assert [round(found[name].run_time) for name in ("first", "second")] == [60, 30]
    leaves = {name: each.leaves_at for name, each in found.items()}
    assert leaves.pop("third") == pytest.approx(found["third"].at + 60, abs=2)
    assert set(leaves.values()) == {None}
    assert {name.split("-")[1] for name in history.starts} == {"first", "second", "last"}


def test_more_quota_is_attributed_to_the_workload_that_held_it(recording: Path) -> None:
    found = ask(recording, "--quota", "a/default-flavor/cpu=8", "-o", "json")
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)["difference"]
    assert (answer["near"], answer["inOrder"]) == (1.0, 1.0)
    assert answer["changes"] == ["nominalQuota of cpu in flavor default-flavor of ClusterQueue a: 4 -> 8"]
    assert "under the changed rules only, default/job-second-" in answer["first"]
    (team,) = answer["teams"]
    assert (team["queue"], team["later"], team["earlier"]) == ("default/a", 0, 2)
    assert (team["startedBefore"], team["startedAfter"]) == (3, 4)
    reasons = {one["workload"].split("-")[1]: one["decision"] for one in team["attributions"]}
    assert set(reasons) == {"second", "third"}
    assert all("no other workload holds quota then" in text for text in reasons.values())


@pytest.mark.parametrize(
    ("starts", "count"),
    [
        ([], 0),
        ([(1, 1), (2, 2), (3, 3)], 3),
        ([(1, 1), (2, 9), (3, 3), (4, 4)], 3),
        ([(1, 3), (2, 2), (3, 1)], 1),
        ([(1, 5), (1, 4), (2, 5)], 3),
    ],
)
def test_starts_in_the_same_order_are_counted(starts: list[tuple[float, float]], count: int) -> None:
    assert in_order(starts) == count


def test_a_stopped_queue_and_a_text_of_the_difference(recording: Path, tmp_path: Path) -> None:
    queue = cluster_queue("a", {"cpu": 4}, stopPolicy="Hold")
    (tmp_path / "queue.yaml").write_text(yaml.safe_dump(queue))
    found = ask(recording, "--with", str(tmp_path / "queue.yaml"))
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[1:3] == ["changes:", "  ClusterQueue a: changed"]
    row = next(line.split() for line in lines if line.strip().startswith("default/a"))
    assert row[:4] == ["default/a", "3", "->", "0"]


def test_what_is_wrong_with_a_change_is_named(recording: Path) -> None:
    found = ask(recording, "--quota", "b/default-flavor/cpu=8")
    expected = "Error: ClusterQueue b does not exist (at the start of the recording)\n"
    assert (found.exit_code, found.stderr) == (2, expected)


def test_a_recording_is_a_scenario(recording: Path, tmp_path: Path) -> None:
    figures = simulated(
        tmp_path, str(recording), [{"name": "recorded"}, {"name": "half", "patches": [PATCH]}]
    )
    assert figures["recorded"]["admissions"] == 3
    assert figures["recorded"]["finished"] == 2
    assert figures["recorded"]["stopped"] == 1
    # With half of the quota only the second and the last job ever fit.
    assert figures["half"]["admissions"] == 2


PREEMPTING = cluster_queue("a", {"cpu": 4}, preemption={"withinClusterQueue": "LowerPriority"})


async def preempt(s: Stack) -> None:
    """The first job runs for 100 s, is preempted, and has run for 10 s more at the end."""
    await s.apply(job("first", 4, queue="a"))
    await s.settle(100)
    await s.apply(job("urgent", 4, queue="a", labels={"kueue.x-k8s.io/priority-class": "high"}))
    await s.settle(20)
    await s.finish_job("urgent")
    await s.settle(10)


def test_preempted_jobs_are_simulated_as_they_were_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    record(folder, preempt, [flavor(), PREEMPTING, local_queue("a"), priority("high", 100)])
    history = of_recording(folder)
    first, urgent = history.jobs
    assert urgent.run_time == pytest.approx(20, abs=2)
    # It has not come to its end in the 100 s before it was preempted, whatever ran shorter.
    assert first.run_time > 95
    assert [round(each) for each in first.recorded.evictions] == [0]
    answer = json.loads(ask(folder, "--quota", "a/default-flavor/cpu=5", "-o", "json").stdout)["difference"]
    assert (answer["near"], answer["inOrder"]) == (1.0, 1.0)
    assert [each["preemptedBefore"] for each in answer["teams"]] == [1]


async def preempt_one_of_four(s: Stack) -> None:
    """Four jobs are admitted in the same second, and one of them is preempted."""
    for name in ("one", "two", "three", "four"):
        await s.apply(job(name, 1, queue="a"))
        await s.settle(0.1)
    await s.settle(30)
    await s.apply(job("urgent", 1, queue="a", labels={"kueue.x-k8s.io/priority-class": "high"}))
    await s.settle(20)


def test_times_of_simulated_conditions_are_as_coarse_as_recorded_ones(tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    record(folder, preempt_one_of_four, [flavor(), PREEMPTING, local_queue("a"), priority("high", 100)])
    history = of_recording(folder)
    (recorded,) = [each.name for each in history.jobs if each.recorded.evictions]
    assert history.options is not None
    objects = [Upsert(each) for each in decoded(history.objects.values())]
    plan = plan_of(history, State(history.options, list(objects), [], history.start), frozenset())
    log = tmp_path / "decisions.jsonl.gz"
    Simulation(plan, DecisionLog(log)).run()
    with gzip.open(log) as file:
        entries = [json.loads(line) for line in file]
    simulated = [each["workload"] for each in entries if each["what"] == "Preempt"]
    assert simulated == [f"default/{recorded}"]


GROUPS = cluster_queue("a", {"cpu": 2})["spec"]["resourceGroups"]
PATCH = {"kind": "ClusterQueue", "name": "a", "patch": {"spec": {"resourceGroups": GROUPS}}}


def simulated(folder: Path, recording: str, variants: list[Any]) -> dict[str, dict[str, float]]:
    """The figures of each variant of a scenario."""
    head = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario", "name": "recorded"}
    (folder / "scenario.yaml").write_text(
        yaml.safe_dump({**head, "recording": recording, "variants": variants})
    )
    found = CliRunner().invoke(simulate, [str(folder / "scenario.yaml"), "-o", "json", "--processes", "1"])
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    return {run["variant"]: run["figures"] for run in document["runs"]}


def test_a_dump_is_a_scenario(tmp_path: Path) -> None:
    async def life(s: Stack) -> Any:
        await s.apply(job("running", 4, queue="a"))
        await s.settle(10)
        await s.apply(job("pending", 2, queue="a"))
        await s.settle(10)
        return await collect(s.client)

    document, _ = story(life, queues=QUEUES)
    (tmp_path / "dump.json").write_text(json.dumps(document))
    history = of_objects(document["items"])
    assert [(each.job.name.split("-")[1], each.started is not None) for each in history.present] == [
        ("pending", False),
        ("running", True),
    ]
    figures = simulated(tmp_path, "dump.json", [{"name": "recorded"}])
    assert (figures["recorded"]["created"], figures["recorded"]["finished"]) == (2, 2)
    assert figures["recorded"]["admissions"] == 1


def test_a_recording_that_does_not_exist_is_named(tmp_path: Path) -> None:
    head = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario", "name": "recorded"}
    for name, message in (("lost", "recording: lost: "), ("text.json", "recording: text.json: ")):
        (tmp_path / "text.json").write_text("{")
        (tmp_path / "scenario.yaml").write_text(yaml.safe_dump({**head, "recording": name}))
        found = CliRunner().invoke(simulate, [str(tmp_path / "scenario.yaml")])
        assert (found.exit_code, message in found.stderr) == (2, True), found.output
