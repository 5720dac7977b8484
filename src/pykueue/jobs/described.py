"""Integrations that follow from a description alone; kinds that need more override single answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.jobkinds import (
    AddedContainer,
    JobKind,
    Slot,
    pod_count,
    pod_set_slots,
    shows,
    true_condition,
    value_at,
    values_at,
    with_value,
)
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, replaced, section
from pykueue.api.validation.fields import FieldError, new_errors

from .additions import record, record_of, with_record, without_additions, without_record
from .base import JobIntegration, Outcome, Reader, Write
from .podsets import PodSetInfo, injected, pod_set, restored
from .structure import structure_errors


class DescribedPodSets:
    """What every described kind has: pod sets, and the priority class of their pods."""

    def __init__(self, kind: JobKind) -> None:
        self.kind = kind

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        return [self._pod_set(job, slot) for slot in pod_set_slots(job, self.kind)]

    def _pod_set(self, job: Mapping[str, Any], slot: Slot) -> Object:
        template = self._requested(self._template(job, slot))
        for container in slot.paths.added:
            if container.when.holds(job):
                template = _with_container(template, job, container)
        return pod_set(template, pod_count(slot.element, slot.paths, job), slot.name, _ranks(slot))

    def _template(self, job: Mapping[str, Any], slot: Slot) -> Mapping[str, Any]:
        """What the pods of a pod set are, before its operator adds to it."""
        return template_at(job, slot)

    def priority_class(self, job: Mapping[str, Any]) -> str:
        """The kind's own field, or that of the first pod set that names one."""
        own = (value_at(job, path) for path in self.kind.priority_class)
        templates = (
            value_at(job, (*slot.template, "spec", "priorityClassName"))
            for slot in pod_set_slots(job, self.kind)
        )
        return next((str(name) for name in (*own, *templates) if name), "")

    def _requested(self, template: Mapping[str, Any]) -> Mapping[str, Any]:
        """The template without the labels of the kind's own controller."""
        labels = section(template, "metadata", "labels")
        own = {key: value for key, value in labels.items() if key not in self.kind.template_labels}
        return (
            template if len(own) == len(labels) else replaced(template, ("metadata", "labels"), own or None)
        )


def template_at(job: Mapping[str, Any], slot: Slot) -> Mapping[str, Any]:
    """The pod template of a pod set: the job's, or the one its operator uses where it has none."""
    template = value_at(job, slot.template)
    if template is None and slot.paths.default_template is not None:
        return slot.paths.default_template(job)
    return template if isinstance(template, dict) else {}


def _with_container(template: Mapping[str, Any], job: Mapping[str, Any], added: AddedContainer) -> Object:
    """The template with a container that counts when the pods' requests are summed up."""
    resources = value_at(job, added.resources) if added.resources else None
    container = {"name": added.name, "resources": resources or {"requests": dict(added.requests)}}
    path = ("spec", "initContainers" if added.apart else "containers")
    return replaced(template, path, [*(get(dict(template), *path) or ()), container])


def _ranks(slot: Slot) -> Object:
    """By which labels topology-aware scheduling ranks the pods of a pod set."""
    paths = slot.paths
    ranks: Object = {"podIndexLabel": paths.index_label} if paths.index_label else {}
    if paths.group_index_label:
        count = value_at(slot.element, paths.group_count)
        ranks |= {
            "subGroupIndexLabel": paths.group_index_label,
            "subGroupCount": 1 if count is None else count,
        }
    return ranks


class DescribedJob(DescribedPodSets):
    """A job that is suspended by one field, and whose pod templates are found by paths."""

    def bound(self, read: Reader) -> JobIntegration:
        return self

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        return self.suspend_requested(job)

    def suspend_requested(self, job: Mapping[str, Any]) -> bool:
        return bool(get(job, *self._suspend))

    def is_stopping(self, job: Mapping[str, Any]) -> bool:
        """Never: it is stopped with one write."""
        return False

    def runs(self, job: Mapping[str, Any]) -> bool:
        return self.outcome(job) is None and (not self.is_suspended(job) or self.is_active(job))

    def suspended(self, job: Mapping[str, Any]) -> Object:
        return replaced(job, self._suspend, True)

    @property
    def _suspend(self) -> tuple[str, ...]:
        assert self.kind.suspend is not None, f"{self.kind.framework} has no field to suspend it by"
        return self.kind.suspend

    def started(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        before = self.original(job)
        after = replaced(self._injected(before, infos), self._suspend, False)
        return with_record(after, self._new_record(before, after))

    def _injected(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        return self.with_templates(job, lambda index, template: injected(template, infos[index]))

    def _new_record(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
        """The record of a start (`additions`)."""
        old, new = ([template_at(job, s) for s in pod_set_slots(job, self.kind)] for job in (before, after))
        return record(old, new)

    def shrunk(self, job: Mapping[str, Any], counts: Mapping[str, int]) -> Object:
        return dict(job)

    def has_record(self, job: Mapping[str, Any]) -> bool:
        return self._record(job) is not None

    def _record(self, job: Mapping[str, Any]) -> Object | None:
        if names.TEMPLATE_ADDITIONS_ANNOTATION not in annotations_of(job):
            return None
        return record_of(job, len(list(pod_set_slots(job, self.kind))))

    def original(self, job: Mapping[str, Any]) -> Object:
        found = self._record(job)
        result = without_record(job)
        if found is None:
            return result
        added = found["templates"]
        return self.with_templates(result, lambda index, template: without_additions(template, added[index]))

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        """Suspend and restore the templates at once."""
        desired = self.queued(job, originals)
        return None if desired == job else Write(desired)

    def queued(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Object:
        return self.suspended(self._restored(job, originals))

    def _restored(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Object:
        """The job with its original templates: by its record, or as its Workload has them."""
        result = self.original(job)
        if originals is None or self.has_record(job):
            return result
        if len(originals) != len(list(pod_set_slots(job, self.kind))):
            return result
        return self.with_templates(
            result, lambda index, template: self._restored_template(template, originals[index])
        )

    def _restored_template(self, template: Mapping[str, Any], original: Mapping[str, Any]) -> Object:
        return restored(template, section(original, "template"), self.kind.template_labels)

    def with_templates(
        self, job: Mapping[str, Any], change: Callable[[int, Mapping[str, Any]], Object]
    ) -> Object:
        """The job with each pod template changed; templates are numbered in the order of the pod sets.

        A template that only repeats what the operator uses anyway is left out.
        """
        result = dict(job)
        for index, slot in enumerate(pod_set_slots(job, self.kind)):
            template: Object | None = change(index, template_at(job, slot))
            default = slot.paths.default_template
            if default is not None and template == default(job):
                template = None
            result = with_value(result, slot.template, template)
        return result

    def is_active(self, job: Mapping[str, Any]) -> bool:
        return shows(job, self.kind.active)

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        counters = [sign for sign in self.kind.ready if isinstance(sign, tuple)]
        if any(sign.holds(job) for sign in self.kind.ready if not isinstance(sign, tuple)):
            return True
        ready = sum(int(value or 0) for path in counters for value in values_at(job, path))
        slots = pod_set_slots(job, self.kind)
        return bool(counters) and ready >= sum(pod_count(slot.element, slot.paths, job) for slot in slots)

    def outcome(self, job: Mapping[str, Any]) -> Outcome | None:
        for signs, succeeded in ((self.kind.succeeded, True), (self.kind.failed, False)):
            condition = true_condition(job, signs)
            if condition is not None:
                return Outcome(succeeded, str(condition.get("message") or ""))
            if any(sign.holds(job) for sign in signs if not isinstance(sign, str)):
                return Outcome(succeeded, self._message(job))
        return None

    def _message(self, job: Mapping[str, Any]) -> str:
        return str(value_at(job, self.kind.message) or "") if self.kind.message else ""

    def on_hold(self, job: Mapping[str, Any]) -> str:
        if self.kind.on_hold is None or not self.kind.on_hold.holds(job):
            return ""
        return self._message(job) or "The job is on hold"

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        return {
            slot.name: min(amount.of(job, slot.element), pod_count(slot.element, slot.paths, job))
            for slot in pod_set_slots(job, self.kind)
            if (amount := slot.paths.reclaimable) is not None
        }

    def default(self, job: Mapping[str, Any]) -> Object:
        return dict(job)

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        """What is wrong with its structure and was not before: an object with old errors can be deleted."""
        return new_errors(lambda one: structure_errors(one, self.kind), job, old)
