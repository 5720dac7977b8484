"""Admission rules common to all job kinds (docs/reference/kueue-integrations.md 9.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pykueue.api.jobkinds import JobKind, is_exempt
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, labels_of, replaced
from pykueue.api.validation.fields import DUPLICATE, FORBIDDEN, INVALID, FieldError
from pykueue.api.validation.syntax import subdomain
from pykueue.jobs import workload as construction
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.topology import topology_errors
from pykueue.manager.ancestors import Owner, managing_owner
from pykueue.manager.configuration import Configuration

from .review import CREATE

_GATE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_GATE_LENGTH = 63
#: Groups whose jobs leave their queue unchecked while the gate ValidateRayAndSparkJobUpdates is off.
_LEAVE_UNCHECKED = ("ray.io", "sparkoperator.k8s.io")


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
            ordinary = get(job, *kind.managed_by) in (None, "", kind.controller)
            if ordinary and self._lookups.runs_elsewhere(namespace, queue):
                job = replaced(job, kind.managed_by, names.MULTIKUEUE_CONTROLLER)
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
            and bool(construction.queue_name(job))
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
        queued = construction.queue_name(obj) or (old is not None and self._was_queued(old))
        if (not queued and not self._manages_all()) or is_exempt(obj, self._integration.kind):
            return
        yield from common_errors(obj, self._integration.kind)
        yield from self._topology_errors(obj, old)
        if old is not None:
            yield from self._update_errors(obj, old)
        yield from self._integration.validate(obj, old)

    def _topology_errors(self, job: Object, old: Object | None) -> Iterable[FieldError]:
        """Those of its annotations; what a job had before stays."""
        kind, layers = self._integration.kind, self._gates["TASMultiLayerTopology"]
        known = [] if old is None else list(topology_errors(old, kind, layers))
        return (error for error in topology_errors(job, kind, layers) if error not in known)

    def _was_queued(self, old: Mapping[str, Any]) -> bool:
        """Whether a job that leaves its queue is still checked."""
        always = self._integration.kind.resource.group not in _LEAVE_UNCHECKED
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
        prebuilt = construction.prebuilt_name(job)
        if prebuilt != construction.prebuilt_name(old) and not suspended:
            yield immutable(names.PREBUILT_WORKLOAD_LABEL, prebuilt)
        limit = labels_of(job).get(names.MAX_EXEC_TIME_LABEL)
        if limit != labels_of(old).get(names.MAX_EXEC_TIME_LABEL) and not (suspended and was_suspended):
            yield immutable(names.MAX_EXEC_TIME_LABEL, limit or "")
        name = labels_of(job).get(names.PRIORITY_CLASS_LABEL)
        old_name = labels_of(old).get(names.PRIORITY_CLASS_LABEL)
        if old_name and not name:
            yield FieldError(label_path(names.PRIORITY_CLASS_LABEL), FORBIDDEN, detail="cannot be removed")
        if name and not old_name and not suspended:
            yield immutable(names.PRIORITY_CLASS_LABEL, name)
        if added := sorted(gates_of(job) - gates_of(old)):
            text = f"gates can only be removed, not added: {', '.join(added)}"
            yield FieldError(_annotation(names.ADMISSION_GATED_BY_ANNOTATION), FORBIDDEN, detail=text)
        elastic = annotations_of(job).get(names.ELASTIC_JOB_ANNOTATION)
        if elastic != annotations_of(old).get(names.ELASTIC_JOB_ANNOTATION):
            field = _annotation(names.ELASTIC_JOB_ANNOTATION)
            yield FieldError(field, INVALID, elastic or "", "field is immutable")

    def warnings(self, obj: Object, old: Object | None) -> Iterable[str]:
        if old is None and construction.queue_name_by_annotation(obj):
            yield f"the annotation {names.QUEUE_LABEL} is deprecated: use the label of the same name"


def common_errors(job: Mapping[str, Any], kind: JobKind) -> Iterable[FieldError]:
    """What is wrong with the labels and annotations of a job that queues."""
    for label, name in (
        (names.QUEUE_LABEL, construction.queue_name(job)),
        (names.PREBUILT_WORKLOAD_LABEL, construction.prebuilt_name(job)),
    ):
        if name and (problem := subdomain(name)):
            yield FieldError(label_path(label), INVALID, name, problem)
    if construction.prebuilt_name(job) and not kind.prebuilt:
        text = "is not supported for this kind of job"
        yield FieldError(label_path(names.PREBUILT_WORKLOAD_LABEL), FORBIDDEN, detail=text)
    limit = labels_of(job).get(names.MAX_EXEC_TIME_LABEL)
    if limit is not None and construction.max_execution_time(job) is None:
        text = "must be a whole number of seconds greater than 0"
        yield FieldError(label_path(names.MAX_EXEC_TIME_LABEL), INVALID, limit, text)
    if annotations_of(job).get(names.ELASTIC_JOB_ANNOTATION) == "true" and not kind.elastic:
        text = "is not supported for this kind of job"
        yield FieldError(_annotation(names.ELASTIC_JOB_ANNOTATION), FORBIDDEN, detail=text)
    yield from gate_errors(annotations_of(job).get(names.ADMISSION_GATED_BY_ANNOTATION))


def gates_of(obj: Mapping[str, Any]) -> set[str]:
    """The admission gates an object names."""
    return set(filter(None, (annotations_of(obj).get(names.ADMISSION_GATED_BY_ANNOTATION) or "").split(",")))


def gate_errors(text: str | None) -> Iterable[FieldError]:
    """What is wrong with the form of an admission-gated-by annotation."""
    if not text:
        return
    field = _annotation(names.ADMISSION_GATED_BY_ANNOTATION)
    gates = text.split(",")
    for gate in gates:
        if not _GATE.fullmatch(gate) or len(gate) > _GATE_LENGTH:
            detail = f"a gate is domain/path of at most {_GATE_LENGTH} characters"
            yield FieldError(field, INVALID, gate, detail)
    for gate in sorted({gate for gate in gates if gates.count(gate) > 1}):
        yield FieldError(field, DUPLICATE, gate)


def label_path(name: str) -> str:
    """Where a label stands, as errors name it."""
    return f"metadata.labels[{name}]"


def _annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def immutable(label: str, value: str) -> FieldError:
    """That a label may not change now."""
    return FieldError(label_path(label), INVALID, value, "field is immutable while the job is not suspended")
