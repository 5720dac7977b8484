"""LeaderWorkerSet: groups of pods that serve together (docs/reference/operators.md 9).

It has no suspend field: its pods are gated, and each group of them has a Workload.
"""

from __future__ import annotations

from pykueue.api.resources import Resource

from .description import FieldIn, JobKind, Not, Path, PodSetPaths, Predicate

GROUP = "leaderworkerset.x-k8s.io"
#: Labels of the pods: their set, their group in it, and their place in the group.
SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER, WORKER = "leader", "worker"
_TEMPLATES = ("spec", "leaderWorkerTemplate")
SIZE: Path = (*_TEMPLATES, "size")
_HAS_LEADER: Predicate = Not(FieldIn((*_TEMPLATES, "leaderTemplate"), (None,)))


_GROUP_LABELS = ((SET_LABEL, "{name}"), (GROUP_INDEX_LABEL, "{group}"), (WORKER_INDEX_LABEL, "{index}"))
LEADER_WORKER_SET = JobKind(
    framework=f"{GROUP}/leaderworkerset",
    resource=Resource(GROUP, "v1", "leaderworkersets", "LeaderWorkerSet", True),
    pod_sets=(
        PodSetPaths(
            (*_TEMPLATES, "leaderTemplate"),
            name=LEADER,
            when=_HAS_LEADER,
            pod_name="{name}-{group}",
            pod_labels=_GROUP_LABELS,
        ),
        PodSetPaths(
            (*_TEMPLATES, "workerTemplate"),
            counts=((SIZE,),),
            fewer=1,
            name=WORKER,
            when=_HAS_LEADER,
            index_label=WORKER_INDEX_LABEL,
            pod_name="{name}-{group}-{index}",
            pod_labels=_GROUP_LABELS,
        ),
        PodSetPaths(
            (*_TEMPLATES, "workerTemplate"),
            counts=((SIZE,),),
            when=Not(_HAS_LEADER),
            index_label=WORKER_INDEX_LABEL,
            pod_name="{name}-{group}-{index}",
            pod_labels=_GROUP_LABELS,
        ),
    ),
    suspend=None,
    pod_labels=((SET_LABEL, "{name}"),),
)
