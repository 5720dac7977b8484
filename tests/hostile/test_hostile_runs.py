"""Generated requests from clients that mean ill: whatever is sent, the server answers, and at a bounded cost.

For every request: no answer of 500 and more that is not meant, nothing logged as an error, CPU of at most 20
times an ordinary create of the same size, no callback of the loop over 100 ms. How it is done and how a
failure is played again: docs/develop/testing.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hostile_framing import Framing
from hostile_meter import Meter, metered_loop
from hostile_requests import Requests, published
from hostile_run import Make, Runner

#: Runs, and seconds after which no other is begun, where no time is asked for.
RUNS, SECONDS = 10, 30.0


@pytest.fixture
def meter() -> Iterator[Meter]:
    with metered_loop() as meter:
        yield meter


def _play(config: pytest.Config, meter: Meter, make: Make) -> None:
    seconds = config.getoption("--hostile-seconds", None)
    seed = config.getoption("--hostile-seed", None) or 0
    runner = Runner(meter, make)
    end = time.monotonic() + (seconds or SECONDS)
    number = 0
    while time.monotonic() < end and (seconds is not None or number < RUNS):
        runner.run(seed + number)
        number += 1
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(runner.codes.items()))
    print(f"{runner.requests} requests in {number} runs from seed {seed}; answers by code: {codes}")
    assert not runner.failures, "\n\n".join(str(failure) for failure in runner.failures)


def test_requests_on_every_kind_and_verb(pytestconfig: pytest.Config, meter: Meter) -> None:
    _play(pytestconfig, meter, lambda rng, world: Requests(rng, *published(world)))


def test_framing_and_websocket_frames(pytestconfig: pytest.Config, meter: Meter) -> None:
    _play(pytestconfig, meter, lambda rng, world: Framing(rng))
