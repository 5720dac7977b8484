"""The engine decides what the reference implementation decided on its recorded scenarios."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import recordings
import replay
import searches
import sequences
import yaml

KNOWN: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("known.yaml").read_text())
NOT_COMPARED: dict[str, dict[str, Any]] = KNOWN["not_compared"]
#: (file, scenario) -> why it differs.
DIFFERENCES: dict[tuple[str, str], str] = {
    (file, name): entry["reason"]
    for entry in KNOWN["differences"]
    for file, names in entry["scenarios"].items()
    for name in names
}


def feature_of(file: str, scenario: dict[str, Any]) -> str:
    """The feature for which a scenario is not compared, or nothing."""
    first = next(iter(scenario.get("features") or ()), "")
    for name, feature in NOT_COMPARED.items():
        if file in feature.get("files", ()) or (first and first in feature.get("features", ())):
            return name
        if scenario["name"] in feature.get("scenarios", {}).get(file, ()):
            return name
    return ""


class Listed(NamedTuple):
    """Where a scenario is, and what it is."""

    file: str
    number: int
    name: str
    kind: str
    feature: str
    """The feature for which it is not compared, or nothing."""


@cache
def scenarios() -> list[Listed]:
    """All scenarios."""
    return [
        Listed(file, number, scenario["name"], scenario["kind"], feature_of(file, scenario))
        for file in recordings.files()
        for number, scenario in enumerate(recordings.load(file))
    ]


def cases(*kinds: str) -> list[Any]:
    """The scenarios of these kinds that are compared."""
    return [
        pytest.param(each.file, each.number, id=f"{each.file.removesuffix('.jsonl')}: {each.name}")
        for each in scenarios()
        if each.kind in kinds and not each.feature
    ]


def compare(file: str, name: str, got: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Compares, unless the scenario is known to differ: then it must."""
    if (file, name) not in DIFFERENCES:
        assert got == recorded
    else:
        assert got != recorded, f"{file}: {name} matches now: remove it from known.yaml"


@pytest.mark.parametrize(("file", "number"), cases("cycle", "stable"))
def test_cycles_decide_as_recorded(file: str, number: int) -> None:
    scenario = recordings.scenario(file, number)
    compare(file, scenario["name"], *replay.outcome(scenario))


@pytest.mark.parametrize(("file", "number"), cases("steps"))
def test_events_and_cycles_decide_as_recorded(file: str, number: int) -> None:
    scenario = recordings.scenario(file, number)
    compare(file, scenario["name"], *sequences.outcome(scenario))


@pytest.mark.parametrize(("file", "number"), cases("preemption"))
def test_preemption_takes_the_recorded_targets(file: str, number: int) -> None:
    scenario = recordings.scenario(file, number)
    compare(file, scenario["name"], searches.targets(scenario), searches.expected_targets(scenario))


@pytest.mark.parametrize("name", NOT_COMPARED)
def test_scenarios_that_are_not_compared(name: str) -> None:
    count = sum(each.feature == name for each in scenarios())
    assert count, f"known.yaml: no scenario belongs to {name}"
    pytest.skip(f"{count} scenarios are not compared: {NOT_COMPARED[name]['reason']}")


def test_known_differences_name_recorded_scenarios() -> None:
    names = {(each.file, each.name) for each in scenarios()}
    assert set(DIFFERENCES) <= names
