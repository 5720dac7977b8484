"""Generated manifests of every kind through pykueue's admission rules and through Kueue's own webhooks.

`data/differences.yaml` lists what differs, with the reason.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from webhooks_families import FAMILIES
from webhooks_manifests import Case, D
from webhooks_recorded import COUNT, PROGRAM, all_cases, asked, recorded
from webhooks_world import Answer, answers, digest

Object = dict[str, Any]
WORLDS = ("queued", "all")
KNOWN: list[Object] = yaml.safe_load(
    Path(__file__).with_name("data").joinpath("differences.yaml").read_text()
)


@cache
def ours(world: str) -> dict[str, Answer]:
    return answers(world, [case for case in all_cases() if case.world == world])


def difference(mine: Answer, theirs: Answer) -> Object | None:
    """Who refuses which fields, or which leaves are changed differently; None where the answers agree."""
    if mine.allowed != theirs.allowed:
        by, fields = ("kueue", theirs.fields) if mine.allowed else ("pykueue", mine.fields)
        return {"refusedBy": by, "fields": list(fields)}
    if mine.changed == theirs.changed:
        return None
    keys = {*mine.changed, *theirs.changed}
    differing = (key for key in keys if mine.changed.get(key, "") != theirs.changed.get(key, ""))
    return {"changed": sorted(differing)}


def entries_for(case: Case, found: Mapping[str, Any]) -> list[Object] | None:
    """The entries of the list that explain a difference; None where a part of it is not listed."""
    name = "fields" if "refusedBy" in found else "changed"
    candidates = [
        entry
        for entry in KNOWN
        if case.family in entry.get("families", FAMILIES)
        and entry.get("refusedBy") == found.get("refusedBy")
        and ("when" not in entry or CONDITIONS[entry["when"]](case))
    ]
    used = []
    for each in found[name]:
        entry = next((one for one in candidates if _matches(each, one[name])), None)
        if entry is None:
            return None
        used.append(entry)
    return used


def _matches(text: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern.replace("[", "[[]")) for pattern in patterns)


@cache
def broken_before() -> frozenset[str]:
    """Updates of objects that would be refused if they were new."""
    found: set[str] = set()
    for world in WORLDS:
        before = [replace(c, obj=c.old, old=None) for c in all_cases() if c.old and c.world == world]
        found |= {name for name, answer in answers(world, before).items() if not answer.allowed}
    return frozenset(found)


def _has(case: Case, field: str, name: str) -> Any:
    objects = filter(None, (case.obj, case.old))
    return next(filter(None, ((each["metadata"].get(field) or {}).get(name) for each in objects)), None)


CONDITIONS: dict[str, Callable[[Case], bool]] = {
    "broken before": lambda case: case.name in broken_before(),
    "not managed": lambda case: _has(case, "labels", f"{D}managed") != "true",
    "queue by annotation": lambda case: (
        bool(_has(case, "annotations", f"{D}queue-name"))
        and not (case.obj["metadata"].get("labels") or {}).get(f"{D}queue-name")
    ),
}


def differences(theirs: Mapping[str, Answer]) -> Iterator[tuple[Case, Object]]:
    for case in all_cases():
        found = difference(ours(case.world)[case.name], theirs[case.name])
        if found is not None:
            yield case, found


@pytest.fixture(scope="module")
def kueue() -> dict[str, Answer]:
    """Kueue's recorded answers."""
    known = recorded()
    stale = [case.name for case in all_cases() if known.get(case.name, ("",))[0] != digest(case)]
    assert not stale, f"requests have changed since the answers were recorded: {stale[:5]}"
    return {name: answer for name, (_, answer) in known.items()}


class TestRecordedAnswers:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_every_kind_has_at_least_300_cases_of_which_both_verdicts_occur(
        self, family: str, kueue: Mapping[str, Answer]
    ) -> None:
        verdicts = [answer.allowed for name, answer in kueue.items() if name.partition("/")[0] == family]
        assert len(verdicts) == COUNT >= 300
        assert 30 <= sum(verdicts) <= COUNT - 30

    @pytest.mark.parametrize("family", FAMILIES)
    def test_mutations_and_verdicts_are_those_of_kueue_but_for_listed_differences(
        self, family: str, kueue: Mapping[str, Answer]
    ) -> None:
        unlisted = [
            f"{case.name}: {found}"
            for case, found in differences(kueue)
            if case.family == family and entries_for(case, found) is None
        ]
        assert not unlisted, "\n".join(unlisted)

    def test_every_listed_difference_still_occurs(self, kueue: Mapping[str, Answer]) -> None:
        used = [entry for case, found in differences(kueue) for entry in entries_for(case, found) or ()]
        gone = [entry["reason"] for entry in KNOWN if entry not in used]
        assert not gone


@pytest.mark.skipif(not PROGRAM, reason="PYKUEUE_KUEUE_WEBHOOKS names no program that runs Kueue's webhooks")
@pytest.mark.parametrize("world", WORLDS)
def test_the_recorded_answers_are_those_of_the_program(world: str, kueue: Mapping[str, Answer]) -> None:
    found = asked(world, [case for case in all_cases() if case.world == world])
    assert {name: kueue[name] for name in found} == found
