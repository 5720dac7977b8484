"""A dump of an engine with policies decides the same: whole, reduced as `pykueue dump` does, and renamed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine_world import START, World
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykueue.engine import Admit, Engine, Preempt
from pykueue.engine.dump import dump, load
from pykueue.engine.reduction import reduced
from pykueue.questions.pseudonyms import Pseudonyms

API = "pykueue.io/v1alpha1"
HOUR = 3600


def whole(document: dict[str, Any]) -> tuple[dict[str, Any], Callable[[str], str]]:
    return document, str


def without_texts(document: dict[str, Any]) -> tuple[dict[str, Any], Callable[[str], str]]:
    return {**document, "items": [reduced(item) for item in document["items"]]}, str


def renamed(document: dict[str, Any]) -> tuple[dict[str, Any], Callable[[str], str]]:
    items = without_texts(document)[0]["items"]
    names = Pseudonyms(items, b"key")
    return {**document, "items": [names.renamed(item) for item in items]}, names.of


class Campus:
    """Three ClusterQueues of a cohort with two flavors, where every policy of this project applies."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made = made = World()
        made.flavor("f0")
        made.flavor("f1")
        for name in "abc":
            made.queue(
                name,
                {"f0": {"cpu": "6"}, "f1": {"cpu": "4"}},
                cohort="campus",
                strict=rng.random() < 0.5,
                within="LowerPriority",
                reclaim="Any",
            )
        backfill: dict[str, Any] = rng.choice(
            ({}, {"depth": 3}, {"strategy": "Conservative"}, {"fittedPercentile": 50})
        )
        self._own("BackfillPolicy", "all", {"assumedRunTime": "3h", **backfill})
        self._own(
            "PreemptionPolicy",
            "all",
            {
                "minAdmitDuration": {"reclaimWithinCohort": rng.choice(("0s", "1h"))},
                "candidateOrder": "LeastLostWork",
                "coolDown": {"base": "30m", "max": "4h", "window": "24h"},
                "maxPreemptionsPerHour": rng.choice((1, 2, 20)),
            },
        )
        amounts = [{"name": "f0", "resources": [{"name": "cpu", "quantity": "3"}]}]
        course = {"clusterQueue": "a", "flavors": amounts, "start": "2026-01-01T05:00:00Z", "duration": "3h"}
        self._own("Reservation", "course", course)
        resources = [{"name": "cpu", "hours": "90", "flavorWeights": [{"name": "f1", "weight": "500m"}]}]
        budget = {
            "selector": rng.choice(
                (
                    {"namespace": "default"},
                    {"clusterQueue": "b"},
                    {"cohort": "campus"},
                    {"localQueue": {"namespace": "default", "name": "c"}},
                )
            ),
            "resources": resources,
            "reservation": "Declared",
            "defaultMaximum": "5h",
        }
        self._own("Budget", "all", budget)
        #: Names of workloads, with their run times in hours.
        self.hours: dict[str, int] = {}

    def _own(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        self.made.apply(
            {"apiVersion": API, "kind": kind, "metadata": {"name": name, "uid": name}, "spec": spec}
        )

    def step(self, now: int) -> None:
        """What happens within an hour."""
        made, rng = self.made, self.rng
        made.driver.advance(START + now * HOUR)
        for name in sorted(made.reserved()):
            if rng.random() < 0.3:
                made.finish(name)
        for _ in range(rng.randint(0, 3)):
            name = f"w{len(self.hours):03d}"
            self.hours[name] = rng.randint(1, 5)
            limits = {"maximumExecutionTimeSeconds": self.hours[name] * HOUR} if rng.random() < 0.5 else {}
            made.workload(
                name,
                rng.choice("abc"),
                rng.randint(1, 9),
                prio=rng.choice((0, 0, 10)),
                created=now * HOUR,
                **limits,
            )


def decided(engine: Engine, now: float, rename: Callable[[str], str] = str) -> Iterator[tuple[Any, ...]]:
    """What one cycle decides, without its texts."""
    for each in engine.cycle(now):
        rest: tuple[Any, ...] = ()
        if isinstance(each, Admit):
            flavors = [
                sorted((resource, rename(flavor)) for resource, flavor in given.flavors.items())
                for given in each.admission.pod_set_assignments
            ]
            rest = (flavors,)
        elif isinstance(each, Preempt):
            rest = (rename(each.preemptor), each.reason)
        yield (type(each).__name__, rename(each.key), getattr(each, "reason", ""), *rest)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=71210)  # what was found for a workload before it would borrow
@pytest.mark.parametrize("through", [whole, without_texts, renamed])
def test_dump_under_policies_decides_what_the_engine_decides(through: Any, seed: int) -> None:
    rng = random.Random(seed)
    campus = Campus(rng)
    made = campus.made
    for now in range(14):
        campus.step(now)
        # Not always until nothing is left to decide: the dump of a manager may be taken at any time, and its
        # next cycle is later.
        for number in range(rng.randint(0, 4)):
            if made.engine.has_heads():
                document, rename = through(json.loads(json.dumps(dump(made.engine))))
                other = load(document)
                at = START + now * HOUR + 60 * number
                decisions = list(decided(other, at))
                with made.engine.fork() as fork:
                    expected = list(decided(fork, at, rename))
                assert decisions == expected, now
                made.driver.advance(at)
                made.driver.cycle()
                made.driver.carry_out()
