"""Integrations that follow from a description alone; kinds that need more override single answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.jobkinds import JobKind, pod_count, pod_set_elements, true_condition
from pykueue.api.objects import Object, get, replaced, section
from pykueue.api.validation import FieldError

from .base import Outcome, Reader, Write, no_objects
from .podsets import PodSetInfo, injected, pod_set, restored


class DescribedPodSets:
    """What every described kind has: pod sets, and the priority class of their pods."""

    def __init__(self, kind: JobKind) -> None:
        self.kind = kind

    def pod_sets(self, job: Mapping[str, Any], read: Reader = no_objects) -> list[Object]:
        return [
            pod_set(self._requested(section(element, *paths.template)), pod_count(element, paths), name)
            for paths in self.kind.pod_sets
            for name, element in pod_set_elements(job, paths)
        ]

    def priority_class(self, job: Mapping[str, Any]) -> str:
        """Of the first pod set that names one."""
        for paths in self.kind.pod_sets:
            for _, element in pod_set_elements(job, paths):
                name = get(dict(element), *paths.template, "spec", "priorityClassName")
                if name:
                    return str(name)
        return ""

    def _requested(self, template: Mapping[str, Any]) -> Mapping[str, Any]:
        """The template without the labels of the kind's own controller."""
        labels = section(template, "metadata", "labels")
        own = {key: value for key, value in labels.items() if key not in self.kind.template_labels}
        return (
            template if len(own) == len(labels) else replaced(template, ("metadata", "labels"), own or None)
        )


class DescribedJob(DescribedPodSets):
    """A job that is suspended by one field, and whose pod templates are found by paths."""

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
        result = self.with_templates(job, lambda index, template: injected(template, infos[index]))
        return replaced(result, self._suspend, False)

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        """Suspend and restore the templates at once."""
        desired = self.suspended(job)
        if originals is not None and len(originals) == len(self.pod_sets(job)):
            desired = self.with_templates(
                desired, lambda index, template: self._restored_template(template, originals[index])
            )
        return None if desired == job else Write(desired)

    def _restored_template(self, template: Mapping[str, Any], original: Mapping[str, Any]) -> Object:
        return restored(template, section(original, "template"), self.kind.template_labels)

    def with_templates(
        self, job: Mapping[str, Any], change: Callable[[int, Mapping[str, Any]], Object]
    ) -> Object:
        """The job with each pod template changed; templates are numbered in the order of the pod sets."""
        result, index = dict(job), 0
        for paths in self.kind.pod_sets:
            elements = []
            for _, element in pod_set_elements(result, paths):
                template = change(index, section(element, *paths.template))
                elements.append(replaced(element, paths.template, template))
                index += 1
            if paths.each:
                result = replaced(result, paths.each, elements) if elements else result
            else:
                (result,) = elements
        return result

    def is_active(self, job: Mapping[str, Any]) -> bool:
        return any(get(job, *path) for path in self.kind.active)

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        ready = sum(int(get(job, *path) or 0) for path in self.kind.ready)
        return ready >= sum(
            pod_count(element, paths)
            for paths in self.kind.pod_sets
            for _, element in pod_set_elements(job, paths)
        )

    def outcome(self, job: Mapping[str, Any]) -> Outcome | None:
        for types, succeeded in ((self.kind.succeeded, True), (self.kind.failed, False)):
            condition = true_condition(job, types)
            if condition is not None:
                return Outcome(succeeded, str(condition.get("message") or ""))
        return None

    def on_hold(self, job: Mapping[str, Any]) -> str:
        return ""

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        return {}

    def default(self, job: Mapping[str, Any]) -> Object:
        return dict(job)

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        return ()
