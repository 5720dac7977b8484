"""What holds for every tree, every load and every order of events."""

from __future__ import annotations

from typing import Any

from engine_plans import FLAVORS, Plan, build, plans, run
from engine_world import START, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykueue.engine import Admit, Options, Preempt
from pykueue.engine.preemption.classical import PreemptionRequest, restore, simulate_removal

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(plans())
def test_usage_stays_within_what_the_tree_allows(plan: Plan) -> None:
    run(build(plan))


@relaxed
@given(plans(), st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(plan: Plan, random: Any) -> None:
    """Objects of one moment may come in any order."""
    outcomes = []
    for shuffled in (False, True):
        made = World(Options(fair_sharing=plan.fair))
        steps: list[Any] = [lambda made=made, f=f: made.flavor(f) for f in FLAVORS]
        steps += [lambda made=made, c=c: made.cohort(*c) for c in plan.cohorts]
        steps += [lambda made=made, q=q: made.queue(**q) for q in plan.queues]
        steps += [lambda made=made, w=w, i=i: put(made, w, i) for i, w in enumerate(plan.workloads)]
        if shuffled:
            random.shuffle(steps)
        for step in steps:
            step()
        run(made)
        outcomes.append((made.admitted, made.preempted, made.reasons, made.cycles))
    assert outcomes[0] == outcomes[1]


def put(made: World, workload: dict[str, Any], number: int) -> None:
    """A workload whose uid does not depend on when it comes."""
    made._serial = number
    made.workload(**workload)


@relaxed
@given(plans(strict=False, most=8))
def test_who_fits_alone_gets_its_turn(plan: Plan) -> None:
    made = build(plan)
    started: set[str] = set()
    for _ in range(40):
        run(made)
        holding = made.reserved()
        if not holding:
            break
        started |= holding
        made.finish(*holding)
    for workload in plan.workloads:
        if workload["name"] in started:
            continue
        alone = build(plan, workloads=False)
        alone.workload(**workload)
        run(alone)
        assert alone.reserved() == set(), f"{workload['name']} fits alone and never started"


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Plan, dict[str, Any]]:
    """A full world and one workload that comes to it."""
    plan = draw(plans(most=12))
    return plan, plan.workloads.pop()


def victims_of(made: World, decisions: list[Any]) -> list[Preempt]:
    return [decision for decision in decisions if isinstance(decision, Preempt)]


@settings(relaxed, max_examples=100)
@given(crowded())
def test_preemption_takes_no_more_than_it_needs(case: tuple[Plan, dict[str, Any]]) -> None:
    plan, newcomer = case
    made = build(plan)
    run(made)
    made.workload(**{**newcomer, "prio": 3, "created": 0.5})
    state, evaluator = made.engine._state, made.engine._evaluator
    state.settle()
    info = state.workloads[f"default/{newcomer['name']}"]
    queue = info.queue
    assert queue is not None
    found = evaluator.evaluate(info, queue)
    chosen = [target for target, _ in found.targets]
    if not chosen:
        return
    usage = found.assignment.usage
    request = PreemptionRequest(
        info,
        queue,
        [(queue.flavor_usages[flavor_resource], amount) for flavor_resource, amount in usage.items()],
        (),
        None,
    )

    def minimal(borrowing: bool) -> bool:
        """Enough, and not enough without any one of them."""
        for target in chosen:
            simulate_removal(target)
        good = request.fits(borrowing)
        for target in chosen:
            restore(target)
            good = good and not request.fits(borrowing)
            simulate_removal(target)
        for target in chosen:
            restore(target)
        return good

    # The classical search may have had to stay within the own nominal quota, which is more than fitting.
    assert minimal(True) or (not plan.fair and minimal(False))
    made.engine.check()


@settings(relaxed, max_examples=100)
@given(plans(most=12))
def test_workload_within_nominal_quota_is_not_preempted_by_another_queue(plan: Plan) -> None:
    made = build(plan)
    for _ in range(60):
        if not made.engine.has_heads():
            break
        made.engine._state.settle()
        over = {
            name: {
                flavor_usage.flavor_resource
                for flavor_usage in queue.flavor_usages.values()
                if flavor_usage.usage > flavor_usage.subtree
            }
            for name, queue in made.engine._state.queues.items()
        }
        decisions = made.cycle()
        for decision in victims_of(made, decisions):
            info = made.engine._state.workloads[decision.key]
            own = made.engine._state.workloads[decision.preemptor].queue
            if info.queue is own:
                assert decision.reason == "InClusterQueue"
                assert own.within != "Never"
                continue
            assert own.reclaim != "Never"
            assert over[info.queue.name] & info.flavor_resources, (
                f"{decision.key} is within its queue's quota"
            )
            if own.reclaim == "LowerPriority":
                assert info.priority < made.engine._state.workloads[decision.preemptor].priority
        for decision in victims_of(made, decisions):
            made.release(decision.key.partition("/")[2])


@relaxed
@given(plans(), st.data())
def test_a_fork_leaves_nothing_behind(plan: Plan, data: st.DataObject) -> None:
    made = build(plan)
    for _ in range(data.draw(st.integers(0, 3))):
        made.cycle()
    names = [queue["name"] for queue in plan.queues]

    def seen() -> Any:
        engine = made.engine
        return (
            [engine.cluster_queue(name) for name in names],
            [engine.in_line(name) for name in names],
            [engine.workload(f"default/{w['name']}") for w in plan.workloads],
            engine.has_heads(),
        )

    before = seen()
    with made.engine.fork():
        workloads = dict(made.driver.workloads)
        for _ in range(data.draw(st.integers(1, 6))):
            match data.draw(st.sampled_from(["cycle", "finish", "queue", "flavor", "hold", "priority"])):
                case "cycle":
                    for decision in victims_of(made, made.cycle(carry_out=data.draw(st.booleans()))):
                        made.release(decision.key.partition("/")[2])
                case "finish" if made.workloads:
                    made.finish(data.draw(st.sampled_from(sorted(made.workloads))))
                case "queue":
                    made.queue(**{**plan.queues[0], "cohort": "", "quotas": {"f": {"cpu": "9"}}})
                case "flavor":
                    made.flavor("f", labels={"new": "label"})
                case "hold":
                    made.local(names[0], names[0], stopPolicy="Hold")
                case "priority" if made.workloads:
                    made.change(data.draw(st.sampled_from(sorted(made.workloads))), priority=7)
        made.driver.workloads = workloads
    made.engine.check()
    assert seen() == before


@relaxed
@given(plans(), st.data())
def test_the_books_are_right_whatever_happens(plan: Plan, data: st.DataObject) -> None:
    """`World` checks the engine after every event."""
    made = build(plan)
    waiting: list[str] = []
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(
            st.sampled_from(["cycle", "cycle", "finish", "evict", "queue", "cohort", "forget", "count"])
        ):
            case "cycle":
                decisions = made.cycle(carry_out=data.draw(st.booleans()))
                waiting += [decision.key for decision in decisions if isinstance(decision, Admit | Preempt)]
            case "finish" if made.workloads:
                made.finish(data.draw(st.sampled_from(sorted(made.workloads))))
            case "evict" if made.reserved():
                made.release(data.draw(st.sampled_from(sorted(made.reserved()))))
            case "queue":
                queue = dict(data.draw(st.sampled_from(plan.queues)))
                cohorts = ["", *[name for name, *_ in plan.cohorts]]
                made.queue(
                    **{**queue, "cohort": data.draw(st.sampled_from(cohorts)), "quotas": {"f": {"cpu": "5"}}}
                )
            case "cohort" if plan.cohorts:
                name, *_ = data.draw(st.sampled_from(plan.cohorts))
                made.cohort(name, data.draw(st.sampled_from(["", *[other for other, *_ in plan.cohorts]])))
            case "forget" if waiting:
                key = waiting.pop()
                made.engine.forget(key)
                made.engine.forget_preemption(key)
                made.engine.check()
            case "count" if made.workloads:
                name = data.draw(st.sampled_from(sorted(made.workloads)))
                made.status(name, reclaimablePods=[{"name": "p0", "count": 1}])
    assert made.now > START or made.cycles == 0
