"""`questions.top`, `share` and `used`: how full queues are, what they are entitled to, what was used."""

from __future__ import annotations

from typing import Any

import pytest
from engine_plans import Plan, build, plans, run
from engine_world import START, World
from hypothesis import HealthCheck, given, settings

from pykueue.api.quantity import parse
from pykueue.questions.share import Shares, shares
from pykueue.questions.top import QueueUse, top
from pykueue.questions.used import used


def row(world: World, name: str) -> QueueUse:
    (found,) = [each for each in top(world.engine).queues if each.name == name]
    return found


def share_of(answer: Shares, name: str, resource: str = "cpu") -> tuple[str, str, str, str]:
    """(demand, entitled, received, debt)."""
    (queue,) = [each for each in answer.queues if each.name == name]
    (found,) = [each for each in queue.resources if each.resource == resource]
    return found.demand, found.entitled, found.received, found.debt


def lab(**queue: Any) -> World:
    """Two queues of 4 cpu in a cohort; `a` has borrowed 2 of `b`, whose workload waits."""
    world = World()
    world.flavor()
    world.queue("a", {"f": {"cpu": 4}}, cohort="team", **queue)
    world.queue("b", {"f": {"cpu": 4}}, cohort="team")
    world.running("big", "a", 6)
    world.workload("waiting", "b", 3)
    world.cycle()
    return world


def test_top_counts_what_is_borrowed_and_lent_and_what_is_pending() -> None:
    world = lab()
    (quota,) = row(world, "a").quotas
    assert (quota.reserved, quota.quota, quota.borrowed, quota.lent, quota.fraction) == (
        "6",
        "4",
        "2",
        "0",
        1.5,
    )
    (quota,) = row(world, "b").quotas
    assert (quota.reserved, quota.borrowed, quota.lent, quota.available) == ("0", "0", "2", "2")
    team, b = row(world, "team"), row(world, "b")
    assert (team.depth, team.pending, team.reserving, team.admitted) == (0, 1, 1, 1)
    assert (b.depth, b.parent, b.pending, b.requested) == (1, "team", 1, {"cpu": "3"})
    assert [(each.reserved, each.used, each.quota) for each in team.quotas] == [("6", "6", "8")]
    assert [(each.flavor, each.reserved, each.nominal) for each in top(world.engine).flavors] == [
        ("f", "6", "8")
    ]


def test_top_counts_the_requests_of_pods_on_nodes() -> None:
    node = {
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }

    def pod(phase: str, **spec: Any) -> dict[str, Any]:
        container = {"name": "c", "resources": {"requests": {"cpu": "1500m"}}}
        return {"metadata": {}, "spec": {"containers": [container], **spec}, "status": {"phase": phase}}

    pods = [pod("Running", nodeName="n"), pod("Succeeded", nodeName="n"), pod("Pending")]
    rows = top(World().engine, [node], pods).nodes
    assert [(each.resource, each.requested, each.allocatable) for each in rows] == [
        ("cpu", "1500m", "4"),
        ("memory", "0", "8Gi"),
        ("pods", "1", "110"),
    ]
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}}
    pods = [pod("Running", nodeName="n", initContainers=[sidecar], overhead={"memory": "64Mi"})]
    cpu, memory, _ = top(World().engine, [node], pods).nodes
    assert (cpu.requested, memory.requested) == ("1750m", "64Mi")


def test_queue_whose_quota_was_borrowed_is_owed_it() -> None:
    answer = shares(lab().engine)
    assert share_of(answer, "a") == ("6", "5", "6", "-1")
    assert share_of(answer, "b") == ("3", "3", "0", "3")


def test_unused_quota_is_divided_by_weight() -> None:
    world = World()
    world.flavor()
    world.cohort("team", quotas={"f": {"cpu": 12}})
    for name, weight in (("a", 1), ("b", 2), ("c", 0)):
        world.queue(name, {"f": {"cpu": 0}}, cohort="team", weight=weight)
        world.workload(f"of-{name}", name, 20)
    answer = shares(world.engine)
    assert [share_of(answer, name)[1] for name in "abc"] == ["4", "8", "0"]


def test_what_one_queue_does_not_need_goes_to_the_others_within_their_limits() -> None:
    world = World()
    world.flavor()
    world.cohort("team", quotas={"f": {"cpu": 12}})
    for name, demand, limit in (("a", 2, ""), ("b", 20, " BL 3"), ("c", 20, "")):
        world.queue(name, {"f": {"cpu": f"0{limit}"}}, cohort="team")
        world.workload(f"of-{name}", name, demand)
    answer = shares(world.engine)
    assert [share_of(answer, name)[1] for name in "abc"] == ["2", "3", "7"]


def test_quota_that_a_lending_limit_keeps_is_not_divided() -> None:
    world = World()
    world.flavor()
    world.queue("a", {"f": {"cpu": "10 LL 2"}}, cohort="team")
    world.queue("b", {"f": {"cpu": 1}}, cohort="team")
    world.workload("w", "b", 8)
    assert share_of(shares(world.engine), "b")[1] == "3"


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(plans())
def test_queues_are_entitled_to_no_more_than_they_demand_and_than_there_is(plan: Plan) -> None:
    world = build(plan)
    run(world)
    answer = shares(world.engine)
    roots: dict[str, str] = {view.name: view.path[0] for view in world.engine.nodes()}
    quota: dict[tuple[str, str], int] = {}
    for view in world.engine.nodes():
        for each in view.quotas:
            key = (view.path[0], each.resource)
            quota[key] = quota.get(key, 0) + each.nominal
    for queue in answer.queues:
        for each in queue.resources:
            entitled = parse(each.entitled)
            assert entitled <= parse(each.demand)
            if queue.kind == "ClusterQueue":
                factor = 1000 if each.resource == "cpu" else 1
                key = (roots[queue.name], each.resource)
                quota[key] = quota.get(key, 0) - int(float(entitled) * factor)
    assert all(left >= 0 for left in quota.values()), quota


def history() -> World:
    """Two workloads of 2 cpu admitted after 100 s; one of them ends after 1900 s."""
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 10, "memory": "10Gi"}})
    world.running("done", "q", {"cpu": 2, "memory": "1Gi"}, reserved=100, prio=5)
    world.running("going", "q", {"cpu": 2, "memory": "1Gi"}, reserved=100)
    world.workload("never", "q", 1)
    old = world.workloads["done"]
    conditions = [*old["status"]["conditions"], world.condition("Finished", True, "Succeeded", 1900)]
    world.put({**old, "status": {**old["status"], "conditions": conditions}})
    return world


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [(0, 3700, 3.0), (1000, 3700, 2.0), (0, 100, 0.0), (1900, 3700, 1.0)],
)
def test_resource_hours_are_those_within_the_window(start: int, end: int, hours: float) -> None:
    answer = used(history().driver.workloads.values(), "clusterqueue", START + start, START + end)
    found = {group.group: group.hours["cpu"] for group in answer.groups}
    assert found == ({"q": pytest.approx(hours)} if hours else {})


def test_use_is_grouped_by_priority_namespace_and_label() -> None:
    workloads = list(history().driver.workloads.values())

    def hours(by: str) -> dict[str, tuple[int, float]]:
        answer = used(workloads, by, START, START + 3700)
        return {group.group: (group.workloads, group.hours["cpu"]) for group in answer.groups}

    assert hours("priority") == {"0": (1, 2.0), "5": (1, 1.0)}
    assert hours("namespace") == {"default": (2, 3.0)}
    assert hours("localqueue") == {"default/q": (2, 3.0)}
    assert hours("label=team") == {"": (2, 3.0)}
    with pytest.raises(ValueError, match="'team' is no group; accepted: clusterqueue, localqueue"):
        hours("team")
