"""Kinds whose pods queue: Deployments pod by pod, StatefulSets as a pod group with one Workload.

Source: docs/reference/kueue-integrations.md 9.4, "Deployment" and "StatefulSet".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pykueue.api.jobkinds import JobKind, PodSetPaths
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, labels_of, replaced
from pykueue.api.resources import DEPLOYMENTS, STATEFUL_SETS, Resource

from .described import DescribedPodSets
from .identifiers import Identifiers
from .workload import build, queue_name, workload_name

#: As the owner of a Workload is named to other clusters.
_GVK = "apps/v1, Kind=StatefulSet"


def replicas(stateful_set: Mapping[str, Any]) -> int:
    """How many pods it is to have."""
    value = get(stateful_set, "spec", "replicas")
    return 1 if value is None else int(value)


def plain_owner(job: Mapping[str, Any], resource: Resource) -> Object:
    """The reference that makes the job an owner, not the controller."""
    metadata = job["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def is_copy(job: Mapping[str, Any]) -> bool:
    """Whether a manager cluster dispatched it here, which also makes its Workloads."""
    return names.MULTIKUEUE_ORIGIN_LABEL in labels_of(job)


def origin_uid(job: Mapping[str, Any]) -> str:
    """Its uid, or for a copy that a manager cluster dispatched here, the uid that it has there."""
    own = str(job["metadata"].get("uid"))
    return annotations_of(job).get(names.MULTIKUEUE_ORIGIN_UID_ANNOTATION, own) if is_copy(job) else own


_PODS = PodSetPaths(("spec", "template"), counts=((("spec", "replicas"),),))
DEPLOYMENT = JobKind("deployment", DEPLOYMENTS, (_PODS,), suspend=None, custom=False)
STATEFUL_SET = JobKind(
    "statefulset",
    STATEFUL_SETS,
    (replace(_PODS, index_label="apps.kubernetes.io/pod-index"),),
    suspend=None,
    custom=False,
)


class Deployment(DescribedPodSets):
    """Its pods get Workloads one by one."""

    makes_workloads = False

    def __init__(self) -> None:
        super().__init__(DEPLOYMENT)

    def workloads(
        self, job: Mapping[str, Any], priority: int, reference: Mapping[str, str] | None, limit: int
    ) -> list[Object]:
        return []


class StatefulSet(DescribedPodSets):
    """All pods of a set are one pod set, `main`, of one group."""

    makes_workloads = True

    def __init__(self) -> None:
        super().__init__(STATEFUL_SET)

    def workload_name(self, job: Mapping[str, Any], limit: int) -> str:
        """The Workload's and the pod group's name."""
        return workload_name(
            STATEFUL_SETS.kind, STATEFUL_SETS.group, job["metadata"]["name"], origin_uid(job), limit
        )

    def workloads(
        self, job: Mapping[str, Any], priority: int, reference: Mapping[str, str] | None, limit: int
    ) -> list[Object]:
        """The group's Workload; the set is one of its owners, and its pods become the others."""
        return [group_workload(build(job, self, priority, reference, name_limit=limit), job, _GVK)]

    def member(
        self, pod: Mapping[str, Any], job: Mapping[str, Any], workload: str, identifiers: Identifiers
    ) -> Object:
        """The pod as a member of the set's group; itself where it is one already."""
        place = GroupPlace(workload, replicas(job), names.DEFAULT_POD_SET)
        return group_member(pod, job, place, identifiers)


def group_workload(workload: Object, job: Mapping[str, Any], gvk: str, **annotations: str) -> Object:
    """A Workload built from `job` as that of a serving pod group, which its pods come to own as well."""
    (owner,) = workload["metadata"]["ownerReferences"]
    plain = {key: value for key, value in owner.items() if key not in ("controller", "blockOwnerDeletion")}
    own = {
        **annotations_of(workload),
        names.IS_GROUP_WORKLOAD_ANNOTATION: "true",
        names.JOB_OWNER_GVK_ANNOTATION: gvk,
        names.JOB_OWNER_NAME_ANNOTATION: job["metadata"]["name"],
        **annotations,
    }
    metadata = {**workload["metadata"], "ownerReferences": [plain], "annotations": own}
    return {**workload, "metadata": metadata}


class GroupPlace(NamedTuple):
    """The place of a pod in a group: the group's Workload, its number of pods, and the pod set."""

    workload: str
    total: int
    pod_set: str


def group_member(
    pod: Mapping[str, Any], job: Mapping[str, Any], place: GroupPlace, identifiers: Identifiers
) -> Object:
    """The pod as a member of a serving group; itself where it is one."""
    labels = {
        names.MANAGED_LABEL: "true",
        names.QUEUE_LABEL: queue_name(job),
        names.PRIORITY_CLASS_LABEL: labels_of(job).get(names.PRIORITY_CLASS_LABEL),
    }
    annotations = {
        names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(place.total),
        names.POD_GROUP_FAST_ADMISSION_ANNOTATION: "true",
        names.POD_GROUP_SERVING_ANNOTATION: "true",
        names.ROLE_HASH_ANNOTATION: place.pod_set,
    }
    result = dict(pod)
    for field, values in (("labels", labels), ("annotations", annotations)):
        for key, value in values.items():
            if value:
                result = replaced(result, ("metadata", field, key), value)
    for key in (names.POD_GROUP_NAME_LABEL, names.PREBUILT_WORKLOAD_LABEL):
        result = identifiers.with_name(result, key, place.workload)
    return result
