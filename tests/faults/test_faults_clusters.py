"""Runs of a manager cluster and its workers by seed; docs/use/multikueue.md states the guarantee they check.

`PYKUEUE_CLUSTER_RUNS` is how many there are (4 unless set), and half as many each with elastic jobs, with
JobSets, and with pods and groups of pods. The first seed is `PYKUEUE_FAULT_SEED`.
"""

from __future__ import annotations

import os

import pytest

from pykueue.simulate.faults.clusterruns import ALL, play_clusters

RUNS = int(os.environ.get("PYKUEUE_CLUSTER_RUNS", "4"))
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_jobs_run_in_one_cluster_at_a_time_and_finish_once(seed: int) -> None:
    report = play_clusters(seed)
    assert not report.violations, report.text(SHOWN)
    assert report.writes


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS // 2))
def test_elastic_jobs_run_in_one_cluster_at_a_time_and_finish_once(seed: int) -> None:
    report = play_clusters(seed, elastic=True)
    assert not report.violations, report.text(SHOWN)
    assert report.writes


@pytest.mark.parametrize("kinds", [("Job", "JobSet"), ALL], ids=["sets", "pods"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS // 2))
def test_jobs_of_several_kinds_run_in_one_cluster_at_a_time_and_finish_once(
    seed: int, kinds: tuple[str, ...]
) -> None:
    report = play_clusters(seed, kinds=kinds)
    assert not report.violations, report.text(SHOWN)
    assert report.writes


@pytest.mark.parametrize("seed", [17, 21])
def test_a_group_that_is_stopped_and_fails_by_that_is_evicted(seed: int) -> None:
    report = play_clusters(seed, kinds=ALL)
    assert not report.violations, report.text(SHOWN)


@pytest.mark.parametrize(
    ("seed", "elastic"),
    [
        *((seed, False) for seed in (4009, 5057, 7028, 20125, 100003, 9000008)),
        *((seed, True) for seed in (5009, 5019, 9030063, 13030645)),
    ],
)
def test_runs_that_found_faults(seed: int, elastic: bool) -> None:
    report = play_clusters(seed, elastic=elastic)
    assert not report.violations, report.text(SHOWN)


@pytest.mark.parametrize("seed", [740121, 740327])
def test_pods_of_an_earlier_dispatch_do_not_end_their_group(seed: int) -> None:
    """A pod succeeded while it was stopped; failed pods were there when the next copy of their group was."""
    report = play_clusters(seed, kinds=("Job", "JobSet", "Pod", "PodGroup"))
    assert not report.violations, report.text(SHOWN)


def test_group_that_its_worker_evicts_before_its_pods_have_started_is_dispatched_again() -> None:
    report = play_clusters(760005, kinds=("Job", "JobSet", "Pod", "PodGroup"))
    assert not report.violations, report.text(SHOWN)
