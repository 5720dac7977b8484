"""Keys of what expressions read: equal exactly where the expression sees the same."""

from __future__ import annotations

import random
from typing import Any

import orjson

from pykueue.api.cel.keys import key_function
from pykueue.api.cel.program import Program
from pykueue.api.cel.reads import Reads, project

NAMES = ("a", "b", 'type\'s "name"\n\\')
SCALARS: tuple[Any, ...] = ("", "1", "a", "null", 1, 1.0, True, False, 0, None)


def some_value(rng: random.Random, level: int = 0) -> Any:
    kind = rng.random()
    if level > 3 or kind < 0.4:
        return rng.choice(SCALARS)
    if kind < 0.7:
        return {name: some_value(rng, level + 1) for name in NAMES if rng.random() < 0.6}
    return [some_value(rng, level + 1) for _ in range(rng.randrange(3))]


def some_reads(rng: random.Random, level: int = 0) -> Reads:
    if level > 3 or rng.random() < 0.3:
        return Reads(whole=True)
    fields = {name: some_reads(rng, level + 1) for name in NAMES if rng.random() < 0.5}
    element = some_reads(rng, level + 1) if rng.random() < 0.4 else None
    return Reads(False, fields, element, size=rng.random() < 0.3)


def test_keys_are_equal_only_where_what_is_read_is() -> None:
    equal = 0
    for seed in range(400):
        rng = random.Random(seed)
        reads = {name: some_reads(rng) for name in ("self", "oldSelf")}
        key = key_function(reads)
        seen: dict[Any, bytes] = {}
        for _ in range(60):
            values = {"self": some_value(rng), "oldSelf": some_value(rng)}
            shown = orjson.dumps({name: project(values[name], one) for name, one in reads.items()})
            found = key(values)
            assert found == key(orjson.loads(orjson.dumps(values)))
            equal += found in seen
            assert seen.setdefault(found, shown) == shown
    assert equal > 1000


def test_what_is_deep_or_wide_still_has_a_key() -> None:
    deep, value, other = Reads(whole=True), 1, 2
    for _ in range(60):
        deep, value, other = Reads(fields={"a": Reads(element=deep)}), {"a": [value]}, {"a": [other]}
    wide = Reads(fields={f"f{n}": Reads(whole=True) for n in range(5000)})
    for reads, one, two in ((deep, value, other), (wide, {"f4999": 1}, {"f4999": 2})):
        key = key_function({"self": reads})
        assert key({"self": one}) != key({"self": two})
        assert key({"self": one}) == key({"self": one})


def test_what_differs_for_an_expression_is_not_mistaken_for_what_it_holds_for() -> None:
    program = Program("self.n == 1 && type(self.n) == int")
    assert program.holds({"self": {"n": 1, "m": "x"}})
    assert program.holds({"self": {"n": 1, "m": "y"}})
    assert not program.holds({"self": {"n": True}})
    assert not program.holds({"self": {"n": 1.0}})
    assert not program.holds({"self": {"n": "1"}})
    assert not program.holds({"self": {}})


def test_what_thousands_of_queues_hold_for_is_evaluated_once() -> None:
    """Rules compare names of queues, as Kueue's of a Workload do."""
    program = Program("oldSelf.queue == self.queue || oldSelf.state == 'idle'")
    evaluated = 0
    compiled = program._compiled

    class Counting:
        def eval(self, data: Any) -> Any:
            nonlocal evaluated
            evaluated += 1
            return compiled.eval(data=data)

    program._compiled = Counting()
    for _ in range(2):
        for number in range(4000):
            for state in ("idle", "busy"):
                one = {"queue": f"queue-{number}", "state": state}
                assert program.holds({"self": one, "oldSelf": one})
    assert evaluated == 8_000
