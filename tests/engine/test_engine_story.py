"""What is recorded of a workload, and how its story reads."""

from __future__ import annotations

import gc

import pytest
from engine_world import World

from pykueue.engine import DecisionLog, Engine, EngineError, Entry, Requeue
from pykueue.engine.decision_log import PACKED_TOGETHER
from pykueue.engine.entry_packing import ObjectEntries
from pykueue.engine.log_entries import FIRST_KEPT
from pykueue.engine.story import data, text


def world(log: DecisionLog | None = None) -> World:
    made = World(log=log or DecisionLog())
    made.flavor()
    made.queue("team-a", {"cpu": "4"}, cohort="all", within="LowerPriority", reclaim="Any")
    made.queue("team-b", {"cpu": "4"}, cohort="all", within="LowerPriority", reclaim="Any")
    return made


def preempted_twice() -> World:
    made = world()
    made.workload("train", "team-a", 6, created=0)
    made.cycle()
    made.now += 3600
    made.workload("urgent", "team-b", 3, created=3600)
    made.stable()
    made.now += 600
    made.driver.finish("default/urgent")
    made.stable()
    made.now += 60
    made.workload("evaluate", "team-a", 4, prio=10, created=4265)
    made.stable()
    made.now += 60
    made.driver.finish("default/evaluate")
    made.stable()
    made.now += 7200
    made.driver.finish("default/train")
    return made


def test_story_of_workload_preempted_twice_reads_from_creation_to_end() -> None:
    assert text(preempted_twice().engine.story("default/train")).splitlines() == [
        ("2023-11-14T22:13:20Z             created in LocalQueue team-a (priority 0; pod set main: 1 pod)"),
        "2023-11-14T22:13:20Z    cycle 1  admitted by ClusterQueue team-a (main: f(Fit;borrow=1))",
        (
            "2023-11-14T23:13:21Z    cycle 2  preempted by default/urgent in /all/team-b due to "
            "reclamation within the cohort"
        ),
        "2023-11-14T23:13:22Z             quota released, queued again",
        (
            "2023-11-14T23:13:22Z    cycle 3  pending in ClusterQueue team-a: WaitingForQuota: Workload "
            "no longer fits after processing another workload"
        ),
        (
            "2023-11-14T23:13:23Z    cycle 4  inadmissible in ClusterQueue team-a: WaitingForQuota: "
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 1 "
            "more needed (cohort all is exhausted)"
        ),
        "2023-11-14T23:23:24Z    cycle 5  admitted by ClusterQueue team-a (main: f(Fit;borrow=1))",
        (
            "2023-11-14T23:24:25Z    cycle 6  preempted by default/evaluate in /all/team-a due to "
            "prioritization in the ClusterQueue"
        ),
        "2023-11-14T23:24:26Z             quota released, queued again",
        (
            "2023-11-14T23:24:27Z    cycle 8  inadmissible in ClusterQueue team-a: WaitingForQuota: "
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 2 "
            "more needed (cohort all is exhausted)"
        ),
        "2023-11-14T23:25:28Z    cycle 9  admitted by ClusterQueue team-a (main: f(Fit;borrow=1))",
        "2023-11-15T01:25:29Z             finished: Succeeded",
    ]


def test_story_of_preemptor_names_its_victims() -> None:
    assert text(preempted_twice().engine.story("default/urgent")).splitlines() == [
        ("2023-11-14T23:13:20Z             created in LocalQueue team-b (priority 0; pod set main: 1 pod)"),
        (
            "2023-11-14T23:13:21Z    cycle 2  preempts default/train in /all/team-a due to reclamation "
            "within the cohort"
        ),
        (
            "2023-11-14T23:13:21Z    cycle 2  pending in ClusterQueue team-b: "
            "WaitingForPreemptedWorkloads: couldn't assign flavors to pod set main: insufficient unused "
            "quota for cpu in flavor f, 1 more needed (cohort all is exhausted). Pending the preemption "
            "of 1 workload(s)"
        ),
        "2023-11-14T23:13:22Z    cycle 3  admitted by ClusterQueue team-b (main: f(Fit))",
        "2023-11-14T23:23:24Z             finished: Succeeded",
    ]


def test_story_is_data_with_explanations() -> None:
    made = preempted_twice()
    story = made.engine.story("default/urgent")
    decisions = [entry.what for entry in story.entries if isinstance(entry.what, Requeue)]
    assert decisions[0].explanation.attempts[0].levels[0].node == "team-b"
    assert decisions[0].explanation.search is not None
    assert data(story)["entries"][1] == {
        "time": "2023-11-14T23:13:21Z",
        "cycle": 2,
        "text": "preempts default/train in /all/team-a due to reclamation within the cohort",
        "count": 1,
        "lastTime": "2023-11-14T23:13:21Z",
    }


def test_change_of_queue_is_part_of_the_story_of_its_workloads() -> None:
    made = world()
    made.workload("train", "team-a", 10)
    made.cycle()
    made.queue("team-a", {"cpu": "12"}, cohort="all", within="LowerPriority", reclaim="Any", local=False)
    made.cycle()
    texts = [each["text"] for each in data(made.engine.story("default/train"))["entries"]]
    assert texts[2:] == [
        "ClusterQueue team-a: spec.resourceGroups.0.flavors.f.resources.cpu.nominalQuota: 4 -> 12",
        "admitted by ClusterQueue team-a (main: f(Fit))",
    ]


def test_same_decision_again_is_counted() -> None:
    made = world()
    made.workload("train", "team-a", 10)
    for _ in range(5):
        made.cycle()
        made.engine.flush()
    entries = made.engine.story("default/train").entries
    assert [entry.count for entry in entries] == [1, 5]
    assert "(decided 5 times, last at 2023-11-14T22:13:24Z)" in text(made.engine.story("default/train"))


def test_story_keeps_its_beginning_and_its_newest_entries() -> None:
    made = world(DecisionLog(entries_max=20))
    made.workload("train", "team-a", 1)
    for priority in range(1, 50):
        made.change("train", priority=priority)
    story = made.engine.story("default/train")
    assert len(story.entries) == 20
    assert story.dropped == 30
    lines = text(story).splitlines()
    assert "created" in lines[0]
    assert lines[FIRST_KEPT] == "... 30 entries are not kept"
    assert lines[-1].endswith("spec.priority: 48 -> 49")


def test_log_drops_the_objects_longest_without_an_entry() -> None:
    log = DecisionLog(objects_max=10)
    made = world(log)
    for number in range(30):
        made.workload(f"w{number}", "team-a", 1)
    assert len(log.workloads()) == 10
    assert made.engine.story("default/w0").entries == []
    assert made.engine.story("default/w29").entries


def test_story_of_workload_deleted_and_created_again_has_both() -> None:
    made = world()
    made.workload("train", "team-a", 1)
    made.finish("train")
    made.workload("train", "team-a", 1)
    texts = [each["text"] for each in data(made.engine.story("default/train"))["entries"]]
    assert [each.split(" ")[0] for each in texts] == ["created", "deleted", "created"]


def test_entries_of_finished_workloads_are_packed_together_and_read_the_same() -> None:
    made = preempted_twice()
    told = {"default/train": data(made.engine.story("default/train"))}
    assert requeues_in_memory("default/train")
    for number in range(PACKED_TOGETHER):
        made.workload(f"other-{number}", "team-a", 1)
        made.stable()
        made.driver.finish(f"default/other-{number}")
        told[f"default/other-{number}"] = data(made.engine.story(f"default/other-{number}"))
    assert not requeues_in_memory("default/train")
    assert {key: data(made.engine.story(key)) for key in told} == told
    made.finish("train")
    last = data(made.engine.story("default/train"))["entries"]
    assert last[:-1] == told["default/train"]["entries"]


def requeues_in_memory(workload: str) -> list[Requeue]:
    """Decisions to put a workload back that are objects at present: only its story keeps them."""
    gc.collect()
    lists = [each for each in gc.get_objects() if type(each) is list]
    kept = [each.what for entries in lists for each in entries if type(each) is Entry]
    return [each for each in kept if isinstance(each, Requeue) and each.key == workload]


def test_fork_records_nothing() -> None:
    made = world()
    made.workload("train", "team-a", 1)
    with made.engine.fork() as trial:
        assert trial.cycle(made.now)
    assert len(made.engine.story("default/train").entries) == 1


def test_engine_without_log_refuses_to_tell() -> None:
    with pytest.raises(EngineError, match="without a DecisionLog"):
        Engine().story("default/train")


def test_entries_are_no_work_for_the_cycle_collector() -> None:
    """Compiled, a Struct would lose what is said of it beside its name, and take up more memory."""
    assert not ObjectEntries.__struct_config__.gc
    assert not Entry.__struct_config__.gc
