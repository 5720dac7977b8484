"""Random clusters and loads: no node is filled beyond its capacity, in any mode and with any gates.

A longer run: `PYKUEUE_TOPOLOGY_RUNS=20000 python -m pytest tests/engine/topology/test_topology_scenarios.py`.
"""

from __future__ import annotations

import os

import pytest
from topology_probes import Probes
from topology_scenarios import Scenario

RUNS = int(os.environ.get("PYKUEUE_TOPOLOGY_RUNS", "160"))
FIRST = int(os.environ.get("PYKUEUE_TOPOLOGY_SEED", "0"))
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_placements_keep_to_capacity_levels_slices_and_filters_whatever_happens(part: int) -> None:
    for seed in range(FIRST + part, FIRST + RUNS, PARTS):
        assert not Scenario(seed).run()


@pytest.mark.parametrize("part", range(PARTS))
def test_a_unit_is_placed_exactly_if_brute_force_finds_a_place(part: int) -> None:
    """And in as deep a domain as it may be; where it is not, the reason tells whether it ever could be."""
    for seed in range(FIRST + part, FIRST + RUNS // 4, PARTS):
        scenario = Probes(seed, steps=12)
        assert not scenario.run()
        assert not scenario.probe()
