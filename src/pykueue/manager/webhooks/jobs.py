"""Admission rules common to all job kinds (reference/kueue-integrations.md 9.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pykueue.jobs import names
from pykueue.jobs import workload as construction
from pykueue.jobs.base import Fault, JobIntegration
from pykueue.jobs.objects import Object, annotations_of, get, labels_of, replaced
from pykueue.manager.configuration import Configuration

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_GATE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_GATE_LENGTH = 63


class Lookups(Protocol):
    """What the rules ask of the cluster."""

    def manages_namespace(self, namespace: str) -> bool: ...

    def has_default_queue(self, namespace: str) -> bool: ...

    def has_default_priority_class(self) -> bool: ...

    def runs_elsewhere(self, namespace: str, queue: str) -> bool: ...

    def managed_owner(
        self, obj: Mapping[str, Any]
    ) -> tuple[JobIntegration, Mapping[str, Any] | None] | None: ...


class JobRules:
    """The rules of one job kind."""

    defaults = True
    subresources: tuple[str, ...] = ()
    namespaced_selector = True

    def __init__(self, integration: JobIntegration, configuration: Configuration, lookups: Lookups) -> None:
        self.resource = integration.resource
        self._integration = integration
        self._configuration = configuration
        self._lookups = lookups

    # Filling in

    def default(self, obj: Object) -> Object:
        namespace = str(get(obj, "metadata", "namespace") or "")
        owned = self._has_managed_owner(obj)
        job = obj
        if not owned and self._takes_default_queue(job, namespace):
            job = replaced(job, ("metadata", "labels", names.QUEUE_NAME), names.DEFAULT_NAME)
        if not owned and self._takes_default_priority(job):
            job = replaced(job, ("metadata", "labels", names.PRIORITY_CLASS), names.DEFAULT_NAME)
        if not self._is_managed(job, namespace, owned):
            return job
        job = self._integration.suspended(job)
        queue = construction.queue_name(job)
        managed_by = get(job, "spec", "managedBy")
        if managed_by in (None, "", "kubernetes.io/job-controller") and self._lookups.runs_elsewhere(
            namespace, queue
        ):
            job = replaced(job, ("spec", "managedBy"), names.MULTI_KUEUE)
        return self._integration.default(job)

    def _has_managed_owner(self, obj: Mapping[str, Any]) -> bool:
        found = self._lookups.managed_owner(obj)
        if found is None:
            return False
        _, owner = found
        return owner is None or bool(construction.queue_name(owner)) or self._manages_all()

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
            and not labels_of(job).get(names.PRIORITY_CLASS)
            and self._lookups.has_default_priority_class()
        )

    def _is_managed(self, job: Mapping[str, Any], namespace: str, owned: bool) -> bool:
        if owned:
            return False
        if construction.queue_name(job):
            return True
        return self._manages_all() and self._lookups.manages_namespace(namespace)

    # Refusing

    def validate(self, obj: Object, old: Object | None) -> Iterable[Fault]:
        queued = construction.queue_name(obj) or (old is not None and construction.queue_name(old))
        if not queued and not self._manages_all():
            return
        yield from self._common_faults(obj)
        if old is not None:
            yield from self._update_faults(obj, old)
        yield from self._integration.validate(obj, old)

    def _common_faults(self, job: Mapping[str, Any]) -> Iterable[Fault]:
        queue, label = construction.queue_name(job), _label(names.QUEUE_NAME)
        if queue and not _is_subdomain(queue):
            yield Fault(label, _invalid(queue, "must be a lowercase RFC 1123 subdomain"))
        prebuilt = construction.prebuilt_name(job)
        if prebuilt and not _is_subdomain(prebuilt):
            text = _invalid(prebuilt, "must be a lowercase RFC 1123 subdomain")
            yield Fault(_label(names.PREBUILT_WORKLOAD), text)
        if prebuilt and not self._integration.prebuilt:
            yield Fault(_label(names.PREBUILT_WORKLOAD), "is not supported for this kind of job")
        limit = labels_of(job).get(names.MAX_EXEC_TIME)
        if limit is not None and construction.max_execution_time(job) is None:
            text = _invalid(limit, "must be a whole number of seconds greater than 0")
            yield Fault(_label(names.MAX_EXEC_TIME), text)
        yield from gate_faults(annotations_of(job).get(names.ADMISSION_GATED_BY))

    def _update_faults(self, job: Object, old: Object) -> Iterable[Fault]:
        suspended = bool(get(job, "spec", "suspend"))
        was_suspended = bool(get(old, "spec", "suspend"))
        queue, old_queue = construction.queue_name(job), construction.queue_name(old)
        if queue != old_queue:
            if not suspended:
                yield _immutable(_label(names.QUEUE_NAME), queue, "the job is not suspended")
            elif not queue and self._lookups.has_default_queue(str(job["metadata"].get("namespace") or "")):
                text = "cannot be removed in a namespace with a default LocalQueue"
                yield Fault(_label(names.QUEUE_NAME), text)
        prebuilt = construction.prebuilt_name(job)
        if prebuilt != construction.prebuilt_name(old) and not suspended:
            yield _immutable(_label(names.PREBUILT_WORKLOAD), prebuilt, "the job is not suspended")
        limit = labels_of(job).get(names.MAX_EXEC_TIME)
        if limit != labels_of(old).get(names.MAX_EXEC_TIME) and not (suspended and was_suspended):
            yield _immutable(_label(names.MAX_EXEC_TIME), limit or "", "the job is not suspended")
        name, old_name = labels_of(job).get(names.PRIORITY_CLASS), labels_of(old).get(names.PRIORITY_CLASS)
        if old_name and not name:
            yield Fault(_label(names.PRIORITY_CLASS), "cannot be removed")
        if name and not old_name and not suspended:
            yield _immutable(_label(names.PRIORITY_CLASS), name, "the job is not suspended")
        gates, old_gates = gates_of(job), gates_of(old)
        if added := sorted(gates - old_gates):
            text = f"gates can only be removed, not added: {', '.join(added)}"
            yield Fault(_annotation(names.ADMISSION_GATED_BY), text, "FieldValueForbidden")
        elastic = annotations_of(job).get(names.ELASTIC_JOB)
        if elastic != annotations_of(old).get(names.ELASTIC_JOB):
            yield _immutable(_annotation(names.ELASTIC_JOB), elastic or "", "it never changes")

    def warnings(self, obj: Object) -> Iterable[str]:
        if construction.queue_name_by_annotation(obj):
            yield f"the annotation {names.QUEUE_NAME} is deprecated: use the label of the same name"


def gates_of(obj: Mapping[str, Any]) -> set[str]:
    """The admission gates an object names."""
    return set(filter(None, (annotations_of(obj).get(names.ADMISSION_GATED_BY) or "").split(",")))


def gate_faults(text: str | None) -> Iterable[Fault]:
    """What is wrong with the form of an admission-gated-by annotation."""
    if not text:
        return
    field = _annotation(names.ADMISSION_GATED_BY)
    gates = text.split(",")
    for gate in gates:
        if not _GATE.fullmatch(gate) or len(gate) > _GATE_LENGTH:
            yield Fault(field, _invalid(gate, f"a gate is domain/path of at most {_GATE_LENGTH} characters"))
    if len(set(gates)) != len(gates):
        yield Fault(field, _invalid(text, "a gate is named twice"), "FieldValueDuplicate")


def _is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def _label(name: str) -> str:
    return f"metadata.labels[{name}]"


def _annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _invalid(value: str, why: str) -> str:
    return f'Invalid value: "{value}": {why}'


def _immutable(field: str, value: str, why: str) -> Fault:
    return Fault(field, _invalid(value, f"field is immutable: {why}"))
