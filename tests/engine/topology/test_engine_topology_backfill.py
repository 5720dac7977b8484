"""BackfillPolicies where flavors have a topology: nodes are reserved, not only quota."""

from __future__ import annotations

from topology_world import NodeWorld

from pykueue.engine.explain.render import message


def test_nodes_of_the_rack_that_a_workload_waits_for_are_reserved() -> None:
    world = NodeWorld("r1{h1:2,h2:2},r2{h3:1}")
    world.apply(
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "BackfillPolicy",
            "metadata": {"name": "all", "uid": "all"},
            "spec": {},
        }
    )
    world.placed("first", 2, {"unconstrained": True}, maximumExecutionTimeSeconds=1000)
    world.stable()
    world.placed("rack", 4, {"required": "rack"}, maximumExecutionTimeSeconds=1000)
    world.placed("long", 2, {"required": "rack"}, maximumExecutionTimeSeconds=5000)
    world.placed("elsewhere", 1, {"unconstrained": True}, maximumExecutionTimeSeconds=5000)
    world.placed("short", 2, {"required": "rack"}, maximumExecutionTimeSeconds=900)
    world.stable()
    assert [name for _, name in world.admitted] == ["first", "elsewhere", "short"]
    assert world.hosts("elsewhere") == {"h3": 1}
    assert "Capacity is reserved for it from " in message(world.last["rack"])
    assert message(world.last["long"]).startswith("Would delay default/rack, ")
    world.engine.check()
