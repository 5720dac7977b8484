"""MPIJob: what its description cannot say (docs/reference/kueue-integrations.md 9.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.jobkinds import value_at, with_value
from pykueue.api.jobkinds.kubeflow import MPI_JOB
from pykueue.api.kueue import names
from pykueue.api.objects import Object

from .described import DescribedJob

_ROLES = ("spec", "mpiReplicaSpecs")


class MpiJob(DescribedJob):
    """A launcher that works too has index 0, so that the first worker's is 1."""

    def __init__(self) -> None:
        super().__init__(MPI_JOB)

    def default(self, job: Mapping[str, Any]) -> Object:
        annotations = (*_ROLES, "Worker", "template", "metadata", "annotations")
        launcher = (*_ROLES, "Launcher", "template", "metadata", "annotations")
        grouped = value_at(job, (*launcher, names.POD_SET_GROUP_NAME_ANNOTATION)) is not None
        worker = value_at(job, (*_ROLES, "Worker", "template"))
        if (
            value_at(job, ("spec", "runLauncherAsWorker")) is not True
            or grouped
            or not isinstance(worker, dict)
        ):
            return dict(job)
        offset: Object = with_value(job, (*annotations, names.POD_INDEX_OFFSET_ANNOTATION), "1")
        return offset
