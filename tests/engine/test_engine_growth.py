"""What a cycle costs in one large tree, counted in calls of functions, and what its searches share."""

import cProfile
import pstats
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from bench.engine import objects, shapes
from bench.engine.harness import Arrival, Shape, run

from pykueue.api import kueue
from pykueue.api.meta import LabelSelector
from pykueue.api.quantity import Quantity
from pykueue.engine import Options
from pykueue.engine.cycle.evaluation import Evaluation, Evaluator

#: What grows with the queues that a search or a cycle goes through.
PARTS = ("engine/preemption", "engine/fair_sharing", "engine/quota", "engine/cycle")


def calls(shape: Shape) -> int:
    """Calls of functions of these parts in a run."""
    profiler = cProfile.Profile()
    profiler.enable()
    run(shape)
    profiler.disable()
    stats: Any = pstats.Stats(profiler)
    return sum(values[1] for (file, *_), values in stats.stats.items() if any(part in file for part in PARTS))


@pytest.mark.parametrize("load", [shapes.contended, shapes.wide], ids=["fair sharing", "reclaiming"])
def test_a_tree_with_four_times_the_queues_takes_four_times_the_calls(load: Any) -> None:
    small, large = (calls(load(queues)) for queues in (20, 80))
    assert large < 4.1 * small


def random_tree(seed: int, fair_sharing: bool) -> Shape:
    """Cohorts with limits, weights and a load that preempts all the time."""
    random = Random(seed)
    names = ("f0", "f1")[: random.choice((1, 2))]
    setup: list[object] = [objects.flavor(name) for name in names]
    setup += [objects.cohort("c0"), *(objects.cohort(f"c{i}", f"c{i // 2}") for i in range(1, 5))]
    for number in range(12):
        groups = [
            kueue.ResourceGroup(
                covered_resources=["cpu"],
                flavors=[
                    kueue.FlavorQuotas(
                        name=name,
                        resources=[
                            kueue.ResourceQuota(
                                name="cpu",
                                nominal_quota=Quantity.of(random.randrange(2, 9)),
                                borrowing_limit=random.choice((None, None, Quantity.of(6))),
                                lending_limit=random.choice((None, None, Quantity.of(2))),
                            )
                        ],
                    )
                    for name in names
                ],
            )
        ]
        spec = kueue.ClusterQueueSpec(
            cohort_name=f"c{random.randrange(5)}",
            resource_groups=groups,
            namespace_selector=LabelSelector(),
            fair_sharing=kueue.FairSharing(weight=Quantity.of(random.choice((0, 1, 1, 2)))),
            preemption=kueue.ClusterQueuePreemption(
                reclaim_within_cohort=random.choice(("Any", "LowerPriority")),
                within_cluster_queue=random.choice(("Never", "LowerPriority")),
            ),
        )
        queue = objects.cluster_queue(f"q{number}", {})
        setup += [
            type(queue)(metadata=queue.metadata, spec=spec),
            objects.local_queue(f"q{number}", f"q{number}"),
        ]

    def arrivals() -> Iterator[Arrival]:
        for number in range(80):
            yield Arrival(
                number // 10 * 200,
                "work",
                f"w{number}",
                f"q{random.randrange(12)}",
                random.randrange(1, 6),
                random.randrange(4),
                random.randrange(5, 30) * 100,
            )

    return Shape(f"tree {seed}", setup, arrivals(), options=Options(fair_sharing=fair_sharing), until=5_000)


@pytest.mark.interpreted
@pytest.mark.parametrize("fair_sharing", [False, True], ids=["classical", "fair sharing"])
def test_what_searches_of_a_cycle_share_is_what_one_alone_would_find(
    fair_sharing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = Evaluator.evaluate
    again = 0

    def compared(self: Evaluator, *args: Any, context: Any, already_targeted: Any, **more: Any) -> Evaluation:
        nonlocal again
        found = evaluate(self, *args, context=context, already_targeted=already_targeted, **more)
        if context.version:
            again += 1
            excluded = {*already_targeted, *context.gone}
            alone = evaluate(self, *args, context=self.context(0), already_targeted=excluded, **more)
            assert (alone.targets, repr(alone.report)) == (found.targets, repr(found.report))
            assert repr(alone.assignment.attempts) == repr(found.assignment.attempts)
        return found

    monkeypatch.setattr(Evaluator, "evaluate", compared)
    for seed in range(4):
        run(random_tree(seed, fair_sharing))
    assert again > 10
