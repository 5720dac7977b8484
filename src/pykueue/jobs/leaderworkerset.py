"""LeaderWorkerSet: one Workload for each group of a leader and its workers.

Source: docs/reference/kueue-integrations.md 9.4, "LeaderWorkerSet".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.jobkinds import LEADER_WORKER_SET, pod_count, pod_set_slots, value_at
from pykueue.api.jobkinds.leaderworkerset import (
    GROUP_INDEX_LABEL,
    LEADER,
    SET_LABEL,
    WORKER,
    WORKER_INDEX_LABEL,
)
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, labels_of

from .described import DescribedPodSets
from .identifiers import Identifiers
from .pod_owners import GroupPlace, group_member, group_workload, origin_uid, replicas
from .workload import build, workload_name

_RESOURCE = LEADER_WORKER_SET.resource
_GVK = f"{_RESOURCE.api_version}, Kind={_RESOURCE.kind}"


def is_part(obj: Mapping[str, Any]) -> bool:
    """Whether the object is one of the StatefulSets that make up a LeaderWorkerSet."""
    return SET_LABEL in labels_of(obj)


def set_name(pod: Mapping[str, Any]) -> str:
    """The set that the pod belongs to; empty: none."""
    return labels_of(pod).get(SET_LABEL, "")


def group_index(obj: Mapping[str, Any]) -> int | None:
    """The group that a pod, or the Workload of a group, belongs to; None where it does not say."""
    text = labels_of(obj).get(GROUP_INDEX_LABEL) or annotations_of(obj).get(
        names.COMPONENT_WORKLOAD_INDEX_ANNOTATION, ""
    )
    return int(text) if text.isascii() and text.isdigit() else None


class LeaderWorkerSet(DescribedPodSets):
    """Each group of its pods is a serving pod group with a Workload made ahead of them."""

    makes_workloads = True

    def __init__(self) -> None:
        super().__init__(LEADER_WORKER_SET)

    def group_size(self, job: Mapping[str, Any]) -> int:
        """How many pods each group has."""
        return sum(pod_count(slot.element, slot.paths) for slot in pod_set_slots(job, self.kind))

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        """Those of one group; without workers there is only the leader's."""
        return [one for one in super().pod_sets(job) if one["count"]]

    def workload_name(self, job: Mapping[str, Any], index: int, limit: int) -> str:
        """The name of a group and its Workload."""
        name = f"{job['metadata']['name']}-{index}"
        return workload_name(_RESOURCE.kind, _RESOURCE.group, name, origin_uid(job), limit)

    def workload_names(self, job: Mapping[str, Any], limit: int) -> list[str]:
        """The names of the Workloads of all groups."""
        return [self.workload_name(job, index, limit) for index in range(replicas(job))]

    def group_workload(
        self,
        job: Mapping[str, Any],
        index: int,
        priority: int,
        reference: Mapping[str, str] | None,
        limit: int,
    ) -> Object:
        """The Workload of one group."""
        built = build(job, self, priority, reference, name_limit=limit)
        built["metadata"]["name"] = self.workload_name(job, index, limit)
        return group_workload(built, job, _GVK, **{names.COMPONENT_WORKLOAD_INDEX_ANNOTATION: str(index)})

    def workloads(
        self, job: Mapping[str, Any], priority: int, reference: Mapping[str, str] | None, limit: int
    ) -> list[Object]:
        return [self.group_workload(job, index, priority, reference, limit) for index in range(replicas(job))]

    def member(
        self, pod: Mapping[str, Any], job: Mapping[str, Any], workload: str, identifiers: Identifiers
    ) -> Object:
        """The pod as a member of its group; itself where it is one already."""
        has_leader = value_at(job, ("spec", "leaderWorkerTemplate", "leaderTemplate")) is not None
        is_leader = labels_of(pod).get(WORKER_INDEX_LABEL) == "0"
        role = (LEADER if is_leader else WORKER) if has_leader else names.DEFAULT_POD_SET
        return group_member(pod, job, GroupPlace(workload, self.group_size(job), role), identifiers)
