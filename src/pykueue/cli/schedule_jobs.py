"""Jobs among manifests: which of them are one Workload, and which are several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykueue.api.kueue import names
from pykueue.jobs.base import JobKind
from pykueue.jobs.job import BatchJob
from pykueue.jobs.jobset import JobSet
from pykueue.jobs.objects import Object, replaced, section
from pykueue.jobs.pod import PlainPod, group_name, with_role
from pykueue.jobs.podgroup import GroupError, PodGroup
from pykueue.jobs.statefulset import StatefulSet
from pykueue.jobs.workload import build, queue_name
from pykueue.kube.resources import DEPLOYMENTS

_KINDS: tuple[JobKind, ...] = (BatchJob(), JobSet(), PlainPod(), StatefulSet())
_BY_KIND = {(each.resource.api_version, each.resource.kind): each for each in _KINDS}
_DEPLOYMENT = (DEPLOYMENTS.api_version, DEPLOYMENTS.kind)

#: A job, its kind, and the name of the Workload it becomes.
Job = tuple[JobKind, Object, str]


class GroupOfPods:
    """A pod group as a kind of job: the job is its first pod."""

    name = PlainPod.name
    resource = PlainPod.resource

    def __init__(self, group: PodGroup) -> None:
        self._group = group

    def pod_sets(self, job: Any) -> list[Object]:
        return self._group.pod_sets()

    def priority_class(self, job: Any) -> str:
        return PlainPod().priority_class(job)


class Jobs:
    """The jobs of some manifests."""

    def __init__(self) -> None:
        self._single: list[Job] = []
        self._groups: dict[tuple[str, str], list[Object]] = {}

    @staticmethod
    def knows(version: str, kind: str) -> bool:
        """Whether objects of this kind can be jobs."""
        return (version, kind) in _BY_KIND or (version, kind) == _DEPLOYMENT

    def add(self, manifest: Object) -> None:
        """Takes a job in, which has a queue."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == DEPLOYMENTS.kind:
            for number in range(int(manifest.get("spec", {}).get("replicas", 1))):
                pod = _pod_of(manifest)
                self._single.append((PlainPod(), pod, f"deployment-{name}-{number}"))
        elif kind == PlainPod.resource.kind and group_name(manifest):
            key = (str(manifest["metadata"].get("namespace")), group_name(manifest))
            self._groups.setdefault(key, []).append(with_role(manifest))
        else:
            self._single.append((_BY_KIND[manifest["apiVersion"], kind], manifest, f"{kind.lower()}-{name}"))

    def workloads(self) -> Iterable[Job | str]:
        """What each becomes; a text says why a group becomes none."""
        yield from self._single
        for (_, name), pods in self._groups.items():
            group = PodGroup.of(pods)
            try:
                group.check()
            except GroupError as error:
                yield str(error)
                continue
            if group.is_complete():
                yield GroupOfPods(group), group.first, name
            else:
                yield f"pod group {name} waits for its other pods: {len(pods)} of {group.total} are there"


def _pod_of(deployment: Object) -> Object:
    """A pod as the Deployment makes them, queueing where it says."""
    template, metadata = section(deployment, "spec", "template"), deployment["metadata"]
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**section(template, "metadata"), "name": metadata["name"]},
        "spec": dict(section(template, "spec")),
    }
    pod["metadata"]["namespace"] = metadata.get("namespace")
    priority = section(metadata, "labels").get(names.PRIORITY_CLASS_LABEL)
    pod = replaced(pod, ("metadata", "labels", names.QUEUE_LABEL), queue_name(deployment))
    return (
        pod
        if priority is None
        else replaced(pod, ("metadata", "labels", names.PRIORITY_CLASS_LABEL), priority)
    )


def workload_of(job: Job, priority: int, reference: dict[str, str] | None) -> Object:
    """The Workload of a job under its plain name."""
    kind, obj, name = job
    workload = build(obj, kind, priority, reference)
    workload["metadata"].pop("finalizers", None)
    workload["metadata"]["name"] = name
    stamp = obj["metadata"].get("creationTimestamp")
    if stamp:
        workload["metadata"]["creationTimestamp"] = stamp
    return workload
