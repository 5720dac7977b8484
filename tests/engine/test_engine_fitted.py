"""Run times of finished workloads as estimates: reservations with a stated probability, and their replay."""

from __future__ import annotations

from random import Random

import pytest
from engine_world import START, World

from pykueue.api.backfill_policies import promised_end
from pykueue.api.meta import format_time
from pykueue.engine.cycle import backfill
from pykueue.engine.dump import dump, load
from pykueue.engine.explain.render import message, proof_text
from pykueue.engine.fitted import ENOUGH, FittedRunTimes
from pykueue.engine.undo_log import UndoLog


def world(finished: int = ENOUGH, order: list[int] | None = None, **spec: object) -> World:
    """Finished workloads that ran for 10 s, 20 s, ...; six of ten cpus are used, the first requests eight."""
    made = World()
    made.flavor()
    made.queue("a", {"cpu": "10"})
    kind = {"apiVersion": "pykueue.io/v1alpha1", "kind": "BackfillPolicy"}
    made.apply({**kind, "metadata": {"name": "hpc", "uid": "hpc"}, "spec": spec})
    for number in order or range(finished):
        done(made, number)
    made.running("first", "a", 6, reserved=0)
    made.workload("big", "a", 8)
    return made


def done(made: World, number: int) -> None:
    name = f"done-{number}"
    made.running(name, "a", 1, reserved=-10 * (number + 1))
    condition = made.condition("Finished", True, "Succeeded", 0)
    status = made.workloads[name]["status"]
    made.status(name, **{**status, "conditions": [*status["conditions"], condition]})


def test_a_reservation_follows_from_finished_workloads_and_states_its_probability() -> None:
    made = world(fittedPercentile=90)
    made.workload("short", "a", 2, maximumExecutionTimeSeconds=100)
    made.workload("like", "a", 4)
    made.stable()
    start = format_time(START + 180)  # 90 % of 10 s to 200 s
    assert message(made.last["big"]).endswith(
        f"Capacity is reserved for it from {start} "
        "(BackfillPolicy hpc, fitted run times, each kept with a probability of 90 %)"
    )
    proof = made.last["short"].explanation.backfill
    assert (proof.kind, proof.probability, proof.declared) == ("EndsBefore", 90, False)
    assert promised_end(proof_text(proof)) == proof.end
    assert [name for _, name in made.admitted] == ["short"]


@pytest.mark.parametrize("finished", [0, ENOUGH - 1])
def test_with_too_few_finished_workloads_run_times_are_assumed(finished: int) -> None:
    made = world(finished, fittedPercentile=90, assumedRunTime="1h")
    made.stable()
    start = format_time(START + 3600)
    assert f"from {start} (BackfillPolicy hpc, assumed run times)" in message(made.last["big"])


def test_without_a_percentile_nothing_is_learnt() -> None:
    made = world()
    made.stable()
    assert made.engine._state.backfill.fitted.samples() == []
    assert "assumed run times" in message(made.last["big"])


def test_a_declared_limit_goes_before_what_is_fitted() -> None:
    made = world(fittedPercentile=90)
    made.change("first", maximumExecutionTimeSeconds=500)
    made.stable()
    assert f"from {format_time(START + 500)} (BackfillPolicy hpc, declared" in message(made.last["big"])


def test_workloads_that_run_already_are_estimated_once_enough_is_known() -> None:
    made = world(ENOUGH - 1, fittedPercentile=90)
    done(made, ENOUGH - 1)
    made.stable()
    assert f"from {format_time(START + 180)} (BackfillPolicy hpc, fitted" in message(made.last["big"])


def test_the_order_of_finished_workloads_has_no_influence_and_a_dump_has_all_that_is_known() -> None:
    order = list(range(ENOUGH))
    Random(1).shuffle(order)
    one, other = world(fittedPercentile=90), world(fittedPercentile=90, order=order)
    for made in (one, other):
        made.stable()
        assert list(made.engine._state.backfill.fitted.problems()) == []
    samples = one.engine._state.backfill.fitted.samples()
    assert len(samples) == ENOUGH
    assert [each.seconds for each in samples] == [
        each.seconds for each in sorted(other.engine._state.backfill.fitted.samples())
    ]
    engine = load(dump(one.engine))
    assert dump(engine) == dump(one.engine)
    assert engine.cycle(START + 1) == one.engine.cycle(START + 1)


def test_what_is_learnt_later_moves_no_end_of_a_running_workload_also_not_in_a_loaded_engine() -> None:
    made = world(fittedPercentile=90)
    made.stable()
    for number in range(1000, 1100):
        done(made, number)
    made.stable()
    engine = load(dump(made.engine))
    for each in (made.engine, engine):
        (end,) = each._state.queues["a"].ends
        assert end.at == START + 180
        assert each._state.backfill.fitted.estimate(end.info.obj, 90) > 10_000


def test_a_trial_takes_back_what_it_learnt() -> None:
    made = world(fittedPercentile=90)
    made.stable()
    before = dump(made.engine)
    with made.engine.fork():
        done(made, 500)
        assert len(made.engine._state.backfill.fitted.samples()) == ENOUGH + 1
    assert dump(made.engine) == before


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykueue.engine.fitted.KEPT", 3)
    made = world(0, fittedPercentile=90)
    for number in range(6):
        name = f"done-{number}"
        made.running(name, "a", 1, reserved=number)
        status = made.workloads[name]["status"]
        finished = made.condition("Finished", True, "Succeeded", number + 1)
        made.status(name, **{**status, "conditions": [*status["conditions"], finished]})
    fitted = made.engine._state.backfill.fitted
    assert [each.ended for each in fitted.samples()] == [START + at for at in (4, 5, 6)]
    assert list(fitted.problems()) == []
    assert FittedRunTimes(UndoLog()).samples() == []


def test_conservative_reserves_for_a_bounded_number_and_what_is_behind_them_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backfill, "RESERVATIONS_MAX", 2)
    made = world(0, strategy="Conservative")
    made.workload("next", "a", 8)
    made.workload("last", "a", 1, maximumExecutionTimeSeconds=1)
    made.stable()
    assert made.admitted == []
    assert made.reasons["last"] == "Waiting"
    assert "Would delay default/next" in message(made.last["last"])
    assert [each.key for each in made.engine.pending_reservations(START)] == ["default/big", "default/next"]
