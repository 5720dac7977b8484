"""Job kinds as data: where a kind keeps its pod templates, counts, suspend field and outcome.

A description is all that most kinds need to be queued. What no path can express is code in `pykueue.jobs`,
which refers to the same description. Informers, rights, webhook rules, the table of kinds in the
documentation and the stand-in operators of the embedded cluster are derived from it. Source of the kinds'
facts: docs/reference/kueue-integrations.md 9.4 and docs/reference/operators.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pykueue.api.kueue import names
from pykueue.api.objects import Object
from pykueue.api.resources import Resource

#: Field names from an object, or from an element of a list in it, down to a value. The name `*` stands for
#: all elements of a list, or all values of a map, where a description says that a path may have several.
Path = tuple[str, ...]
#: A path to one value, with the indexes of list elements.
Place = tuple[str | int, ...]

ALL = "*"

# Predicates


class Predicate(Protocol):
    """A yes-or-no question about a job."""

    def holds(self, job: Mapping[str, Any]) -> bool:
        """The answer; False where the fields it needs are missing."""
        ...


@dataclass(frozen=True)
class ConditionIs:
    """The status has a condition of this type and status."""

    type: str
    status: str = "True"

    def holds(self, job: Mapping[str, Any]) -> bool:
        return any(
            one.get("type") == self.type and one.get("status") == self.status for one in _conditions(job)
        )


@dataclass(frozen=True)
class FieldIn:
    """A field has one of these values; a missing field has the value None."""

    path: Path
    values: tuple[Any, ...]

    def holds(self, job: Mapping[str, Any]) -> bool:
        return value_at(job, self.path) in self.values


@dataclass(frozen=True)
class Not:
    """The other test does not hold."""

    test: Predicate

    def holds(self, job: Mapping[str, Any]) -> bool:
        return not self.test.holds(job)


class AllOf:
    """Every one of the tests holds."""

    def __init__(self, *tests: Predicate) -> None:
        self.tests = tests

    def holds(self, job: Mapping[str, Any]) -> bool:
        return all(test.holds(job) for test in self.tests)


@dataclass(frozen=True)
class CountIn:
    """Of the values at a path, which has a `*`, enough are among some: as many as a field of the job says."""

    path: Path
    values: tuple[Any, ...]
    #: The field with the number; missing: 0.
    least: Path

    def holds(self, job: Mapping[str, Any]) -> bool:
        found = sum(value in self.values for value in values_at(job, self.path))
        return found >= (_number(value_at(job, self.least)) or 0)


#: A predicate, or the type of a condition that is True.
Sign = Predicate | str
#: A test, or the path of counters of which one is not 0.
Counter = Predicate | Path


class Amount(Protocol):
    """A number of pods that is worked out."""

    def of(self, job: Mapping[str, Any], element: Mapping[str, Any]) -> int:
        """The number for a job and the part of it that the paths of a pod set start from.

        Raises ValueError where the job does not say.
        """
        ...


# Descriptions


@dataclass(frozen=True)
class AddedContainer:
    """A container that the kind's operator adds to the pods of a pod set: part of what they request."""

    name: str
    #: What it requests where the job says nothing else, as pairs of resource and quantity.
    requests: tuple[tuple[str, str], ...]
    when: Predicate
    #: The field of the job that replaces its `resources`; empty: none does.
    resources: Path = ()
    #: It runs before or after the others, never beside them: the pods request the larger of the two.
    apart: bool = False


@dataclass(frozen=True)
class PodSetPaths:
    """Where a job keeps the pod template of one pod set, or of one pod set for each element of a collection.

    A collection is a list, or a map with `keys`.
    """

    template: Path
    #: Factors of the number of pods that run at a time. A factor is the smallest of its fields: the first
    #: counts as `default_count` where it is not set, the others are ignored there.
    counts: tuple[tuple[Path, ...], ...] = ()
    #: What takes the place of `counts`; None: nothing.
    amount: Amount | None = None
    #: The number of pods that will not run again while the job goes on; None: it cannot be known.
    reclaimable: Amount | None = None
    #: The collection whose elements the paths above start from; empty: they start from the job.
    each: Path = ()
    #: With a list: the field of the element that names its pod set. Otherwise the pod set's name.
    name: str = names.DEFAULT_POD_SET
    #: With a map: its keys in the order of the pod sets, which have their names in lower case.
    keys: tuple[str, ...] = ()
    default_count: int = 1
    #: So many of the pods belong to another pod set.
    fewer: int = 0
    #: The pod set exists only where this holds of the job; None: always.
    when: Predicate | None = None
    #: The template that the operator uses where the job has none; None: there must be one.
    default_template: Callable[[Mapping[str, Any]], Object] | None = None
    #: The template is only part of what the pods are: it need not name a container.
    partial: bool = False
    added: tuple[AddedContainer, ...] = ()
    #: The label with a pod's index in its pod set, which topology-aware scheduling ranks pods by.
    index_label: str = ""
    #: The label with the index of a pod's group in the pod set, and the field with the number of groups.
    group_index_label: str = ""
    group_count: Path = ()
    #: Annotations that the pods get besides those of their template, from the job.
    annotations: Path = ()
    #: Names and further labels of the pods as the operator makes them (`filled`).
    pod_name: str = ""
    pod_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Rule:
    """What a job of a kind must satisfy in order to be queued."""

    path: str
    #: The rule is broken where this holds.
    broken: Predicate
    detail: str


@dataclass(frozen=True)
class JobKind:
    """One kind of job."""

    #: Name in `integrations.frameworks` of the configuration.
    framework: str
    resource: Resource
    pod_sets: tuple[PodSetPaths, ...] = ()
    #: The boolean field that stops the job; None: it is started and stopped otherwise.
    suspend: Path | None = ("spec", "suspend")
    #: The field that names the controller responsible for the job; None: the kind has none.
    managed_by: Path | None = None
    #: The value of that field that stands for the kind's ordinary controller, the same as if it were absent.
    controller: str = ""
    #: Signs that the job has ended; `failed` counts where no sign of success is there.
    succeeded: tuple[Sign, ...] = ()
    failed: tuple[Sign, ...] = ()
    #: The field with the reason of an end that is no condition.
    message: Path = ()
    #: Signs that pods (or parts) run.
    active: tuple[Counter, ...] = ()
    #: Signs that all pods are ready: tests, or counters of pods that are ready or have succeeded, whose sum
    #: is then compared with the number of pods.
    ready: tuple[Counter, ...] = ()
    #: The job is not to be queued while this holds.
    on_hold: Predicate | None = None
    #: The job is not managed at all where this holds, whatever its labels are.
    exempt: Predicate | None = None
    #: Fields with the pods' PriorityClass that are read before the pod templates.
    priority_class: tuple[Path, ...] = ()
    rules: tuple[Rule, ...] = ()
    #: Labels that the kind's own controller puts on the pod templates: not part of what the user requested.
    template_labels: tuple[str, ...] = ()
    #: Label selector of the objects that can be jobs; None: all of the kind.
    selector: str | None = None
    #: Whether the job may name an existing Workload instead of getting one.
    prebuilt: bool = True
    #: Whether the job may change its size while it runs (annotation elastic-job).
    elastic: bool = False
    #: Whether a CustomResourceDefinition serves the kind: a cluster may not have it (yet).
    custom: bool = True
    #: Whether starting or stopping the job writes its status.
    writes_status: bool = False
    #: Other kinds that the pod sets are read from, such as a runtime that a job refers to.
    references: tuple[Resource, ...] = ()
    #: Labels that all pods of a job have, and no others (`filled`); empty: they cannot be selected.
    pod_labels: tuple[tuple[str, str], ...] = ()
    #: The same labels of pods that a job has besides, such as those of its next cluster.
    other_pod_labels: tuple[tuple[str, str], ...] = ()
    #: Fields that the API server of a cluster fills in for its own object: not part of a copy elsewhere.
    own_fields: tuple[Path, ...] = ()
    #: Fields that may change while the job runs and do not change its pods: a copy elsewhere gets them.
    passed_on: tuple[Path, ...] = ()
    #: Feature gate that must be on for the kind to be queued; empty: none.
    gate: str = ""


# Reading jobs by description


class Slot(NamedTuple):
    """One pod set of a job: its name, and the part of the job that its paths start from."""

    name: str
    #: The same as the job writes it: the name of a list's element, the key of a map.
    written: str
    paths: PodSetPaths
    #: Where that part is in the job.
    at: Place
    element: Mapping[str, Any]

    @property
    def template(self) -> Place:
        """Where the pod template is in the job."""
        return (*self.at, *self.paths.template)


def value_at(obj: Any, path: Place) -> Any:
    """The value at a path without `*`; None where any step of it is missing."""
    value: Any = obj
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and key < len(value) else None
        elif value.__class__ is dict:  # not isinstance: called for every field of every job
            value = value.get(key)
        else:
            return None
    return value


def values_at(obj: Any, path: Path) -> Iterator[Any]:
    """The values at a path, of which `*` may make several; missing ones are left out."""
    if not path:
        if obj is not None:
            yield obj
        return
    key, rest = path[0], path[1:]
    if key != ALL:
        yield from values_at(value_at(obj, (key,)), rest)
    elif isinstance(obj, dict | list):
        for one in obj.values() if isinstance(obj, dict) else obj:
            yield from values_at(one, rest)


def with_value(obj: Any, place: Place, value: Any) -> Any:
    """A copy of `obj` with `value` at a place, whose list elements exist; None removes a field."""
    key, rest = place[0], place[1:]
    if isinstance(key, int):
        return [with_value(one, rest, value) if n == key and rest else one for n, one in enumerate(obj)]
    copy = dict(obj) if isinstance(obj, Mapping) else {}
    new = value
    if rest:
        if value is None and not isinstance(copy.get(key), dict | list):
            return copy
        new = with_value(copy.get(key), rest, value)
    if new is None:
        copy.pop(key, None)
    else:
        copy[key] = new
    return copy


def field_path(place: Place) -> str:
    """A place as errors name it, such as `spec.groups[0].template`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")


def pod_set_slots(job: Mapping[str, Any], kind: JobKind) -> Iterator[Slot]:
    """The pod sets of a job, in their order."""
    for paths in kind.pod_sets:
        if paths.when is not None and not paths.when.holds(job):
            continue
        if not paths.each:
            yield Slot(paths.name, paths.name, paths, (), job)
            continue
        collection = value_at(job, paths.each)
        if paths.keys:
            for key in paths.keys:
                element = value_at(collection, (key,))
                if element is not None:
                    yield Slot(key.lower(), key, paths, (*paths.each, key), _map(element))
        elif isinstance(collection, list):
            for index, element in enumerate(collection):
                written = str(value_at(element, (paths.name,)) or "")
                yield Slot(written.lower(), written, paths, (*paths.each, index), _map(element))


def pod_count(element: Mapping[str, Any], paths: PodSetPaths, job: Mapping[str, Any] | None = None) -> int:
    """How many pods the pod set of a job (or of an element of its collection) runs at a time.

    `job` is the whole job where `element` is a part of it. Raises ValueError where the job does not say.
    """
    if paths.amount is not None:
        return paths.amount.of(element if job is None else job, element)
    count = 1
    for factor in paths.counts:
        first, *others = (_number(value_at(element, path)) for path in factor)
        count *= min([paths.default_count if first is None else first, *(n for n in others if n is not None)])
    return max(0, count - paths.fewer)


def true_condition(job: Mapping[str, Any], types: tuple[Sign, ...]) -> Mapping[str, Any] | None:
    """The first condition of one of these types that is True."""
    wanted = [one for one in _conditions(job) if one.get("type") in types and one.get("status") == "True"]
    return wanted[0] if wanted else None


def shows(job: Mapping[str, Any], signs: tuple[Counter, ...]) -> bool:
    """Whether a test among these holds, or a counter is not 0."""
    return any(any(values_at(job, sign)) if isinstance(sign, tuple) else sign.holds(job) for sign in signs)


def is_exempt(job: Mapping[str, Any], kind: JobKind) -> bool:
    """Whether the job is not managed, whatever its labels are."""
    return kind.exempt is not None and kind.exempt.holds(job)


_FIELD = re.compile(r"\{([A-Za-z.]+)\}")


def filled(text: str, job: Mapping[str, Any], **values: str) -> str | None:
    """A name or label of a description with its fields filled in; None where one has no value.

    Fields are `{name}` and `{uid}` of the job, any of `values` (`{role}`: the pod set; `{written}`: its name
    as the job writes it; `{index}`: the pod's index in it; `{random}`: five characters), and paths from the
    job such as `{status.rayClusterName}`.
    """
    known = {"name": ("metadata", "name"), "uid": ("metadata", "uid")}
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        key = match[1]
        if key in values:
            return values[key]
        found = value_at(job, known.get(key) or tuple(key.split(".")))
        missing = missing or found in (None, "")
        return str(found)

    result = _FIELD.sub(value, text)
    return None if missing else result


def pod_selector(job: Mapping[str, Any], kind: JobKind) -> str:
    """The label selector of the pods of a job; empty where nothing selects them (yet)."""
    values: dict[str, list[str]] = {}
    for labels in (kind.pod_labels, kind.other_pod_labels):
        found = {key: filled(text, job) for key, text in labels}
        if None not in found.values():
            for key, value in found.items():
                values.setdefault(key, []).append(str(value))
    return ",".join(
        f"{key}={found[0]}" if len(found) == 1 else f"{key} in ({','.join(found)})"
        for key, found in values.items()
    )


def has_pods_named_by_status(kind: JobKind) -> bool:
    """Whether the labels of a job's pods are known only from its status, which may drop them too early."""
    return any("{status." in text for _, text in (*kind.pod_labels, *kind.other_pod_labels))


def _conditions(job: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    found = value_at(job, ("status", "conditions"))
    return (one for one in found if isinstance(one, dict)) if isinstance(found, list) else iter(())


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int | None:
    """A count; None for what is none, which the schema or the admission rules refuse."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
