"""Random workloads under Budgets: what is used and what is set aside never exceed them together."""

from __future__ import annotations

import random

import pytest
from engine_world import START, World
from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.api.meta import format_time
from pykueue.engine import Options

API = "pykueue.io/v1alpha1"
HOURS = {"all": 30, "a": 12}
SELECTORS = {"all": {"namespace": "default"}, "a": {"clusterQueue": "a"}}


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair"])
def test_use_and_what_is_set_aside_never_exceed_a_declared_budget(fair: bool, seed: int) -> None:
    live(World(Options(fair_sharing=fair)), random.Random(seed), 30)


def live(made: World, rng: random.Random, steps: int) -> None:
    """Workloads come, run for less than they declare, end or are preempted, and the ledgers follow."""
    made.flavor()
    for name in ("a", "b"):
        made.queue(name, {"cpu": "6"}, cohort="c", within="LowerPriority", reclaim="Any")
    for name, hours in HOURS.items():
        resources = [{"name": "cpu", "hours": str(hours)}]
        spec = {"selector": SELECTORS[name], "resources": resources, "reservation": "Declared"}
        made.apply({"apiVersion": API, "kind": "Budget", "metadata": {"name": name}, "spec": spec})
    used = dict.fromkeys(HOURS, 0)
    #: (queue, cpus, declared hours) by name of every workload.
    declared: dict[str, tuple[str, int, int]] = {}
    ran: dict[str, int] = {}
    for step in range(steps):
        action = rng.choice(("new", "new", "hour", "end", "cycle"))
        if action == "new":
            queue, cpus, hours = rng.choice("ab"), rng.randint(1, 3), rng.randint(1, 6)
            name = f"w{step}"
            declared[name] = queue, cpus, hours
            made.workload(name, queue, cpus, rng.randint(0, 2), maximumExecutionTimeSeconds=hours * 3600)
        elif action == "hour":
            for name in sorted(made.reserved()):
                if ran.get(name, 0) < declared[name][2]:
                    ran[name] = ran.get(name, 0) + 1
                    count(used, declared[name][0], declared[name][1])
            write(made, used, declared, ran)
        elif action == "end" and made.reserved():
            name = rng.choice(sorted(made.reserved()))
            write(made, used, declared, ran)
            made.finish(name)
            ran.pop(name, None)
            write(made, used, declared, ran)
        made.stable()
        for name in list(made.workloads):
            if made.driver.workloads[made.key(name)].condition_is("Evicted") and name in made.reserved():
                made.finish(name)
                ran.pop(name, None)
        write(made, used, declared, ran)
        made.engine.check()
        for budget, hours in HOURS.items():
            aside = sum(
                cpus * (limit - ran.get(name, 0))
                for name, (queue, cpus, limit) in declared.items()
                if name in made.reserved() and (budget == "all" or queue == "a")
            )
            assert used[budget] + aside <= hours


def count(used: dict[str, int], queue: str, hours: int) -> None:
    used["all"] += hours
    if queue == "a":
        used["a"] += hours


def write(
    made: World, used: dict[str, int], declared: dict[str, tuple[str, int, int]], ran: dict[str, int]
) -> None:
    """The ledgers as the manager writes them: of what has run for an hour or more."""
    at = format_time(START)
    for budget in HOURS:
        running = [
            {
                "uid": made.workloads[name]["metadata"]["uid"],
                "workload": f"default/{name}",
                "since": at,
                "through": at,
                "rates": {"cpu": str(declared[name][1])},
                "seconds": hours * 3600,
                "reservedSeconds": declared[name][2] * 3600,
            }
            for name, hours in sorted(ran.items())
            if name in made.reserved() and (budget == "all" or declared[name][0] == "a")
        ]
        spec = {
            "budget": budget,
            "completeSince": at,
            "limit": {"cpu": str(HOURS[budget] * 3600)},
            "used": {"cpu": str(used[budget] * 3600)},
            "running": running,
        }
        made.apply({"apiVersion": API, "kind": "BudgetLedger", "metadata": {"name": budget}, "spec": spec})
