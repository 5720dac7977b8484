"""Admission rules common to all job kinds (docs/reference/kueue-integrations.md 9.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pykueue.api.jobkinds import is_exempt
from pykueue.api.kueue import names
from pykueue.api.objects import Object, get, labels_of, replaced
from pykueue.api.resources import Resource
from pykueue.api.validation.fields import FORBIDDEN, FieldError, new_errors
from pykueue.jobs import workload as construction
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.hybrid import hybrid_errors
from pykueue.jobs.topology import topology_errors
from pykueue.manager.ancestors import Owner, managing_owner
from pykueue.manager.configuration import Configuration

from .metadata import (
    common_errors,
    gate_changes,
    immutable,
    label_path,
    other_changes,
    prebuilt_changes,
    priority_changes,
)
from .review import CREATE

#: Groups whose jobs are not checked at an update unless they are managed, or, with the gate
#: ValidateRayAndSparkJobUpdates, were before it.
_UNCHECKED_UPDATES = ("ray.io", "sparkoperator.k8s.io")


class Lookups(Protocol):
    """What the rules ask of the cluster."""

    def manages_namespace(self, namespace: str) -> bool:
        """Whether jobs of the namespace are managed (managedJobsNamespaceSelector)."""

    def takes_namespace(self, namespace: str) -> bool: ...

    def stateful_set(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """A StatefulSet, or None."""

    def has_default_queue(self, namespace: str) -> bool:
        """Whether jobs of the namespace that name no queue go to the LocalQueue `default`."""

    def has_default_priority_class(self) -> bool: ...

    def reclaimable(self, workload: Mapping[str, Any]) -> Mapping[str, int] | None: ...

    def runs_elsewhere(self, namespace: str, queue: str) -> bool: ...

    def queued_owner(self, obj: Mapping[str, Any]) -> Owner | None: ...

    def policies(self, resource: Resource) -> Iterable[Object]:
        """All policies of a kind."""

    def budget_objects(self) -> Iterable[Object]:
        """All Budgets."""


class JobRules:
    """The rules of one job kind."""

    defaults: tuple[str, ...] = CREATE
    subresources: tuple[str, ...] = ()
    checked: Mapping[str, Any] | None = None
    namespaced_selector = True
    by_queue = False

    def __init__(self, integration: JobIntegration, configuration: Configuration, lookups: Lookups) -> None:
        self.resource = integration.kind.resource
        self._integration = integration
        self._configuration = configuration
        self._gates = configuration.gates
        self._identifiers = configuration.identifiers
        self._lookups = lookups

    # Filling in

    def default(self, obj: Object) -> Object:
        namespace = str(get(obj, "metadata", "namespace") or "")
        owned = self._has_managed_owner(obj)
        job = self._queued(obj, namespace, owned)
        if not self._is_managed(job, namespace, owned):
            return job
        job = self._integration.suspended(job)
        queue = construction.queue_name(job)
        kind = self._integration.kind
        if kind.managed_by is not None:
            ordinary = get(job, *kind.managed_by) in (None, kind.controller)
            if ordinary and self._lookups.runs_elsewhere(namespace, queue):
                job = replaced(job, kind.managed_by, names.MULTIKUEUE_CONTROLLER)
        return self._of_kind(job)

    def _of_kind(self, job: Object) -> Object:
        """With the defaults of its kind."""
        return self._integration.default(job)

    def _queued(self, obj: Object, namespace: str, owned: bool) -> Object:
        """With the queue and the priority class that those get who name none."""
        job = obj
        if not owned and self._takes_default_queue(job, namespace):
            job = replaced(job, ("metadata", "labels", names.QUEUE_LABEL), names.DEFAULT_LOCAL_QUEUE)
        if not owned and self._takes_default_priority(job):
            job = replaced(
                job, ("metadata", "labels", names.PRIORITY_CLASS_LABEL), names.DEFAULT_PRIORITY_CLASS
            )
        return job

    def _has_managed_owner(self, obj: Mapping[str, Any]) -> bool:
        """Whether what it belongs to, or what that belongs to, queues."""
        return managing_owner(obj, self._lookups.queued_owner, self._manages_all()) is not None

    def _manages_all(self) -> bool:
        return self._configuration.manage_jobs_without_queue_name

    def _takes_default_queue(self, job: Mapping[str, Any], namespace: str) -> bool:
        return (
            not construction.queue_name(job)
            and self._lookups.manages_namespace(namespace)
            and self._lookups.has_default_queue(namespace)
        )

    def _takes_default_priority(self, job: Mapping[str, Any]) -> bool:
        return (
            self._configuration.gates["WorkloadPriorityClassDefaulting"]
            and not labels_of(job).get(names.PRIORITY_CLASS_LABEL)
            and self._lookups.has_default_priority_class()
        )

    def _is_managed(self, job: Mapping[str, Any], namespace: str, owned: bool) -> bool:
        if owned or is_exempt(job, self._integration.kind):
            return False
        if construction.queue_name(job):
            return True
        return self._manages_all() and self._lookups.manages_namespace(namespace)

    # Refusing

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        kind = self._integration.kind
        if is_exempt(obj, kind):
            return
        queued = construction.queue_name(obj) or (old is not None and self._was_queued(old))
        managed = bool(queued) or self._manages_all()
        if old is not None and not managed and kind.resource.group in _UNCHECKED_UPDATES:
            return
        yield from common_errors(obj, kind, self._identifiers)
        yield from new_errors(self._topology_errors, obj, old)
        if old is not None:
            yield from self._update_errors(obj, old)
        # A custom kind's own rules say what can be queued; those of Jobs and pods only read annotations.
        if managed or not kind.custom:
            yield from self._integration.validate(obj, old)

    def _topology_errors(self, job: Mapping[str, Any]) -> Iterable[FieldError]:
        """Those of the annotations of its pod templates."""
        kind = self._integration.kind
        yield from topology_errors(job, kind, self._gates["TASMultiLayerTopology"])
        yield from hybrid_errors(job, kind)

    def _was_queued(self, old: Mapping[str, Any]) -> bool:
        """Whether a job that leaves its queue is still checked."""
        always = self._integration.kind.resource.group not in _UNCHECKED_UPDATES
        return (always or self._gates["ValidateRayAndSparkJobUpdates"]) and bool(construction.queue_name(old))

    def _update_errors(self, job: Object, old: Object) -> Iterable[FieldError]:
        suspended = self._integration.suspend_requested(job)
        was_suspended = self._integration.suspend_requested(old)
        queue = construction.queue_name(job)
        if queue != construction.queue_name(old):
            if not suspended:
                yield immutable(names.QUEUE_LABEL, queue)
            elif not queue and self._lookups.has_default_queue(str(job["metadata"].get("namespace") or "")):
                text = "cannot be removed in a namespace with a default LocalQueue"
                yield FieldError(label_path(names.QUEUE_LABEL), FORBIDDEN, detail=text)
        yield from priority_changes(job, old, suspended)
        yield from prebuilt_changes(job, old, suspended, self._identifiers)
        yield from other_changes(job, old, suspended, was_suspended)
        yield from gate_changes(job, old)

    def warnings(self, obj: Object, old: Object | None) -> Iterable[str]:
        if old is None and construction.queue_name_by_annotation(obj):
            yield f"the annotation {names.QUEUE_LABEL} is deprecated: use the label of the same name"
