"""Which Workload describes a job: matching by content, not by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Object, key_of
from pykueue.api.validation import FieldError
from pykueue.jobs.workload import equivalent

from .context import JobContext


class WorkloadMatcher:
    """Compares the jobs of one kind with their Workloads."""

    def __init__(self, context: JobContext) -> None:
        self._integration = context.integration
        self._cluster = context.cluster
        self._reservations = context.reservations
        #: By uid of the job: what the last comparison depended on, and its result.
        self._compared: dict[str, tuple[tuple[Any, ...], bool]] = {}

    def forget(self, job: Mapping[str, Any]) -> None:
        """The job is gone."""
        self._compared.pop(job["metadata"].get("uid"), None)

    def match(self, job: Mapping[str, Any]) -> tuple[Object | None, list[Object]]:
        """The Workload that describes the job, and those that belong to it but do not."""
        matching: Object | None = None
        others: list[Object] = []
        finished = self._integration.outcome(job) is not None
        for workload in self._candidates(job):
            same = finished or self._is_equivalent(workload, job)
            if matching is None and same:
                matching = workload
            else:
                others.append(workload)
        return matching, others

    def errors(self, job: Mapping[str, Any]) -> list[FieldError]:
        """What keeps a job of a custom kind from being queued that came while no webhook answered."""
        return list(self._integration.validate(job, None)) if self._integration.kind.custom else []

    def _candidates(self, job: Mapping[str, Any]) -> list[Object]:
        prebuilt = self._cluster.identifiers.prebuilt_name(job) if self._integration.kind.prebuilt else ""
        owned = self._cluster.workloads_of(job)
        if not prebuilt:
            return owned
        return [workload for workload in owned if workload["metadata"]["name"] == prebuilt]

    def _is_equivalent(self, workload: Object, job: Mapping[str, Any]) -> bool:
        """Whether the Workload describes the job, worked out once per version of what that depends on."""
        # A job whose quota is kept still runs as it was admitted, whatever the status says meanwhile.
        shown = self._reservations.lost(key_of(workload)) or workload
        counts = conditions.admitted_counts(shown) if conditions.has_quota(shown) else None
        metadata = job["metadata"]
        inputs = (
            workload["metadata"].get("uid"),
            workload["metadata"].get("generation"),
            counts,
            metadata.get("generation"),
            metadata.get("labels"),
            metadata.get("annotations"),
        )
        known = self._compared.get(metadata["uid"])
        if known is not None and known[0] == inputs:
            return known[1]
        names = self._cluster.identifiers
        result = not self.errors(job) and equivalent(workload, job, self._integration, counts, names)
        self._compared[metadata["uid"]] = (inputs, result)
        return result
