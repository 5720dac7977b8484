"""Groups of Volcano: pods whose `schedulerName` is `volcano`.

Rules: docs/reference/cluster-workloads.md 3.2 to 3.4.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, controller_of, true_condition
from pykueue.api.quantity import QuantityError
from pykueue.embedded.kinds.podspec import Amounts, amounts_of
from pykueue.embedded.podgroups.definitions import VOLCANO_POD_GROUPS
from pykueue.embedded.podscheduler.cluster import Cluster
from pykueue.embedded.podscheduler.gangs import (
    FAILED,
    LEAVING,
    PLACED,
    RUNNING,
    SUCCEEDED,
    Gang,
    Gangs,
    Terms,
)
from pykueue.embedded.podscheduler.modes.contract import owned_by
from pykueue.embedded.podscheduler.podinfo import PodInfo

VOLCANO = "volcano"
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
MIN_MEMBER_ANNOTATION = "scheduling.volcano.sh/group-min-member"
TASK_ANNOTATION = "volcano.sh/task-spec"
DEFAULT_QUEUE = "default"

PENDING, INQUEUE, RUNNING_PHASE, COMPLETED, UNKNOWN = "Pending", "Inqueue", "Running", "Completed", "Unknown"
#: How far beyond what the nodes have groups may be enqueued: 6/5 of it.
_OVERCOMMIT = (6, 5)


class Volcano:
    """PodGroups and Queues of Volcano."""

    resource = VOLCANO_POD_GROUPS

    def __init__(self, gangs: Gangs, cluster: Cluster) -> None:
        self._gangs = gangs
        self._cluster = cluster
        #: The Queue objects by name.
        self.queues: dict[str, Object] = {}

    def group_of(self, pod: Object) -> str:
        if pod["spec"].get("schedulerName") != VOLCANO:
            return ""
        metadata = pod["metadata"]
        named = (metadata.get("annotations") or {}).get(GROUP_ANNOTATION)
        if named:
            return str(named)
        owner = controller_of(pod)
        return f"podgroup-{owner['uid'] if owner else metadata['uid']}"

    def task_of(self, pod: Object) -> str:
        return str((pod["metadata"].get("annotations") or {}).get(TASK_ANNOTATION) or "")

    def terms(self, group: Object) -> Terms:
        spec, status = group.get("spec") or {}, group.get("status") or {}
        resources = spec.get("minResources")
        return Terms(
            min_member=spec.get("minMember") or 0,
            min_task_member=spec.get("minTaskMember") or {},
            min_resources=amounts_of(resources) if resources else None,
            queue=spec.get("queue") or DEFAULT_QUEUE,
            priority_class=spec.get("priorityClassName") or "",
            all_in_one_go=False,
            open=(status.get("phase") or PENDING) != PENDING,
        )

    def made_for(self, pod: Object, owner: Object | None) -> Object | None:
        metadata = pod["metadata"]
        if pod["spec"].get("schedulerName") != VOLCANO or GROUP_ANNOTATION in (
            metadata.get("annotations") or {}
        ):
            return None
        annotations = (owner or {}).get("metadata", {}).get("annotations") or {}
        least = str(annotations.get(MIN_MEMBER_ANNOTATION, ""))
        queue = (metadata.get("annotations") or {}).get(QUEUE_ANNOTATION) or annotations.get(QUEUE_ANNOTATION)
        spec: Object = {
            "minMember": int(least) if least.isdecimal() and int(least) else 1,
            "queue": queue or DEFAULT_QUEUE,
        }
        if pod["spec"].get("priorityClassName"):
            spec["priorityClassName"] = pod["spec"]["priorityClassName"]
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {
                "name": self.group_of(pod),
                "namespace": metadata["namespace"],
                "ownerReferences": owned_by(pod),
            },
            "spec": spec,
        }

    # Queues

    def is_open(self, queue: str) -> bool:
        """Whether the queue takes groups; one without a state does, and `default`, which is always there."""
        found = self.queues.get(queue)
        if found is None:
            return queue == DEFAULT_QUEUE
        return (found.get("status") or {}).get("state", "Open") in ("", "Open")

    def _capability(self, queue: str) -> Amounts:
        found = self.queues.get(queue) or {}
        try:
            return amounts_of((found.get("spec") or {}).get("capability"))
        except QuantityError:
            return {}

    def objection(self, gang: Gang, pods: Iterable[PodInfo]) -> str:
        assert gang.terms is not None
        queue = gang.terms.queue
        limits = self._capability(queue)
        if not limits:
            return ""
        used = self._allocated(queue)
        for pod in pods:
            for name, value in pod.shape.requests:
                used[name] = used.get(name, 0) + value
        for name, limit in sorted(limits.items()):
            if used.get(name, 0) > limit:
                return f"queue {queue} would exceed its capability of {name}."
        return ""

    def _allocated(self, queue: str) -> Amounts:
        used: Amounts = {}
        for gang in self._members_of(queue):
            for uid in gang.members:
                pod = self._cluster.pods.get(uid)
                for name, value in pod.shape.requests if pod is not None else ():
                    used[name] = used.get(name, 0) + value
        return used

    def _members_of(self, queue: str) -> Iterable[Gang]:
        return [
            gang
            for gang in self._gangs.all()
            if gang.key.mode == self.resource.group and gang.terms is not None and gang.terms.queue == queue
        ]

    def _may_enter(self, gang: Gang) -> bool:
        """Whether a Pending group may enter its queue: the action `enqueue`."""
        assert gang.terms is not None
        if not self.is_open(gang.terms.queue):
            return False
        asked = gang.terms.min_resources
        if not asked:
            return True
        entered = self._entered(self._gangs.all())
        times, parts = _OVERCOMMIT
        for name, value in asked.items():
            total = sum(node.allocatable.get(name, 0) for node in self._cluster.nodes)
            used = sum(node.used.get(name, 0) for node in self._cluster.nodes)
            if value + entered.get(name, 0) > total * times // parts - used:
                return False
        limits = self._capability(gang.terms.queue)
        used_here = self._allocated(gang.terms.queue)
        entered_here = self._entered(self._members_of(gang.terms.queue))
        return all(
            value + used_here.get(name, 0) + entered_here.get(name, 0) <= limits.get(name, value * 2**62)
            for name, value in asked.items()
        )

    def _entered(self, gangs: Iterable[Gang]) -> Amounts:
        """Resources for which groups were enqueued and that their pods do not use yet."""
        total: Amounts = {}
        for gang in gangs:
            if gang.key.mode != self.resource.group or gang.object is None or gang.terms is None:
                continue
            if _phase_of(gang.object) == INQUEUE and gang.terms.min_resources:
                for name, value in gang.terms.min_resources.items():
                    total[name] = total.get(name, 0) + value
        return total

    # Status of groups

    def status(self, gang: Gang, now: float, session: str) -> Object | None:
        assert gang.object is not None
        assert gang.terms is not None
        old = gang.object.get("status") or {}
        counts = gang.counts
        new: Object = {
            **old,
            "phase": self._phase(gang),
            "running": counts[RUNNING],
            "succeeded": counts[SUCCEEDED],
            "failed": counts[FAILED],
        }
        conditions = list(old.get("conditions") or ())
        for condition in _conditions(gang):
            current: Object = next((one for one in conditions if one.get("type") == condition["type"]), {})
            if any(current.get(key) != value for key, value in condition.items()):
                texts = (condition["status"], condition["reason"], condition["message"])
                conditions = set_condition(conditions, condition["type"], *texts, now, transitionID=session)
        if conditions:
            new["conditions"] = conditions
        return None if new == old else new

    def _phase(self, gang: Gang) -> str:
        """The table of 3.3, and before it the action `enqueue`."""
        assert gang.object is not None
        assert gang.terms is not None
        before, counts = _phase_of(gang.object), gang.counts
        if counts[RUNNING] and gang.lacking and gang.verdict:
            return UNKNOWN
        placed = gang.ready + counts[FAILED] + counts[LEAVING]
        if placed and placed >= gang.terms.min_member and not gang.lacking:
            going_on = counts[PLACED] + counts[RUNNING] + counts[LEAVING] + len(gang.waiting)
            return RUNNING_PHASE if going_on else COMPLETED
        if before == COMPLETED and not gang.waiting:
            return COMPLETED
        if before == INQUEUE or (before == PENDING and self._may_enter(gang)):
            return INQUEUE
        # A group that ran and lacks members again keeps its place in the queue.
        return PENDING if before == PENDING else INQUEUE


def _phase_of(group: Object) -> str:
    return str((group.get("status") or {}).get("phase") or PENDING)


def _conditions(gang: Gang) -> list[Object]:
    """What can be said about the group now; nothing as long as no attempt was made."""
    lacking = gang.lacking
    if not lacking:
        conditions = []
        if gang.ready:
            conditions.append(_condition("Scheduled", "True", "", "tasks in gang are ready to be scheduled"))
        if gang.object is not None and _is_unschedulable(gang.object):
            conditions.append(_condition("Unschedulable", "False", "", ""))
        return conditions
    assert gang.terms is not None
    everyone = max(gang.terms.min_member, gang.ready + len(gang.waiting))
    start = f"{lacking}/{everyone} tasks in gang unschedulable"
    if gang.ready + len(gang.waiting) < gang.terms.min_member:
        there = gang.ready + len(gang.waiting)
        text = f"{start}: {there} of at least {gang.terms.min_member} pods exist"
        return [_condition("Unschedulable", "True", "NotEnoughTasks", text)]
    if not gang.complete:
        text = f"{start}: not enough pods of every task exist"
        return [_condition("Unschedulable", "True", "NotEnoughPodsOfTask", text)]
    if not gang.verdict:
        return []
    return [_condition("Unschedulable", "True", "NotEnoughResources", f"{start}: {gang.verdict}")]


def _is_unschedulable(group: Object) -> bool:
    return true_condition(group.get("status"), "Unschedulable") is not None


def _condition(type_: str, status: str, reason: str, message: str) -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message}
