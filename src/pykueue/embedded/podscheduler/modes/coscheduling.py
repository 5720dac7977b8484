"""Groups of `scheduling.x-k8s.io`: coscheduling, and Fluence, which uses the same kind.

Rules: docs/reference/cluster-workloads.md 3.6 and 3.7. Other than there no member ever waits on a reserved
node
for its siblings: a group is placed in one step, so that two groups never hold parts of what both need.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.objects import Object
from pykueue.api.times import format_time, parse_time
from pykueue.embedded.kinds.podspec import amounts_of
from pykueue.embedded.podgroups.definitions import COSCHEDULING_POD_GROUPS
from pykueue.embedded.podscheduler.cluster import Cluster
from pykueue.embedded.podscheduler.gangs import (
    FAILED,
    PLACED,
    RUNNING,
    SUCCEEDED,
    Gang,
    Terms,
)
from pykueue.embedded.podscheduler.modes.contract import owned_by
from pykueue.embedded.podscheduler.podinfo import PodInfo

#: Names under which the two schedulers are asked for; the label works with any of the served names.
COSCHEDULING = "scheduler-plugins-scheduler"
FLUENCE = "fluence"
LABEL = "scheduling.x-k8s.io/pod-group"
SIZE_LABEL = "fluence.group-size"

#: Seconds nodes may be held for a group that does not say, and for one of Fluence.
PATIENCE = 60.0
FLUENCE_PATIENCE = 300.0
#: Groups that were not placed within this many seconds are not followed any more.
FOLLOWED = 48 * 3600.0


class Coscheduling:
    """PodGroups of scheduler-plugins."""

    resource = COSCHEDULING_POD_GROUPS

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def group_of(self, pod: Object) -> str:
        named = (pod["metadata"].get("labels") or {}).get(LABEL)
        if named:
            return str(named)
        if pod["spec"].get("schedulerName") != FLUENCE:
            return ""
        metadata = pod["metadata"]
        job = (metadata.get("labels") or {}).get("batch.kubernetes.io/job-name")
        if job:
            return f"fluence-group-{metadata['namespace']}-{job}"
        return f"fluence-group-{metadata['name']}"

    def task_of(self, pod: Object) -> str:
        return ""

    def terms(self, group: Object) -> Terms:
        spec = group.get("spec") or {}
        resources = spec.get("minResources")
        patience = spec.get("scheduleTimeoutSeconds")
        return Terms(
            min_member=spec.get("minMember") or 1,
            min_resources=amounts_of(resources) if resources else None,
            patience=float(patience) if patience else PATIENCE,
        )

    def objection(self, gang: Gang, pods: Iterable[PodInfo]) -> str:
        assert gang.terms is not None
        for name, value in (gang.terms.min_resources or {}).items():
            free = sum(node.allocatable.get(name, 0) - node.used.get(name, 0) for node in self._cluster.nodes)
            if value > free:
                return f"all nodes together have less {name} free than minResources of the pod group says."
        return ""

    def made_for(self, pod: Object, owner: Object | None) -> Object | None:
        if pod["spec"].get("schedulerName") != FLUENCE:
            return None
        text = (pod["metadata"].get("labels") or {}).get(SIZE_LABEL, "")
        size = int(text) if text.isdecimal() else ((owner or {}).get("spec") or {}).get("parallelism") or 1
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {
                "name": self.group_of(pod),
                "namespace": pod["metadata"]["namespace"],
                "ownerReferences": owned_by(pod),
            },
            "spec": {"minMember": max(1, size), "scheduleTimeoutSeconds": int(FLUENCE_PATIENCE)},
        }

    def status(self, gang: Gang, now: float, session: str) -> Object | None:
        assert gang.object is not None
        assert gang.terms is not None
        old = gang.object.get("status") or {}
        phase = _phase(gang)
        if phase in ("Pending", "Scheduling"):
            created = gang.object["metadata"].get("creationTimestamp")
            if created and now - parse_time(created) > FOLLOWED:
                return None
        counts = gang.counts
        new: Object = {
            **old,
            "phase": phase,
            "running": counts[RUNNING],
            "succeeded": counts[SUCCEEDED],
            "failed": counts[FAILED],
            "scheduled": counts[PLACED] + counts[RUNNING] + counts[SUCCEEDED] + counts[FAILED],
        }
        if phase != "Pending" and not old.get("scheduleStartTime"):
            new["scheduleStartTime"] = format_time(now)
        return None if new == old else new


def _phase(gang: Gang) -> str:
    assert gang.terms is not None
    least, counts = gang.terms.min_member, gang.counts
    running, succeeded, failed = counts[RUNNING], counts[SUCCEEDED], counts[FAILED]
    if succeeded >= least:
        return "Finished"
    if failed and succeeded + failed + running >= least:
        return "Failed"
    if succeeded + running >= least:
        return "Running"
    return "Scheduling" if len(gang.members) >= least else "Pending"
