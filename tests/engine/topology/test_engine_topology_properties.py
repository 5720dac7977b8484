"""What holds for the nodes whatever happens, in every mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from topology_world import NodeWorld

from pykueue.engine import Assign, Options
from pykueue.engine.dump import dump, load

#: Neither the load of the machine nor the time a case takes decides anything.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

REQUESTS: Sequence[dict[str, Any] | None] = (
    None,
    {"required": "rack"},
    {"required": "kubernetes.io/hostname"},
    {"preferred": "rack"},
    {"unconstrained": True},
    {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2},
    {
        "preferred": "rack",
        "podSetSliceRequiredTopology": "kubernetes.io/hostname",
        "podSetSliceSize": 2,
    },
)
GATES = (
    "TASBalancedPlacement",
    "TASProfileMixed",
    "TASRecomputeAssignmentWithinSchedulingCycle",
    "TASFailedNodeReplacementFailFast",
    "TASRespectNodeAffinityPreferred",
)

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("workload"),
            st.integers(0, 1),
            st.integers(1, 6),
            st.sampled_from(REQUESTS),
            st.integers(0, 3),
        ),
        st.tuples(st.just("finish"), st.integers(0, 9)),
        st.tuples(st.just("host"), st.integers(0, 4), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("lose"), st.integers(0, 4)),
        st.tuples(st.just("pod"), st.integers(0, 4), st.integers(0, 2)),
        st.tuples(st.just("cycle")),
    ),
    min_size=4,
    max_size=25,
)


class Nodes:
    """A world with two queues of two cohorts, and what its hosts have."""

    def __init__(self, gates: dict[str, bool], fair: bool) -> None:
        self.world = NodeWorld(
            "r1{h0:3,h1:2},r2{h2:4}",
            quota=12,
            options=Options(gates=gates, fair_sharing=fair),
            cohort="one",
            within="LowerPriority",
        )
        self.world.tas_flavor("g", "racks")
        self.world.queue("p", {"g": {"cpu": 9}}, cohort="two", within="LowerPriority")
        self.capacity = {"h0": 3, "h1": 2, "h2": 4}
        self.outside: dict[str, int] = {}
        self._serial = 0

    def step(self, step: tuple[Any, ...]) -> None:
        world = self.world
        match step:
            case ("workload", queue, count, request, priority):
                self._serial += 1
                name = f"w{self._serial}"
                world.placed(name, count, request, queue="qp"[queue], prio=priority)
            case ("finish", number):
                names = sorted(world.workloads)
                if names:
                    world.finish(names[number % len(names)])
            case ("host", number, cpu, ready):
                world.host(f"h{number}", cpu, rack=f"r{number % 2}", ready=ready)
                self.capacity[f"h{number}"] = cpu
            case ("lose", number):
                host = f"h{number}"
                world.lose(host)
                for name in sorted(world.reserved()):
                    if host in world.hosts(name):
                        world.status(name, unhealthyNodes=[{"name": host}])
            case ("pod", number, cpu):
                world.pod(f"d{number}", f"h{number}", cpu)
                self.outside[f"h{number}"] = cpu
            case ("cycle",):
                self.cycle()

    def cycle(self) -> None:
        before = self.used()
        for decision in self.world.cycle():
            workload = self.world.driver.workloads[decision.key]
            if workload.condition_is("Evicted") and workload.condition_is("QuotaReserved"):
                self.world.release(decision.key.partition("/")[2])
            if isinstance(decision, Assign):
                assert not workload.status.unhealthy_nodes
        for host, pods in self.used().items():
            # What was there before may exceed a host that became smaller.
            room = self.capacity.get(host, 0) - self.outside.get(host, 0)
            assert pods <= max(room, before.get(host, 0)), host

    def used(self) -> dict[str, int]:
        used: dict[str, int] = {}
        for name in self.world.reserved():
            for host, pods in self.world.hosts(name).items():
                used[host] = used.get(host, 0) + pods
        return used


@settings(relaxed, max_examples=60)
@given(steps, st.sets(st.sampled_from(GATES)), st.booleans())
def test_no_host_is_filled_beyond_its_capacity(
    events: list[tuple[Any, ...]], gates: set[str], fair: bool
) -> None:
    nodes = Nodes({gate: gate in gates for gate in GATES}, fair)
    for step in events:
        nodes.step(step)
    for _ in range(3):
        nodes.cycle()


@settings(relaxed, max_examples=25)
@given(steps)
def test_an_engine_that_is_loaded_decides_the_same_and_a_fork_leaves_no_trace(
    events: list[tuple[Any, ...]],
) -> None:
    nodes = Nodes({}, False)
    for step in events:
        nodes.step(step)
    engine = nodes.world.engine
    document = dump(engine)
    loaded = load(document)
    loaded.check()
    with engine.fork() as trial:
        tried = trial.cycle(nodes.world.now)
    engine.check()
    assert loaded.cycle(nodes.world.now) == tried
    assert engine.cycle(nodes.world.now) == tried
