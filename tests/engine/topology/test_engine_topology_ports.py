"""Host ports on nodes with a topology, with the gate SchedulerLibraryIntegration."""

from __future__ import annotations

from typing import Any

import pytest
from topology_world import NodeWorld

from pykueue.engine import Options
from pykueue.engine.dump import dump, load
from pykueue.engine.explain.render import message

ON = Options(gates={"SchedulerLibraryIntegration": True})
WEB = {"containerPort": 80, "hostPort": 8080}
UNCONSTRAINED = {"unconstrained": True}


def at(address: str) -> list[dict[str, Any]]:
    """The port on one address of the host."""
    return [{**WEB, "hostIP": address}]


@pytest.mark.parametrize("on", [True, False])
def test_the_gate_decides_whether_pods_with_a_host_port_need_a_host_each(on: bool) -> None:
    world = NodeWorld("r1{h1:2,h2:2}", options=Options(gates={"SchedulerLibraryIntegration": on}))
    world.placed("a", 2, {"required": "rack"}, ports=[WEB])
    world.stable()
    assert world.hosts("a") == ({"h1": 1, "h2": 1} if on else {"h1": 2})


def test_a_port_that_another_workload_uses_is_free_when_that_has_finished() -> None:
    world = NodeWorld("r1{h1:4}", options=ON)
    world.placed("a", 1, UNCONSTRAINED, ports=[WEB])
    world.stable()
    world.placed("b", 1, UNCONSTRAINED, ports=[WEB])
    world.placed("other-protocol", 1, UNCONSTRAINED, ports=[{**WEB, "protocol": "UDP"}])
    world.placed("no-port", 1, UNCONSTRAINED)
    world.stable()
    assert world.reserved() == {"a", "other-protocol", "no-port"}
    world.finish("a")
    world.stable()
    assert world.reserved() == {"b", "other-protocol", "no-port"}


def test_a_port_that_a_pod_outside_of_workloads_uses_is_not_available_on_its_node() -> None:
    world = NodeWorld("r1{h1:4,h2:4}", options=ON)
    world.pod("daemon", "h1", 1, [WEB])
    world.placed("a", 1, UNCONSTRAINED, ports=[WEB])
    world.stable()
    assert world.hosts("a") == {"h2": 1}
    world.placed("b", 1, UNCONSTRAINED, ports=[WEB])
    world.stable()
    assert "of 2 domains of level kubernetes.io/hostname excluded: host port 8080/TCP: 2" in message(
        world.last["b"]
    )
    world.pod("daemon", "h1", 1, [WEB], phase="Succeeded")
    world.stable()
    assert world.hosts("b") == {"h1": 1}


def test_a_port_is_used_once_on_each_address_or_once_on_all() -> None:
    world = NodeWorld("r1{h1:8}", options=ON)
    world.placed("first", 1, UNCONSTRAINED, ports=at("10.0.0.1"))
    world.placed("second", 1, UNCONSTRAINED, ports=at("10.0.0.2"))
    world.placed("first-again", 1, UNCONSTRAINED, ports=at("10.0.0.1"))
    world.placed("all", 1, UNCONSTRAINED, ports=[WEB])
    world.placed("all-and-one", 1, UNCONSTRAINED, ports=[WEB, *at("10.0.0.1")])
    world.stable()
    assert world.reserved() == {"first", "second"}
    world.finish("first", "second", "first-again")
    world.stable()
    assert world.reserved() == {"all"}
    world.finish("all")
    world.stable()
    assert world.reserved() == {"all-and-one"}


def test_a_workload_is_preempted_for_its_port() -> None:
    world = NodeWorld("r1{h1:8}", options=ON, within="LowerPriority")
    world.placed("no-port", 1, UNCONSTRAINED)
    world.placed("low", 1, UNCONSTRAINED, ports=[WEB])
    world.stable()
    world.placed("high", 1, UNCONSTRAINED, ports=[WEB], prio=10)
    world.stable()
    assert [name for _, name, _ in world.preempted] == ["low"]
    assert world.reserved() == {"no-port", "high"}


def test_more_pods_than_hosts_can_never_have_the_port() -> None:
    world = NodeWorld("r1{h1:8,h2:8}", options=ON)
    world.placed("a", 3, UNCONSTRAINED, ports=[WEB])
    world.stable()
    assert world.reserved() == set()
    assert "the nodes hold only 2 of 3 pods" in message(world.last["a"])


def test_ports_do_not_count_where_leaves_are_not_single_hosts() -> None:
    world = NodeWorld("r1:8", levels="R", options=ON)
    world.placed("a", 2, UNCONSTRAINED, ports=[WEB])
    world.stable()
    assert world.hosts("a") == {"r1": 2}


def test_a_dump_with_ports_is_the_same_after_a_round_trip() -> None:
    world = NodeWorld("r1{h1:4,h2:4}", options=ON)
    world.pod("daemon", "h1", 1, [WEB])
    world.placed("a", 1, UNCONSTRAINED, ports=[WEB])
    world.stable()
    document = dump(world.engine)
    loaded = load(document)
    loaded.check()
    assert dump(loaded) == document
