"""Entries of a story as bytes: read back, they are what they were."""

from __future__ import annotations

from typing import get_args

import pytest
from bench.engine.harness import run
from bench.engine.loads import LOADS

from pykueue.api import kueue
from pykueue.api.quantity import Quantity
from pykueue.engine import Admit, Assign, Change, Decision, Delay, Entry, Evict, Explanation, Preempt, Requeue
from pykueue.engine.entry_packing import pack
from pykueue.engine.explanation import Attempt


def admission(*amounts: Quantity) -> kueue.Admission:
    usage = {f"r{number}": amount for number, amount in enumerate(amounts)}
    assigned = kueue.PodSetAssignment(name="main", flavors={"r0": "f"}, resource_usage=usage, count=3)
    return kueue.Admission(cluster_queue="team-a", pod_set_assignments=[assigned])


@pytest.mark.parametrize(("load", "size"), [("baseline", 0.01), ("fair", 0.01), ("topology", 0.003)])
def test_decisions_of_a_load_are_read_as_they_were(load: str, size: float) -> None:
    stories: list[list[Entry]] = []
    run(
        LOADS[load][0](size),
        lambda now, decisions: stories.append([Entry(7, now, 3, each, 2, now + 1) for each in decisions]),
    )
    read = [packed.entries() for packed in pack(stories)]
    assert read == stories
    assert repr(read) == repr(stories)
    assert any(type(entry.what) is Admit for story in stories for entry in story)


def test_entries_of_every_kind_are_read_as_they_were() -> None:
    amounts = Quantity.of(6 << 40, "BinarySI"), Quantity.of_milli(1500), Quantity.of(10**9)
    attempt = Attempt("main", "cpu", "f", "Fit", levels=())
    explanation = Explanation([attempt], counts={"main": 2})
    kinds: list[Change | Decision] = [
        Change("Workload a/b", "spec.priority", "1", "2", "Why", "text"),
        Admit("a/b", "team-a", admission(*amounts), True, 1.5, 3, explanation),
        Preempt(
            "a/b", "InClusterQueue", "a/c", "uid", "team-a", ("all", "team-a"), ("team-b",), 3, {"cpu": 7}
        ),
        Requeue("a/b", "team-a", "WaitingForQuota", "NoFit", True, 3, explanation),
        Assign("a/b", "team-a", admission(*amounts), True, 3),
        Evict("a/b", "NodeFailures", "a node failed", "team-a", 3),
        Delay("a/b", "team-a", "no domain", 12.5, 3),
    ]
    assert {type(each) for each in kinds} == {Change, *get_args(Decision)}
    entries = [Entry(number, 1.25, 4, what) for number, what in enumerate(kinds)]
    (packed,) = pack([entries])
    assert packed.entries() == entries
    assert repr(packed.entries()) == repr(entries)


def test_numbers_beyond_64_bits_are_not_packed() -> None:
    attempt = Attempt("main", "cpu", "f", "Fit", requested=1 << 70)
    entry = Entry(1, 1.0, 1, Admit("a/b", "q", admission(), True, 1.0, 1, Explanation([attempt])))
    assert pack([[entry], []]) == []
    huge = Entry(1, 1.0, 1, Assign("a/b", "q", admission(Quantity.of(1 << 70)), True, 1))
    assert pack([[huge]])[0].entries() == [huge]
