"""Random scenarios, and one that records show otherwise, end with Kueue's manager as they end with ours."""

from __future__ import annotations

import pytest
from besidekueue_players import compare, differences, play_kueue, play_ours
from besidekueue_scenarios import KINDS, preempted_variant


@pytest.mark.parametrize("kind", KINDS)
def test_scenarios_end_in_the_same_state(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert compare(kind, range(1, 5), tmp_path_factory.mktemp(kind)) == {}


def test_preempted_variant_lets_the_others_of_its_parent_go_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    scenario = preempted_variant()
    ours = play_ours([scenario])[scenario.seed]
    kueue = play_kueue([scenario], tmp_path_factory.mktemp("preempted"))[scenario.seed]
    assert differences(scenario, ours, kueue) == []
    (workload,) = kueue[-1]["jobs"]["j0"]["workloads"]
    assert workload["admission"][0]["flavors"] == {"cpu": f"f1-{scenario.seed}"}
