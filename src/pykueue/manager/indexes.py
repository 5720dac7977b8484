"""Keys by which the watch caches find objects, as the indexes of `Cluster`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds.ray import CLUSTER_LABEL
from pykueue.api.kueue.names import IS_GROUP_WORKLOAD_ANNOTATION, JOB_UID_LABEL, PRIORITY_CLASS_LABEL
from pykueue.api.objects import Key, Object, annotations_of, controller_of, get, labels_of
from pykueue.api.queue_specs import parameters_name
from pykueue.api.resources import WORKLOAD_PRIORITY_CLASSES
from pykueue.jobs.identifiers import Identifiers
from pykueue.kube.informer import Informer

from .nodes.assignments import is_placed
from .nodes.outlines import slice_name

#: Labels by which the pods of a Job, and those of a JobSet, name it.
POD_OWNER_LABELS = ("batch.kubernetes.io/controller-uid", "jobset.sigs.k8s.io/jobset-uid")


def job_uid(workload: Mapping[str, Any]) -> str:
    """The uid of the job it belongs to, or did before its owner references were removed; empty: none."""
    # Asked for several times at every event: hence no helper.
    metadata = workload["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid"))
    labels = metadata.get("labels")
    return str(labels.get(JOB_UID_LABEL, "")) if labels else ""


def is_group_workload(workload: Mapping[str, Any]) -> bool:
    """Whether the Workload is that of a pod group."""
    return annotations_of(workload).get(IS_GROUP_WORKLOAD_ANNOTATION) == "true"


def group_keys(pod: Object, identifiers: Identifiers) -> list[Key]:
    """Namespace and name of the pod group that a pod belongs to, if any."""
    name = identifiers.group_name(pod)
    return [(pod["metadata"].get("namespace") or "", name)] if name else []


def controller_uids(job: Object) -> list[Hashable]:
    """The uid of the controller of a job, if it has one."""
    owner = controller_of(job)
    return [] if owner is None else [str(owner.get("uid"))]


def pod_owners(pod: Mapping[str, Any]) -> list[Hashable]:
    """The uids of the Job, or JobSet, that a pod belongs to."""
    labels = labels_of(pod)
    return [labels[key] for key in POD_OWNER_LABELS if key in labels]


def ray_cluster_keys(pod: Object) -> list[Hashable]:
    """Namespace and name of the Ray cluster that a pod belongs to."""
    return [(pod["metadata"]["namespace"], labels_of(pod).get(CLUSTER_LABEL))]


def parameters_keys(check: Object) -> list[Hashable]:
    """The controller of an AdmissionCheck and the name of its parameters."""
    return [(get(check, "spec", "controllerName"), parameters_name(check))]


def owner_keys(workload: Object) -> Iterable[Hashable]:
    """The uid of the job of a Workload, and the namespace, kind and name of its controller."""
    owner = controller_of(workload)
    uid = job_uid(workload)
    if owner is None:
        return (uid,) if uid else ()
    named = (workload["metadata"].get("namespace") or "", owner.get("kind"), owner.get("name"))
    return (uid, named) if uid else (named,)


def unfinished_keys(workload: Object) -> Iterable[Hashable]:
    """The uid of the job of an unfinished Workload."""
    uid = job_uid(workload)
    return [uid] if uid and not conditions.is_finished(workload) else ()


def placed_slice_keys(workload: Object) -> Iterable[Hashable]:
    """Namespace and slice name of a Workload with a topology assignment."""
    return (
        [(workload["metadata"].get("namespace") or "", slice_name(workload))] if is_placed(workload) else ()
    )


def queue_keys(workload: Object) -> Iterable[Hashable]:
    """Namespace and name of the LocalQueue of an unfinished Workload."""
    if conditions.is_finished(workload):
        return ()
    return [(workload["metadata"].get("namespace") or "", get(workload, "spec", "queueName") or "")]


def cluster_queue_keys(workload: Object) -> Iterable[Hashable]:
    """The ClusterQueue in which an unfinished Workload has quota."""
    name = conditions.cluster_queue(workload)
    return [name] if name and not conditions.is_finished(workload) else ()


def priority_class_keys(workload: Object) -> Iterable[Hashable]:
    """The WorkloadPriorityClass of a Workload."""
    if get(workload, "spec", "priorityClassRef", "kind") != WORKLOAD_PRIORITY_CLASSES.kind:
        return ()
    return [get(workload, "spec", "priorityClassRef", "name")]


def index_jobs(jobs: Informer) -> None:
    """Add the indexes that the jobs of every kind have."""
    jobs.add_index("priorityClass", lambda job: [labels_of(job).get(PRIORITY_CLASS_LABEL, "")])
    jobs.add_index("uid", lambda job: [job["metadata"].get("uid", "")])
    jobs.add_index("controller", controller_uids)
