"""Groups of Kubernetes itself: pods whose `schedulingGroup` names a PodGroup of scheduling.k8s.io.

Rules: docs/reference/cluster-workloads.md 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object
from pykueue.embedded.podgroups.definitions import NATIVE_POD_GROUPS
from pykueue.embedded.podscheduler.gangs import Gang, Terms
from pykueue.embedded.podscheduler.podinfo import PodInfo

PATIENCE = 300.0
_SCHEDULED = "PodGroupScheduled"


class Native:
    """PodGroups of Kubernetes. Those with the policy `basic` are placed pod by pod."""

    resource = NATIVE_POD_GROUPS

    def group_of(self, pod: Object) -> str:
        return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")

    def task_of(self, pod: Object) -> str:
        return ""

    def terms(self, group: Object) -> Terms:
        spec = group.get("spec") or {}
        gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
        return Terms(
            min_member=gang.get("minCount") or 0,
            priority_class=spec.get("priorityClassName") or "",
            patience=PATIENCE,
        )

    def objection(self, gang: Gang, pods: Iterable[PodInfo]) -> str:
        return ""

    def made_for(self, pod: Object, owner: Object | None) -> Object | None:
        return None

    def status(self, gang: Gang, now: float, session: str) -> Object | None:
        assert gang.object is not None
        old = gang.object.get("status") or {}
        conditions = old.get("conditions") or []
        known: Object = next((one for one in conditions if one.get("type") == _SCHEDULED), {})
        if known.get("status") == "True":
            # Once placed the group stays so, whatever becomes of its pods.
            return None
        wanted = ("True", "Scheduled", "")
        if gang.lacking or not gang.ready:
            if not gang.verdict:
                return None
            wanted = ("False", "Unschedulable", gang.verdict)
        if (known.get("status"), known.get("reason"), known.get("message")) == wanted:
            return None
        return {**old, "conditions": set_condition(conditions, _SCHEDULED, *wanted, now)}
