"""`pykueue shadow` with the manager's log: decisions are compared on the snapshots of the cycles."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from questions_shadow_world import NO_FIT, Followed, without_manager
from web_visibility_world import KUEUE, workload

from pykueue.api.times import format_time
from pykueue.kube.transport import MERGE_PATCH
from pykueue.questions.shadow.followers import LogFile
from pykueue.questions.shadow.manager_log import Considered, Cycle, Flushed, ManagerLog, Seen
from pykueue.questions.shadow.report import report_text

SKIPPED = "Workload no longer fits after processing another workload"
PREEMPTING = f"{NO_FIT}, 1 more needed. Pending the preemption of 1 workload(s)"


class Log:
    """The log that Kueue's manager writes."""

    def __init__(self, path: Path, world: Followed) -> None:
        self._path, self._world = path, world
        self._cycles = 0

    def line(self, message: str, **fields: Any) -> None:
        now = self._world.clock.time()
        text = format_time(now).replace("Z", f"{now % 1:.6f}Z"[1:])
        with self._path.open("a") as file:
            file.write(json.dumps({"level": "Level(-2)", "ts": text, "msg": message, **fields}) + "\n")

    def seen(self, *names: str, what: str = "create") -> None:
        """The caches have the creation, or another change, of Workloads."""
        for name in names:
            self.line(f"Workload {what} event", workload={"name": name, "namespace": "default"})

    def queue_seen(self, name: str = "cq") -> None:
        self.line("ClusterQueue update event", clusterQueue={"name": name})

    def begin(self) -> None:
        """A cycle takes its heads and the snapshot."""
        self._cycles += 1
        self.line("Obtained heads", schedulingCycle=self._cycles, headCount=1)
        self.line("Snapshot taken", schedulingCycle=self._cycles, duration=0.0)

    def assumed(self, name: str) -> None:
        self._of(name, "Attempting to schedule workload")
        self._of(name, "Workload assumed in the cache")

    def requeued(self, name: str, reason: str) -> None:
        self._of(name, "Attempting to schedule workload")
        self._of(name, "Workload re-queued", requeueReason=reason, added=True, status="")

    def end(self) -> None:
        self.line("Scheduling cycle complete", schedulingCycle=self._cycles, duration=0.001)

    def _of(self, name: str, message: str, **fields: Any) -> None:
        about = {"name": name, "namespace": "default"}
        self.line(message, schedulingCycle=self._cycles, workload=about, **fields)


Story = Callable[[Followed, Log], Awaitable[None]]


def beside(tmp_path: Path, story: Story, **queue: Any) -> None:
    path = tmp_path / "manager.log"
    path.touch()

    async def told(world: Followed) -> None:
        await story(world, Log(path, world))

    without_manager(told, path, **queue)


def quota(cpu: str) -> list[dict[str, Any]]:
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}]


async def set_quota(world: Followed, cpu: str) -> None:
    spec = {"resourceGroups": quota(cpu)}
    await world.request("PATCH", f"{KUEUE}/clusterqueues/cq", {"spec": spec}, MERGE_PATCH)


async def create(world: Followed, kind: str, name: str, spec: dict[str, Any]) -> None:
    place = "/namespaces/default" if kind == "LocalQueue" else ""
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
    await world.request("POST", f"{KUEUE}{place}/{kind.lower()}s", obj)


async def submit(world: Followed, log: Log, *names: str, **fields: Any) -> None:
    for name in names:
        await world.submit(workload(name, **fields))
        await world.pause(1)
        log.seen(name)


def test_decision_is_compared_on_the_snapshot_of_its_cycle_and_not_on_what_changed_since(
    tmp_path: Path,
) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "w")
        log.begin()
        log.assumed("w")
        log.end()
        await set_quota(world, "0")
        await world.pause(0.2)
        log.queue_seen()
        await world.admit("w")
        await world.pause(0.1)
        log.seen("w", what="update")
        report = await world.report()
        assert (report.decisions, report.share_equal, report.cycles) == (1, 1.0, 1)
        assert "on the snapshot of their cycle" in "\n".join(report_text(report))

    beside(tmp_path, story)


def test_change_that_the_manager_did_not_have_yet_is_no_part_of_the_state(tmp_path: Path) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "w")
        await set_quota(world, "0")
        await world.pause(0.2)
        log.begin()
        log.assumed("w")
        log.end()
        await world.admit("w")
        log.queue_seen()
        log.seen("w", what="update")
        report = await world.report()
        assert (report.decisions, report.share_equal) == (1, 1.0)

    beside(tmp_path, story)


def test_admission_counts_for_later_cycles_before_it_is_written(tmp_path: Path) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "w", "x")
        log.begin()
        log.assumed("w")
        log.end()
        await world.pause(0.1)
        log.begin()
        log.requeued("x", "PreemptionNoCandidates")
        log.end()
        await world.requeue("x", f"{NO_FIT}, 1 more needed")
        await world.admit("w")
        report = await world.report()
        assert (report.decisions, report.share_equal, report.causes) == (2, 1.0, {})

    beside(tmp_path, story)


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [("NoFit", f"{NO_FIT}, 1 more needed", "Decision"), ("FailedAfterNomination", SKIPPED, "Decision")],
)
def test_other_outcome_on_the_same_snapshot_is_a_decision(
    tmp_path: Path, reason: str, message: str, cause: str
) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "w")
        log.begin()
        log.requeued("w", reason)
        log.end()
        await world.requeue("w", message)
        report = await world.report()
        assert report.causes == {cause: 1}
        (difference,) = report.differences
        assert difference.evidence == ["cycle 1 of the manager"]
        assert difference.engine == "admit: ClusterQueue cq, main x1 cpu=default"

    beside(tmp_path, story)


def test_another_head_of_the_queue_is_a_difference_in_the_order(tmp_path: Path) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "first", "second")
        log.begin()
        log.assumed("second")
        log.end()
        await world.admit("second")
        report = await world.report()
        assert report.causes == {"QueueOrder": 1}
        assert report.differences[0].engine == "default/first is considered first"

    beside(tmp_path, story)


def test_choice_among_workloads_of_equal_rank_is_a_tie(tmp_path: Path) -> None:
    """Two queues of a cohort have heads of the same time, and one fits: which one is chance in Kueue."""

    async def story(world: Followed, log: Log) -> None:
        spec = (await world.get(f"{KUEUE}/clusterqueues/cq"))["spec"]
        await set_quota(world, "0")
        for name, cpu in (("other", "0"), ("lender", "1")):
            await create(world, "ClusterQueue", name, {**spec, "resourceGroups": quota(cpu)})
        await create(world, "LocalQueue", "there", {"clusterQueue": "other"})
        await world.pause(6)  # longer than the log is awaited for them
        await world.submit(workload("a"))
        await world.submit(workload("b", queue="there"))
        log.seen("a", "b")
        await world.pause(1)
        log.begin()
        log.assumed("b")
        log.requeued("a", "FailedAfterNomination")
        log.end()
        await world.requeue("a", SKIPPED)
        await world.admit("b", queue="other")
        report = await world.report()
        assert report.causes == {"Tie": 2}
        assert (report.share_equal, report.share_same) == (0.0, 1.0)

    beside(tmp_path, story, cohortName="c")


def test_preemptions_are_compared_with_their_number_and_targets(tmp_path: Path) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "low")
        log.begin()
        log.assumed("low")
        log.end()
        await world.admit("low")
        log.seen("low", what="update")
        await submit(world, log, "high", priority=5)
        log.begin()
        log.requeued("high", "PendingPreemption")
        await world.preempt("low", "high")
        await world.requeue("high", PREEMPTING)
        log.end()
        await world.pause(0.1)
        log.begin()
        log.requeued("high", "PendingPreemption")
        log.end()
        log.seen("low", "high", what="update")
        report = await world.report()
        assert report.causes == {}
        assert {kind: tally.equal for kind, tally in report.kinds.items()} == {
            "Admit": 1,
            "Preempt": 1,
            "Requeue": 1,
        }

    beside(tmp_path, story, preemption={"withinClusterQueue": "LowerPriority"})


def test_workload_alike_to_one_that_did_not_fit_needs_no_cycle(tmp_path: Path) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "w", "x", cpu="2")
        log.begin()
        log.requeued("w", "NoFit")
        log.end()
        await world.requeue("w", f"{NO_FIT}, 1 more needed")
        await world.requeue("x", f"{NO_FIT}, 1 more needed")
        log.seen("w", "x", what="update")
        report = await world.report()
        assert (report.decisions, report.share_equal, report.causes) == (2, 1.0, {})

    beside(tmp_path, story)


def test_decision_that_no_cycle_of_the_log_made_is_not_determined(tmp_path: Path) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "w")
        await world.admit("w")
        log.seen("w", what="update")
        assert (await world.report()).causes == {"NotDetermined": 1}

    beside(tmp_path, story)


def test_workloads_are_active_again_when_the_log_says_so(tmp_path: Path) -> None:
    async def story(world: Followed, log: Log) -> None:
        await submit(world, log, "large", cpu="2")
        log.begin()
        log.requeued("large", "NoFit")
        log.end()
        await world.requeue("large", f"{NO_FIT}, 1 more needed")
        log.seen("large", what="update")
        await submit(world, log, "small")
        log.begin()
        log.assumed("small")
        log.end()
        await world.admit("small")
        log.seen("small", what="update")
        await set_quota(world, "3")
        log.queue_seen()
        await world.pause(1)
        log.line("Moved workloads", clusterqueue="cq", count=1)
        log.begin()
        log.assumed("large")
        log.end()
        await world.admit("large", cpu="2")
        report = await world.report()
        assert (report.decisions, report.share_equal, report.causes) == (3, 1.0, {})

    beside(tmp_path, story)


def lines_of(log: ManagerLog, *lines: dict[str, Any]) -> list[object]:
    found = [log.read(json.dumps({"ts": "2026-01-05T00:00:00.5Z", **line})) for line in lines]
    return [each for each in found if each is not None]


def test_log_is_read_cycle_by_cycle() -> None:
    log = ManagerLog()
    w, x = ({"name": name, "namespace": "ns"} for name in ("w", "x"))
    assert lines_of(log, {"msg": "Workload create event", "workload": w}) == [
        Seen(1767571200.5, "Workload", "ns", "w")
    ]
    assert lines_of(log, {"msg": "Attempting to move workloads", "rootCohort": "c"}) == [
        Flushed(1767571200.5, cohort="c")
    ]
    of = {"schedulingCycle": 7}
    assert lines_of(log, {"msg": "Obtained heads", **of}) == []
    assert log.complete_until == 1767571200.5
    found = lines_of(
        log,
        {"msg": "Snapshot taken", "duration": 0.25, "ts": "2026-01-05T00:00:01Z", **of},
        {"msg": "Workload assumed in the cache", "workload": w, **of},
        {"msg": "Workload re-queued", "workload": x, "requeueReason": "NoFit", **of},
        {"msg": "Workload re-queued", "workload": w, "requeueReason": "NoFit", "schedulingCycle": 6},
        {"msg": "Scheduling cycle complete", **of},
    )
    workloads = {"ns/w": Considered("ns/w", assumed=True), "ns/x": Considered("ns/x", requeued="NoFit")}
    assert found == [Cycle(7, 1767571200.5, 1767571200.75, 1767571200.5, workloads)]
    assert log.complete_until == float("inf")


@pytest.mark.parametrize(
    "line", ["", "text", "{", "[]", '{"msg": "x"}', '{"ts": 5, "msg": "Obtained heads"}', '{"ts": "soon"}']
)
def test_other_lines_are_skipped(line: str) -> None:
    log = ManagerLog()
    assert log.read(line) is None
    assert log.lines == 0


def test_lines_are_read_as_they_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    file = LogFile(str(path))
    assert list(file.lines()) == ["one"]
    assert list(file.lines()) == []
    with path.open("a") as more:
        more.write("o\nthree\n")
    assert list(file.lines()) == ["two", "three"]
    file.close()
