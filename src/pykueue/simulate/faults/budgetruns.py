"""Runs under Budgets: in the end each ledger has counted every second of every Workload once.

The manager dies and comes back, writes fail or have no answer, and watches are late, as in every run. What
ought to be counted follows from the Workloads as they were stored.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pykueue.api import conditions
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.objects import Object, get
from pykueue.api.quantity import parse
from pykueue.api.resources import WORKLOADS
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.manager.budgets.books import ended, runs
from pykueue.manager.configuration import Configuration

from .causes import Causes
from .invariants import Invariants
from .run import Report, Run, play_run
from .scenario import FLAVORS, NAMESPACE, Scenario, scenario
from .trace import Trace

#: The flavor whose use counts half.
_HALF = FLAVORS[0]
#: Seconds after which a ledger has been written in any case.
_WRITTEN = 70.0
_NANO = 10**9


def budget_scenario(rng: random.Random) -> Scenario:
    """A scenario in which a Budget counts all workloads; it allows all of them.

    In some, workloads also wait for what a BackfillPolicy or a Reservation keeps free.
    """
    plan = scenario(rng)
    weights = [{"name": _HALF, "weight": "500m"}]
    spec: Object = {
        "selector": {"namespace": NAMESPACE},
        "resources": [{"name": "cpu", "hours": "100000", "flavorWeights": weights}],
    }
    if rng.random() < 0.5:
        spec |= {"reservation": "Declared", "defaultMaximum": "100h"}
    if rng.random() < 0.5:
        spec["window"] = {"calendar": "Yearly"}
    budget: Object = {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {"name": "budget"},
        "spec": spec,
    }
    if rng.random() < 0.5:
        plan = plan.with_backfill_policy(rng)
    if rng.random() < 0.5:
        plan = plan.with_reservation(rng)
    # By a clock that jumps the times of Workloads do not say how long they ran.
    return replace(plan, jumps=False, objects=[*plan.objects, budget])


class BudgetInvariants(Invariants):
    """Adds up what every Workload used, as its conditions say when it ends."""

    def __init__(
        self, server: Server, clock: Clock, trace: Trace, causes: Causes, configuration: Configuration
    ) -> None:
        super().__init__(server, clock, trace, causes, configuration)
        #: Least and most that is to be counted, in nanos of CPU-seconds.
        self._least = self._most = 0
        #: Lowest and highest use of each running Workload, by uid.
        self._rates: dict[str, tuple[int, int]] = {}
        server.core.on_stored(f"{WORKLOADS.group}/{WORKLOADS.plural}", self._count)

    def _count(self, new: Any, old: Any) -> None:
        after, before = (None if record is None else dict(record.object) for record in (new, old))
        if before is not None and runs(before):
            uid = before["metadata"]["uid"]
            rate = _rate(before)
            low, high = self._rates.get(uid, (rate, rate))
            self._rates[uid] = min(low, rate), max(high, rate)
            if after is None or not runs(after):
                self._end(before, after, *self._rates.pop(uid))

    def _end(self, before: Mapping[str, Any], after: Mapping[str, Any] | None, low: int, high: int) -> None:
        start = int(conditions.since(before, conditions.ADMITTED))
        if after is not None:
            end = ended(after, 0)
            self._least += low * (end - start)
            self._most += high * (end - start)
        else:
            # It was deleted while it ran: the manager counts until it sees that, or until its last write.
            now = int(self._clock.time())
            self._least += low * max(0, now - start - int(_WRITTEN))
            self._most += high * (now - start + int(_WRITTEN))

    def check_ledgers(self) -> None:
        """Whether the ledger says what was used."""
        counted = 0
        for ledger in self.objects(BUDGET_LEDGERS):
            counted += parse(get(ledger, "spec", "total", "cpu") or "0").nanos
            for run in get(ledger, "spec", "running") or ():
                self._violate(ledger, f"{run['workload']} is counted on")
        if not self._least <= counted <= self._most:
            least, most = self._least / _NANO, self._most / _NANO
            self._trace.violate(f"{counted / _NANO} CPU-seconds are counted, {least} to {most} were used")


def _rate(workload: Mapping[str, Any]) -> int:
    """Nanos of CPUs that count, by the pods that need quota."""
    done = conditions.reclaimable_counts(workload)
    sizes = {each["name"]: each.get("count", 1) for each in get(workload, "spec", "podSets") or ()}
    rate = 0
    for given in get(workload, "status", "admission", "podSetAssignments") or ():
        name, admitted = given["name"], given.get("count") or sizes[given["name"]]
        flavor = (given.get("flavors") or {}).get("cpu")
        if flavor is None:
            continue
        nanos = parse((given.get("resourceUsage") or {}).get("cpu", "0")).nanos
        left = min(admitted, sizes[name] - min(done.get(name, 0), sizes[name]))
        rate += nanos // admitted * left // (2 if flavor == _HALF else 1) if admitted else 0
    return rate


class BudgetRun(Run):
    """A run under a Budget."""

    invariants_class = BudgetInvariants

    async def _all_goes(self) -> None:
        await super()._all_goes()
        await self.clock.sleep(_WRITTEN)
        assert isinstance(self.invariants, BudgetInvariants)
        if not self.trace.violations:
            self.invariants.check_ledgers()


def play_budgets(seed: int) -> Report:
    """Play the run of this seed under a Budget, in virtual time."""
    rng = random.Random(f"budgets {seed}")
    plan = budget_scenario(rng)
    return replace(play_run(BudgetRun, seed, plan, rng, False), options=" --budgets")
