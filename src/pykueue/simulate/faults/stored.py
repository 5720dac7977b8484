"""What the store contains, and which of its objects belong to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.objects import Object, controller_of, get, replaced
from pykueue.api.resources import JOBS, WORKLOADS, Resource
from pykueue.embedded.apiserver.server import Server
from pykueue.manager.indexes import job_uid

from .jobkinds import KINDS, is_part, reclaimable
from .quota import holds_quota


class Stored:
    """Reads objects from the store of a run's server, not through requests that could fail."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def objects(self, resource: Resource) -> list[Object]:
        """All stored objects of a resource."""
        found = self._server.core.all(resource.group, resource.plural)
        return [{"kind": resource.kind, **obj} for obj in found]

    def jobs(self) -> Iterable[Object]:
        """All stored jobs that are suspended by a field, without those that are part of others."""
        for resource in KINDS.values():
            yield from (job for job in self.objects(resource) if not is_part(job))

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One stored object; None where there is none of that name."""
        found = self._server.core.find(resource.group, resource.plural, namespace, name)
        return None if found is None else {"kind": resource.kind, **found}

    def job_of(self, workload: Mapping[str, Any]) -> Object | None:
        """The job that controls a Workload; None where it does not exist any more."""
        owner = controller_of(workload)
        if owner is not None:
            return self._owner(workload, owner)
        uid = job_uid(workload)
        return next((job for job in self.jobs() if job["metadata"]["uid"] == uid), None)

    def _owner(self, obj: Mapping[str, Any], owner: Mapping[str, Any]) -> Object | None:
        """The job that an ownerReference names, if it is still that one."""
        resource = KINDS.get(str(owner.get("kind")))
        if resource is None:
            return None
        job = self.find(resource, obj["metadata"]["namespace"], str(owner["name"]))
        return job if job is not None and job["metadata"]["uid"] == owner["uid"] else None

    def owners(self, obj: Mapping[str, Any]) -> Iterable[Object]:
        """The jobs it belongs to: a pod to its Job, and that perhaps to a JobSet."""
        for owner in get(obj, "metadata", "ownerReferences") or ():
            job = self._owner(obj, owner)
            if job is not None:
                yield job
                yield from self.owners(job)

    def owned(self, resource: Resource, job: Mapping[str, Any]) -> Iterable[Object]:
        """The objects of a resource that belong to a job, be it through other jobs.

        Called after every write of a pod: those with the same owners are asked about once.
        """
        uid, known = job["metadata"]["uid"], dict[tuple[str, ...], bool]()
        for obj in self.objects(resource):
            uids = tuple(one["uid"] for one in get(obj, "metadata", "ownerReferences") or ())
            if uids not in known:
                known[uids] = any(owner["metadata"]["uid"] == uid for owner in self.owners(obj))
            if known[uids]:
                yield obj

    def workloads_of(self, job: Mapping[str, Any]) -> Iterable[Object]:
        """The Workloads that a job controls."""
        for workload in self.objects(WORKLOADS):
            if job_uid(workload) == job["metadata"]["uid"]:
                yield workload

    def reclaimable(self, workload: Mapping[str, Any]) -> Mapping[str, int] | None:
        """Pods by pod set that its job says will not run again; None where there is no job to say so.

        The parallelism of a Job counts as it was admitted: a user who lowers it takes no finished pod back.
        """
        job = self.job_of(workload)
        if job is not None and job["kind"] == JOBS.kind:
            assignments = get(workload, "status", "admission", "podSetAssignments") or ()
            admitted = max((int(one.get("count") or 0) for one in assignments), default=0)
            present = int(get(job, "spec", "parallelism") or 0)
            job = replaced(job, ("spec", "parallelism"), max(admitted, present))
        return None if job is None else reclaimable(job)

    def goes_on(self, workload: Mapping[str, Any]) -> bool:
        """Whether its job may run on although the Workload is not admitted."""
        return False

    def counted(self, workload: Object) -> Object:
        """The Workload with no more reclaimable pods than its job has really given back."""
        claimed = get(workload, "status", "reclaimablePods")
        truth = self.reclaimable(workload) if claimed else None
        if truth is None:
            return workload
        at_most = [
            {**entry, "count": min(int(entry["count"]), truth.get(entry["name"], 0))} for entry in claimed
        ]
        return replaced(workload, ("status", "reclaimablePods"), at_most)


def shows_quota(workload: Mapping[str, Any]) -> bool:
    """Whether its status has a reservation with an admission."""
    return holds_quota(workload) and bool(get(workload, "status", "admission"))
