"""What one reconciliation of a dispatched Workload is about, and what its copies show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, replaced
from pykueue.jobs.slices import REPLACED
from pykueue.manager.checks.answers import READY

from .remote import Session

OUT_OF_SYNC = "OutOfSync"
#: Reason of a Workload that is finished although its job has not run.
NEVER_STARTED = "FailedToStart"
#: Reasons of a finished copy that say nothing about the job's end.
_NO_ENDS = (REPLACED, OUT_OF_SYNC, NEVER_STARTED)
#: Fields of a spec in which a copy may differ from the Workload for a while.
PUSHED = ("priority", "priorityClassRef")


class Dispatch:
    """What one reconciliation of a Workload is about."""

    def __init__(
        self, workload: Object, check: Object, clusters: Sequence[str], sessions: Mapping[str, Session]
    ) -> None:
        self.workload = workload
        self.key: Key = key_of(workload)
        self.check = check
        #: Workers of the configuration, in its order.
        self.clusters = clusters
        #: Connected workers that take such jobs, also those that the configuration does not name (any more).
        self.sessions = sessions
        self.copies: dict[str, Object] = {
            name: copy
            for name, session in sessions.items()
            if (copy := session.workloads.get(*self.key)) is not None and not is_deleting(copy)
        }

    @property
    def recorded(self) -> str:
        """The worker that the Workload runs on; empty: none is chosen."""
        return str(get(self.workload, "status", "clusterName") or "")

    @property
    def is_stopping(self) -> bool:
        """Whether the job has to stop on its worker."""
        return is_stopping(self.workload)

    @property
    def is_ready(self) -> bool:
        return self.check.get("state") == READY

    def earliest(self, kind: str, among: Sequence[str]) -> str:
        """Of some copies, the one whose condition changed first; the recorded worker's before all others."""
        if self.recorded in among:
            return self.recorded
        return min(among, key=lambda name: (conditions.since(self.copies[name], kind), name))


def with_nodes_chosen(workload: Object) -> Object:
    """The Workload without topology requests that are pending: its worker has chosen the nodes.

    What it has chosen stays there (docs/reference/topology-aware-scheduling.md 13).
    """
    path = ("status", "admission", "podSetAssignments")
    given = [
        {**one, "delayedTopologyRequest": "Ready"} if one.get("delayedTopologyRequest") == "Pending" else one
        for one in get(workload, *path) or ()
    ]
    return replaced(workload, path, given) if given else workload


def is_last(workload: Mapping[str, Any], check: Mapping[str, Any]) -> bool:
    """Whether all other checks are Ready."""
    checks = get(workload, "status", "admissionChecks") or ()
    return all(one.get("state") == READY for one in checks if one.get("name") != check.get("name"))


def end_of(copy: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The condition Finished of a copy that shows how the job ended; None where it shows no end of it."""
    end = conditions.condition(copy, conditions.FINISHED) if conditions.is_finished(copy) else None
    return None if end is None or end.get("reason") in _NO_ENDS else end


def is_stopping(workload: Mapping[str, Any]) -> bool:
    """Whether the job of a Workload has to stop on its worker: it is evicted or being deleted."""
    return conditions.is_evicted(workload) or is_deleting(workload)


def is_deactivated(copy: Mapping[str, Any]) -> bool:
    """Whether a worker is not to admit its copy again. One that it evicted by itself may be, at once."""
    return not conditions.is_active(copy) or conditions.is_true(copy, conditions.DEACTIVATION_TARGET)


def compared(spec: Mapping[str, Any], elastic: bool) -> Object:
    """What a Workload and its copies must have in common; not the number of pods of an elastic job."""
    left_out = (*PUSHED, "preemptionGates")
    found = {key: value for key, value in spec.items() if key not in left_out}
    if found.get("active") is True:
        del found["active"]
    if elastic:
        found["podSets"] = [{**pods, "count": None} for pods in spec.get("podSets") or ()]
    return found
