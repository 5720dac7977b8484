"""Elastic jobs on nodes: a workload slice that replaces another one keeps the nodes of its running pods."""

from __future__ import annotations

from typing import Any

import pytest
from topology_world import NodeWorld

from pykueue.engine import Options

REPLACES = {"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}
ON = {"ElasticJobsViaWorkloadSlicesWithTAS": True}


def scaled(nodes: str, old: int, new: int, request: Any = None, on: bool = True) -> NodeWorld:
    """A slice of `old` pods that runs, and one of `new` pods that is to replace it."""
    world = NodeWorld(nodes, options=Options(gates=ON if on else {}))
    world.placed("old", old, request)
    world.stable()
    world.placed("new", new, request, annotations=REPLACES)
    world.stable()
    return world


def test_pods_that_are_added_go_where_there_is_room_and_the_others_stay() -> None:
    world = scaled("r1{h1:3,h2:3},r2{h3:1}", 3, 5)
    assert world.reserved() == {"new"}
    # Placed as a whole the five pods would begin with h3, the smallest gap.
    assert world.hosts("new") == {"h1": 3, "h2": 2}


def test_nodes_that_the_old_slice_fills_count_once() -> None:
    world = scaled("r1{h1:4}", 2, 4)
    assert world.reserved() == {"new"}
    assert world.hosts("new") == {"h1": 4}


def test_a_slice_of_the_same_size_keeps_all_nodes() -> None:
    world = scaled("r1{h1:3,h2:3}", 4, 4)
    assert world.reserved() == {"new"}
    assert world.hosts("new") == {"h1": 3, "h2": 1}


def test_pods_leave_from_the_end_of_the_list_of_domains() -> None:
    world = scaled("r1{h1:2,h2:2,h3:2}", 6, 3)
    assert world.hosts("new") == {"h1": 2, "h2": 1}


def test_a_slice_that_no_room_is_left_for_waits_and_the_old_one_goes_on() -> None:
    world = scaled("r1{h1:4}", 2, 5)
    assert world.reserved() == {"old"}
    assert world.reasons == {"new": "TopologyPlacementFailed"}
    assert world.hosts("old") == {"h1": 2}


def test_a_slice_is_placed_afresh_where_a_node_of_the_old_one_is_gone() -> None:
    world = NodeWorld("r1{h1:2,h2:2,h3:3}", options=Options(gates=ON))
    world.placed("old", 4)
    world.stable()
    assert world.hosts("old") == {"h1": 2, "h2": 2}
    world.lose("h1")
    world.placed("new", 5, annotations=REPLACES)
    world.stable()
    assert world.hosts("new") == {"h2": 2, "h3": 3}


@pytest.mark.parametrize("mode", ["required", "preferred"])
def test_a_slice_that_names_a_level_does_not_replace_another(mode: str) -> None:
    world = scaled("r1{h1:8}", 2, 4, {mode: "rack"})
    assert world.reserved() == {"old"}
    assert world.reasons == {"new": "NoMatchingFlavor"}


@pytest.mark.parametrize(("on", "expected"), [(True, {"h1": 4, "h2": 1}), (False, {"h2": 5})])
def test_the_gate_keeps_the_nodes_of_the_old_slice(on: bool, expected: dict[str, int]) -> None:
    world = scaled("r1{h1:4,h2:6}", 4, 5, on=on)
    assert world.hosts("new") == expected


def test_a_slice_of_two_that_grow_in_one_cycle_waits_if_both_do_not_fit() -> None:
    world = NodeWorld("r1{h1:6}", options=Options(gates=ON))
    for name in ("a", "b"):
        world.placed(f"{name}1", 2)
    world.stable()
    for name in ("a", "b"):
        replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": f"default/{name}1"}
        world.placed(f"{name}2", 4, annotations=replaces)
    world.stable()
    assert world.reserved() == {"a2", "b1"}
    assert (world.hosts("a2"), world.hosts("b1")) == ({"h1": 4}, {"h1": 2})


def test_a_fork_of_a_slice_that_grows_leaves_no_trace() -> None:
    world = NodeWorld("r1{h1:3,h2:3}", options=Options(gates=ON))
    world.placed("old", 2)
    world.stable()
    world.placed("new", 4, annotations=REPLACES)
    with world.engine.fork() as trial:
        tried = trial.cycle(world.now)
    world.engine.check()
    assert world.engine.cycle(world.now) == tried
