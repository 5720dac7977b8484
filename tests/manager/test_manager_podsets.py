"""Pod sets of jobs as API servers give them back, which is not quite as users wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.jobs.base import JobIntegration
from pykueue.jobs.job import BatchJob
from pykueue.jobs.jobset import JobSet

SPEC = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}


def batch(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": metadata, "spec": SPEC}}}


def job_set(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"replicatedJobs": [{"name": "main", "template": batch(metadata)}]}}


@pytest.mark.parametrize(("integration", "wrapped"), [(BatchJob(), batch), (JobSet(), job_set)])
def test_an_empty_creation_time_is_no_part_of_what_was_asked_for(
    integration: JobIntegration, wrapped: Any
) -> None:
    """API servers written in Go fill it in; the schema of Workloads does not have it."""
    (bare,) = integration.pod_sets(wrapped({"creationTimestamp": None}))
    assert bare["template"] == {"spec": SPEC}
    (labelled,) = integration.pod_sets(wrapped({"creationTimestamp": None, "labels": {"a": "b"}}))
    assert labelled["template"] == {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
