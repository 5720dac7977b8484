"""From a JobKind to the description that built-in kinds are values of, or to what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykueue import extras
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.jobkinds import Amount, ConditionIs, FieldIn, Path, PodSetPaths, Predicate, Sign, value_at
from pykueue.api.jobkinds import JobKind as Description
from pykueue.api.kueue.common import LABEL, SUBDOMAIN
from pykueue.api.resources import KUEUE_GROUP, Resource
from pykueue.api.validation.fields import INVALID, REQUIRED, FieldError
from pykueue.api.validation.syntax import qualified_name

from .errors import ExpressionError, JobKindError
from .manifest import GROUP, PATH, SPEC_PATH, JobKind, PodSet, Test

if TYPE_CHECKING:
    from pykueue.api.cel.program import Program

    from .expressions import Number

MAX_POD_SETS: Final = 18
_PATH, _SPEC_PATH = re.compile(PATH, re.ASCII), re.compile(SPEC_PATH, re.ASCII)
#: Characters of a path.
MAX_PATH: Final = 256


class Named(NamedTuple):
    """A path of a description, as a definition's schema is asked for it."""

    #: Where the JobKind names it.
    field: str
    #: From the job; elements of a list are `*`.
    path: Path
    #: What the manager does with it needs this type: boolean, string, integer, object, array, or anything.
    type: str = ""


@dataclass(frozen=True)
class CompiledKind:
    """A JobKind that can be used, as far as it can be known without the cluster."""

    name: str
    description: Description
    paths: tuple[Named, ...]
    #: Expressions with the field that has them and the path of the list that `element` is in.
    programs: tuple[tuple[str, Program, Path], ...]


def compile_kind(obj: Mapping[str, Any]) -> CompiledKind:
    """The description of a JobKind object. Raises JobKindError."""
    try:
        kind = decode_as(JobKind, obj)
    except DecodeError as error:
        path, _, why = error.why.rpartition(": ")
        found = FieldError(path or "spec", INVALID, value_at(obj, tuple(path.split("."))), why)
        raise JobKindError([found]) from None
    return _Compiler(kind).run()


def forbidden_group(group: str) -> str:
    """Why kinds of a group cannot be described; empty: they can.

    The manager acts with its own rights on what a JobKind describes: no description may lead it to objects
    that decide what others may do, or that control the manager itself.
    """
    if group == KUEUE_GROUP or group.endswith(f".{KUEUE_GROUP}"):
        return "is the group of Kueue's own kinds"
    if group == GROUP or group.endswith(f".{GROUP}"):
        return "is the group of this project's own kinds"
    if "." not in group or group.endswith(".k8s.io"):
        return "is a group of Kubernetes; accepted: groups of custom resources"
    return ""


class _Compiler:
    """Compiles one JobKind, gathering what is wrong."""

    def __init__(self, kind: JobKind) -> None:
        self._kind = kind
        self._errors: list[FieldError] = []
        self._paths: list[Named] = []
        self._programs: list[tuple[str, Program, Path]] = []

    def run(self) -> CompiledKind:
        spec = self._kind.spec
        resource = self._resource()
        suspend = self._written("spec.suspend", spec.suspend, "boolean")
        managed_by = (
            self._written("spec.managedBy.path", spec.managed_by.path, "string") if spec.managed_by else None
        )
        pod_sets = self._pod_sets(spec.pod_sets)
        started = FieldIn(suspend or ("spec",), (False, None))
        succeeded, failed = (
            self._sign(f"spec.{field}", test)
            for field, test in (("succeeded", spec.succeeded), ("failed", spec.failed))
        )
        active = self._test("spec.active", spec.active)
        ready = self._test("spec.ready", spec.ready) or started
        message = self._read("spec.message", spec.message)
        priority_class = self._read("spec.priorityClass", spec.priority_class)
        self._check_labels(spec.pod_labels)
        self._check_overlaps()
        if self._errors:
            raise JobKindError(self._errors)
        assert suspend is not None
        description = Description(
            framework=f"{resource.group}/{resource.kind.lower()}",
            resource=resource,
            pod_sets=tuple(pod_sets),
            suspend=suspend,
            managed_by=managed_by,
            controller=spec.managed_by.controller if spec.managed_by else "",
            succeeded=() if succeeded is None else (succeeded,),
            failed=() if failed is None else (failed,),
            message=message or (),
            active=() if active is None else (active,),
            ready=(ready,),
            priority_class=() if priority_class is None else (priority_class,),
            pod_labels=tuple(spec.pod_labels.items()),
        )
        name = str(self._kind.metadata.name)
        return CompiledKind(name, description, tuple(self._paths), tuple(self._programs))

    def _resource(self) -> Resource:
        """The resource of the kind; a wrong one where errors are gathered."""
        spec = self._kind.spec
        name = str(self._kind.metadata.name or "")
        plural, _, group = name.partition(".")
        for field, value, pattern in (
            ("group", spec.group, SUBDOMAIN),
            ("version", spec.version, LABEL),
            ("kind", spec.kind, r"^[A-Z][A-Za-z0-9]*$"),
        ):
            if not re.fullmatch(pattern, value, re.ASCII) and value:
                self._add(f"spec.{field}", value, f"must match {pattern}")
            elif not value and field != "group":
                self._errors.append(FieldError(f"spec.{field}", REQUIRED))
        if why := forbidden_group(spec.group):
            self._add("spec.group", spec.group, why)
        if group != spec.group or not re.fullmatch(LABEL, plural, re.ASCII):
            text = f"must be <plural>.<group>, such as {spec.kind.lower()}s.{spec.group or 'example.com'}"
            self._add("metadata.name", name, text)
        return Resource(spec.group, spec.version, plural, spec.kind, True)

    def _pod_sets(self, found: list[PodSet]) -> list[PodSetPaths]:
        if not 0 < len(found) <= MAX_POD_SETS:
            self._add("spec.podSets", len(found), f"must have 1 to {MAX_POD_SETS} entries")
        names: set[str] = set()
        result = []
        for index, one in enumerate(found[:MAX_POD_SETS]):
            where = f"spec.podSets[{index}]"
            if one.name is not None and one.name in names:
                self._add(f"{where}.name", one.name, "another pod set has this name")
            names.add(one.name or "")
            pod_set = self._pod_set(where, one)
            if pod_set is not None:
                result.append(pod_set)
        return result

    def _pod_set(self, where: str, one: PodSet) -> PodSetPaths | None:
        each: Path = ()
        name = one.name or ""
        if one.for_each is None:
            if not re.fullmatch(LABEL, name, re.ASCII) or len(name) > 63:
                self._add(f"{where}.name", one.name, "must be a lowercase RFC 1123 label")
            if one.name_path is not None:
                self._add(f"{where}.namePath", one.name_path, "is only accepted with forEach")
            template = self._written(f"{where}.template", one.template, "object")
        else:
            each = self._spec_path(f"{where}.forEach", one.for_each) or ()
            self._paths.append(Named(f"{where}.forEach", each, "array"))
            if one.name is not None:
                self._add(f"{where}.name", one.name, "is not accepted with forEach, which needs namePath")
            name_path = self._path(f"{where}.namePath", one.name_path or "", _PATH)
            name = name_path[0] if name_path else ""
            if name_path is not None and len(name_path) != 1:
                self._add(f"{where}.namePath", one.name_path, "must be a field of the element itself")
            self._paths.append(Named(f"{where}.namePath", (*each, "*", name), "string"))
            template = self._path(f"{where}.template", one.template, _PATH)
            if template is not None:
                self._paths.append(Named(f"{where}.template", (*each, "*", *template), "object"))
        counts, amount = self._amount(f"{where}.count", one.count, each)
        reclaimable: Amount | None = None
        if one.reclaimable_pods is not None:
            path, reclaimable = self._amount(f"{where}.reclaimablePods", one.reclaimable_pods, each)
            if path is not None:
                reclaimable = _Field(path)
        when = self._test(f"{where}.when", one.when)
        if one.pod_index_label is not None and (problem := qualified_name(one.pod_index_label)):
            self._add(f"{where}.podIndexLabel", one.pod_index_label, problem)
        if template is None:
            return None
        return PodSetPaths(
            template,
            counts=() if counts is None else ((counts,),),
            amount=amount,
            reclaimable=reclaimable,
            each=each,
            name=name,
            when=when,
            index_label=one.pod_index_label or "",
        )

    # Values

    def _amount(self, field: str, text: str, each: Path) -> tuple[Path | None, Number | None]:
        """A number of pods as a path, or as an expression."""
        if text.startswith("."):
            path = self._path(field, text, _PATH)
            if path is not None:
                self._paths.append(Named(field, (*each, "*", *path) if each else path, "integer"))
            return path, None
        if not self._has_cel(field, text):
            return None, None
        # The library for CEL takes 22 MB and 50 ms; few clusters have a JobKind with an expression.
        from .expressions import Number

        try:
            number = Number(text)
        except ExpressionError as error:
            self._add(field, text, f"{error}; accepted: a path such as .spec.replicas, or CEL")
            return None, None
        self._programs.append((field, number.program, (*each, "*") if each else ()))
        return None, number

    def _sign(self, field: str, test: Test | None) -> Sign | None:
        """A test of an end; conditions stay names, whose messages are read."""
        if test is not None and test.condition is not None and test.status in (None, "True"):
            self._one_of(field, test)
            return test.condition
        return self._test(field, test)

    def _test(self, field: str, test: Test | None) -> Predicate | None:
        if test is None or not self._one_of(field, test):
            return None
        if test.condition is not None:
            return ConditionIs(test.condition, test.status or "True")
        if test.path is not None:
            path = self._read(f"{field}.path", test.path)
            values = tuple(value for text in test.values or () for value in _written_as(text))
            return None if path is None else FieldIn(path, values)
        assert test.cel is not None
        if not self._has_cel(f"{field}.cel", test.cel):
            return None
        from .expressions import Condition

        try:
            condition = Condition(test.cel)
        except ExpressionError as error:
            self._add(f"{field}.cel", test.cel, str(error))
            return None
        self._programs.append((f"{field}.cel", condition.program, ()))
        return condition

    def _has_cel(self, field: str, text: str) -> bool:
        """Whether expressions can be compiled; where not, it is an error of the field."""
        fault = extras.cel_missing()
        if fault:
            self._add(field, text, fault)
        return not fault

    def _one_of(self, field: str, test: Test) -> bool:
        given = [name for name in ("condition", "path", "cel") if getattr(test, name) is not None]
        if len(given) != 1:
            self._add(field, given, "exactly one of condition, path and cel is required")
            return False
        if (test.path is None) != (test.values is None):
            self._add(f"{field}.values", test.values, "path and values are only accepted together")
            return False
        if test.status is not None and test.condition is None:
            self._add(f"{field}.status", test.status, "is only accepted with condition")
            return False
        return True

    # Paths

    def _written(self, field: str, text: str, type_: str) -> Path | None:
        """A path that the manager writes."""
        path = self._spec_path(field, text)
        if path is not None:
            self._paths.append(Named(field, path, type_))
        return path

    def _spec_path(self, field: str, text: str) -> Path | None:
        return self._path(field, text, _SPEC_PATH, "must be a path below .spec, such as .spec.suspend")

    def _read(self, field: str, text: str | None) -> Path | None:
        if text is None:
            return None
        path = self._path(field, text, _PATH)
        if path is not None:
            self._paths.append(Named(field, path))
        return path

    def _path(
        self,
        field: str,
        text: str,
        pattern: re.Pattern[str],
        accepted: str = "must be a path",
    ) -> Path | None:
        if len(text) > MAX_PATH or not pattern.fullmatch(text):
            self._add(field, text, accepted)
            return None
        return tuple(text[1:].split("."))

    def _check_overlaps(self) -> None:
        """No written field is inside another: a start would overwrite what a stop restores."""
        written = [
            one
            for one in self._paths
            if one.field in ("spec.suspend", "spec.managedBy.path") or one.field.endswith(".template")
        ]
        for first, second in permutations(written, 2):
            same = first.path == second.path and first.field < second.field
            if same or (len(first.path) < len(second.path) and second.path[: len(first.path)] == first.path):
                text = "." + ".".join(second.path)
                self._add(second.field, text, f"is the field of {first.field}, or inside it")

    def _check_labels(self, labels: Mapping[str, str]) -> None:
        for key in labels:
            if problem := qualified_name(key):
                self._add(f"spec.podLabels[{key}]", key, problem)

    def _add(self, field: str, value: Any, detail: str) -> None:
        self._errors.append(FieldError(field, INVALID, value, detail))


@dataclass(frozen=True)
class _Field:
    """A number of pods that a field says; 0 where it is missing."""

    path: Path

    def of(self, job: Mapping[str, Any], element: Mapping[str, Any]) -> int:
        found = value_at(element, self.path)
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _written_as(text: str) -> Iterator[Any]:
    """The values of a field that are written as this text."""
    yield text
    try:
        value = json.loads(text)
    except ValueError:
        return
    if isinstance(value, bool | int | float):
        yield value
