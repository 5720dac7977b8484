"""What the manager knows of the cluster: one watch cache per resource, and the questions asked of them.

Caches take in what the manager itself writes, so every reader sees every write (`Informer.note`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pykueue.api import conditions
from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.decoding import decode_as
from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.jobkinds.ray import CLUSTER_LABEL, RAY_CLUSTERS, RAY_KINDS, RAY_SERVICE
from pykueue.api.kueue.names import (
    DEFAULT_LOCAL_QUEUE,
    DEFAULT_PRIORITY_CLASS,
    MULTIKUEUE_CONTROLLER,
    POD_SET_LABEL,
    PRIORITY_CLASS_LABEL,
)
from pykueue.api.meta import LabelSelector, Selector
from pykueue.api.objects import (
    Key,
    Object,
    controller_of,
    get,
    is_deleting,
    key_of,
    labels_of,
)
from pykueue.api.pods import LIVE_PODS, is_terminal
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.queue_specs import check_names, flavor_names, is_check_of, topology_name
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    DEVICE_CLASSES,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_FLAVORS,
    RESOURCE_SLICES,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from pykueue.api.variants import parent_reference
from pykueue.jobs.base import JobIntegration, WorkloadSource
from pykueue.jobs.job import JOB
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.pod import POD
from pykueue.jobs.pod_owners import STATEFUL_SET
from pykueue.jobs.podgroup import PodGroup
from pykueue.jobs.slices import claimable, is_elastic
from pykueue.kube.informer import Handler, Informer, Packing

from . import indexes
from .ancestors import MAX_OWNERS, Owner, dispatched_externals, external_resources
from .awaited_pods import AwaitedPods
from .configuration import Configuration
from .connection import Connection
from .nodes.assignments import assigned_hosts
from .nodes.caches import NodeCaches
from .owners import OwnerEvents

#: The label that the API server gives to every namespace.
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


#: Index of pods by namespace and group.
_GROUP_INDEX = "group"
#: Labels that are kept of a pod of a Job or a Ray cluster.
_OUTLINE_LABELS = (*indexes.POD_OWNER_LABELS, POD_SET_LABEL, CLUSTER_LABEL)


def pod_outline(pod: Mapping[str, Any]) -> Object:
    """What is kept of a pod of a Job: whose it is, whether it goes on, and its scheduling gates."""
    metadata = pod["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    kept = {name: metadata[name] for name in fields if name in metadata}
    kept["labels"] = {key: value for key, value in labels_of(pod).items() if key in _OUTLINE_LABELS}
    outline: Object = {"metadata": kept, "status": {"phase": get(pod, "status", "phase")}}
    if gates := get(pod, "spec", "schedulingGates"):
        outline["spec"] = {"schedulingGates": gates}
    return outline


def _device_kinds(configuration: Configuration) -> Iterator[Resource]:
    """What quota depends on in dynamic resource allocation, under that configuration."""
    gates = configuration.gates
    mapped = bool(configuration.resources.device_class_mappings)
    if not gates["KueueDRAIntegration"]:
        return
    if mapped or gates["KueueDRAIntegrationExtendedResource"]:
        yield DEVICE_CLASSES
    if mapped:
        yield RESOURCE_CLAIM_TEMPLATES
        yield RESOURCE_SLICES


class MissingPriorityClassError(LookupError):
    """A job names a priority class that does not exist."""


class Cluster:
    """The caches, and what can be read from them."""

    def __init__(self, connection: Connection, kinds: JobKinds, configuration: Configuration) -> None:
        self.connection = connection
        self.kinds = kinds.bound(self._referenced)
        self.configuration = configuration
        self.identifiers = configuration.identifiers
        informer = connection.informer
        self.workloads = informer(WORKLOADS, pack=self._packing)
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
        #: What claims of devices are counted by. Kubernetes serves it from 1.34 on.
        self.devices = [informer(kind, optional=True) for kind in _device_kinds(configuration)]
        self.preemption_policies = informer(PREEMPTION_POLICIES, optional=True)
        self.backfill_policies = informer(BACKFILL_POLICIES, optional=True)
        self.advance_reservations = informer(RESERVATIONS, optional=True)
        self.budgets = informer(BUDGETS, optional=True)
        self.budget_ledgers = informer(BUDGET_LEDGERS, optional=True)
        self.jobs: dict[str, Informer] = {
            name: informer(each.kind.resource, label_selector=each.kind.selector, optional=each.kind.custom)
            for name, each in self.kinds.jobs.items()
        }
        #: What jobs of some kinds are read from.
        self._references: dict[Resource, Informer] = {
            resource: informer(resource, optional=True) for kind in kinds for resource in kind.references
        }
        #: Objects of external frameworks, which are queued by controllers of their own.
        self._external: dict[tuple[str, str], Informer] = {
            resource.group_kind: informer(resource, optional=True)
            for resource in external_resources(configuration.integrations.external_frameworks)
        }
        #: Objects of the kinds that only go to worker clusters (multiKueue.externalFrameworks).
        self.external_jobs: dict[tuple[str, str], Informer] = {
            resource.group_kind: informer(resource, optional=True)
            for resource in dispatched_externals(configuration)
        }
        #: Pods of Jobs: the proof that a Job still runs whose status says otherwise.
        self.job_pods = informer(
            PODS, label_selector=indexes.POD_OWNER_LABELS[0], field_selector=LIVE_PODS, transform=pod_outline
        )
        self.awaited_pods = AwaitedPods(self.job_pods)
        #: Nodes, and the pods on them, for topology-aware scheduling.
        self.nodes = NodeCaches(connection, self.flavors, configuration.gates["TopologyAwareScheduling"])
        self._elastic_jobs = configuration.gates["ElasticJobsViaWorkloadSlices"]
        ray_kinds = [each.kind for each in self.kinds.jobs.values() if each.kind in RAY_KINDS]
        has_ray = self._elastic_jobs and bool(ray_kinds)
        cleans_redis = configuration.gates["DeferRayServiceFinalizationForRedisCleanup"]
        #: Pods of Ray clusters, where these can be elastic.
        self.ray_pods = (
            informer(PODS, label_selector=CLUSTER_LABEL, field_selector=LIVE_PODS, transform=pod_outline)
            if has_ray
            else None
        )
        #: Ray clusters: how large elastic RayJobs are, and whether deleted RayServices have stopped.
        self.ray_clusters = (
            informer(RAY_CLUSTERS, optional=True)
            if has_ray or (cleans_redis and RAY_SERVICE in ray_kinds)
            else None
        )
        serves_sets = STATEFUL_SET.framework in kinds.pod_owners
        self.stateful_sets = informer(STATEFUL_SETS) if serves_sets else None
        serves_groups = LEADER_WORKER_SET.framework in kinds.pod_owners
        self.leader_worker_sets = (
            informer(LEADER_WORKER_SET.resource, optional=True) if serves_groups else None
        )
        self._job_handlers: list[tuple[Handler, int]] = []
        self._kind_handlers: list[Callable[[], None]] = []
        #: Set while it is known which kinds JobKinds describe.
        self.kinds_known = asyncio.Event()
        self.kinds_known.set()
        self._selector: Selector = decode_as(
            LabelSelector, configuration.managed_jobs_namespace_selector or {}
        ).selector()
        self._add_indexes()
        self.owner_events = OwnerEvents(self.workloads, self.kinds)

    def _add_indexes(self) -> None:
        self.workloads.add_index("owner", indexes.owner_keys, of_metadata=True)
        self.workloads.add_index("unfinished", indexes.unfinished_keys)
        self.workloads.add_index("queue", indexes.queue_keys)
        self.workloads.add_index("clusterQueue", indexes.cluster_queue_keys)
        self.workloads.add_index("priorityClass", indexes.priority_class_keys, of_spec=True)
        self.workloads.add_index("host", assigned_hosts)
        self.workloads.add_index("slice", indexes.placed_slice_keys)
        self.local_queues.add_index("clusterQueue", lambda queue: [get(queue, "spec", "clusterQueue") or ""])
        self.cluster_queues.add_index("flavor", flavor_names)
        self.cluster_queues.add_index("check", check_names)
        self.checks.add_index("parameters", indexes.parameters_keys)
        self.job_pods.add_index("owner", indexes.pod_owners, of_metadata=True)
        if self.ray_pods is not None:
            self.ray_pods.add_index("cluster", indexes.ray_cluster_keys)
        self.flavors.add_index("topology", lambda flavor: [topology_name(flavor)])
        if POD.framework in self.jobs:
            self.jobs[POD.framework].add_index(_GROUP_INDEX, self._group_keys)
        for jobs in self.jobs.values():
            indexes.index_jobs(jobs)

    def _group_keys(self, pod: Object) -> list[Key]:
        return indexes.group_keys(pod, self.identifiers)

    def on_job_event(self, handler: Handler, order: int = 0) -> None:
        """Call `handler` for every change of a job of any kind, also of kinds that are added later."""
        self._job_handlers.append((handler, order))
        for jobs in self.jobs.values():
            jobs.on_event(handler, order)

    def add_kind(self, job: JobIntegration, informer: Informer) -> None:
        """Let jobs of one more kind queue, which a synced cache has."""
        framework = job.kind.framework
        indexes.index_jobs(informer)
        self.jobs[framework] = informer
        self.kinds.add(job)
        for handler, order in self._job_handlers:
            informer.on_event(handler, order)
        for changed in self._kind_handlers:
            changed()

    def remove_kind(self, job: JobIntegration) -> None:
        """Let jobs of a kind that was added queue no longer; their Workloads stay as they are."""
        self.kinds.remove(job)
        self.jobs.pop(job.kind.framework, None)
        for changed in self._kind_handlers:
            changed()

    def on_kinds_changed(self, handler: Callable[[], None]) -> None:
        """Call `handler` after a kind was added or removed."""
        self._kind_handlers.append(handler)

    def _referenced(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """An object that a job refers to; None where it does not exist."""
        found: Object | None = self._references[resource].get(namespace, name)
        return found

    async def synced(self) -> None:
        """Wait until everything has been read once."""
        await self.connection.synced()
        await self.kinds_known.wait()

    @property
    def has_synced(self) -> bool:
        """Whether everything has been read once."""
        return self.connection.has_synced

    def policies(self, resource: Resource) -> list[Object]:
        """All policies of a kind."""
        of = {PREEMPTION_POLICIES: self.preemption_policies, BACKFILL_POLICIES: self.backfill_policies}
        return of[resource].list()

    def budget_objects(self) -> list[Object]:
        """All Budgets."""
        return self.budgets.list()

    @property
    def labels_to_copy(self) -> tuple[str, ...]:
        """Keys of the labels a Workload has from its job: those configured, and those Budgets select by."""
        keys = (get(budget, "spec", "selector", "label") for budget in self.budgets.list())
        return (*self.configuration.labels_to_copy, *sorted(str(key) for key in keys if key))

    # Workloads

    def _packing(self, workload: Mapping[str, Any]) -> Packing:
        """Most Workloads are finished or wait: they are read when they change and hardly else."""
        if conditions.is_finished(workload):
            return "compressed"
        if conditions.has_quota(workload):
            return None
        # Many may wait when a manager starts, which is to take no longer for it.
        return "compressed later" if self.workloads.has_synced else "text"

    def workload(self, key: Key) -> Object | None:
        """The Workload of a key as last seen, or None."""
        return self.workloads.get(*key)

    def workloads_of(self, job: Mapping[str, Any]) -> list[Object]:
        """The Workloads of this very job, oldest first."""
        found = self.workloads.by_index("owner", job["metadata"].get("uid", ""))
        mine = [w for w in found if w["metadata"].get("namespace") == job["metadata"].get("namespace")]
        return _by_age(mine)

    def workloads_of_slice(self, key: Key) -> list[Object]:
        """The placed Workloads that share pods: of a namespace and slice name, in most cases one Workload."""
        return self.workloads.by_index("slice", key)

    def unfinished_of(self, uid: str) -> list[Object]:
        """The unfinished Workloads of the job of a uid, oldest first; an elastic job may have several."""
        return _by_age(self.workloads.by_index("unfinished", uid))

    def job_of(self, workload: Mapping[str, Any]) -> tuple[JobIntegration, Object | None] | None:
        """The integration and job a Workload belongs to; None where its owner's kind is not managed here.

        The job is None when it is gone, or when another of the same name took its place.
        """
        owner = controller_of(workload)
        if owner is None:
            return None
        integration = self.kinds.for_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
        if integration is None:
            return None
        return integration, self._job(integration, workload, owner)

    def runs(self, workload: Mapping[str, Any]) -> bool:
        """Whether a job that owns the Workload was started and has neither stopped nor ended.

        A job that says it has runs as long as its pods do.
        """
        if parent_reference(workload) is not None:
            return self._runs_variant(workload)
        return bool(self.left_pods(workload)) or any(
            integration.runs(job) for integration, job in self.jobs_of(workload)
        )

    def _runs_variant(self, variant: Mapping[str, Any]) -> bool:
        """Whether the job of the parent of a variant runs with the admission of the variant."""
        parent, admission = self._parent_of(variant), get(variant, "status", "admission")
        return (
            parent is not None
            and bool(admission)
            and get(parent, "status", "admission") == admission
            and self.runs(parent)
        )

    def _parent_of(self, workload: Mapping[str, Any]) -> Object | None:
        """The parent of a variant; None for other Workloads, and where it is gone."""
        reference = parent_reference(workload)
        if reference is None:
            return None
        parent = self.workload((workload["metadata"].get("namespace") or "", str(reference.get("name"))))
        same = parent is not None and parent["metadata"].get("uid") == reference.get("uid")
        return parent if same else None

    def workloads_of_running_jobs(self) -> Iterator[Object]:
        """The Workloads of all jobs that run, as `runs` says; that of a pod group once for each pod."""
        for framework, integration in self.kinds.jobs.items():
            for job in self.jobs[framework].list():
                metadata = job["metadata"]
                if integration.runs(job) or self.live_pods(metadata.get("namespace") or "", metadata["uid"]):
                    yield from self.workloads_of(job)
                    for group in self._group_keys(job) if integration.kind is POD else ():
                        workload = self.workload(group)
                        if workload is not None and indexes.is_group_workload(workload):
                            yield workload

    def live_pods(self, namespace: str, uid: str) -> list[Object]:
        """Outlines of the pods of this Job or JobSet (a uid), neither terminated nor terminating."""
        return [
            pod
            for pod in self.job_pods.by_index("owner", uid)
            if pod["metadata"]["namespace"] == namespace and not is_terminal(pod) and not is_deleting(pod)
        ]

    def live_ray_pods(self, namespace: str, cluster: str) -> list[Object]:
        """Outlines of the pods of a Ray cluster, neither terminated nor terminating."""
        found = self.ray_pods.by_index("cluster", (namespace, cluster)) if self.ray_pods is not None else ()
        return [pod for pod in found if not is_terminal(pod) and not is_deleting(pod)]

    def left_pods(self, workload: Mapping[str, Any]) -> list[Object]:
        """Live pods of the job of a Workload, which may be gone itself."""
        uid = indexes.job_uid(workload)
        return self.live_pods(workload["metadata"].get("namespace") or "", uid) if uid else []

    def reclaimable(self, workload: Mapping[str, Any]) -> Mapping[str, int] | None:
        """The pods per pod set that will not run again, as its job says; None where that is gone."""
        parent = self._parent_of(workload)
        if parent is not None:
            return self.reclaimable(parent)
        jobs = list(self.jobs_of(workload))
        if not jobs:
            return None
        integration, job = jobs[0]
        if indexes.is_group_workload(workload):
            return PodGroup.of([pod for _, pod in jobs]).reclaimable()
        own = integration.reclaimable(job)
        if integration.kind is JOB and is_elastic(job) and self._elastic_jobs:
            return claimable(job, workload, own)
        return own

    def jobs_of(self, workload: Mapping[str, Any]) -> Iterator[tuple[JobIntegration, Object]]:
        """The jobs that own the Workload, with their integrations: one, or the pods of a group.

        Where its owner references were removed, the job is known by its uid, the group by its name.
        """
        owners = workload["metadata"].get("ownerReferences") or ()
        if not owners and not indexes.job_uid(workload) and not indexes.is_group_workload(workload):
            return iter(())
        return self._jobs_of(workload, owners)

    def _jobs_of(
        self, workload: Mapping[str, Any], owners: Sequence[Object]
    ) -> Iterator[tuple[JobIntegration, Object]]:
        if controller_of(workload) is None and not (owners and indexes.is_group_workload(workload)):
            yield from self._unreferenced(workload)
        for owner in owners:
            integration = self.kinds.for_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
            if integration is not None:
                job = self._job(integration, workload, owner)
                if job is not None:
                    yield integration, job

    def _unreferenced(self, workload: Mapping[str, Any]) -> Iterator[tuple[JobIntegration, Object]]:
        uid, of_group = indexes.job_uid(workload), indexes.is_group_workload(workload)
        if not uid and not of_group:
            return
        namespace, name = key_of(workload)
        for framework, integration in self.kinds.jobs.items():
            if of_group and integration.kind is POD:
                for pod in self.pods_of_group(namespace, name):
                    yield integration, pod
            for job in self.jobs[framework].by_index("uid", uid) if uid else ():
                if job["metadata"].get("namespace") == namespace:
                    yield integration, job

    def pods_of_group(self, namespace: str, name: str) -> list[Object]:
        """All pods of a pod group."""
        return self.jobs[POD.framework].by_index(_GROUP_INDEX, (namespace, name))

    def _job(
        self, integration: JobIntegration, workload: Mapping[str, Any], owner: Mapping[str, Any]
    ) -> Object | None:
        """The job that an owner reference names; None when it is gone or another took its place."""
        jobs = self.jobs[integration.kind.framework]
        job = jobs.get(workload["metadata"].get("namespace"), str(owner.get("name")))
        return job if job is not None and job["metadata"].get("uid") == owner.get("uid") else None

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
        return target is not None and self.check_of(target, MULTIKUEUE_CONTROLLER) is not None

    def multikueue_state(self, workload: Mapping[str, Any]) -> Object | None:
        """What the status of a Workload says of its MultiKueue check; None where it has none."""
        for state in get(workload, "status", "admissionChecks") or ():
            check = self.checks.get("", str(state.get("name")))
            if check is not None and is_check_of(check, MULTIKUEUE_CONTROLLER):
                return dict(state)
        return None

    def check_of(self, cluster_queue: Mapping[str, Any], controller: str) -> Object | None:
        """The first AdmissionCheck of a controller that a ClusterQueue names."""
        checks = (self.checks.get("", name) for name in check_names(cluster_queue))
        return next((check for check in checks if check and is_check_of(check, controller)), None)

    def checks_with(self, controller: str, parameters: str) -> list[Object]:
        """The AdmissionChecks of a controller that name an object as their parameters."""
        return self.checks.by_index("parameters", (controller, parameters))

    def workloads_with(self, check: str) -> Iterator[Object]:
        """The Workloads with quota in ClusterQueues that name an admission check."""
        for queue in self.cluster_queues.by_index("check", check):
            yield from self.workloads.by_index("clusterQueue", queue["metadata"]["name"])

    def queued_owner(self, obj: Mapping[str, Any]) -> Owner | None:
        """The controller of an object, if it is of a kind that is queued here or by an external framework."""
        reference = controller_of(obj)
        owners = None if reference is None else self._owners_like(reference)
        if reference is None or owners is None:
            return None
        found = owners.get(get(obj, "metadata", "namespace"), str(reference.get("name")))
        same = found is not None and found["metadata"].get("uid") == reference.get("uid")
        if not same and owners is self.jobs.get(POD.framework):
            return None  # only pods in queues are watched
        return Owner(found if same else None)

    def parts_of(self, uid: str, framework: str, depth: int = MAX_OWNERS) -> Iterator[Key]:
        """The jobs of one kind that the object of this uid controls, and those that jobs of it control."""
        for name, jobs in self.jobs.items() if depth else ():
            for job in () if name == POD.framework else jobs.by_index("controller", uid):
                if name == framework:
                    yield key_of(job)
                yield from self.parts_of(str(job["metadata"].get("uid")), framework, depth - 1)

    def _owners_like(self, reference: Mapping[str, Any]) -> Informer | None:
        """The cache of the kind that an owner reference names; None where that is not queued."""
        version, kind = str(reference.get("apiVersion")), str(reference.get("kind"))
        integration = self.kinds.for_kind(version, kind)
        if integration is not None:
            return self.jobs[integration.kind.framework]
        return self._external.get((version.rpartition("/")[0], kind))

    def stateful_set(self, namespace: str, name: str) -> Object | None:
        """The StatefulSet; None where such sets are not queued, too."""
        return None if self.stateful_sets is None else self.stateful_sets.get(namespace, name)

    # Priorities

    def priority_of(
        self, job: Mapping[str, Any], integration: WorkloadSource
    ) -> tuple[int, Mapping[str, str] | None]:
        """Priority and class reference of a job's Workload (docs/reference/kueue-integrations.md 9.3).

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


def _by_age(workloads: Iterable[Object]) -> list[Object]:
    return sorted(workloads, key=lambda w: (conditions.created(w), w["metadata"]["name"]))
