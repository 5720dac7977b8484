"""What the topology annotations of pod templates must be.

Source: docs/reference/topology-aware-scheduling.md 4.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from pykueue.api.jobkinds import JobKind, Place, field_path, pod_count, pod_set_slots, value_at
from pykueue.api.kueue import names
from pykueue.api.objects import controller_of
from pykueue.api.resources import JOBS
from pykueue.api.validation.fields import FORBIDDEN, INVALID, REQUIRED, FieldError
from pykueue.api.validation.syntax import FALSE, TRUE, integer, qualified_name

_REQUIRED = names.REQUIRED_TOPOLOGY_ANNOTATION
_PREFERRED = names.PREFERRED_TOPOLOGY_ANNOTATION
_UNCONSTRAINED = names.UNCONSTRAINED_TOPOLOGY_ANNOTATION
_SLICE, _SIZE = names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION, names.SLICE_SIZE_ANNOTATION
_LAYERS, _GROUP = names.SLICE_CONSTRAINTS_ANNOTATION, names.POD_SET_GROUP_NAME_ANNOTATION
_MOST_LAYERS = 3
_MOST_PODS = 2**31 - 1


class Template(NamedTuple):
    """The annotations of one pod set's template, where they are, and how many pods it has."""

    at: Place
    annotations: Mapping[str, Any]
    #: None: not known.
    pods: int | None

    def path(self, annotation: str) -> str:
        return f"{field_path(self.at)}[{annotation}]"

    def has(self, *annotations: str) -> list[str]:
        return [each for each in annotations if each in self.annotations]


def topology_errors(job: Mapping[str, Any], kind: JobKind, layers: bool) -> Iterator[FieldError]:
    """What is wrong with a job's topology annotations; `layers`: whether slices may have several."""
    templates = list(templates_of(job, kind))
    for template in templates:
        yield from _errors(template, layers)
    groups: dict[str, list[Template]] = {}
    # A part of another job has some of its pod sets only.
    for template in templates if not _is_part(job, kind) else ():
        if _GROUP in template.annotations:
            groups.setdefault(str(template.annotations[_GROUP]), []).append(template)
    for name, members in groups.items():
        yield from _membership_errors(name, members)


def pod_errors(pod: Mapping[str, Any], layers: bool) -> Iterator[FieldError]:
    """What is wrong with the topology annotations of a pod, whose group is not known."""
    at: Place = ("metadata", "annotations")
    yield from _errors(Template(at, value_at(pod, at) or {}, None), layers)


def templates_of(job: Mapping[str, Any], kind: JobKind) -> Iterator[Template]:
    """The templates of a job that have annotations."""
    for slot in pod_set_slots(job, kind):
        at: Place = (*slot.template, "metadata", "annotations")
        found = value_at(job, at)
        if slot.paths.annotations and isinstance(more := value_at(job, slot.paths.annotations), dict):
            at, found = slot.paths.annotations, {**(found if isinstance(found, dict) else {}), **more}
        if isinstance(found, dict):
            # The pod sets of a part of another job are larger: all parts together.
            pods = None if _is_part(job, kind) else pod_count(slot.element, slot.paths)
            yield Template(at, found, pods)


def _is_part(job: Mapping[str, Any], kind: JobKind) -> bool:
    """Whether it is a Job that another job, such as a JobSet, made."""
    return kind.resource == JOBS and controller_of(job) is not None


def _errors(template: Template, layers: bool) -> Iterator[FieldError]:
    yield from _level_errors(template)
    yield from _slice_errors(template)
    yield from _layer_errors(template, layers)
    yield from _group_errors(template)


def _level_errors(template: Template) -> Iterable[FieldError]:
    present = template.has(_REQUIRED, _PREFERRED, _UNCONSTRAINED)
    for extra in present[1:]:
        text = f"cannot be combined with {present[0]}"
        yield FieldError(template.path(extra), FORBIDDEN, detail=text)
    for annotation in template.has(_REQUIRED, _PREFERRED, _SLICE):
        value = template.annotations[annotation]
        problem = qualified_name(str(value))
        if problem:
            yield FieldError(template.path(annotation), INVALID, value, problem)
    value = template.annotations.get(_UNCONSTRAINED)
    if value is not None and value not in (*TRUE, *FALSE):
        yield FieldError(template.path(_UNCONSTRAINED), INVALID, value, "must be true or false")


def _slice_errors(template: Template) -> Iterable[FieldError]:
    topology, size = template.annotations.get(_SLICE), template.annotations.get(_SIZE)
    for missing, value, other in ((_SLICE, topology, _SIZE), (_SIZE, size, _SLICE)):
        if value is None and other in template.annotations:
            yield FieldError(template.path(missing), REQUIRED, detail=f"is needed with {other}")
    if size is not None:
        number = integer(str(size))
        most = _MOST_PODS if template.pods is None else template.pods
        if number is None or not 1 <= number <= most:
            text = f"must be a whole number from 1 to {most}, the number of pods"
            yield FieldError(template.path(_SIZE), INVALID, size, text)


def _layer_errors(template: Template, allowed: bool) -> Iterable[FieldError]:
    text = template.annotations.get(_LAYERS)
    if text is None:
        return
    path = template.path(_LAYERS)
    if not allowed:
        yield FieldError(path, FORBIDDEN, detail="needs the feature gate TASMultiLayerTopology")
    for other in template.has(_SLICE, _SIZE):
        yield FieldError(path, FORBIDDEN, detail=f"cannot be combined with {other}")
    try:
        layers = json.loads(str(text))
    except ValueError:
        layers = None
    if not isinstance(layers, list) or not 1 <= len(layers) <= _MOST_LAYERS:
        yield FieldError(path, INVALID, text, f"must be a JSON list of 1 to {_MOST_LAYERS} layers")
        return
    sizes = [value_at(layer, ("size",)) for layer in layers]
    topologies = [value_at(layer, ("topology",)) for layer in layers]
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        yield FieldError(path, INVALID, text, "each layer has a size of at least 1")
        return
    problems = filter(None, (qualified_name(str(topology or "")) for topology in topologies))
    for problem in problems:
        yield FieldError(path, INVALID, text, f"topology: {problem}")
    if len(set(map(str, topologies))) < len(layers):
        yield FieldError(path, INVALID, text, "each layer names another topology level")
    if template.pods is not None and sizes[0] > template.pods:
        yield FieldError(path, INVALID, text, f"the first size must be at most {template.pods}")
    if any(outer % inner for outer, inner in pairwise(sizes)):
        yield FieldError(path, INVALID, text, "each size must be divisible by the next")


def _group_errors(template: Template) -> Iterable[FieldError]:
    name = template.annotations.get(_GROUP)
    if name is None:
        return
    path = template.path(_GROUP)
    if str(name).isascii() and str(name).isdecimal():
        yield FieldError(path, INVALID, name, "must not be a number")
    if not template.has(_REQUIRED, _PREFERRED):
        text = f"needs {_REQUIRED} or {_PREFERRED} beside it"
        yield FieldError(path, INVALID, name, text)
    for other in template.has(_SLICE, _SIZE, _LAYERS):
        yield FieldError(path, FORBIDDEN, detail=f"cannot be combined with {other}")


def _membership_errors(name: str, members: list[Template]) -> Iterable[FieldError]:
    path = members[0].path(_GROUP)
    if len(members) != 2:
        yield FieldError(path, INVALID, name, f"must be on exactly two pod sets, not on {len(members)}")
        return
    if all(member.pods != 1 for member in members):
        yield FieldError(path, INVALID, name, "one of the two pod sets must have one pod")
    first, second = ([m.annotations.get(key) for key in (_REQUIRED, _PREFERRED)] for m in members)
    if first != second:
        yield FieldError(path, INVALID, name, "both pod sets must ask for the same topology")
