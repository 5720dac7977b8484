"""What the annotation of pod templates must be that asks for several flavors (`pykueue.api.hybrid`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pykueue.api.hybrid import count_problem, parse_request
from pykueue.api.jobkinds import JobKind
from pykueue.api.kueue import names
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.objects import annotations_of
from pykueue.api.validation.fields import FORBIDDEN, INVALID, FieldError

from .topology import Template, templates_of

_TOPOLOGY = (
    names.REQUIRED_TOPOLOGY_ANNOTATION,
    names.PREFERRED_TOPOLOGY_ANNOTATION,
    names.UNCONSTRAINED_TOPOLOGY_ANNOTATION,
    names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    names.SLICE_CONSTRAINTS_ANNOTATION,
    names.POD_SET_GROUP_NAME_ANNOTATION,
)


def hybrid_errors(job: Mapping[str, Any], kind: JobKind) -> Iterator[FieldError]:
    """What is wrong with a job's requests for several flavors."""
    for template in templates_of(job, kind):
        text = template.annotations.get(HYBRID_ASSIGNMENT_ANNOTATION)
        if text is None:
            continue
        path = template.path(HYBRID_ASSIGNMENT_ANNOTATION)
        if annotations_of(job).get(names.ELASTIC_JOB_ANNOTATION) == "true":
            detail = f"cannot be combined with {names.ELASTIC_JOB_ANNOTATION}"
            yield FieldError(path, FORBIDDEN, detail=detail)
        for other in template.has(*_TOPOLOGY):
            yield FieldError(path, FORBIDDEN, detail=f"cannot be combined with {other}")
        problem = _problem(str(text), template)
        if problem:
            yield FieldError(path, INVALID, text, problem)


def refusals(job: Mapping[str, Any], kind: JobKind) -> Iterator[FieldError]:
    """The requests for several flavors of a kind whose pods are queued themselves: they get one flavor."""
    for template in templates_of(job, kind):
        if HYBRID_ASSIGNMENT_ANNOTATION in template.annotations:
            yield _refusal(template.path(HYBRID_ASSIGNMENT_ANNOTATION))


def pod_refusals(pod: Mapping[str, Any]) -> Iterator[FieldError]:
    """The same of a pod that is queued itself."""
    if HYBRID_ASSIGNMENT_ANNOTATION in annotations_of(pod):
        yield _refusal(f"metadata.annotations[{HYBRID_ASSIGNMENT_ANNOTATION}]")


def _refusal(path: str) -> FieldError:
    return FieldError(path, FORBIDDEN, detail="pods that are queued themselves cannot be split over flavors")


def _problem(text: str, template: Template) -> str:
    try:
        request = parse_request(text)
    except ValueError as error:
        return str(error)
    return count_problem(request, template.pods) if template.pods else ""
