# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""A view of the batch Job: the fields this project reads."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pykueue.api.core import PodTemplateSpec, StatusCondition
from pykueue.api.decoding import decode_as
from pykueue.api.meta import LabelSelector, ObjectMeta
from pykueue.api.model import Model


class JobSpec(Model, dict=True, gc=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_by: str | None = None
    manual_selector: bool = False
    selector: LabelSelector | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: dict[str, Any] | None = None
    success_policy: dict[str, Any] | None = None
    #: The pod template as written; nothing is lost.
    template: dict[str, Any] = {}

    @cached_property
    def pod_template(self) -> PodTemplateSpec:
        """The template's fields this project reads, decoded at first use."""
        return decode_as(PodTemplateSpec, self.template)


class UncountedTerminatedPods(Model):
    succeeded: list[str] = []
    failed: list[str] = []


class JobStatus(Model):
    active: int = 0
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    terminating: int | None = None
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[StatusCondition] = []
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(Model):
    """A batch/v1 Job: the fields that admission reads."""

    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
