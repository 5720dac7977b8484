"""A dump holds the whole state: an engine loaded from it dumps the same and decides the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_world import World
from hypothesis import given
from hypothesis import strategies as st
from test_engine_properties import Plan, build, plans, relaxed

from pykueue.api import DecodeError
from pykueue.engine import AdmissionFairSharing, Engine, Options, Preempt
from pykueue.engine.dump import dump, load


class Twins:
    """An engine and one loaded from its dump: whatever happens to one happens to both."""

    def __init__(self, engine: Engine) -> None:
        text = json.dumps(dump(engine))
        self.one, self.other = engine, load(json.loads(text))
        assert json.dumps(dump(self.other)) == text
        self.other.check()

    def cycle(self, now: float) -> Any:
        decisions = self.one.cycle(now)
        assert self.other.cycle(now) == decisions
        return decisions

    def __getattr__(self, name: str) -> Any:
        def both(*args: Any) -> Any:
            getattr(self.other, name)(*args)
            return getattr(self.one, name)(*args)

        return both


def twins(made: World) -> World:
    """The world goes on with an engine and its twin."""
    made.driver.engine = Twins(made.engine)  # type: ignore[assignment]
    return made


def same_again(made: World) -> None:
    both = made.engine
    assert isinstance(both, Twins)
    assert dump(both.one) == dump(both.other)
    both.check()


@pytest.mark.interpreted
@relaxed
@given(plans(), st.lists(st.tuples(st.sampled_from("cfrdn"), st.integers(0, 9)), max_size=12), st.data())
def test_engine_loaded_from_a_dump_dumps_and_decides_the_same(
    plan: Plan, steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    made = build(plan)
    at = data.draw(st.integers(0, len(steps)))
    for number, (what, which) in enumerate([*steps, ("c", 0), ("c", 0), ("r", 0), ("c", 0), ("c", 0)]):
        if number == at:
            twins(made)
        step(made, plan, what, which)
    same_again(made)


def step(made: World, plan: Plan, what: str, which: int) -> None:
    names = sorted(key.partition("/")[2] for key in made.driver.workloads)
    name = names[which % len(names)] if names else ""
    if what == "c":
        made.cycle(carry_out=which % 3 > 0)
    elif what == "f" and name in made.reserved():
        made.driver.finish(made.key(name))
    elif what == "r":
        for each in names:
            if made.driver.workloads[made.key(each)].condition_is("Evicted"):
                made.release(each)
    elif what == "d" and name:
        made.finish(name)
    elif what == "n":
        queue = plan.queues[which % len(plan.queues)]
        made.queue(**{**queue, "strict": not queue["strict"]})


@pytest.mark.interpreted
def test_scan_progress_and_preemptors_in_progress_survive() -> None:
    made = World()
    for flavor in "fgh":
        made.flavor(flavor)
    quotas = {flavor: {"cpu": "4"} for flavor in "fgh"}
    made.queue("q", quotas, within="LowerPriority", fungibility=["TN", "TN"])
    for number, flavor in enumerate("fgh"):
        made.running(f"low{number}", "q", 4, prio=number, flavor=flavor)
    made.workload("high", "q", 4, prio=9)
    made.cycle()
    twins(made)
    for _ in range(3):
        made.cycle()
    for name in ("low0", "low1", "low2"):
        if made.driver.workloads[made.key(name)].condition_is("Evicted"):
            made.release(name)
    made.cycle()
    same_again(made)
    assert "high" in made.reserved()


@pytest.mark.interpreted
def test_past_usage_survives() -> None:
    sharing = AdmissionFairSharing(
        usage_half_life=3600.0, sampling_interval=60.0, resource_weights={"cpu": 2.0}
    )
    made = World(Options(admission_fair_sharing=sharing))
    made.flavor()
    scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    made.queue("q", {"cpu": "4"}, local=False, **scope)
    made.local("heavy", "q")
    made.local("light", "q")
    made.workload("first", "heavy", 4)
    made.cycle()
    made.driver.advance(made.now + 600)
    made.workload("again", "heavy", 4)
    made.workload("other", "light", 4)
    made.cycle()
    assert dump(made.engine)["items"][-1]["spec"]["localQueues"]["default/heavy"]["consumed"]["cpu"] != "0"
    twins(made)
    made.driver.finish("default/first")
    made.cycle()
    assert made.reserved() == {"other"}
    same_again(made)


@pytest.mark.interpreted
def test_backoff_survives() -> None:
    made = World()
    made.flavor()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 4, status={"requeueState": {"count": 1, "requeueAt": "2023-11-14T22:23:20Z"}})
    made.cycle()
    twins(made)
    assert made.engine.next_wake(made.now) == made.engine.other.next_wake(made.now)  # type: ignore[attr-defined]
    made.driver.advance(made.now + 601)
    made.cycle()
    assert made.reserved() == {"w"}


def test_options_survive() -> None:
    options = Options(gates={"PriorityBoost": True}, fair_sharing=True, exclude_resource_prefixes=("x",))
    assert load(dump(Engine(options))).options == options


@pytest.mark.interpreted
def test_workload_whose_admission_is_not_written_yet_keeps_its_quota() -> None:
    made = World()
    made.flavor()
    made.queue("q", {"cpu": "4"}, within="LowerPriority")
    made.workload("low", "q", 4)
    made.cycle(carry_out=False)
    made.workload("high", "q", 4, prio=1)
    twins(made)
    assert [type(each) for each in made.cycle(carry_out=False)][:1] == [Preempt]
    made.engine.forget("default/low")
    made.cycle()
    same_again(made)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"items": 3}, "dump: items: Expected `array`"),
        ({"items": []}, r"dump: items: there is no EngineState \(pykueue.io/v1alpha1\) among them"),
    ],
)
def test_what_is_no_dump_is_refused(change: dict[str, Any], error: str) -> None:
    with pytest.raises(DecodeError, match=error):
        load({**dump(Engine()), **change})


def test_state_of_the_wrong_shape_is_refused_by_field() -> None:
    document = dump(Engine())
    document["items"][-1]["spec"]["cycle"] = "three"
    with pytest.raises(DecodeError, match=r"EngineState: spec\.cycle: Expected `int`, got `str`"):
        load(document)
