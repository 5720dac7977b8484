"""A capacity beside quota that trees share: licences, a plain counter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from engine_world import START, World
from msgspec.structs import replace

from pykueue.api import DecodeError, kueue
from pykueue.engine import Admit, Options, Preempt, Requeue
from pykueue.engine.capacity import AssignedPodSet, SharedCapacity
from pykueue.engine.dump import dump, load
from pykueue.engine.explain.render import message
from pykueue.engine.places import Places
from pykueue.engine.undo_log import UndoLog
from pykueue.engine.workload import IN_FLIGHT, WorkloadInfo

LICENCES = "example.com/licences"


class Licences(SharedCapacity):
    """So many licences, which workloads request with an annotation."""

    name = "licences"

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0

    def request(self, workload: kueue.Workload) -> int | None:
        text = workload.metadata.annotations.get(LICENCES)
        return int(text) if text else None

    def fits(self, demand: int) -> bool:
        return self.used + demand <= self.total

    def reserve(self, demand: int) -> None:
        self.used += demand

    def release(self, demand: int) -> None:
        self.used -= demand

    def could_fit(self, demand: int) -> bool:
        return demand <= self.total

    def problems(self, reservations: Iterable[int]) -> Iterable[str]:
        if self.used != sum(reservations):
            yield f"{self.used} licences are counted"

    def explain(self, demand: int) -> str:
        return f"insufficient licences: {demand} requested, {self.total - self.used} free"


@pytest.fixture
def licences() -> Licences:
    return Licences(2)


@pytest.fixture(params=[False, True], ids=["classical", "fair"])
def made(request: pytest.FixtureRequest, licences: Licences) -> World:
    """Two ClusterQueues in trees of their own, with quota for everything."""
    made = World(Options(fair_sharing=request.param), capacities=[licences])
    made.flavor()
    made.queue("a", {"cpu": "10"}, within="LowerPriority")
    made.queue("b", {"cpu": "10"}, cohort="other")
    return made


def licensed(made: World, name: str, queue: str, count: int = 1, **more: Any) -> None:
    made.workload(name, queue, 1, annotations={LICENCES: str(count)}, **more)


def test_workloads_of_two_trees_are_admitted_only_while_licences_are_free(
    made: World, licences: Licences
) -> None:
    for name, queue in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")):
        licensed(made, name, queue)
    made.workload("plain", "b", 1)
    made.stable()
    assert made.reserved() == {"a1", "b1", "plain"}
    assert licences.used == 2
    assert message(made.last["b2"]).endswith("insufficient licences: 1 requested, 0 free")


def test_trees_that_share_licences_are_cycled_together_in_the_order_of_priority(
    made: World, licences: Licences
) -> None:
    licences.total = 1
    licensed(made, "low", "a", prio=1)
    licensed(made, "high", "b", prio=2)
    decisions = made.cycle()
    assert {decision.key: type(decision) for decision in decisions} == {
        "default/high": Admit,
        "default/low": Requeue,
    }


def test_a_finished_workload_wakes_the_other_tree(made: World, licences: Licences) -> None:
    licensed(made, "first", "a", 2)
    made.stable()
    licensed(made, "second", "b", 1)
    made.stable()
    assert made.where("second") == "inadmissible"
    made.finish("first")
    made.stable()
    assert made.reserved() == {"second"}
    assert licences.used == 1


def test_preemption_in_the_own_queue_frees_licences(made: World, licences: Licences) -> None:
    licensed(made, "low", "a", 2, prio=0)
    made.workload("unlicensed", "a", 1, prio=0)
    made.stable()
    assert made.reserved() == {"low", "unlicensed"}
    licensed(made, "high", "a", 1, prio=5)
    decisions = made.cycle()
    assert [decision.key for decision in decisions if isinstance(decision, Preempt)] == ["default/low"]
    assert licences.used == 2, "a search leaves the count as it was"
    made.release("low")
    made.stable()
    assert made.reserved() == {"high", "unlicensed"}
    assert licences.used == 1


def test_a_fork_leaves_the_count_of_licences_as_it_was(made: World, licences: Licences) -> None:
    licensed(made, "w", "a", 2)
    with made.engine.fork() as trial:
        trial.cycle(START + 10)
        assert licences.used == 2
    assert licences.used == 0
    assert made.where("w") == "active"


def test_a_workload_moves_only_as_the_transition_table_says() -> None:
    info = WorkloadInfo("default/w", "default")
    with pytest.raises(ValueError, match="workload default/w cannot move from out to in flight"):
        Places(UndoLog(), {}, {}).move(info, IN_FLIGHT)


def test_what_exceeds_all_licences_preempts_no_workload(made: World) -> None:
    licensed(made, "low", "a", 2)
    made.stable()
    licensed(made, "high", "a", 3, prio=5)
    (decision,) = made.cycle()
    assert isinstance(decision, Requeue)
    assert (decision.reason, decision.inadmissible) == ("ExceedsMaxQuota", True)


@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair"])
def test_borrower_in_the_cohort_is_preempted_for_licences_and_no_workload_without_any(
    licences: Licences, fair: bool
) -> None:
    made = World(Options(fair_sharing=fair), capacities=[licences])
    made.flavor()
    made.queue("owner", {"cpu": "8"}, cohort="team", reclaim="Any")
    made.queue("borrower", {"cpu": "0"}, cohort="team")
    made.workload("plain", "borrower", 1)
    licensed(made, "licensed", "borrower", 2)
    made.stable()
    licensed(made, "wait", "owner", 1)
    found = [each.key for each in made.cycle() if isinstance(each, Preempt)]
    assert found == ["default/licensed"]
    made.release("licensed")
    made.stable()
    assert made.reserved() == {"plain", "wait"}
    made.engine.check()


def test_workload_of_a_cohort_that_may_not_be_reclaimed_from_keeps_its_licences(made: World) -> None:
    licensed(made, "first", "b", 2)
    made.stable()
    licensed(made, "second", "a", 1, prio=100)
    decisions = made.cycle()
    assert [type(each) for each in decisions] == [Requeue]
    assert made.reserved() == {"first"}


def test_dump_of_an_engine_with_licences_is_the_same_after_a_round_trip(
    made: World, licences: Licences
) -> None:
    licensed(made, "running", "a", 2)
    made.stable()
    licensed(made, "waiting", "b", 1)
    made.stable()
    document = dump(made.engine)
    fresh = Licences(2)
    loaded = load(document, [fresh])
    loaded.check()
    assert fresh.used == licences.used == 2
    assert dump(loaded) == document
    with pytest.raises(DecodeError, match="the shared capacity 'licences' is not given"):
        load(document)


class Hosts(SharedCapacity):
    """Hosts of flavors: all pods of a workload go to one host, which its admission names."""

    name = "hosts"
    impossible = "TopologyPlacementFailed"

    def __init__(self, sizes: dict[str, dict[str, int]]) -> None:
        self.sizes = sizes
        self.used = {host: 0 for hosts in sizes.values() for host in hosts}

    def request(self, workload: kueue.Workload) -> str | None:
        return workload.metadata.annotations.get("example.com/one-host")

    def demand(self, request: str, pod_sets: Sequence[AssignedPodSet]) -> tuple[str, int] | None:
        (pods,) = pod_sets
        return pods.flavors["cpu"], pods.pods

    def place(self, demand: tuple[str, int]) -> tuple[str, int] | None:
        flavor, pods = demand
        free = {host: size - self.used[host] for host, size in self.sizes[flavor].items()}
        return next(((host, pods) for host in sorted(free) if free[host] >= pods), None)

    def fits(self, demand: tuple[str, int]) -> bool:
        return self.place(demand) is not None

    def could_fit(self, demand: tuple[str, int]) -> bool:
        return max(self.sizes[demand[0]].values()) >= demand[1]

    def reserve(self, reservation: tuple[str, int]) -> None:
        self.used[reservation[0]] += reservation[1]

    def release(self, reservation: tuple[str, int]) -> None:
        self.used[reservation[0]] -= reservation[1]

    def frees(self, reservation: tuple[str, int], demand: tuple[str, int]) -> bool:
        return reservation[0] in self.sizes[demand[0]]

    def explain(self, demand: tuple[str, int]) -> str:
        return f"no host of flavor {demand[0]} has {demand[1]} free"

    def write(self, admission: kueue.Admission, reservation: tuple[str, int]) -> kueue.Admission:
        (pods,) = admission.pod_set_assignments
        return replace(admission, pod_set_assignments=[replace(pods, name=f"main@{reservation[0]}")])

    def read(self, request: str, admission: kueue.Admission) -> tuple[str, int]:
        (pods,) = admission.pod_set_assignments
        return pods.name.partition("@")[2], pods.count or 0


def placed(made: World, name: str, pods: int, **more: Any) -> None:
    made.workload(name, "q", 1, count=pods, annotations={"example.com/one-host": "yes"}, **more)


def test_fragmentation_alone_preempts_the_workloads_on_one_host() -> None:
    hosts = Hosts({"f": {"h1": 4, "h2": 4}})
    made = World(Options(), capacities=[hosts])
    made.flavor()
    made.queue("q", {"cpu": "8"}, within="LowerPriority")
    placed(made, "a", 3)
    placed(made, "b", 2)
    made.stable()
    assert hosts.used == {"h1": 3, "h2": 2}
    placed(made, "c", 3, prio=5)
    decisions = made.cycle()
    found = [each.key for each in decisions if isinstance(each, Preempt)]
    assert len(found) == 1
    assert hosts.used == {"h1": 3, "h2": 2}, "the search and the plan leave the hosts as they were"
    made.release(found[0].partition("/")[2])
    made.stable()
    assert "c" in made.reserved()
    placed(made, "huge", 5, prio=9)
    (decision,) = [each for each in made.cycle() if each.key == "default/huge"]
    assert isinstance(decision, Requeue)
    assert decision.reason == "TopologyPlacementFailed"
    assert message(decision).endswith("no host of flavor f has 5 free")
