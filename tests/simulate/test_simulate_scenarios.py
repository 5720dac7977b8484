"""Scenarios in virtual time: what happens to workloads between arrival and end, and what is counted."""
# ruff: noqa: E501 (the tables of cases are one case a line)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pykueue.simulate import simulate
from pykueue.simulate.figures import figure
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import prepare
from pykueue.simulate.runs import run
from pykueue.simulate.scenario.reading import ScenarioError, load, parse
from pykueue.simulate.scenario.types import Where

_API = "kueue.x-k8s.io/v1beta2"


def queue(name: str = "q", cpu: int = 1, cohort: str = "", **spec: Any) -> list[dict[str, Any]]:
    """A ClusterQueue with a LocalQueue of its name in the namespace `team`."""
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    found = {"namespaceSelector": {}, "resourceGroups": groups, **({"cohortName": cohort} if cohort else {})}
    return [
        {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}},
        {"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": found | spec},
        {
            "apiVersion": _API,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"clusterQueue": name},
        },
    ]


def job(name: str = "job", run_time: Any = "10m", **more: Any) -> dict[str, Any]:
    """A class of jobs with one pod of one CPU."""
    law = {"fixed": run_time} if isinstance(run_time, str) else run_time
    return {
        "name": name,
        "queue": "team/q",
        "podSets": [{"requests": {"cpu": 1}}],
        "runTime": law,
        **more,
    }


def once(*jobs: dict[str, Any], at: str = "0s") -> dict[str, Any]:
    """One job of each class at that time."""
    return {"generator": {"every": "0s", "count": len(jobs), "start": at, "jobs": list(jobs)}}


def simulated(
    folder: Path, *arrivals: dict[str, Any], objects: Any = None, seed: int = 0, **scenario: Any
) -> Outcome:
    """The outcome of the first variant of a scenario."""
    (folder / "queues.yaml").write_text(yaml.safe_dump_all(objects or queue()))
    document = {"name": "test", "manifests": ["queues.yaml"], "arrivals": list(arrivals), **scenario}
    return outcome_of(folder, document, seed)


def outcome_of(folder: Path, document: dict[str, Any], seed: int = 0) -> Outcome:
    head = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario"}
    prepared = prepare(parse(yaml.safe_dump(head | document)), folder)
    return run(prepared, prepared.variants[0], seed)


def of(name: str) -> Where:
    return Where(job_class=name)


CHECK = {
    "apiVersion": _API,
    "kind": "AdmissionCheck",
    "metadata": {"name": "c"},
    "spec": {"controllerName": "x/y"},
    "status": {
        "conditions": [
            {
                "type": "Active",
                "status": "True",
                "reason": "Active",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    },
}
PREEMPTING = queue(preemption={"withinClusterQueue": "LowerPriority"})


def test_jobs_run_one_after_the_other_where_one_fits(tmp_path: Path) -> None:
    found = simulated(tmp_path, {"generator": {"every": "1m", "count": 3, "jobs": [job()]}})
    assert (found.makespan, found.unfinished) == (1800.0, 0)
    assert figure(found, "wait.max") == 2 * 600 - 2 * 60
    assert figure(found, "utilization") == pytest.approx(1.0)
    assert figure(found, "used") == pytest.approx(1800.0)


def test_an_evicted_job_starts_again_and_its_work_is_lost(tmp_path: Path) -> None:
    found = simulated(
        tmp_path, once(job("low")), once(job("high", "1m", priority=9), at="5m"), objects=PREEMPTING
    )
    assert found.makespan == 360.0 + 600
    assert figure(found, "lostWork", of("low")) == 300.0
    [(pair, lost)] = found.preemptions.items()
    assert (pair.preemptor, pair.preempted, pair.reason) == ("q", "q", "InClusterQueue")
    assert (lost.count, lost.lost["cpu"]) == (1, 300.0)


def test_a_job_with_checkpoints_goes_on_from_the_last_one(tmp_path: Path) -> None:
    low = job("low", checkpointEvery="2m")
    found = simulated(tmp_path, once(low), once(job("high", "1m", priority=9), at="5m"), objects=PREEMPTING)
    assert figure(found, "lostWork") == 60.0
    assert found.makespan == 360.0 + 600 - 240


def test_quota_of_an_evicted_job_is_held_until_its_pods_are_gone(tmp_path: Path) -> None:
    latencies = {"podStart": {"fixed": "10s"}, "eviction": {"fixed": "30s"}}
    arrivals = once(job("low")), once(job("high", "1m", priority=9), at="5m")
    found = simulated(tmp_path, *arrivals, objects=PREEMPTING, latencies=latencies)
    assert figure(found, "wait.max", of("high")) == 30.0
    assert figure(found, "lostWork") == 290.0
    assert figure(found, "turnaround.max", of("high")) == 30 + 10 + 60


def test_a_job_is_stopped_at_its_limit_whatever_it_lost(tmp_path: Path) -> None:
    low = job("low", limit="8m")
    found = simulated(tmp_path, once(low), once(job("high", "1m", priority=9), at="5m"), objects=PREEMPTING)
    assert figure(found, "stopped") == 1
    assert found.makespan == 360.0 + 180


def test_failed_jobs_are_submitted_again(tmp_path: Path) -> None:
    jobs = [job(failureProbability=0.5)]
    load = {"every": "1h", "count": 200, "jobs": jobs, "resubmitFailed": True}
    found = simulated(tmp_path, {"generator": load})
    assert figure(found, "finished") + figure(found, "failed") == 200
    assert 70 < figure(found, "failed") < 130
    assert found.unfinished == 0


def test_a_user_submits_the_next_job_after_thinking(tmp_path: Path) -> None:
    load = {"users": 2, "thinkTime": {"fixed": "5m"}, "end": "1h", "jobs": [job()]}
    found = simulated(tmp_path, {"generator": load}, objects=queue(cpu=2))
    # Each thinks, runs, and thinks again: jobs at 5, 20, 35 and 50 minutes.
    assert figure(found, "created") == 8
    assert figure(found, "wait.max") == 0


def test_checks_are_answered_later_and_quota_is_held_meanwhile(tmp_path: Path) -> None:
    objects = [*queue(admissionChecksStrategy={"admissionChecks": [{"name": "c"}]}), CHECK]
    found = simulated(tmp_path, once(job()), objects=objects, latencies={"checks": {"fixed": "2m"}})
    assert figure(found, "wait.max") == 120.0
    assert figure(found, "used") == 720.0


def test_checks_of_a_reservation_that_was_given_back_are_not_answered_for_the_next(tmp_path: Path) -> None:
    objects = [*queue(admissionChecksStrategy={"admissionChecks": [{"name": "c"}]}), CHECK]

    def at(time: str, policy: str) -> dict[str, Any]:
        patch = {"spec": {"stopPolicy": policy}}
        return {"at": time, "patches": [{"kind": "ClusterQueue", "name": "q", "patch": patch}]}

    changes = [at("5m", "Hold"), at("6m", "None")]
    found = simulated(
        tmp_path, once(job()), objects=objects, latencies={"checks": {"fixed": "10m"}}, interventions=changes
    )
    assert figure(found, "wait.max") == 960.0


def test_interventions_change_queues_while_jobs_run(tmp_path: Path) -> None:
    def at(time: str, **spec: Any) -> dict[str, Any]:
        return {"at": time, "patches": [{"kind": "ClusterQueue", "name": "q", "patch": {"spec": spec}}]}

    changes = [at("5m", stopPolicy="HoldAndDrain"), at("20m", stopPolicy="None")]
    found = simulated(tmp_path, once(job()), interventions=changes)
    assert figure(found, "evictions") == 1
    assert figure(found, "lostWork") == 300.0
    assert found.makespan == 1200.0 + 600


def test_warm_up_is_simulated_and_not_counted(tmp_path: Path) -> None:
    load = {"every": "10m", "count": 6, "jobs": [job()]}
    found = simulated(tmp_path, {"generator": load}, warmUp="30m")
    assert figure(found, "created") == 3
    assert figure(found, "used") == 1800.0


def test_the_client_limit_delays_starts(tmp_path: Path) -> None:
    latencies = {"requestsPerSecond": 0.5, "requestsPerAdmission": 3}
    load = {"every": "0s", "count": 3, "jobs": [job()]}
    found = simulated(tmp_path, {"generator": load}, objects=queue(cpu=3), latencies=latencies)
    assert found.makespan == 3 * 6 + 600
    assert figure(found, "wait.max") == 3 * 6  # as the user sees it: until the admission is written
    burst = simulated(
        tmp_path, {"generator": load}, objects=queue(cpu=3), latencies={**latencies, "requestBurst": 6}
    )
    assert (burst.makespan, figure(burst, "requests")) == (6 + 600, 9)


@pytest.mark.parametrize(
    ("low", "waits", "preemptions", "wait", "requests"),
    [
        # Its admission is written after 1 s and it ends at 1.5 s, its preemption is written after 2 s. The next
        # cycle begins when it has been written, after 3 s, why the other one waits.
        ("500ms", True, 0, 3.9, 4),
        ("500ms", False, 0, 2.9, 3),
        ("10m", True, 1, 3.9, 6),
        ("10m", False, 1, 2.9, 4),
    ],
)
def test_a_preemption_takes_effect_when_it_is_written(
    tmp_path: Path, low: str, waits: bool, preemptions: int, wait: float, requests: int
) -> None:
    latencies = {"requestsPerSecond": 1, "cyclesWaitForWrites": waits}
    arrivals = once(job("low", low)), once(job("high", "1m", priority=9), at="100ms")
    found = simulated(tmp_path, *arrivals, objects=PREEMPTING, latencies=latencies)
    assert (figure(found, "preemptions"), figure(found, "evictions")) == (preemptions, preemptions)
    assert figure(found, "wait.max", of("high")) == pytest.approx(wait)
    assert figure(found, "lostWork") == preemptions
    assert figure(found, "requests") == requests
    assert found.unfinished == 0


def test_times_that_are_equal_in_the_file_are_equal_in_the_run(tmp_path: Path) -> None:
    # 3 x 0.7 s is not 2.1 s in binary fractions: the fourth would preempt, one instant early.
    load = {"every": "700ms", "count": 4, "jobs": [job(run_time="700ms", priority=9)]}
    low = {"every": "0s", "count": 1, "start": "1ms", "jobs": [job("low", "50ms")]}
    found = simulated(tmp_path, {"generator": load}, {"generator": low}, objects=PREEMPTING)
    assert (figure(found, "preemptions"), figure(found, "wait.max", of("low"))) == (0, 2.799)


@pytest.mark.parametrize(
    ("run_time", "wait"),
    [({"exponential": {"tailMean": "1m"}}, 60.0), ({"fixed": "1m"}, 30.0)],
    ids=["M/M/1", "M/D/1"],
)
def test_one_unit_with_poisson_arrivals_waits_as_theory_says(
    tmp_path: Path, run_time: Any, wait: float
) -> None:
    # Load 0.5: the mean wait is that of Pollaczek and Khinchine.
    load = {"perHour": 30, "count": 6000, "jobs": [job(run_time=run_time)]}
    found = simulated(tmp_path, {"generator": load}, warmUp="2h")
    assert figure(found, "wait.mean") == pytest.approx(wait, rel=0.1)


def test_the_same_seed_gives_the_same_decisions_and_another_seed_others(tmp_path: Path) -> None:
    load = {"perHour": 60, "count": 50, "jobs": [job("a"), job("b", priority=5)]}
    digests = [
        simulated(tmp_path, {"generator": load}, objects=PREEMPTING, seed=seed).decisions
        for seed in (1, 1, 2)
    ]
    assert digests[0] == digests[1] != digests[2]


EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"


def test_a_file_of_kueues_generator_gives_the_recorded_figures(tmp_path: Path) -> None:
    generator = str(EXAMPLES / "kueue-baseline-generator.yaml")
    found = outcome_of(tmp_path, {"name": "g", "arrivals": [{"kueueGenerator": generator}]})
    assert figure(found, "created") == 15_000
    assert (figure(found, "admissions"), figure(found, "preemptions")) == (20_850, 5_850)
    assert (found.cycles, found.makespan) == (1010, pytest.approx(75.9))


@pytest.mark.parametrize(
    ("file", "seconds", "used"), [("kueue-baseline.yaml", 351, 0.559), ("kueue-large.yaml", 1179, 0.3864)]
)
def test_the_limit_of_kueues_client_gives_its_published_time(file: str, seconds: int, used: float) -> None:
    prepared = prepare(load(EXAMPLES / file), EXAMPLES)
    (published,) = [each for each in prepared.variants if each.name == "published"]
    found = run(prepared, published, 1)
    assert found.makespan == pytest.approx(seconds, rel=0.03)
    assert figure(found, "utilization") == pytest.approx(used, rel=0.06)


def test_preemptions_are_written_as_kueue_was_seen_to_write_them() -> None:
    found = simulate(EXAMPLES / "kueue-preempting.yaml")
    assert [(each.value, each.holds) for each in found.verdicts] == [
        ("1m14s", True),
        ("200", True),
        ("1,100", True),
    ]


def test_kueues_generator_creates_the_workloads_of_a_set_in_turn(tmp_path: Path) -> None:
    loads = [
        {"className": "a", "runtimeMs": 0, "request": 1},
        {"className": "b", "runtimeMs": 0, "request": 1},
    ]
    sets = [{"count": 2, "creationIntervalMs": 1000, "workloads": [*loads, loads[0]]}]
    queues = [{"count": 1, "nominalQuota": 9, "workloadsSets": sets}]
    file = tmp_path / "generator.yaml"
    file.write_text(yaml.safe_dump({"cohorts": [{"count": 1, "queuesSets": queues}]}))
    found = outcome_of(tmp_path, {"name": "g", "arrivals": [{"kueueGenerator": str(file)}]})
    assert (figure(found, "created"), figure(found, "finished"), found.makespan) == (6, 6, 5.0)


def test_workloads_and_jobs_of_manifests_arrive_at_their_time(tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/max-exec-time-seconds": "120"},
        },
        "spec": {
            "suspend": True,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                }
            },
        },
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    found = simulated(tmp_path, {"manifests": {"files": ["job.yaml"], "at": "1h"}}, runTime={"declared": 0.5})
    assert (figure(found, "finished"), figure(found, "turnaround.max"), found.end) == (1, 60.0, 3660.0)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"horizon": "-1h"}, 'horizon: "-1h" is not accepted; accepted: a duration above 0s'),
        ({"horizn": "1h"}, "horizn: unknown field"),
        ({"seeds": []}, "seeds: required"),
        ({"start": "yesterday"}, "start: "),
        ({"runTime": {}}, "runTime: exactly one of fixed, exponential, logNormal, uniform, recorded, declared is required"),
        ({"arrivals": [{}]}, "arrivals[0]: exactly one of manifests, generator, kueueGenerator, trace is required"),
        ({"arrivals": [{"generator": {"count": 1, "jobs": [job()]}}]}, "arrivals[0].generator: exactly one of every, perHour and users is required"),
        ({"arrivals": [{"generator": {"every": "1s", "jobs": [job()]}}]}, "arrivals[0].generator: one of count and end is required"),
        ({"arrivals": [once(job(run_time={"declared": 1}))]}, "arrivals[0].generator.jobs[0].runTime: no run time: the job has no maximum execution time"),
        ({"arrivals": [once(job(queue="q"))]}, 'arrivals[0].generator.jobs[0].queue: "q" is not accepted; accepted: "namespace/name"'),
        ({"arrivals": [once(job(), job(queue="team/qq"))], "manifests": ["queues.yaml"]}, "arrivals[0].generator.jobs[1].queue: LocalQueue team/qq is not among the manifests; did you mean team/q?"),
        ({"arrivals": [once(job(podSets=[{"requests": {"cpu": "lots"}}]))]}, "podSets[0].requests.cpu: 'lots' is not a quantity"),
        ({"arrivals": [once(job(priorityClass="high"))]}, 'jobs[0].priorityClass: "high" is not accepted; accepted: none'),
        ({"arrivals": [{"kueueGenerator": "none.yaml"}]}, "none.yaml"),
        ({"manifests": ["none.yaml"]}, "manifests: "),
        ({"configuration": {"fairSharing": {"preemptionStrategies": ["x"]}}}, "configuration: fairSharing.preemptionStrategies"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, 'variants[0].name: "a" is the name of two variants'),
        ({"variants": [{"name": "a", "patches": [{"kind": "ClusterQueue", "name": "x", "patch": {}}]}]}, 'variant "a": patches[0]: ClusterQueue x is not among the manifests'),
        ({"interventions": [{"at": "1s", "delete": [{"kind": "LocalQueue", "namespace": "t", "name": "x"}]}]}, "interventions[0].delete[0]: LocalQueue t/x is not among the manifests"),
        ({"assertions": [{"metric": "makespan"}]}, "assertions[0]: one of atMost, atLeast and equals is required"),
    ],
)  # fmt: skip
def test_a_wrong_scenario_is_refused_by_field(tmp_path: Path, change: dict[str, Any], error: str) -> None:
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all(queue()))
    with pytest.raises(ScenarioError) as raised:
        outcome_of(tmp_path, {"name": "test", **change})
    assert error in str(raised.value)


def test_queue_of_jobs_may_be_created_by_an_intervention(tmp_path: Path) -> None:
    *others, local_queue = queue()
    (tmp_path / "later.yaml").write_text(yaml.safe_dump(local_queue))
    found = simulated(
        tmp_path, once(job()), objects=others, interventions=[{"at": "1h", "apply": ["later.yaml"]}]
    )
    assert figure(found, "wait.max") == 3600.0
