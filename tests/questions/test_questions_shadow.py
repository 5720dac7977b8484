"""`pykueue shadow`: the decisions of a cluster's manager, compared with the engine's, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from questions_shadow_world import NO_FIT, Followed, condition, without_manager
from web_visibility_world import World, in_world, workload

from pykueue.api import decode_as, kueue
from pykueue.questions.shadow import Report
from pykueue.questions.shadow.changes import Change, ChangeQueue
from pykueue.questions.shadow.decisions import assignment_text, same_assignment
from pykueue.questions.shadow.metrics import ShadowMetrics
from pykueue.questions.shadow.report import report_text


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_decisions_of_the_same_engine_are_all_equal(version: str) -> None:
    async def story(world: World) -> None:
        beside = Followed(world.cluster, world.clock)
        task = await beside.follow(version)
        for number in range(12):
            await world.submit(workload(f"w{number}", priority=number % 3, cpu=f"{250 * (1 + number % 4)}m"))
            await world.pause(0.5)
        for _ in range(20):
            for name in await world.admitted():
                await world.finish(name)
            await world.pause()
        report = await beside.report()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert report.kinds["Admit"].decisions == 12
        assert (report.equal, report.causes, report.overdue) == (report.decisions, {}, 0)
        assert (report.share_equal, report.late_changes, report.unread) == (1.0, 0, [])

    in_world(story)


def test_equal_admission_requeue_and_preemption() -> None:
    async def story(world: Followed) -> None:
        await world.submit(workload("low"))
        await world.pause()
        await world.admit("low")
        await world.submit(workload("large", cpu="2"))
        await world.pause()
        await world.requeue("large", "insufficient quota")
        await world.submit(workload("high", priority=5))
        await world.pause()
        await world.preempt("low", "high")
        report = await world.report()
        assert {kind: tally.decisions for kind, tally in report.kinds.items()} == {
            "Admit": 1,
            "Requeue": 1,
            "Preempt": 1,
        }
        assert report.share_equal == 1.0
        assert list(report_text(report))[1].startswith("3 decisions of the manager: 100.00 % equal")

    without_manager(story, preemption={"withinClusterQueue": "LowerPriority"})


def test_admission_beyond_the_quota_has_no_other_cause_than_the_decision() -> None:
    async def story(world: Followed) -> None:
        await world.submit(workload("w", cpu="2"))
        await world.pause()
        await world.admit("w", cpu="2")
        report = await world.report()
        (difference,) = report.differences
        assert (difference.workload, difference.kind, difference.cause) == ("default/w", "Admit", "Decision")
        assert difference.manager == "admitted: ClusterQueue cq, main x1 cpu=default"
        assert "insufficient quota for cpu in flavor default" in difference.engine
        assert (report.share_equal, report.share_same) == (0.0, 0.0)

    without_manager(story)


def test_admission_out_of_order_is_classed_as_the_order_of_the_cycle() -> None:
    async def story(world: Followed) -> None:
        for name, priority in (("first", 5), ("second", 1)):
            await world.submit(workload(name, priority=priority))
        await world.pause(10)
        await world.admit("second")
        (difference,) = (await world.report()).differences
        assert difference.cause == "CycleOrder"
        assert "pykueue admits before: default/first" in difference.evidence[0]

    without_manager(story)


def test_decision_on_a_state_that_changed_before_its_write_is_one_on_a_snapshot() -> None:
    async def story(world: Followed) -> None:
        await world.submit(workload("w"))
        await world.pause(10)
        await world.submit(workload("urgent", priority=9))
        await world.admit("w")
        report = await world.report()
        (difference,) = report.differences
        assert difference.cause == "Snapshot"
        assert difference.evidence[0].startswith("Workload default/urgent created at resourceVersion ")
        assert (report.share_equal, report.share_in_cycle, report.share_same) == (0.0, 1.0, 1.0)

    without_manager(story)


def test_state_before_the_last_decision_about_the_queue_is_no_snapshot_but_a_race() -> None:
    async def story(world: Followed) -> None:
        for name in ("w", "x"):
            await world.submit(workload(name))
            await world.pause(10)
        await world.submit(workload("urgent", priority=9))
        await world.requeue("x", NO_FIT)
        await world.admit("w")
        report = await world.report()
        assert [each.cause for each in report.differences if each.workload == "default/w"] == ["Race"]
        assert report.share_in_cycle < report.share_same == 1.0

    without_manager(story)


def test_workload_is_inadmissible_until_a_second_after_quota_was_released() -> None:
    """Kueue considers `high` again a second later; what is created in between is admitted before."""

    async def story(world: Followed) -> None:
        await world.submit(workload("first"))
        await world.pause()
        await world.admit("first")
        await world.submit(workload("high", priority=9))
        await world.pause()
        await world.requeue("high", NO_FIT)
        await world.pause(10)
        await world.finish("first")
        await world.clock.sleep(0.3)
        await world.submit(workload("late"))
        await world.clock.sleep(0.3)
        await world.admit("late")
        report = await world.report()
        assert (report.decisions, report.share_equal, report.causes) == (3, 1.0, {})

    without_manager(story)


def test_preemptor_is_first_in_its_queue() -> None:
    async def story(world: Followed) -> None:
        await world.submit(workload("low"))
        await world.pause()
        await world.admit("low")
        await world.submit(workload("high", priority=5))
        await world.pause()
        await world.preempt("low", "high")
        await world.submit(workload("higher", priority=9))
        await world.pause()
        await world.status(
            "low", {"admission": None, "conditions": [condition("QuotaReserved", "False", "Pending")]}
        )
        await world.admit("high")
        report = await world.report()
        assert {each.workload: each.cause for each in report.differences} == {}

    without_manager(story, preemption={"withinClusterQueue": "LowerPriority"})


def test_decision_written_after_one_that_follows_from_it_is_a_matter_of_write_order() -> None:
    async def story(world: Followed) -> None:
        for name, cpu in (("large", "750m"), ("small", "500m")):
            await world.submit(workload(name, cpu=cpu))
            await world.pause(10)
        await world.requeue("small", "insufficient unused quota, after large")
        await world.admit("large", cpu="750m")
        report = await world.report()
        assert report.kinds["Requeue"].equal + report.kinds["Requeue"].causes.get("WriteOrder", 0) == 1
        assert report.kinds["Admit"].equal == 1

    without_manager(story)


def test_decision_that_the_manager_does_not_make_is_overdue_once() -> None:
    async def story(world: Followed) -> None:
        await world.submit(workload("w"))
        await world.pause(5)
        assert world.shadow.report().overdue == 0
        await world.pause(60)
        report = await world.report()
        assert (report.overdue, report.decisions, report.share_equal) == (1, 0, 1.0)
        (difference,) = report.differences
        assert (difference.cause, difference.manager) == ("Overdue", "no decision")
        assert difference.engine == "admit: ClusterQueue cq, main x1 cpu=default"
        await world.admit("w")
        assert (await world.report()).kinds["Admit"].equal == 1

    without_manager(story)


def placed(*slices: tuple[list[str], int]) -> kueue.Admission:
    """An admission to a queue with a topology: nodes with as many pods on each, one slice for each."""
    encoded = [
        {
            "domainCount": len(nodes),
            "valuesPerLevel": [{"individual": {"roots": nodes}}],
            "podCounts": {"universal": pods},
        }
        for nodes, pods in slices
    ]
    given = {
        "name": "main",
        "flavors": {"cpu": "default"},
        "count": sum(len(nodes) * pods for nodes, pods in slices),
        "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": encoded},
    }
    return decode_as(kueue.Admission, {"clusterQueue": "cq", "podSetAssignments": [given]})


def test_domains_are_compared_however_they_are_encoded_and_named_in_texts() -> None:
    one, two = placed((["a", "b"], 1), (["c"], 2)), placed((["a"], 1), (["b"], 1), (["c"], 2))
    assert same_assignment(one, two)
    assert not same_assignment(one, placed((["a", "b"], 1), (["d"], 2)))
    assert assignment_text(one) == "ClusterQueue cq, main x4 cpu=default in a x1, b x1, c x2"
    many = placed(([f"n{number}" for number in range(10)], 1))
    assert assignment_text(many).endswith("n7 x1 and 2 more")


@pytest.mark.parametrize(("order", "late"), [((1, 2, 3), 0), ((3, 1, 2), 0)])
def test_changes_are_released_in_the_order_of_their_versions(order: tuple[int, ...], late: int) -> None:
    queue = ChangeQueue()
    for version in order:
        queue.add(Change(version, "Workload", "ns", "w", None, None, 10.0))
    assert list(queue.settled(9.0)) == []
    assert [change.version for change in queue.settled(10.0)] == [1, 2, 3]
    assert queue.late == late


def test_change_that_arrives_after_a_later_one_is_counted() -> None:
    queue = ChangeQueue()
    queue.add(Change(5, "Workload", "ns", "w", None, None, 1.0))
    assert [change.version for change in queue.settled(2.0)] == [5]
    queue.add(Change(4, "Workload", "ns", "w", None, None, 3.0))
    assert queue.late == 1
    assert [change.version for change in queue.settled(3.0)] == [4]


def test_metrics_count_decisions_by_kind_and_result() -> None:
    metrics = ShadowMetrics()
    metrics.compared("Admit", None)
    assert b'pykueue_shadow_decisions_total{kind="Admit",result="Equal"} 1.0' in metrics.text()


def test_report_without_decisions_states_no_share() -> None:
    report = Report(start="2026-01-05T00:00:00Z", end="2026-01-05T01:00:00Z", changes=2)
    assert list(report_text(report)) == [
        "from 2026-01-05T00:00:00Z to 2026-01-05T01:00:00Z: 2 changes of objects followed",
        "no decision of the manager was compared",
    ]
