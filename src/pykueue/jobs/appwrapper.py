"""AppWrapper: its pod sets are those of the objects inside (docs/reference/kueue-integrations.md 9.4).

What an admission gives to the pods is written beside a component, into `podSetInfos`; its controller merges
it when it makes the component. The templates themselves never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.jobkinds import Place, field_path, value_at, with_value
from pykueue.api.jobkinds.appwrapper import (
    APP_WRAPPER,
    GROUP_COUNT_ANNOTATION,
    GROUP_INDEX_ANNOTATION,
    INDEX_ANNOTATION,
    WrappedPodSet,
    inferred,
    parse_path,
    wrapped_pod_sets,
)
from pykueue.api.objects import Object, replaced
from pykueue.api.validation.fields import INVALID, REQUIRED, FieldError, new_errors, too_many

from .base import Write
from .described import DescribedJob
from .podsets import PodSetInfo, injected, pod_set

#: Most pod templates in all components.
MAX_TEMPLATES = 8
_COMPONENTS: Place = ("spec", "components")
_INFOS = "podSetInfos"


def _template(job: Mapping[str, Any], found: WrappedPodSet) -> Object:
    """The pod template; of a pod itself, what a template would have of it."""
    template = value_at(job, (*_COMPONENTS, found.component, *found.at))
    if not isinstance(template, dict):
        return {}
    return {key: template[key] for key in ("metadata", "spec") if key in template}


def _ranks(found: WrappedPodSet) -> Object:
    ranks: Object = {}
    for annotation, field in (
        (INDEX_ANNOTATION, "podIndexLabel"),
        (GROUP_INDEX_ANNOTATION, "subGroupIndexLabel"),
    ):
        if found.annotations.get(annotation):
            ranks[field] = found.annotations[annotation]
    groups = str(found.annotations.get(GROUP_COUNT_ANNOTATION) or "")
    if groups.isdecimal():
        ranks["subGroupCount"] = int(groups)
    return ranks


class AppWrapper(DescribedJob):
    """One pod set for each wrapped pod template, `<name>-<number>`."""

    def __init__(self) -> None:
        super().__init__(APP_WRAPPER)

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        name = value_at(job, ("metadata", "name"))
        return [
            pod_set(_without_names(_template(job, found)), found.count, f"{name}-{number}", _ranks(found))
            for number, found in enumerate(wrapped_pod_sets(job))
        ]

    def priority_class(self, job: Mapping[str, Any]) -> str:
        names = (
            value_at(_template(job, found), ("spec", "priorityClassName")) for found in wrapped_pod_sets(job)
        )
        return next((str(name) for name in names if name), "")

    def started(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        result = _without_infos(job)
        for found, info in zip(wrapped_pod_sets(job), infos, strict=True):
            injected(_template(job, found), info)  # the controller would fail on a conflict
            at = (*_COMPONENTS, found.component, _INFOS)
            known = value_at(result, at) or []
            result = with_value(result, at, [*known, _written(info)])
        return replaced(result, ("spec", "suspend"), False)

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        desired = self.suspended(_without_infos(job))
        return None if desired == job else Write(desired)

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        yield from super().validate(job, old)
        yield from new_errors(_component_errors, job, old)


def _without_names(template: Mapping[str, Any]) -> Object:
    """Only what a pod template's metadata can have: labels and annotations."""
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        return dict(template)
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    return replaced(template, ("metadata",), kept or None)


def _written(info: PodSetInfo) -> Object:
    fields = {
        "annotations": dict(info.annotations),
        "labels": dict(info.labels),
        "nodeSelector": dict(info.node_selector),
        "tolerations": list(info.tolerations),
        "schedulingGates": list(info.scheduling_gates),
    }
    return {key: value for key, value in fields.items() if value}


def _without_infos(job: Mapping[str, Any]) -> Object:
    result: Object = dict(job)
    components = value_at(job, _COMPONENTS)
    for number in range(len(components) if isinstance(components, list) else 0):
        result = with_value(result, (*_COMPONENTS, number, _INFOS), None)
    return result


def _component_errors(job: Mapping[str, Any]) -> Iterable[FieldError]:
    components = value_at(job, _COMPONENTS)
    path = field_path(_COMPONENTS)
    if not isinstance(components, list) or not components:
        yield FieldError(path, REQUIRED, detail="at least one component is needed")
        return
    for number, component in enumerate(components):
        yield from _one_component_errors((*_COMPONENTS, number), component)
    found = wrapped_pod_sets(job)
    if not found:
        yield FieldError(path, INVALID, detail="no component has a pod template that counts")
    if len(found) > MAX_TEMPLATES:
        yield too_many(path, len(found), MAX_TEMPLATES, "pod templates in all")
    for one in found:
        template = _template(job, one)
        if not value_at(template, ("spec", "containers")):
            place = (*_COMPONENTS, one.component, *one.at, "spec", "containers")
            yield FieldError(field_path(place), REQUIRED, detail="at least one container is needed")


def _one_component_errors(at: Place, component: Any) -> Iterable[FieldError]:
    template = value_at(component, ("template",))
    if not isinstance(template, dict):
        yield FieldError(field_path((*at, "template")), REQUIRED, detail="the object to create is needed")
        return
    if template.get("kind") == APP_WRAPPER.resource.kind:
        text = "an AppWrapper cannot contain another"
        yield FieldError(field_path((*at, "template", "kind")), INVALID, template["kind"], text)
    declared = value_at(component, ("podSets",))
    if declared is not None and not isinstance(declared, list):
        yield FieldError(field_path((*at, "podSets")), INVALID, declared, "must be a list")
        return
    known = dict(inferred(template))
    for index, one in enumerate(declared or ()):
        place = (*at, "podSets", index)
        path = parse_path(value_at(one, ("path",)))
        if path is None:
            text = "must be a path such as template.spec.template"
            shown = value_at(one, ("path",))
            yield FieldError(field_path((*place, "path")), INVALID, shown, text)
            continue
        if not isinstance(value_at(component, path), dict):
            text = "leads to no pod template"
            yield FieldError(field_path((*place, "path")), INVALID, one["path"], text)
        replicas = value_at(one, ("replicas",))
        if replicas is not None and (not isinstance(replicas, int) or replicas < 0):
            text = "must be a whole number of at least 0"
            yield FieldError(field_path((*place, "replicas")), INVALID, replicas, text)
        elif path in known and (1 if replicas is None else replicas) != known[path]:
            text = f"must be {known[path]}, as the component says"
            yield FieldError(field_path((*place, "replicas")), INVALID, replicas, text)
