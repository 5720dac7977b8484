"""What a job must look like for its description to apply: the fields that pod sets are read from.

The schema of a kind's definition checks some of this where it is complete. A job that passed it by would get
no Workload, or one that stands for fewer pods than its operator makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pykueue.api.jobkinds import JobKind, Place, PodSetPaths, Slot, field_path, pod_set_slots, value_at
from pykueue.api.validation.fields import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    not_supported,
    too_many,
)
from pykueue.api.validation.syntax import dns_label

#: Most pod sets of a Workload.
MAX_POD_SETS = 18


def structure_errors(job: Mapping[str, Any], kind: JobKind) -> Iterator[FieldError]:
    """What keeps a job of this kind from being queued, field by field."""
    if kind.suspend is not None:
        suspend = value_at(job, kind.suspend)
        if suspend is not None and not isinstance(suspend, bool):
            yield FieldError(field_path(kind.suspend), INVALID, suspend, "must be true or false")
    for rule in kind.rules:
        if rule.broken.holds(job):
            yield FieldError(rule.path, FORBIDDEN, detail=rule.detail)
    for paths in kind.pod_sets:
        if paths.each and (paths.when is None or paths.when.holds(job)):
            yield from _collection_errors(job, paths)
    yield from _pod_set_errors(list(pod_set_slots(job, kind)), kind, job)


def _collection_errors(job: Mapping[str, Any], paths: PodSetPaths) -> Iterable[FieldError]:
    collection, path = value_at(job, paths.each), field_path(paths.each)
    if collection is None:
        return
    if not isinstance(collection, dict if paths.keys else list):
        text = "must be a map" if paths.keys else "must be a list"
        yield FieldError(path, INVALID, collection, text)
        return
    elements = enumerate(collection) if isinstance(collection, list) else collection.items()
    for key, element in elements:
        if paths.keys and key not in paths.keys:
            yield not_supported(path, key, paths.keys)
        elif not isinstance(element, dict):
            yield FieldError(field_path((*paths.each, key)), INVALID, element, "must be a map")


def _pod_set_errors(slots: list[Slot], kind: JobKind, job: Mapping[str, Any]) -> Iterable[FieldError]:
    names: set[str] = set()
    for slot in slots:
        if slot.paths.each and not slot.paths.keys:
            yield from _name_errors(slot, names)
        names.add(slot.name)
        yield from _count_errors(slot, job)
        yield from _template_errors(slot, job)
    if not slots and kind.pod_sets:
        at = next(paths.each or paths.template for paths in kind.pod_sets)
        yield FieldError(field_path(at), REQUIRED, detail="at least one pod template is needed")
    if len(slots) > MAX_POD_SETS:
        at = next(paths.each for paths in reversed(kind.pod_sets) if paths.each)
        yield too_many(field_path(at), len(slots), MAX_POD_SETS, "pod sets in all")


def _name_errors(slot: Slot, names: set[str]) -> Iterable[FieldError]:
    path = field_path((*slot.at, slot.paths.name))
    if not slot.name:
        yield FieldError(path, REQUIRED, detail="names the pod set")
    elif slot.name in names:
        yield FieldError(path, DUPLICATE, slot.written)
    elif problem := dns_label(slot.name):
        yield FieldError(path, INVALID, slot.written, problem)


def _count_errors(slot: Slot, job: Mapping[str, Any]) -> Iterable[FieldError]:
    if slot.paths.amount is not None:
        try:
            slot.paths.amount.of(job, slot.element)
        except ValueError as error:
            yield FieldError(field_path(slot.template), INVALID, slot.name, f"number of pods: {error}")
    for path in {path for factor in slot.paths.counts for path in factor}:
        value = value_at(slot.element, path)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            where = field_path((*slot.at, *path))
            yield FieldError(where, INVALID, value, "must be a whole number of at least 0")


def _template_errors(slot: Slot, job: Mapping[str, Any]) -> Iterable[FieldError]:
    template = value_at(job, slot.template)
    if template is None:
        if slot.paths.default_template is None:
            yield FieldError(field_path(slot.template), REQUIRED, detail="a pod template is needed")
        return
    for place, value, what in _template_parts(slot.template, template):
        if value is None and what == "map":
            continue
        if not isinstance(value, dict if what == "map" else list):
            yield FieldError(field_path(place), INVALID, value, f"must be a {what}")
            return
    if slot.paths.partial:
        return
    containers: Place = (*slot.template, "spec", "containers")
    found = value_at(job, containers)
    if not found:
        yield FieldError(field_path(containers), REQUIRED, detail="at least one container is needed")
        return
    for index, container in enumerate(found):
        place = (*containers, index)
        if not isinstance(container, dict):
            yield FieldError(field_path(place), INVALID, container, "must be a map")


def _template_parts(at: Place, template: Any) -> Iterator[tuple[Place, Any, str]]:
    """The parts of a pod template that are read and written, with what they must be."""
    yield at, template, "map"
    for path in (
        ("metadata",),
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("spec",),
        ("spec", "nodeSelector"),
    ):
        yield (*at, *path), value_at(template, path), "map"
    for path in (("spec", "containers"), ("spec", "tolerations"), ("spec", "schedulingGates")):
        value = value_at(template, path)
        if value is not None:
            yield (*at, *path), value, "list"
