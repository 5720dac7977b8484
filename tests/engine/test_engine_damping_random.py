"""Random cohorts under PreemptionPolicies: no limit is broken, and none keeps a workload pending for good."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from engine_world import START, World

from pykueue.engine import Options, Preempt, Removed

#: More with PYKUEUE_DAMPING_SEEDS=1000.
SEEDS = range(int(os.environ.get("PYKUEUE_DAMPING_SEEDS", "24")))
MINIMUM, BASE, LONGEST, PER_HOUR = 600.0, 300.0, 3600.0, 4
HORIZON = START + 12 * 3600


def policy(made: World, **spec: Any) -> None:
    made.apply(
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "PreemptionPolicy",
            "metadata": {"name": "all", "uid": "all"},
            "spec": spec,
        }
    )


def world(random: Random) -> World:
    made = World(Options(fair_sharing=random.random() < 0.5))
    made.flavor()
    for name in "abc":
        made.queue(
            name,
            {"cpu": str(random.randint(0, 4))},
            cohort="all",
            strict=random.random() < 0.3,
            weight=random.choice((None, 1, 2)),
            preemption={
                "withinClusterQueue": random.choice(("LowerPriority", "LowerOrNewerEqualPriority")),
                "reclaimWithinCohort": random.choice(("Any", "LowerPriority")),
            },
        )
    made.cohort("all", quotas={"cpu": str(random.randint(1, 4))})
    return made


def settle(made: World, at: float) -> list[tuple[float, Preempt, float, str]]:
    """Cycles at a time; preemptions with the admission of the victim and the queue they were for."""
    found = []
    made.now = at
    made.engine.tick(at)
    while made.engine.has_heads():
        admitted = {
            key: info.reserved_at for key, info in made.engine._state.workloads.items() if info.admitted
        }
        for decision in made.cycle():
            if isinstance(decision, Preempt):
                queue = decision.preemptor_path[-1]
                found.append((made.now - 1, decision, admitted[decision.key], queue))
                made.release(decision.key.partition("/")[2])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_limits_hold_and_nothing_is_left_pending_because_of_them(seed: int) -> None:
    random = Random(seed)
    made = world(random)
    limits = [
        {
            "minAdmitDuration": dict.fromkeys(
                ("withinClusterQueue", "reclaimWithinCohort", "fairSharing"), "10m"
            )
        },
        {"coolDown": {"base": "5m", "max": "1h", "window": "24h"}},
        {"maxPreemptionsPerHour": PER_HOUR},
        {"candidateOrder": "LeastLostWork"},
    ]
    spec: dict[str, Any] = {}
    for each in random.sample(limits, random.randint(1, 4)):
        spec |= each
    policy(made, **spec)
    found: list[tuple[float, Preempt, float, str]] = []
    names: list[str] = []
    now = START
    while now < HORIZON:
        for _ in range(random.randint(0, 2)):
            name = f"w{len(names)}"
            names.append(name)
            made.workload(
                name,
                random.choice("abc"),
                random.randint(1, 4),
                prio=random.randint(0, 3),
                created=now - START,
            )
        running = sorted(made.reserved())
        if running and random.random() < 0.3:
            made.finish(random.choice(running))
        found += settle(made, now)
        wake = made.engine.next_wake(made.now)
        now = max(made.now, min(now + random.uniform(60, 1800), wake if wake is not None else HORIZON))
    check(spec, found)
    # Once every protection is over, removing the policy changes nothing.
    for _ in range(200):
        wake = made.engine.next_timer()
        if wake is None:
            break
        check(spec, settle(made, max(made.now, wake)))
    assert made.engine.next_timer() is None, "it comes to rest"
    policies_off(made)


def policies_off(made: World) -> None:
    with made.engine.fork() as fork:
        fork.apply(Removed("PreemptionPolicy", "", "all"))
        decisions = fork.cycle(made.now)
    assert not [each for each in decisions if isinstance(each, Preempt)], "a policy keeps it pending for good"


def check(spec: dict[str, Any], found: list[tuple[float, Preempt, float, str]]) -> None:
    turns: dict[tuple[str, ...], tuple[str, float, float]] = {}
    issued: dict[str, list[float]] = {}
    for at, decision, admitted, queue in found:
        if "minAdmitDuration" in spec:
            assert at >= admitted + MINIMUM
        pair = tuple(sorted((queue, decision.cluster_queue)))
        if "coolDown" in spec and queue != decision.cluster_queue:
            by, last, wait = turns.get(pair, (queue, at, 0.0))
            if by != queue:
                wait = min(wait * 2, LONGEST) if wait else BASE
                assert at >= last + wait
            turns[pair] = (queue, at, wait)
        if "maxPreemptionsPerHour" in spec:
            before = [each for each in issued.get(queue, ()) if each + 3600 > at]
            # One decision may preempt several; none begins once the limit is reached.
            assert len([each for each in before if each < at]) < PER_HOUR
            issued.setdefault(queue, []).append(at)
