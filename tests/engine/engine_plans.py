"""Generated queues and workloads, and worlds made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine_world import World
from hypothesis import strategies as st

from pykueue.engine import Engine, Options, Preempt
from pykueue.engine.cycle.tree_cycle import PREEMPTIONS_MAX
from pykueue.engine.quota.capacity import available

FLAVORS = ("f", "g")
RESOURCES = ("cpu", "memory")


@dataclass
class Plan:
    """A generated set of queues and workloads."""

    fair: bool
    cohorts: list[tuple[str, str, dict[str, Any] | None, int | None]]
    queues: list[dict[str, Any]]
    workloads: list[dict[str, Any]] = field(default_factory=list)


@st.composite
def quotas(draw: st.DrawFn, flavors: tuple[str, ...], limits: bool, borrowing: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for flavor in flavors:
        result[flavor] = {}
        for resource in RESOURCES:
            nominal = draw(st.integers(0, 8))
            text = str(nominal)
            if limits and borrowing and draw(st.booleans()):
                text += f" BL {draw(st.integers(0, 5))}"
            if limits and draw(st.booleans()):
                text += f" LL {draw(st.integers(0, nominal))}"
            result[flavor][resource] = text
    return result


@st.composite
def plans(draw: st.DrawFn, strict: bool = True, most: int = 10) -> Plan:
    flavors = draw(st.sampled_from([("f",), FLAVORS]))
    cohorts: list[tuple[str, str, dict[str, Any] | None, int | None]] = []
    weights = st.sampled_from([None, 0, 1, 3])
    for number in range(draw(st.integers(0, 3))):
        parent = draw(st.sampled_from(["", *[name for name, *_ in cohorts]]))
        own = draw(st.none() | quotas(flavors, bool(parent), True))
        cohorts.append((f"c{number}", parent, own, draw(weights)))
    queues = []
    for number in range(draw(st.integers(1, 4))):
        cohort = draw(st.sampled_from(["", *[name for name, *_ in cohorts]]))
        reclaim = draw(st.sampled_from(["Never", "LowerPriority", "Any"]))
        fungibility = draw(st.sampled_from(["", "MS TN", "TN TN", "TN MS", "TN TN PoB", "MS MS"]))
        queues.append(
            {
                "name": f"q{number}",
                "quotas": draw(quotas(flavors, bool(cohort), True)),
                "cohort": cohort,
                "strict": strict and draw(st.booleans()),
                "within": draw(st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])),
                "reclaim": reclaim,
                "borrow": draw(st.sampled_from([None, "LowerPriority", 1])) if reclaim != "Never" else None,
                "fungibility": fungibility.split(),
                "weight": draw(weights),
            }
        )
    workloads = []
    for number in range(draw(st.integers(1, most))):
        pods = {
            f"p{index}": {
                "requests": {
                    resource: draw(st.integers(0, 3))
                    for resource in draw(st.sampled_from([RESOURCES, ("cpu",), ("memory",)]))
                },
                "count": draw(st.integers(1, 3)),
                "min": None,
            }
            for index in range(draw(st.integers(1, 2)))
        }
        if draw(st.booleans()):
            pods["p0"]["min"] = 1
        workloads.append(
            {
                "name": f"w{number}",
                "queue": draw(st.sampled_from(queues))["name"],
                "prio": draw(st.integers(-1, 3)),
                "created": float(number),
                "pods": pods,
            }
        )
    return Plan(draw(st.booleans()), cohorts, queues, workloads)


def build(plan: Plan, workloads: bool = True) -> World:
    made = World(Options(fair_sharing=plan.fair))
    for flavor in FLAVORS:
        made.flavor(flavor)
    for name, parent, own, weight in plan.cohorts:
        made.cohort(name, parent, own, weight)
    for queue in plan.queues:
        made.queue(**queue)
    if workloads:
        for workload in plan.workloads:
            made.workload(**workload)
    return made


def overdrawn(engine: Engine) -> list[str]:
    """Queues that use more than the tree allows."""
    return [
        f"{name}: {engine._state.flavor_resources.names[flavor_usage.flavor_resource]}"
        for name, queue in engine._state.queues.items()
        for flavor_usage in queue.flavor_usages.values()
        if flavor_usage.usage > 0 and available(flavor_usage) < 0
    ]


def run(made: World) -> None:
    """Cycles, carrying out preemptions, until nothing is left to decide.

    While nothing else happens a workload preempts others at most `PREEMPTIONS_MAX` times, and between two
    preemptions there are at most as many cycles as evaluate and admit every workload once.
    """
    most = made.cycles + 2 * len(made.workloads) * (PREEMPTIONS_MAX * len(made.workloads) + 2) + 2
    while made.engine.has_heads():
        assert made.cycles < most, "workloads preempt each other without end"
        for decision in made.cycle():
            if isinstance(decision, Preempt):
                made.release(decision.key.partition("/")[2])
        assert not overdrawn(made.engine)
