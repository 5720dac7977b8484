"""Budgets, Reservations and reservations of pending workloads together, with exact declared run times."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import Any

import pytest
from engine_world import START, World
from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.api.meta import format_time
from pykueue.engine import Admit, Requeue

API = "pykueue.io/v1alpha1"
HOUR = 3600
CPUS = 6
POLICIES: list[dict[str, Any]] = [{}, {"depth": 3}, {"strategy": "Conservative"}]


class Together:
    """Two ClusterQueues of a cohort, a Budget of both, and a Reservation for the first; times in hours."""

    def __init__(self, rng: random.Random, spec: dict[str, Any], hours: int, shared: bool) -> None:
        self.rng, self.hours, self.shared = rng, hours, shared
        self.made = made = World()
        made.flavor()
        own = "0" if shared else str(CPUS)
        if shared:
            made.cohort("c", quotas={"f": {"cpu": str(CPUS)}})
        for name in "ab":
            made.queue(name, {"cpu": own}, cohort="c" if shared else "")
        self._own("BackfillPolicy", "all", spec)
        resources = [{"name": "cpu", "hours": str(hours)}]
        budget = {"selector": {"namespace": "default"}, "resources": resources, "reservation": "Declared"}
        self._own("Budget", "all", budget)
        self.window = (first := rng.randint(2, 10)), first + rng.randint(1, 5)
        self.kept = rng.randint(1, CPUS)
        amounts = [{"name": "f", "resources": [{"name": "cpu", "quantity": str(self.kept)}]}]
        length = f"{self.window[1] - first}h"
        start = format_time(START + first * HOUR)
        course = {"clusterQueue": "a", "flavors": amounts, "start": start, "duration": length}
        self._own("Reservation", "course", course)
        #: (queue, cpus, hours) by name.
        self.jobs: dict[str, tuple[str, int, int]] = {}
        self.began: dict[str, int] = {}
        self.promised: dict[str, int] = {}
        #: By the Budget, in cpu-hours.
        self.used = 0

    def _own(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        self.made.apply(
            {"apiVersion": API, "kind": kind, "metadata": {"name": name, "uid": name}, "spec": spec}
        )

    def run(self) -> None:
        ends: list[tuple[int, str]] = []
        coming = sorted(self.rng.randrange(16) for _ in range(14))
        for now in range(48):
            running = sorted(self.made.reserved())
            self.used += sum(self.jobs[name][1] for name in running) if now else 0
            self.made.driver.advance(START + now * HOUR)
            self.record(now, [name for name in running if self.began[name] + self.jobs[name][2] > now])
            while ends and ends[0][0] <= now:
                self.made.finish(heappop(ends)[1])
            while coming and coming[0] <= now:
                coming.pop(0)
                self.add(len(self.jobs), now)
            for name in self.cycles(now):
                heappush(ends, (now + self.jobs[name][2], name))
            self.record(now, sorted(self.made.reserved()))
            self.hold(now)

    def add(self, number: int, now: int) -> None:
        name, queue = f"w{number:02d}", self.rng.choice("ab")
        cpus, hours = self.rng.randint(1, CPUS), self.rng.randint(1, 6)
        self.jobs[name] = queue, cpus, hours
        limit = {"maximumExecutionTimeSeconds": hours * HOUR}
        self.made.workload(name, queue, cpus, created=now * HOUR, **limit)

    def cycles(self, now: int) -> list[str]:
        """The workloads that start now."""
        started = []
        for _ in range(50):
            if not self.made.engine.has_heads():
                return started
            decisions = self.made.driver.cycle()
            for decision in decisions:
                name = decision.key.partition("/")[2]
                if isinstance(decision, Admit):
                    self.began[name] = now
                    started.append(name)
                elif isinstance(decision, Requeue) and decision.explanation.shadow is not None:
                    at = decision.explanation.shadow.start - START
                    self.promised.setdefault(name, int(-(-at // HOUR)))
            self.made.driver.carry_out()
            self.made.engine.check()
        pytest.fail("the engine decides without end")

    def hold(self, now: int) -> None:
        """What must hold after each hour's decisions."""
        busy = dict.fromkeys("ab", 0)
        for name in self.made.reserved():
            busy[self.jobs[name][0]] += self.jobs[name][1]
        aside = sum(
            self.jobs[name][1] * (self.began[name] + self.jobs[name][2] - now)
            for name in self.made.reserved()
        )
        assert self.used + aside <= self.hours
        whole = busy["a"] + busy["b"]
        assert whole <= CPUS if self.shared else max(busy.values()) <= CPUS
        if self.shared and self.window[0] <= now < self.window[1]:
            assert busy["b"] <= CPUS - self.kept, "the window is kept free for a"

    def record(self, now: int, running: list[str]) -> None:
        """The ledger, as the manager writes it."""
        at = format_time(START)
        entries = [
            {
                "uid": self.made.workloads[name]["metadata"]["uid"],
                "workload": f"default/{name}",
                "since": at,
                "through": at,
                "rates": {"cpu": str(self.jobs[name][1])},
                "seconds": (now - self.began[name]) * HOUR,
                "reservedSeconds": self.jobs[name][2] * HOUR,
            }
            for name in running
            if now > self.began[name]
        ]
        spec = {
            "budget": "all",
            "completeSince": at,
            "limit": {"cpu": str(self.hours * HOUR)},
            "used": {"cpu": str(self.used * HOUR)},
            "running": entries,
        }
        self._own("BudgetLedger", "all", spec)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("shared", [False, True], ids=["own quota", "quota of the cohort"])
@pytest.mark.parametrize("spec", POLICIES, ids=["EASY", "depth 3", "Conservative"])
def test_neither_quota_nor_budget_nor_window_is_exceeded(
    spec: dict[str, Any], shared: bool, seed: int
) -> None:
    rng = random.Random(seed)
    Together(rng, spec, rng.choice((20, 60)), shared).run()


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("shared", [False, True], ids=["own quota", "quota of the cohort"])
@pytest.mark.parametrize("spec", POLICIES, ids=["EASY", "depth 3", "Conservative"])
def test_what_was_promised_first_is_kept_where_the_budget_has_enough(
    spec: dict[str, Any], shared: bool, seed: int
) -> None:
    """With exact run times."""
    made = Together(random.Random(seed), spec, 10_000, shared)
    made.run()
    late = {
        name: (at, made.promised[name]) for name, at in made.began.items() if at > made.promised.get(name, at)
    }
    assert late == {}
