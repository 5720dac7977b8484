"""SparkApplication: what its description cannot say (docs/reference/kueue-integrations.md 9.4).

A role says what its pods are in fields of its own, which the operator turns into a pod. What an admission
gives to the pods goes to the role's pod template, which Spark starts from, and to nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pykueue.api import quantity
from pykueue.api.jobkinds import Slot, pod_set_slots, value_at, with_value
from pykueue.api.jobkinds.spark import SPARK_APPLICATION, role_template, spark_bytes
from pykueue.api.objects import Object, get, replaced, section
from pykueue.api.quantity import QuantityError
from pykueue.api.validation.fields import INVALID, REQUIRED, FieldError, new_errors

from .described import DescribedJob, template_at
from .podsets import TEMPLATE_FIELDS, PodSetInfo, injected


class SparkApplication(DescribedJob):
    """Pod templates are folded from the role's fields, those of the application, and its pod template."""

    def __init__(self) -> None:
        super().__init__(SPARK_APPLICATION)

    def _template(self, job: Mapping[str, Any], slot: Slot) -> Mapping[str, Any]:
        return role_template(job, slot.name, template_at(job, slot))

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        yield from super().validate(job, old)
        yield from new_errors(self._role_errors, job, old)

    def _role_errors(self, job: Mapping[str, Any]) -> list[FieldError]:
        names = [slot.name for slot in pod_set_slots(job, self.kind)]
        return [error for name in names for error in _role_errors(name, value_at(job, ("spec", name)))]

    def _injected(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        result: Object = dict(job)
        for slot, info in zip(pod_set_slots(job, self.kind), infos, strict=True):
            before = self._template(job, slot)
            template = _with_added(template_at(job, slot), before, injected(before, info))
            result = with_value(result, slot.template, template or None)
        return result

    def with_templates(
        self, job: Mapping[str, Any], change: Callable[[int, Mapping[str, Any]], Object]
    ) -> Object:
        """The job with each pod template that a role has changed; one that says nothing is left out."""
        result: Object = dict(job)
        for index, slot in enumerate(pod_set_slots(job, self.kind)):
            if value_at(job, slot.template) is not None:
                template = change(index, template_at(job, slot))
                result = with_value(result, slot.template, template or None)
        return result

    def _restored_template(self, template: Mapping[str, Any], original: Mapping[str, Any]) -> Object:
        """Without what the start added: whatever the Workload's templates do not have."""
        return _without_added(template, section(original, "template"))


def _with_added(template: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """The template with what `after` has beyond `before` in the fields that a start may change."""
    result = dict(template)
    for path in TEMPLATE_FIELDS:
        old, new, own = get(dict(before), *path), get(dict(after), *path), get(dict(template), *path)
        if isinstance(new, dict):
            added = {key: value for key, value in new.items() if key not in (old or {})}
            result = replaced(result, path, {**(own or {}), **added}) if added else result
        elif isinstance(new, list):
            extra = [one for one in new if one not in (old or [])]
            result = replaced(result, path, [*(own or []), *extra]) if extra else result
    return result


def _without_added(template: Mapping[str, Any], original: Mapping[str, Any]) -> Object:
    """The template without the entries that `original` does not have in those fields."""
    result = dict(template)
    for path in TEMPLATE_FIELDS:
        own, known = get(dict(template), *path), get(dict(original), *path)
        if isinstance(own, dict):
            kept: Any = {key: value for key, value in own.items() if key in (known or {})}
        elif isinstance(own, list):
            kept = [one for one in own if one in (known or [])]
        else:
            continue
        if kept != own:
            result = replaced(result, path, kept or None)
    for key in ("metadata", "spec"):
        left = result.get(key)
        # The operator's webhook writes empty fields, as null, into a template that has none.
        if left == template.get(key) or not isinstance(left, dict):
            continue
        if all(value is None for value in left.values()):
            del result[key]
    return result


def _role_errors(name: str, role: Any) -> Iterable[FieldError]:
    """The amounts of a role must be such that Spark and Kubernetes accept them."""
    path = f"spec.{name}"
    if not isinstance(role, dict):
        if role is not None:
            yield FieldError(path, INVALID, role, "must be a map")
        else:
            yield FieldError(path, REQUIRED, detail="an application has a driver and executors")
        return
    for field in ("memory", "memoryOverhead"):
        if role.get(field) is not None and spark_bytes(str(role[field])) is None:
            yield FieldError(f"{path}.{field}", INVALID, role[field], "must be an amount such as 512m or 4g")
    cores = role.get("cores")
    if cores is not None and (not isinstance(cores, int) or isinstance(cores, bool) or cores < 1):
        yield FieldError(f"{path}.cores", INVALID, cores, "must be a whole number greater than 0")
    if role.get("coreRequest") is not None:
        try:
            quantity.parse(role["coreRequest"])
        except QuantityError as error:
            yield FieldError(f"{path}.coreRequest", INVALID, role["coreRequest"], str(error))
    if not isinstance(role.get("tolerations") or [], list):
        yield FieldError(f"{path}.tolerations", INVALID, role["tolerations"], "must be a list")
