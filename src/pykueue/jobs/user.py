"""Integrations of kinds that users describe, and which of them there can be beside the built-in ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.jobkinds import pod_count, pod_set_slots, value_at
from pykueue.api.userkinds import CompiledKind, JobKindError, compile_kind
from pykueue.api.validation.fields import INVALID, FieldError

from .base import UnreadableJobError
from .described import DescribedJob
from .kinds import BUILT_IN


class UserJob(DescribedJob):
    """A job of a kind that a JobKind describes."""

    def pod_sets(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Its pod sets. Raises UnreadableJobError where a number of pods has no value."""
        for slot in pod_set_slots(job, self.kind):
            if not slot.name:
                raise UnreadableJobError(f"a pod set of {'.'.join(slot.paths.each)} has no name")
            if not isinstance(value_at(job, slot.template), dict):
                raise UnreadableJobError(f"pod set {slot.name} has no pod template")
            try:
                pod_count(slot.element, slot.paths, job)
            except ValueError as error:
                raise UnreadableJobError(f"number of pods of pod set {slot.name}: {error}") from None
        return super().pod_sets(job)

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        try:
            return super().pods_ready(job)
        except ValueError:
            return False

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        try:
            return super().reclaimable(job)
        except ValueError:
            return {}


def user_job(obj: Mapping[str, Any]) -> tuple[CompiledKind, UserJob]:
    """The integration of a JobKind. Raises JobKindError, also for a kind that is built in."""
    compiled = compile_kind(obj)
    resource = compiled.description.resource
    known = [kind for kind in BUILT_IN if kind.resource.group_kind == resource.group_kind]
    if known:
        text = f"is queued by the built-in framework {known[0].framework}"
        raise JobKindError([FieldError("spec.kind", INVALID, resource.kind, text)])
    return compiled, UserJob(compiled.description)


def is_built_in(error: JobKindError) -> bool:
    """Whether the kind is described already, by the project itself."""
    return any("built-in framework" in one.detail for one in error.errors)


def add_user_job(known: dict[tuple[str, str], UserJob], obj: Mapping[str, Any]) -> None:
    """Add the integration of a JobKind to those known, by group and kind. Raises JobKindError."""
    _, job = user_job(obj)
    resource = job.kind.resource
    if resource.group_kind in known:
        other = known[resource.group_kind].kind.resource
        text = f"is described by JobKind {other.plural}.{other.group}, too"
        raise JobKindError([FieldError("spec.kind", INVALID, resource.kind, text)])
    known[resource.group_kind] = job
