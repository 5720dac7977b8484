"""The benchmark of the manager's CPU time by cause names what exists, and plays its load to the end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.causes.__main__ import CAUSES, measure
from bench.causes.meter import LOOP, SERVER, Meter
from bench.engine import shapes

from pykueue.clock import run_virtual


def test_the_parts_of_the_manager_that_are_measured_exist() -> None:
    for parts in CAUSES.values():
        for owner, names in parts:
            assert set(names) <= owner.__dict__.keys(), owner


def test_the_time_of_the_manager_is_counted_apart_from_that_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meter = Meter()
    monkeypatch.setattr("asyncio.events.Handle._run", meter.measured_callback())
    requests = run_virtual(lambda clock: measure(clock, shapes.large(0.1, 1), meter))
    assert requests > 50
    assert {LOOP, SERVER} <= meter.seconds.keys()
    assert not meter.runs
