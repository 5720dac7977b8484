"""BackfillPolicies: reservations, what may start before them, and what an explanation says of it."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import START, World

from pykueue.api.meta import format_time
from pykueue.engine import Admit, DecisionLog, Options
from pykueue.engine.dump import dump, load
from pykueue.engine.events import Removed
from pykueue.engine.explain.render import message, proof_text, reason_text
from pykueue.engine.story import text


def policy(world: World, name: str = "hpc", **spec: Any) -> None:
    world.apply(
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "BackfillPolicy",
            "metadata": {"name": name, "uid": name},
            "spec": spec,
        }
    )


def job(world: World, name: str, cpus: int, seconds: int | None, queue: str = "a", **more: Any) -> None:
    limit = {} if seconds is None else {"maximumExecutionTimeSeconds": seconds}
    world.workload(name, queue, cpus, **limit, **more)


def busy(**spec: Any) -> World:
    """Six of ten cpus are used for 1000 seconds, and the first in order requests eight for as long."""
    made = World()
    made.flavor()
    made.queue("a", {"cpu": "10"})
    if spec:
        policy(made, **spec)
    made.running("first", "a", 6, reserved=0, maximumExecutionTimeSeconds=1000)
    job(made, "big", 8, 1000)
    return made


def names(made: World) -> list[str]:
    return [name for _, name in made.admitted]


def settle(world: World, at: float) -> None:
    """Cycles at a time until nothing more happens."""
    world.driver.advance(at)
    world.engine.tick(at)
    world.stable()


def test_without_a_policy_workloads_start_as_they_fit() -> None:
    made = busy()
    job(made, "long", 3, 5000)
    made.stable()
    assert names(made) == ["long"]
    assert "reserved" not in message(made.last["big"])


def test_workload_starts_before_the_first_if_it_ends_before_its_reservation_or_needs_what_is_spare() -> None:
    made = busy(depth=1)
    job(made, "long", 3, 5000)
    job(made, "spare", 2, 5000)
    job(made, "short", 2, 900)
    made.stable()
    assert names(made) == ["spare", "short"]
    assert made.reasons["long"] == "Waiting"
    start = format_time(START + 1000)
    assert message(made.last["big"]).endswith(
        f"Capacity is reserved for it from {start} (BackfillPolicy hpc, declared run times)"
    )
    assert message(made.last["long"]) == (
        f"Would delay default/big, for which capacity is reserved from {start} (BackfillPolicy hpc)"
    )
    spare, short = made.last["spare"], made.last["short"]
    assert isinstance(spare, Admit)
    assert isinstance(short, Admit)
    assert spare.explanation.backfill is not None
    assert short.explanation.backfill is not None
    assert proof_text(spare.explanation.backfill) == (
        f"Admitted before default/big: needs only what is spare beside its reservation at {start} "
        "(BackfillPolicy hpc, declared run times)"
    )
    assert proof_text(short.explanation.backfill) == (
        f"Admitted before default/big: ends by {format_time(short.explanation.backfill.end)}, before "
        f"its reservation at {start} (BackfillPolicy hpc, declared run times)"
    )
    assert short.explanation.backfill.end < START + 1000


def test_policy_replaces_strict_fifo_too() -> None:
    made = World()
    made.flavor()
    made.queue("a", {"cpu": "10"}, strict=True)
    made.running("first", "a", 6, reserved=0, maximumExecutionTimeSeconds=1000)
    job(made, "big", 8, 1000)
    job(made, "short", 2, 900)
    made.stable()
    assert names(made) == []
    policy(made)
    made.stable()
    assert names(made) == ["short"]
    made.driver.apply(Removed("BackfillPolicy", "", "hpc"))
    job(made, "shorter", 1, 10)
    made.stable()
    assert names(made) == ["short"], "StrictFIFO again"


@pytest.mark.parametrize("spec", [{"depth": 1}, {"depth": 2}, {"strategy": "Conservative"}])
def test_depth_decides_how_many_workloads_have_reservations(spec: dict[str, Any]) -> None:
    made = busy(**spec)
    job(made, "second", 9, 500)  # after `big`
    job(made, "third", 2, 3000)  # spare beside `big`, but not beside `second`
    made.stable()
    has_one = spec != {"depth": 1}
    assert names(made) == ([] if has_one else ["third"])
    assert ("Capacity is reserved" in message(made.last["second"])) == has_one


def test_workload_without_a_limit_is_assumed_to_run_as_long_as_the_policy_says() -> None:
    made = busy(assumedRunTime="15m")
    job(made, "short", 3, None)
    made.stable()
    assert names(made) == ["short"]
    assert "assumed run times" in proof_text(made.last["short"].explanation.backfill)
    made = busy(assumedRunTime="20m")
    job(made, "long", 3, None)
    made.stable()
    assert names(made) == []


def test_workload_that_runs_for_longer_than_assumed_is_assumed_to_need_twice_the_time() -> None:
    made = World()
    made.flavor()
    made.queue("a", {"cpu": "10"})
    policy(made, assumedRunTime="1000s")
    made.running("first", "a", 6, reserved=0)
    job(made, "big", 8, 1000)
    made.stable()
    assert f"from {format_time(START + 1000)}" in message(made.last["big"])
    job(made, "later", 3, 1500)
    made.stable()
    assert names(made) == []
    settle(made, START + 1001)
    assert f"from {format_time(START + 2000)}" in message(made.last["big"])
    job(made, "now", 2, 900)
    made.stable()
    assert names(made) == ["now"]


def test_early_end_makes_the_reservation_earlier() -> None:
    made = busy(depth=1)
    made.stable()
    made.finish("first")
    made.stable()
    assert names(made) == ["big"]
    admitted = made.last["big"]
    assert admitted.explanation.shadow.start == START + 1000, "what it was promised first"


def test_higher_priority_goes_first_and_gets_the_reservation() -> None:
    made = busy(depth=1)
    made.stable()
    job(made, "urgent", 10, 100, prio=5)
    made.stable()
    assert "Capacity is reserved" in message(made.last["urgent"])
    job(made, "spare", 2, 5000)
    made.stable()
    assert names(made) == [], "beside the urgent one nothing is spare"


def test_nominal_quota_is_available_at_any_time_borrowed_quota_only_beside_reservations() -> None:
    made = World()
    made.flavor()
    made.queue("a", {"cpu": "5"}, cohort="all")
    made.queue("b", {"cpu": "3"}, cohort="all")
    made.queue("c", {"cpu": "2"}, cohort="all")
    policy(made, cohort="all")
    made.running("first", "a", 5, reserved=0, maximumExecutionTimeSeconds=1000)
    job(made, "big", 10, 1000)
    job(made, "own", 3, 5000, queue="b")
    job(made, "borrows", 1, 5000, queue="b")
    made.stable()
    assert names(made) == ["own"]
    assert made.reasons["borrows"] == "Waiting"


def test_removing_the_first_workload_or_the_policy_frees_what_was_reserved() -> None:
    for removed in (Removed("Workload", "default", "big"), Removed("BackfillPolicy", "", "hpc")):
        made = busy(depth=1)
        job(made, "long", 3, 5000)
        made.stable()
        assert names(made) == []
        made.driver.apply(removed)
        made.stable()
        assert names(made) == ["long"]


def test_workload_that_capacity_cannot_help_has_no_reservation() -> None:
    made = busy(depth=1)
    made.finish("big")
    job(made, "impossible", 11, 1000)
    job(made, "long", 3, 5000)
    made.stable()
    assert names(made) == ["long"]


def test_dump_holds_the_policy_and_what_was_decided() -> None:
    made = busy(depth=1)
    job(made, "long", 3, 5000)
    made.stable()
    engine = load(dump(made.engine))
    assert dump(engine) == dump(made.engine)


def test_trial_leaves_no_trace() -> None:
    made = busy(depth=1)
    job(made, "long", 3, 5000)
    made.stable()
    before = dump(made.engine)
    with made.engine.fork() as trial:
        trial.apply(Removed("BackfillPolicy", "", "hpc"))
        decisions = [each for _ in range(3) for each in trial.cycle(made.now)]
        assert [each.key for each in decisions if isinstance(each, Admit)] == ["default/long"]
    made.engine.check()
    assert dump(made.engine) == before
    job(made, "spare", 2, 5000)
    made.stable()
    assert names(made) == ["spare"]


def test_under_fair_sharing_reservations_bind_within_their_cluster_queue() -> None:
    made = World(Options(fair_sharing=True))
    made.flavor()
    made.cohort("all", quotas={"cpu": "10"})
    for name in "ab":
        made.queue(name, {"cpu": "0"}, cohort="all")
    policy(made)
    made.running("first", "a", 6, reserved=0, maximumExecutionTimeSeconds=1000)
    job(made, "big", 8, 1000)
    job(made, "long", 3, 5000)
    job(made, "other", 3, 5000, queue="b")
    made.stable()
    assert names(made) == ["other"]


def test_story_of_a_workload_says_why_it_started_before_another() -> None:
    made = World(log=DecisionLog())
    made.flavor()
    made.queue("a", {"cpu": "10"})
    policy(made)
    made.running("first", "a", 6, reserved=0, maximumExecutionTimeSeconds=1000)
    job(made, "big", 8, 1000)
    job(made, "short", 2, 900)
    made.stable()
    assert "; Admitted before default/big: ends by " in text(made.engine.story("default/short"))
    assert "Capacity is reserved for it from " in text(made.engine.story("default/big"))


def test_question_about_a_pending_workload_is_answered_with_its_reservation_and_changes_nothing() -> None:
    made = busy(depth=1)
    job(made, "long", 3, 5000)
    made.stable()
    before = dump(made.engine)
    first, behind = made.engine.explain("default/big"), made.engine.explain("default/long")
    assert first is not None
    assert behind is not None
    assert "Capacity is reserved for it from " in reason_text(first)
    assert reason_text(behind).startswith("Would delay default/big, ")
    assert dump(made.engine) == before
