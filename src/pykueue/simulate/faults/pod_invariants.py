"""What must hold of plain pods and pod groups, after every write and in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Object, controller_of, get, is_deleting
from pykueue.api.pods import is_terminal
from pykueue.api.resources import PODS, WORKLOADS, Resource
from pykueue.jobs.identifiers import IDENTIFIERS
from pykueue.jobs.pod import is_gated
from pykueue.jobs.podgroup import PodGroup
from pykueue.manager.indexes import is_group_workload, job_uid

from .invariants import Invariants
from .queue_status import miscounted
from .scenario import NAMESPACE


class PodInvariants(Invariants):
    """Pods start only admitted, release quota only when terminating, and none is left gated or finalized."""

    def _pod(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or not is_gated(before) or is_gated(after):
            return
        workload = self._workload_of(after)
        if workload is not None and conditions.is_admitted(workload) and not conditions.is_finished(workload):
            return
        edited = self._edited_workloads.get(after["metadata"]["uid"], "")
        if not self.staleness.excuses(edited, self._clock.time()):
            self._violate(after, "was let go without an admitted workload")

    def _workload_of(self, pod: Mapping[str, Any]) -> Object | None:
        if IDENTIFIERS.group_name(pod):
            return self.find(WORKLOADS, NAMESPACE, IDENTIFIERS.group_name(pod))
        uid = pod["metadata"]["uid"]
        return next((w for w in self.objects(WORKLOADS) if _pod_uid(w) == uid), None)

    def _pods_of(self, workload: Mapping[str, Any]) -> list[Object]:
        name = workload["metadata"]["name"]
        uid = _pod_uid(workload)
        return [
            pod
            for pod in self.objects(PODS)
            if (pod["metadata"]["uid"] == uid if uid else IDENTIFIERS.group_name(pod) == name)
        ]

    def _edit(self, resource: Resource, before: Object | None, after: Object | None) -> None:
        super()._edit(resource, before, after)
        workload = before or after
        if resource is WORKLOADS and workload is not None:
            for pod in self._pods_of(workload):
                self._edited_workloads[pod["metadata"]["uid"]] = workload["metadata"]["uid"]

    def _still_runs(self, workload: Object) -> bool:
        return any(map(_runs, self._pods_of(workload)))

    def reclaimable(self, workload: Mapping[str, Any]) -> Mapping[str, int] | None:
        pods = self._pods_of(workload)
        if not pods or _pod_uid(workload):
            return {}
        return PodGroup.of(pods).reclaimable()

    def _quota_returned(self, workload: Object) -> None:
        pods = self._pods_of(workload)
        for pod in pods:
            if _runs(pod):
                self._violate(workload, f"gave its quota back while pod {pod['metadata']['name']} goes on")
        if not pods or _pod_uid(workload) or not self.knows_time():
            return
        if PodGroup.of(pods).is_active(self._clock.time() + 1.0):
            self._violate(workload, "gave its quota back while pods of the group run")

    def unsettled(self) -> list[str]:
        found = list(miscounted(self))
        pods = self.objects(PODS)
        for pod in pods:
            workload = self._workload_of(pod)
            stopped = workload is not None and not conditions.is_active(workload)
            name = pod["metadata"]["name"]
            held = names.MANAGED_FINALIZER in (get(pod, "metadata", "finalizers") or ())
            if not is_terminal(pod) and not stopped:
                found.append(f"pod {name} has not ended")
            elif held and not stopped:
                found.append(f"pod {name} is still held")
            elif stopped and not is_gated(pod) and not is_deleting(pod) and not is_terminal(pod):
                found.append(f"pod {name} goes on though its workload is deactivated")
        living = {pod["metadata"]["uid"] for pod in pods}
        for workload in self.objects(WORKLOADS):
            found += self._open_workload(workload, living)
        return found

    def _open_workload(self, workload: Object, living: set[str]) -> Iterable[str]:
        name = f"workload {workload['metadata']['name']}"
        owners = {one["uid"] for one in get(workload, "metadata", "ownerReferences") or ()}
        # Its owner references were removed, and there is no pod to write back: nothing collects it.
        orphan = conditions.is_finished(workload) and not self._pods_of(workload)
        if owners.isdisjoint(living):
            if owners or not orphan:
                yield f"{name} belongs to no pod"
        elif is_deleting(workload):
            yield f"{name} is still being deleted"
        elif not conditions.is_finished(workload) and conditions.is_active(workload):
            reserved = conditions.condition(workload, conditions.QUOTA_RESERVED) or {}
            yield f"{name} is not over: {reserved.get('reason')}: {reserved.get('message')}"


def _pod_uid(workload: Mapping[str, Any]) -> str:
    """The uid of the pod that a Workload is of; empty for one of a pod group."""
    if controller_of(workload) is None and is_group_workload(workload):
        return ""
    return job_uid(workload)


def _runs(pod: Object) -> bool:
    return not is_gated(pod) and not is_terminal(pod) and not is_deleting(pod)
