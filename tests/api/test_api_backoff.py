"""Exponential back-off."""

from __future__ import annotations

import pytest

from pykueue.api.backoff import exponential_delay


@pytest.mark.parametrize(
    ("base", "cap", "delays"),
    [
        (10.0, 600.0, [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]),
        (7200.0, 3600.0, [3600.0, 3600.0]),
        (0.0, 3600.0, [0.0, 0.0]),
    ],
)
def test_delay_doubles_up_to_the_cap(base: float, cap: float, delays: list[float]) -> None:
    assert [exponential_delay(base, cap, n) for n in range(len(delays))] == delays


def test_any_number_of_doublings_is_accepted() -> None:
    assert exponential_delay(0.005, 1000.0, 10**9) == 1000.0
    assert exponential_delay(5.0, 320.0, -1) == 5.0
