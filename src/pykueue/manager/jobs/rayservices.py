"""RayServices: a deleted one whose Ray cluster keeps its state in Redis goes on to hold its quota.

KubeRay empties Redis with a Job of the deleted RayCluster. While the service is deleted in the foreground,
that Job is part of a queued job, and runs only as long as the service's Workload is admitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.jobkinds import value_at
from pykueue.api.jobkinds.ray import FAULT_TOLERANCE_ANNOTATION, RAY_SERVICE
from pykueue.api.objects import Object, annotations_of, controller_of, is_deleting, key_of

from .context import JobContext
from .controller import JobController

_OPTIONS = (*(RAY_SERVICE.suspend or ())[:-1], "gcsFaultToleranceOptions")


def cleans_redis(service: Mapping[str, Any]) -> bool:
    """Whether the state of its Ray cluster outlives the head pod (GCS fault tolerance)."""
    enabled = annotations_of(service).get(FAULT_TOLERANCE_ANNOTATION, "").lower() == "true"
    return enabled or value_at(service, _OPTIONS) is not None


class RayServiceController(JobController):
    """With the gate DeferRayServiceFinalizationForRedisCleanup, keeps the Workload until Redis is empty."""

    def __init__(self, context: JobContext, workers: int = 8) -> None:
        super().__init__(context, workers)
        self._defers = self._gates["DeferRayServiceFinalizationForRedisCleanup"]
        self._clusters = self._cluster.ray_clusters
        if self._clusters is not None:
            self._subscriptions.append((self._clusters, self._owned_changed))
            self._clusters.on_event(self._owned_changed)

    async def _workload_deleted(self, job: Object, workload: Object) -> None:
        if not (self._defers and is_deleting(job) and cleans_redis(job) and self._has_cluster(job)):
            await super()._workload_deleted(job, workload)

    def _has_cluster(self, service: Mapping[str, Any]) -> bool:
        uid = service["metadata"].get("uid")
        found = [] if self._clusters is None else self._clusters.list(key_of(service)[0])
        return any((controller_of(one) or {}).get("uid") == uid for one in found)
