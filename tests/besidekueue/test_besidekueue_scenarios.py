"""Random scenarios end with Kueue's manager as they end with ours."""

from __future__ import annotations

import pytest
from besidekueue_players import compare


@pytest.mark.parametrize("kind", ["elastic", "claims"])
def test_scenarios_end_in_the_same_state(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert compare(kind, range(1, 9), tmp_path_factory.mktemp(kind)) == {}
