"""The engine decides what the reference implementation decided on its recorded scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import scenario as recorded
import yaml

pytestmark = pytest.mark.skipif(not recorded.DATA.is_dir(), reason="the recorded scenarios are not here")

CYCLES = ("schedule.jsonl", "fair-sharing.jsonl", "recompute-preemption.jsonl", "random.jsonl")
SEARCHES = ("preemption.jsonl", "hierarchical-preemption.jsonl", "fair-preemption.jsonl")
KNOWN: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("known.yaml").read_text())


def cases(files: tuple[str, ...]) -> list[Any]:
    if not recorded.DATA.is_dir():
        return []
    return [
        pytest.param(file, number, id=f"{file.removesuffix('.jsonl')}: {case['name']}")
        for file in files
        for number, case in enumerate(recorded.load(file))
    ]


def judge(file: str, name: str, got: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compares, unless the scenario is known to differ: then it must."""
    reason = KNOWN.get(file, {}).get(name)
    if reason is None:
        assert got == expected
    else:
        assert got != expected, f"{file}: {name!r} matches now: take it out of known.yaml"


@pytest.mark.parametrize(("file", "number"), cases(CYCLES))
def test_cycle(file: str, number: int) -> None:
    case = recorded.load(file)[number]
    judge(file, case["name"], *recorded.outcome(case))


@pytest.mark.parametrize(("file", "number"), cases(SEARCHES))
def test_search(file: str, number: int) -> None:
    case = recorded.load(file)[number]
    judge(file, case["name"], recorded.targets(case), recorded.expected_targets(case))


def test_known_cases_exist() -> None:
    for file, names in KNOWN.items():
        assert set(names) <= {case["name"] for case in recorded.load(file)}
