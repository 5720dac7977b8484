"""What the manager knows of the cluster: one watch cache per resource, and the questions asked of them.

Caches take in what the manager itself writes, so every reader sees every write (`Informer.note`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from pykueue.api.decoding import decode_as
from pykueue.api.kueue.names import DEFAULT_LOCAL_QUEUE, DEFAULT_PRIORITY_CLASS, PRIORITY_CLASS_LABEL
from pykueue.api.meta import LabelSelector, Selector
from pykueue.clock import Clock
from pykueue.jobs.base import JobIntegration, JobKind, Registry
from pykueue.jobs.objects import Object, get, labels_of
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer, InformerFactory, Packing
from pykueue.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)

from .activity import Activity, cluster_queue_activity
from .configuration import Configuration
from .queue_parts import check_names, flavor_names, topology_name
from .workloads import reading

#: The label that the API server gives to every namespace.
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"

#: Namespace and name.
Key = tuple[str, str]


def packing(workload: Mapping[str, Any]) -> Packing:
    """Most Workloads of a cluster are finished or wait; they are read when they change and hardly else."""
    if reading.is_finished(workload):
        return "compressed"
    return None if reading.has_quota(workload) else "text"


class MissingPriorityClassError(LookupError):
    """A job names a priority class that does not exist."""


class Cluster:
    """The caches, and what can be read from them."""

    def __init__(
        self, client: Client, clock: Clock, registry: Registry, configuration: Configuration
    ) -> None:
        self.client = client
        self.registry = registry
        self.configuration = configuration
        self.factory = InformerFactory(client, clock=clock)
        informer = self.factory.informer
        self.workloads = informer(WORKLOADS, pack=packing)
        self.local_queues = informer(LOCAL_QUEUES)
        self.cluster_queues = informer(CLUSTER_QUEUES)
        self.cohorts = informer(COHORTS)
        self.flavors = informer(RESOURCE_FLAVORS)
        self.checks = informer(ADMISSION_CHECKS)
        self.topologies = informer(TOPOLOGIES)
        self.workload_priority_classes = informer(WORKLOAD_PRIORITY_CLASSES)
        self.priority_classes = informer(PRIORITY_CLASSES)
        self.namespaces = informer(NAMESPACES)
        self.limit_ranges = informer(LIMIT_RANGES)
        self.runtime_classes = informer(RUNTIME_CLASSES)
        self.jobs: dict[str, Informer] = {
            i.name: informer(i.resource, label_selector=i.selector, optional=i.custom) for i in registry
        }
        serves_sets = "statefulset" in configuration.integrations.frameworks
        self.stateful_sets = informer(STATEFUL_SETS) if serves_sets else None
        self._selector: Selector = decode_as(
            LabelSelector, configuration.managed_jobs_namespace_selector or {}
        ).selector()
        self._add_indexes()

    def _add_indexes(self) -> None:
        self.workloads.add_index("owner", _owner_keys)
        self.workloads.add_index("queue", _queue_keys)
        self.workloads.add_index("clusterQueue", _cluster_queue_keys)
        self.workloads.add_index("priorityClass", _priority_class_keys)
        self.local_queues.add_index("clusterQueue", lambda queue: [get(queue, "spec", "clusterQueue") or ""])
        self.cluster_queues.add_index("flavor", flavor_names)
        self.cluster_queues.add_index("check", check_names)
        self.flavors.add_index("topology", lambda flavor: [topology_name(flavor)])
        for jobs in self.jobs.values():
            jobs.add_index("priorityClass", lambda job: [labels_of(job).get(PRIORITY_CLASS_LABEL, "")])
            jobs.add_index("uid", lambda job: [job["metadata"].get("uid", "")])

    async def run(self) -> None:
        """Keep the caches up to date until cancelled."""
        await self.factory.run()

    async def synced(self) -> None:
        """Wait until everything has been read once."""
        await self.factory.synced()

    @property
    def has_synced(self) -> bool:
        """Whether everything has been read once."""
        return all(informer.has_synced for informer in self._informers())

    def _informers(self) -> Iterator[Informer]:
        yield from (value for value in vars(self).values() if isinstance(value, Informer))
        yield from self.jobs.values()

    # Workloads

    def workload(self, key: Key) -> Object | None:
        return self.workloads.get(*key)

    def workloads_of(self, job: Mapping[str, Any]) -> list[Object]:
        """The Workloads whose controller is this very job, oldest first."""
        found = self.workloads.by_index("owner", job["metadata"].get("uid", ""))
        return sorted(found, key=lambda w: (reading.created(w), w["metadata"]["name"]))

    def job_of(self, workload: Mapping[str, Any]) -> tuple[JobIntegration, Object | None] | None:
        """The integration and job a Workload belongs to; None where its owner's kind is not managed here.

        The job is None when it is gone, or when another of the same name took its place.
        """
        owner = reading.owner(workload)
        if owner is None:
            return None
        integration = self.registry.for_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
        if integration is None:
            return None
        job = self.jobs[integration.name].get(workload["metadata"].get("namespace"), str(owner.get("name")))
        if job is not None and job["metadata"].get("uid") != owner.get("uid"):
            job = None
        return integration, job

    def cluster_queue_of(self, workload: Mapping[str, Any]) -> Object | None:
        """The ClusterQueue its LocalQueue leads to, if both are there."""
        queue = self.local_queues.get(
            workload["metadata"].get("namespace"), str(get(workload, "spec", "queueName") or "")
        )
        return self.cluster_queues.get("", str(get(queue, "spec", "clusterQueue") or "")) if queue else None

    def activity(self, cluster_queue: Mapping[str, Any]) -> Activity:
        """Whether a ClusterQueue takes part."""
        return cluster_queue_activity(
            cluster_queue,
            lambda name: self.flavors.get("", name),
            lambda name: self.checks.get("", name),
            lambda name: self.topologies.get("", name),
        )

    # Jobs

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace; None where it does not exist."""
        found = self.namespaces.get("", namespace)
        return None if found is None else labels_of(found)

    def manages_namespace(self, namespace: str) -> bool:
        """Whether jobs of this namespace are managed (managedJobsNamespaceSelector)."""
        labels = self.namespace_labels(namespace)
        return labels is not None and self._selector.matches(labels)

    def takes_namespace(self, namespace: str) -> bool:
        """The same for an object that is just being created, in a namespace that may not be known yet.

        Such a namespace has the label of its name at least.
        """
        labels = self.namespace_labels(namespace)
        return self._selector.matches({NAMESPACE_NAME_LABEL: namespace} if labels is None else labels)

    def has_default_queue(self, namespace: str) -> bool:
        """Whether jobs of the namespace that name no queue go to the LocalQueue `default`."""
        return self.local_queues.get(namespace, DEFAULT_LOCAL_QUEUE) is not None

    def has_default_priority_class(self) -> bool:
        """Whether jobs that name no WorkloadPriorityClass get `default`."""
        return self.workload_priority_classes.get("", DEFAULT_PRIORITY_CLASS) is not None

    def runs_elsewhere(self, namespace: str, queue: str) -> bool:
        """Whether jobs of this LocalQueue go to other clusters, by a MultiKueue check of its ClusterQueue."""
        found = self.local_queues.get(namespace, queue)
        target = self.cluster_queues.get("", str(get(found, "spec", "clusterQueue") or "")) if found else None
        if target is None:
            return False
        checks = (self.checks.get("", name) for name in check_names(target))
        return any(get(c, "spec", "controllerName") == "kueue.x-k8s.io/multikueue" for c in checks if c)

    def managed_owner(self, obj: Mapping[str, Any]) -> tuple[JobIntegration, Object | None] | None:
        """The nearest owner of a managed kind, if there is one."""
        for owner in get(obj, "metadata", "ownerReferences") or ():
            integration = self.registry.for_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
            if owner.get("controller") and integration is not None:
                namespace = obj["metadata"].get("namespace")
                job = self.jobs[integration.name].get(namespace, str(owner.get("name")))
                if job is not None and job["metadata"].get("uid") != owner.get("uid"):
                    job = None
                return integration, job
        return None

    def stateful_set(self, namespace: str, name: str) -> Object | None:
        """The StatefulSet; None where such sets are not queued, too."""
        return None if self.stateful_sets is None else self.stateful_sets.get(namespace, name)

    # Priorities

    def priority_of(
        self, job: Mapping[str, Any], integration: JobKind
    ) -> tuple[int, Mapping[str, str] | None]:
        """Priority and class reference of a job's Workload (reference/kueue-integrations.md 9.3).

        Raises MissingPriorityClassError.
        """
        name = labels_of(job).get(PRIORITY_CLASS_LABEL)
        if name:
            found = self.workload_priority_classes.get("", name)
            if found is None:
                raise MissingPriorityClassError(f"WorkloadPriorityClass {name} doesn't exist")
            return int(found.get("value") or 0), _reference(WORKLOAD_PRIORITY_CLASSES, name)
        name = integration.priority_class(job)
        if name:
            found = self.priority_classes.get("", name)
            if found is None:
                raise MissingPriorityClassError(f"PriorityClass {name} doesn't exist")
            return int(found.get("value") or 0), _reference(PRIORITY_CLASSES, name)
        defaults = [c for c in self.priority_classes.list() if c.get("globalDefault")]
        if defaults:
            chosen = min(defaults, key=lambda c: (int(c.get("value") or 0), c["metadata"]["name"]))
            return int(chosen.get("value") or 0), _reference(PRIORITY_CLASSES, chosen["metadata"]["name"])
        return 0, None


def _reference(resource: Resource, name: str) -> dict[str, str]:
    return {"group": resource.group, "kind": resource.kind, "name": name}


def _owner_keys(workload: Object) -> Iterator[Hashable]:
    owner = reading.owner(workload)
    if owner is not None:
        yield owner.get("uid", "")
        yield (workload["metadata"].get("namespace") or "", owner.get("kind"), owner.get("name"))


def _queue_keys(workload: Object) -> Iterable[Hashable]:
    if reading.is_finished(workload):
        return ()
    return [(workload["metadata"].get("namespace") or "", get(workload, "spec", "queueName") or "")]


def _cluster_queue_keys(workload: Object) -> Iterable[Hashable]:
    name = reading.cluster_queue(workload)
    return [name] if name and not reading.is_finished(workload) else ()


def _priority_class_keys(workload: Object) -> Iterable[Hashable]:
    if get(workload, "spec", "priorityClassRef", "kind") != WORKLOAD_PRIORITY_CLASSES.kind:
        return ()
    return [get(workload, "spec", "priorityClassRef", "name")]
