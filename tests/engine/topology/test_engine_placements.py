"""Which workloads the leaves of a topology are assigned to, as data and as `pykueue top nodes` prints it."""

from __future__ import annotations

from topology_world import NodeWorld

from pykueue.cli.top import lines
from pykueue.questions.top import top


def test_leaves_show_the_pods_assigned_to_them() -> None:
    world = NodeWorld("r1{h1:2,h2:2},r2{h3:2}")
    world.placed("a", 3, {"required": "rack"})
    world.stable()
    found = {leaf.values: leaf.pods for leaf in world.engine.topology_leaves()}
    assert found == {("r1", "h1"): {"default/a": 2}, ("r1", "h2"): {"default/a": 1}, ("r2", "h3"): {}}


def test_placement_is_printed_as_a_tree() -> None:
    world = NodeWorld("r1{h1:2,h2:2},r2{h3:2}")
    world.placed("a", 1, {"unconstrained": True})
    world.placed("b", 2, {"required": "rack"})
    world.stable()
    text = "\n".join(lines(top(world.engine), "nodes"))
    assert text == PLACEMENT
    assert "PLACEMENT" in list(lines(top(world.engine)))
    assert "PLACEMENT" not in list(lines(top(world.engine), "queues"))


PLACEMENT = """\
PLACEMENT
  flavor f, topology racks
    r1
      h1: default/a 1
      h2: -
    r2
      h3: default/b 2"""
