"""Topologies and nodes that do not go together: the reason is on the workloads, and no other is held up."""

from __future__ import annotations

from topology_world import NodeWorld

from pykueue.engine.explain.render import message

RACK = {"required": "rack"}
UNCONSTRAINED = {"unconstrained": True}
FULL_HOST = {"cpu": 2000, "pods": 110}


def test_a_level_that_no_node_has_is_named_and_other_queues_go_on() -> None:
    world = NodeWorld("r1{h1:2}")
    world.topology("blocks", "BH")
    world.tas_flavor("g", "blocks")
    world.queue("p", {"g": {"cpu": 10}})
    world.placed("no-block", 1, UNCONSTRAINED, queue="p")
    world.placed("rack", 1, RACK)
    world.stable()
    assert world.reserved() == {"rack"}
    assert world.reasons == {"no-block": "TopologyPlacementFailed"}
    assert message(world.last["no-block"]) == (
        'topology "blocks" of flavor g: no ready and schedulable node has all of the labels '
        "block, kubernetes.io/hostname, pool=tas"
    )


def test_a_node_that_loses_its_label_takes_no_more_pods_until_it_has_it_again() -> None:
    world = NodeWorld("r1{h1:2}")
    world.placed("a", 1, RACK)
    world.stable()
    world.node(("h1",), FULL_HOST, levels="H")
    world.placed("b", 1, RACK)
    world.placed("c", 1, RACK)
    world.stable()
    assert world.reserved() == {"a"}
    assert "no ready and schedulable node has all of the labels rack," in message(world.last["b"])
    world.node(("r1", "h1"), FULL_HOST)
    world.stable()
    assert world.reserved() == {"a", "b"}
    assert (world.hosts("a"), world.hosts("b")) == ({"h1": 1}, {"h1": 1})


def test_two_topologies_of_the_same_nodes_share_what_these_have() -> None:
    world = NodeWorld("r1{h1:2,h2:2}")
    world.topology("hosts", "H")
    world.tas_flavor("g", "hosts")
    world.queue("p", {"g": {"cpu": 10}})
    world.placed("a", 3, RACK)
    world.placed("b", 1, UNCONSTRAINED, queue="p")
    world.placed("c", 1, UNCONSTRAINED, queue="p")
    world.stable()
    assert world.reserved() == {"a", "b"}
    world.finish("a")
    world.stable()
    assert world.reserved() == {"b", "c"}
