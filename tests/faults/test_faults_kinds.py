"""Runs by seed in which jobs of all kinds are mixed; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pykueue.jobs import appwrapper
from pykueue.jobs.additions import without_record
from pykueue.jobs.base import Write
from pykueue.jobs.described import DescribedJob
from pykueue.jobs.job import BatchJob
from pykueue.jobs.trainjob import TrainJob
from pykueue.simulate.faults import play
from pykueue.simulate.faults.jobkinds import requests
from pykueue.simulate.faults.kindruns import ALL, manifest, play_kinds

RUNS = max(1, int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 50)
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Runs per test, so that cores can share them.
BATCH = 10
#: Lines of the trace that a failure shows.
SHOWN = 120


@pytest.mark.parametrize("first", range(FIRST, FIRST + RUNS, BATCH))
def test_jobs_of_all_kinds_survive_whatever_fails(first: int) -> None:
    for seed in range(first, min(first + BATCH, FIRST + RUNS)):
        report = play_kinds(seed)
        assert not report.violations, report.text(SHOWN)


def test_a_run_of_all_kinds_is_determined_by_its_seed() -> None:
    assert play_kinds(3).digest == play_kinds(3).digest


@pytest.mark.parametrize("kind", ALL)
def test_a_job_of_every_kind_has_as_many_pods_as_asked(kind: str) -> None:
    assert requests(manifest(kind, "j", {}, 4, 2))["cpu"] == 8000


def test_what_is_left_beside_the_components_of_a_wrapper_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appwrapper, "_without_infos", dict)
    found = (violation for seed in range(10) for violation in play_kinds(seed, ("AppWrapper",)).violations)
    assert any("its pod templates are not what its user wrote" in one for one in found)


def test_quota_that_returns_before_the_patch_of_a_train_job_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: TrainJob, job: dict[str, Any], originals: object) -> Write | None:
        return None if self.suspend_requested(job) else Write(self.suspended(job))

    monkeypatch.setattr(TrainJob, "stop", stop)
    found = (violation for seed in range(10) for violation in play_kinds(seed, ("TrainJob",)).violations)
    assert any("had the templates of its user" in one for one in found)


def test_templates_that_are_not_restored_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def suspended(self: DescribedJob, job: dict[str, Any], originals: object) -> dict[str, Any]:
        return without_record(job)

    for class_ in (DescribedJob, BatchJob):
        monkeypatch.setattr(class_, "_restored", suspended)
    found = (violation for seed in range(50) for violation in play(seed).violations)
    assert any("its pod templates are not what its user wrote" in one for one in found)
