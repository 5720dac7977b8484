"""An engine that gets what another one received, from any moment on, decides the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from test_engine_dump import step
from test_engine_properties import Plan, build, plans, relaxed

from pykueue.engine import Admit, Decision, Preempt
from pykueue.engine.dump import load
from pykueue.engine.events import Event
from pykueue.engine.recording import carry_out, cycle_entry, event_entry, forget_entry, snapshot


class Entries:
    """A recorder that keeps everything in memory, as it is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def applied(self, event: Event, at: float) -> None:
        self.lines.append(json.dumps(event_entry(event, at)))

    def decided(self, decisions: Sequence[Decision], now: float) -> None:
        self.lines.append(json.dumps(cycle_entry(decisions, now)))

    def forgot(self, key: str, what: str) -> None:
        self.lines.append(json.dumps(forget_entry(key, what)))


#: Steps of `test_engine_dump`, and decisions that are not carried out: x.
STEPS = st.lists(st.tuples(st.sampled_from("ccfrdnxx"), st.integers(0, 9)), max_size=16)


@relaxed
@given(plans(), STEPS, st.data())
def test_what_is_recorded_from_any_moment_on_leads_to_the_same_decisions(
    plan: Plan, steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    made = build(plan)
    at = data.draw(st.integers(0, len(steps)))
    entries = Entries()
    state: dict[str, Any] = {}
    for number, (what, which) in enumerate([*steps, ("c", 0), ("r", 0), ("c", 1)]):
        if number == at:
            state = json.loads(json.dumps({"items": snapshot(made.engine)}))
            made.engine.recorder = entries
        if what == "x":
            decisions = [each for each in made.engine.cycle(made.now) if isinstance(each, Admit | Preempt)]
            for decision in decisions:
                if isinstance(decision, Admit):
                    made.engine.forget(decision.key)
                else:
                    made.engine.forget_preemption(decision.key)
        else:
            step(made, plan, what, which)
        # Questions between the calls change nothing.
        made.engine.has_heads()
        made.engine.next_wake(made.now)
        with made.engine.fork() as trial:
            trial.cycle(made.now)
    other = load(state)
    for line in entries.lines:
        entry = json.loads(line)
        found = carry_out(other, entry)
        assert found is None or json.loads(json.dumps(found)) == entry["cycle"]
    other.check()
