"""Described kinds, one after the other: Workload, start, stop, readiness and outcome of a sample manifest.

Sources: docs/reference/kueue-integrations.md 9.1 and 9.4.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kind_samples import SAMPLES, Sample, place, with_status

from pykueue.api.jobkinds import value_at, with_value
from pykueue.jobs.podsets import PodSetInfo
from pykueue.jobs.workload import build
from pykueue.manager.configuration.rules import FRAMEWORKS

Object = dict[str, Any]

every_kind = pytest.mark.parametrize("sample", SAMPLES.values(), ids=list(SAMPLES))


def infos(pod_sets: list[Object]) -> list[PodSetInfo]:
    """What an admission gives to each pod set, different for each."""
    return [
        PodSetInfo(
            one["name"],
            one["count"],
            labels={"kueue.x-k8s.io/podset": one["name"]},
            annotations={"example.com/admitted": "yes"},
            node_selector={"flavor": f"f{number}"},
            tolerations=({"key": f"t{number}", "operator": "Exists"},),
        )
        for number, one in enumerate(pod_sets)
    ]


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@every_kind
def test_sample_becomes_its_pod_sets_in_order(sample: Sample) -> None:
    found = sample.integration.pod_sets(sample.job())
    shown = [
        (one["name"], one["count"], one["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for one in found
    ]
    assert shown == sample.pod_sets


@every_kind
def test_workload_is_named_after_kind_and_job(sample: Sample) -> None:
    job = sample.job()
    job["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    workload = build(job, sample.integration, 0, None)
    kind = sample.kind.resource.kind
    assert workload["metadata"]["name"].startswith(f"{kind.lower()}-{job['metadata']['name']}-")
    (owner,) = workload["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"]) == (job["apiVersion"], kind)
    assert workload["spec"]["queueName"] == "lq"


@every_kind
def test_start_gives_each_template_its_own_flavor(sample: Sample) -> None:
    job = sample.integration.suspended(sample.job())
    assert sample.integration.is_suspended(job)
    started = sample.integration.started(job, infos(sample.integration.pod_sets(job)))
    assert not sample.integration.is_suspended(started)
    for number, at in enumerate(sample.templates):
        template = value_at(started, place(at))
        assert template["spec"]["nodeSelector"]["flavor"] == f"f{number}", at
        assert {"key": f"t{number}", "operator": "Exists"} in template["spec"]["tolerations"]
        assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == sample.pod_sets[number][0]


@every_kind
def test_stop_restores_the_job_byte_for_byte(sample: Sample) -> None:
    job = sample.integration.default(sample.integration.suspended(sample.job()))
    pod_sets = sample.integration.pod_sets(job)
    stopped = sample.integration.started(job, infos(pod_sets))
    while (stop := sample.integration.stop(stopped, pod_sets)) is not None:
        stopped = stop.desired
    assert as_text(stopped) == as_text(job)


@every_kind
def test_pod_sets_are_the_same_before_and_after_the_start(sample: Sample) -> None:
    job = sample.integration.suspended(sample.job())
    before = sample.integration.pod_sets(job)
    after = sample.integration.pod_sets(sample.integration.started(job, infos(before)))
    for one, other in zip(before, after, strict=True):
        assert (one["name"], one["count"]) == (other["name"], other["count"])
        assert one["template"]["spec"]["containers"] == other["template"]["spec"]["containers"]


@every_kind
def test_suspend_changes_the_suspend_field_alone(sample: Sample) -> None:
    job = sample.job()
    assert sample.integration.suspended(job) == with_value(job, place(sample.suspend), True)


@every_kind
def test_status_of_a_running_job(sample: Sample) -> None:
    job = with_status(sample.job(), sample.running)
    assert sample.integration.is_active(job) is sample.reports_pods
    assert sample.integration.pods_ready(job)
    assert sample.integration.outcome(job) is None
    assert sample.integration.on_hold(job) == ""


@every_kind
def test_status_of_a_stopped_job(sample: Sample) -> None:
    job = with_status(sample.integration.suspended(sample.job()), sample.stopped)
    assert not sample.integration.is_active(job)
    assert not sample.integration.pods_ready(job)
    assert not sample.integration.runs(job)
    assert not sample.integration.is_active(sample.job()), "a job without status"


@every_kind
def test_outcome(sample: Sample) -> None:
    if not sample.ends:
        assert sample.integration.outcome(with_status(sample.job(), sample.succeeded)) is None
        return
    good = sample.integration.outcome(with_status(sample.job(), sample.succeeded))
    assert good is not None
    assert (good.succeeded, good.message) == (True, sample.message)
    assert sample.failed is not None
    bad = sample.integration.outcome(with_status(sample.job(), sample.failed))
    assert bad is not None
    assert (bad.succeeded, bad.message) == (False, sample.failure_message)


@every_kind
def test_sample_is_valid(sample: Sample) -> None:
    job = sample.integration.suspended(sample.job())
    assert list(sample.integration.validate(job, None)) == []


@every_kind
def test_framework_can_be_named_in_the_configuration(sample: Sample) -> None:
    assert sample.framework in FRAMEWORKS
