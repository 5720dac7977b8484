"""Jobs among manifests: which of them are one Workload, and which are several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api.conditions import is_finished
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.kueue import names
from pykueue.api.meta import LabelSelector
from pykueue.api.objects import Object, get, labels_of, replaced, section
from pykueue.api.pods import is_terminal
from pykueue.api.resources import PODS, Resource
from pykueue.api.selectors import Selector, SelectorError
from pykueue.api.validation import FieldError
from pykueue.jobs.base import JobIntegration, WorkloadSource
from pykueue.jobs.identifiers import IDENTIFIERS
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.jobs.leaderworkerset import LeaderWorkerSet
from pykueue.jobs.pod import POD, PlainPod, with_role
from pykueue.jobs.pod_owners import DEPLOYMENT, replicas
from pykueue.jobs.podgroup import GroupError, PodGroup
from pykueue.jobs.workload import build, queue_name
from pykueue.manager.webhooks.metadata import common_errors

#: Kinds that jobs are read from, by version and kind.
_REFERENCES = {(one.api_version, one.kind) for each in BUILT_IN.jobs.values() for one in each.kind.references}


def _by_kind(kinds: JobKinds) -> dict[tuple[str, str], WorkloadSource]:
    return {
        (each.kind.resource.api_version, each.kind.resource.kind): each
        for each in (*kinds.jobs.values(), *kinds.pod_owners.values())
    }


_BY_KIND = _by_kind(BUILT_IN)

#: A job, its kind, and the name of the Workload it becomes.
Job = tuple[WorkloadSource, Object, str]


class GroupOfPods:
    """A pod group as a kind of job: the job is its first pod."""

    kind = POD

    def __init__(self, group: PodGroup) -> None:
        self._group = group

    def pod_sets(self, job: Any) -> list[Object]:
        return self._group.pod_sets()

    def priority_class(self, job: Any) -> str:
        return PlainPod().priority_class(job)


class Held:
    """Whom the Workloads among the manifests stand for."""

    def __init__(self, workloads: Iterable[Object]) -> None:
        self._names: set[tuple[str, str]] = set()
        self._owners: set[str] = set()
        #: Labels of pods on their own that have not ended, by namespace and name.
        self.pods: dict[tuple[str, str], Mapping[str, str]] = {}
        for workload in workloads:
            namespace = str(get(workload, "metadata", "namespace"))
            self._names.add((namespace, workload["metadata"]["name"]))
            for owner in get(workload, "metadata", "ownerReferences") or ():
                self._owners.add(str(owner.get("uid") or ""))
                if owner.get("kind") == PODS.kind and owner.get("controller") and not is_finished(workload):
                    pod_set: Object = next(iter(get(workload, "spec", "podSets") or ()), {})
                    labels = labels_of(section(pod_set, "template"))
                    self.pods[namespace, str(owner.get("name"))] = labels
        self._owners.discard("")

    def has_job(self, job: Object) -> bool:
        return job["metadata"].get("uid") in self._owners

    def has_group(self, namespace: str, name: str) -> bool:
        """Whether it is a pod group's Workload, which has the group's name."""
        return (namespace, name) in self._names


class Jobs:
    """The jobs of some manifests, which may be a cluster's, with what its controllers made of them."""

    def __init__(self, described: Iterable[JobIntegration] = ()) -> None:
        """`described` are the kinds that JobKinds among the manifests describe."""
        self._described = JobKinds(described)
        self._single: list[Job] = []
        self._deployments: list[Object] = []
        self._groups: dict[tuple[str, str], list[Object]] = {}
        self._uids: set[str] = set()
        #: What jobs refer to, by kind, namespace and name.
        self._references: dict[tuple[str, str, str], Object] = {}
        self._kinds = _by_kind(BUILT_IN.bound(self._referenced)) | _by_kind(self._described)

    def _referenced(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._references.get((resource.kind, namespace, name))

    @staticmethod
    def are_read(version: str, kind: str) -> bool:
        """Whether jobs are read from objects of this kind."""
        return (version, kind) in _REFERENCES

    def add_reference(self, manifest: Object) -> None:
        """An object that jobs may refer to."""
        metadata = manifest["metadata"]
        key = (manifest["kind"], str(metadata.get("namespace") or ""), metadata["name"])
        self._references[key] = manifest

    def describes(self, version: str, kind: str) -> bool:
        """Whether a JobKind describes this kind."""
        return (version, kind) in self._kinds and (version, kind) not in _BY_KIND

    def knows(self, version: str, kind: str) -> bool:
        """Whether objects of this kind can be jobs."""
        return (version, kind) in self._kinds

    def add(self, manifest: Object) -> None:
        """Takes a job in, which has a queue."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if manifest["metadata"].get("uid"):
            self._uids.add(manifest["metadata"]["uid"])
        if kind == DEPLOYMENT.resource.kind:
            self._deployments.append(manifest)
        elif kind == PODS.kind and IDENTIFIERS.group_name(manifest):
            key = (str(manifest["metadata"].get("namespace")), IDENTIFIERS.group_name(manifest))
            self._groups.setdefault(key, []).append(with_role(manifest))
        elif kind == LEADER_WORKER_SET.resource.kind:
            for index in range(replicas(manifest)):
                self._single.append((LeaderWorkerSet(), manifest, f"{kind.lower()}-{name}-{index}"))
        else:
            source = self._kinds[manifest["apiVersion"], kind]
            self._single.append((source, manifest, f"{kind.lower()}-{name}"))

    def errors(self, job: Object) -> Iterable[FieldError]:
        """What the admission webhooks would refuse of a job that has a queue."""
        kinds = self._described if self.describes(job["apiVersion"], job["kind"]) else BUILT_IN
        integration = kinds.for_kind(job["apiVersion"], job["kind"])
        yield from common_errors(job, integration.kind if integration is not None else POD)
        if integration is not None:
            # It is suspended when it is created; one that a server has may run.
            created = not job["metadata"].get("uid")
            yield from integration.validate(integration.suspended(job) if created else job, None)

    def workloads(self, held: Held, left_out: Callable[[str], None]) -> Iterable[Job | str]:
        """What each becomes; a text says why a group becomes none.

        `left_out` is called with those that have their Workload, or that another job makes.
        """
        there = dict(held.pods)
        for job in self._single:
            kind, obj, _ = job
            if kind.kind is POD and not is_terminal(obj):
                there[str(obj["metadata"].get("namespace")), obj["metadata"]["name"]] = labels_of(obj)
            if held.has_job(obj):
                left_out(f"{obj['kind']} whose Workload is there")
            elif self._is_made(obj):
                left_out(f"{obj['kind']} of another job")
            else:
                yield job
        for deployment in self._deployments:
            yield from _pods_to_come(deployment, there)
        for (namespace, name), pods in self._groups.items():
            if all(map(self._is_made, pods)):
                left_out("pod group of another job")
            elif held.has_group(namespace, name) or any(map(held.has_job, pods)):
                left_out("pod group whose Workload is there")
            else:
                yield _group(name, PodGroup.of(pods))

    def _is_made(self, obj: Object) -> bool:
        """Whether the controller of another of these jobs makes it."""
        owners = get(obj, "metadata", "ownerReferences") or ()
        return any(owner.get("controller") and owner.get("uid") in self._uids for owner in owners)


def _group(name: str, group: PodGroup) -> Job | str:
    """What a pod group becomes, or why it becomes nothing."""
    try:
        group.check()
    except GroupError as error:
        return str(error)
    if group.is_complete():
        return GroupOfPods(group), group.first, name
    return f"pod group {name} waits for its other pods: {len(group.pods)} of {group.total} are there"


def _pods_to_come(deployment: Object, there: Mapping[tuple[str, str], Mapping[str, str]]) -> Iterable[Job]:
    """The pods of a Deployment beyond those that are there."""
    metadata, chosen = deployment["metadata"], _selector(deployment)
    present = sum(
        namespace == metadata.get("namespace") and chosen.matches(labels)
        for (namespace, _), labels in there.items()
        if chosen.requirements
    )
    for number in range(present, replicas(deployment)):
        yield PlainPod(), _pod_of(deployment), f"deployment-{metadata['name']}-{number}"


def _selector(deployment: Object) -> Selector:
    """How it finds its pods; without terms where that is not said, or means nothing."""
    try:
        return decode_as(LabelSelector, dict(section(deployment, "spec", "selector"))).selector()
    except (DecodeError, SelectorError):
        return Selector()


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
