"""Decisions of the engine where flavors have a topology."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import World
from topology_world import NodeWorld

from pykueue.engine import Admit, Assign, Evict, Options, Preempt, Requeue
from pykueue.engine.dump import dump, load
from pykueue.engine.explain.render import message

RACK = {"required": "rack"}
HOST = {"required": "kubernetes.io/hostname"}
TWO_RACKS = "r1{h1:2,h2:2},r2{h3:2,h4:2}"


def test_a_required_rack_holds_all_pods_or_the_workload_waits() -> None:
    world = NodeWorld(TWO_RACKS)
    world.placed("fits", 4, RACK)
    world.placed("too-large", 5, RACK)
    world.stable()
    assert world.hosts("fits") == {"h1": 2, "h2": 2}
    assert world.reasons == {"too-large": "TopologyPlacementFailed"}
    assert message(world.last["too-large"]) == (
        'topology "racks" of flavor f: no domain of level rack holds 5 pods: the largest, r2, holds 4; '
        'of 4 domains of level kubernetes.io/hostname excluded: resource "cpu": 2'
    )


def test_quota_that_is_free_does_not_help_where_the_nodes_are_full() -> None:
    world = NodeWorld(TWO_RACKS)
    world.placed("a", 3, RACK)
    world.placed("b", 3, RACK)
    world.placed("c", 2, RACK)
    world.stable()
    assert world.reserved() == {"a", "b"}
    assert world.reasons == {"c": "WaitingForQuota"}
    world.finish("a")
    world.stable()
    assert world.reserved() == {"b", "c"}


def test_fragmentation_alone_preempts_what_is_in_the_way() -> None:
    world = NodeWorld("r1{h1:4},r2{h2:4}", within="LowerPriority")
    world.placed("a", 2, RACK)
    world.placed("b", 3, RACK)
    world.stable()
    assert (world.hosts("a"), world.hosts("b")) == ({"h1": 2}, {"h2": 3})
    world.placed("urgent", 4, RACK, prio=5)
    decisions = world.cycle()
    assert [each.key for each in decisions if isinstance(each, Preempt)] == ["default/b"]
    world.release("b")
    world.stable()
    assert world.hosts("urgent") == {"h2": 4}


def test_no_workload_is_preempted_for_one_that_no_set_of_nodes_holds() -> None:
    world = NodeWorld("r1{h1:4},r2{h2:4}", within="LowerPriority")
    world.placed("a", 2, RACK)
    world.stable()
    world.placed("huge", 5, RACK, prio=5)
    (decision,) = world.cycle()
    assert isinstance(decision, Requeue)
    assert (decision.reason, decision.inadmissible) == ("TopologyPlacementFailed", True)


def test_workloads_of_two_cohorts_that_are_nominated_for_one_node_are_placed_apart() -> None:
    world = NodeWorld("r1{h1:2},r2{h2:2}", cohort="one")
    world.queue("p", {"cpu": 100}, cohort="two")
    world.placed("a", 2, RACK)
    world.placed("b", 2, RACK, queue="p")
    decisions = world.cycle()
    assert all(isinstance(each, Admit) for each in decisions)
    assert (world.hosts("a"), world.hosts("b")) == ({"h1": 2}, {"h2": 2})


def test_flavors_that_share_a_host_see_what_the_other_uses() -> None:
    world = NodeWorld("r1{h1:2}")
    world.tas_flavor("g", "racks")
    world.queue("p", {"g": {"cpu": 100}})
    world.placed("a", 2, RACK)
    world.placed("b", 1, RACK, queue="p")
    world.stable()
    assert world.reserved() == {"a"}
    assert world.reasons["b"] == "WaitingForQuota"


def test_a_new_node_and_the_end_of_another_pod_make_room() -> None:
    world = NodeWorld("r1{h1:2}")
    world.pod("daemon", "h1", 1)
    world.placed("a", 2, RACK)
    world.stable()
    assert world.reasons == {"a": "TopologyPlacementFailed"}
    world.pod("daemon", "h1", 1, phase="Succeeded")
    world.stable()
    assert world.hosts("a") == {"h1": 2}
    world.placed("b", 2, RACK)
    world.stable()
    world.host("h2", 2, rack="r2")
    world.stable()
    assert world.hosts("b") == {"h2": 2}


@pytest.mark.parametrize(
    "change",
    [
        {"unschedulable": True},
        {"ready": False},
        {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    ],
    ids=str,
)
def test_a_node_that_takes_no_pods_is_not_used(change: dict[str, object]) -> None:
    world = NodeWorld("r1{h1:2}")
    world.host("h1", 2, **change)
    world.placed("a", 1, RACK)
    world.stable()
    assert world.reasons == {"a": "TopologyPlacementFailed"}
    world.host("h1", 2)
    world.stable()
    assert world.hosts("a") == {"h1": 1}


def test_pods_without_a_request_are_placed_where_all_flavors_have_a_topology() -> None:
    world = NodeWorld("r1{h1:2,h2:1}")
    world.placed("plain", 1)
    world.stable()
    assert world.hosts("plain") == {"h2": 1}, "the smallest gap first"


def test_a_flavor_with_a_topology_is_no_plain_quota_where_no_nodes_are_known() -> None:
    world = World()
    NodeWorld.topology(world, "racks", "RH")  # type: ignore[arg-type]
    NodeWorld.tas_flavor(world, "f", "racks")  # type: ignore[arg-type]
    world.flavor("plain")
    world.queue("q", {"f": {"cpu": 10}, "plain": {"cpu": 10}})
    world.workload("a", "q", 1)
    world.stable()
    assert world.flavors("a") == {"main": {"cpu": "plain"}}


def test_a_failed_node_is_replaced_within_the_required_rack() -> None:
    world = NodeWorld("r1{h1:2,h2:2,h3:2},r2{h4:4}")
    world.placed("a", 4, RACK)
    world.stable()
    assert world.hosts("a") == {"h4": 4}
    world.placed("b", 4, RACK)
    world.stable()
    assert world.hosts("b") == {"h1": 2, "h2": 2}
    world.lose("h1")
    world.status("b", unhealthyNodes=[{"name": "h1"}])
    (decision,) = world.cycle()
    assert isinstance(decision, Assign)
    assert world.hosts("b") == {"h2": 2, "h3": 2}
    assert not world.driver.workloads["default/b"].status.unhealthy_nodes
    assert world.driver.workloads["default/b"].condition_is("Admitted")


def test_d6_replaced_node_and_head_of_one_queue_are_both_processed_under_fair_sharing() -> None:
    """The reference keeps one entry a queue under fair sharing (defect D6)."""
    world = NodeWorld("r1{h1:2,h2:2,h3:2}", options=Options(fair_sharing=True))
    world.placed("a", 2, HOST)
    world.cycle()
    (failed,) = world.hosts("a")
    world.lose(failed)
    world.status("a", unhealthyNodes=[{"name": failed}])
    world.now += 60
    world.placed("b", 2, HOST)
    world.cycle()
    (host,) = world.hosts("a")
    assert host != failed
    assert world.reserved() == {"a", "b"}


def test_a_node_without_a_replacement_evicts_the_workload() -> None:
    world = NodeWorld(TWO_RACKS)
    world.placed("a", 4, RACK)
    world.stable()
    world.lose("h1")
    world.status("a", unhealthyNodes=[{"name": "h1"}])
    (decision,) = world.cycle()
    assert isinstance(decision, Evict)
    assert (decision.key, decision.reason) == ("default/a", "NodeFailures")
    assert message(decision).startswith("no replacement for unhealthy node(s) h1: ")
    world.release("a")
    world.stable()
    assert world.hosts("a") == {"h3": 2, "h4": 2}


def test_a_replacement_is_tried_again_until_a_node_comes() -> None:
    gates = {"TASFailedNodeReplacementFailFast": False}
    world = NodeWorld("r1{h1:2,h2:2}", options=Options(gates=gates))
    world.placed("a", 4, RACK)
    world.stable()
    world.lose("h1")
    world.status("a", unhealthyNodes=[{"name": "h1"}])
    began = world.now
    world.cycle()
    assert world.engine.next_wake(began) == began + 2
    document = dump(world.engine)
    loaded = load(document)
    assert loaded.next_wake(began) == began + 2
    assert dump(loaded) == document
    world.host("h3", 2)
    world.now = began + 2
    world.cycle()
    assert world.hosts("a") == {"h2": 2, "h3": 2}


def test_a_workload_that_lost_several_nodes_is_evicted() -> None:
    gates = {"TASFailedNodeReplacementFailFast": False}
    world = NodeWorld("r1{h1:2,h2:2,h3:2},r2{h4:4}", options=Options(gates=gates))
    world.placed("a", 6, RACK)
    world.stable()
    assert world.hosts("a") == {"h1": 2, "h2": 2, "h3": 2}
    for host in ("h1", "h2"):
        world.host(host, 2, taints=[{"key": "broken", "effect": "NoSchedule"}])
    world.status("a", unhealthyNodes=[{"name": "h1"}, {"name": "h2"}])
    (decision,) = world.cycle()
    assert isinstance(decision, Evict)
    assert (decision.key, decision.reason) == ("default/a", "NodeFailures")


@pytest.mark.parametrize("on", [True, False])
def test_the_gate_of_replacements_moves_pods_off_failed_nodes(on: bool) -> None:
    world = NodeWorld("r1{h1:2,h2:2}", options=Options(gates={"TASFailedNodeReplacement": on}))
    world.placed("a", 2, RACK)
    world.stable()
    world.lose("h1")
    world.status("a", unhealthyNodes=[{"name": "h1"}])
    decisions = world.cycle()
    assert len(decisions) == on
    assert world.hosts("a") == ({"h2": 2} if on else {"h1": 2})


TOLERANT = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("tolerant", [True, False])
def test_the_gate_of_the_scheduler_library_lets_pods_tolerate_a_cordon(on: bool, tolerant: bool) -> None:
    world = NodeWorld("r1{h1:2}", options=Options(gates={"SchedulerLibraryIntegration": on}))
    world.host("h1", 2, unschedulable=True)
    world.workload("a", "q", 1, template=TOLERANT if tolerant else None)
    world.stable()
    assert world.reserved() == ({"a"} if on and tolerant else set())


@pytest.mark.parametrize("on", [True, False])
def test_the_gate_of_host_name_prefixes_writes_fewer_names(on: bool) -> None:
    gates = {"TASAssignmentsEncodingByHostnamePrefix": on}
    nodes = ",".join(f"{pool}-node-pool-{n}-x:1" for pool in ("first", "second") for n in range(9))
    world = NodeWorld("", options=Options(gates=gates))
    for name in (each.partition(":")[0] for each in nodes.split(",")):
        world.host(name, 1)
    world.placed("a", 18, {"unconstrained": True})
    world.stable()
    admission = world.driver.workloads["default/a"].status.admission
    assert admission is not None
    (given,) = admission.pod_set_assignments
    assert given.topology_assignment is not None
    assert (len(given.topology_assignment.slices) > 1) == on
    assert len(world.hosts("a")) == 18


def without_count_of_changes(document: dict[str, Any]) -> dict[str, Any]:
    """A dump without what never goes back."""
    document["items"][-1]["spec"].pop("changes")
    return document


def test_a_fork_leaves_nodes_and_their_usage_as_they_were() -> None:
    world = NodeWorld(TWO_RACKS)
    world.placed("a", 3, RACK)
    world.stable()
    world.placed("b", 4, RACK)
    before = without_count_of_changes(dump(world.engine))
    with world.engine.fork() as trial:
        decided = trial.cycle(world.now + 1)
        assert [each.key for each in decided] == ["default/b"]
        trial.check()
    world.engine.check()
    assert without_count_of_changes(dump(world.engine)) == before


def test_a_dump_with_nodes_is_the_same_after_a_round_trip() -> None:
    world = NodeWorld(TWO_RACKS)
    world.pod("daemon", "h3", 1)
    world.placed("a", 3, RACK)
    world.stable()
    world.placed("b", 4, RACK)
    document = dump(world.engine)
    loaded = load(document)
    loaded.check()
    assert dump(loaded) == document
    (decision,) = loaded.cycle(world.now)
    assert isinstance(decision, Admit)


def test_the_order_of_objects_does_not_change_what_is_used() -> None:
    world = NodeWorld(TWO_RACKS)
    world.placed("a", 3, RACK)
    world.stable()
    world.placed("b", 3, RACK)
    document = dump(world.engine)
    items = document["items"]
    document["items"] = [*reversed(items[:-1]), items[-1]]
    loaded = load(document)
    loaded.check()
    (decision,) = loaded.cycle(world.now)
    assert isinstance(decision, Admit)
