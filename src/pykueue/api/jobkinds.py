"""Job kinds as data: where a kind keeps its pod templates, counts, suspend switch and outcome.

A description is all that most kinds need to be queued. What no path can say is code in `pykueue.jobs`, which
refers to the same description. Informers, rights and webhook rules are derived from it. Source of the kinds'
facts: docs/reference/kueue-integrations.md 9.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.resources import Resource

#: Field names from an object, or from an element of a list in it, down to a value.
Path = tuple[str, ...]


@dataclass(frozen=True)
class PodSetPaths:
    """Where a job keeps the pod template of one pod set, or of one pod set for each element of a list."""

    template: Path
    #: Factors of the number of pods that run at a time. A factor is the smallest of its fields: the first
    #: counts as 1 where it is not set, the others are ignored there.
    counts: tuple[tuple[Path, ...], ...] = ()
    #: The list whose elements the paths above start from; empty: they start from the job.
    each: Path = ()
    #: With a list: the field of the element that names its pod set. Otherwise the pod set's name.
    name: str = names.DEFAULT_POD_SET


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
    #: Types of the conditions that end the job when they are True.
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    #: Counters of pods (or parts) that run, and of those that are ready or have succeeded.
    active: tuple[Path, ...] = ()
    ready: tuple[Path, ...] = ()
    #: Labels that the kind's own controller puts on the pod templates: not part of what the user requested.
    template_labels: tuple[str, ...] = ()
    #: Label selector of the objects that can be jobs; None: all of the kind.
    selector: str | None = None
    #: Whether the job may name an existing Workload instead of getting one.
    prebuilt: bool = True
    #: Whether a CustomResourceDefinition serves the kind: a cluster may not have it (yet).
    custom: bool = True
    #: Whether starting or stopping the job writes its status.
    writes_status: bool = False
    #: Other kinds that the pod sets are read from, such as a runtime that a job refers to.
    references: tuple[Resource, ...] = ()


def value_at(obj: Mapping[str, Any], path: Path) -> Any:
    """The value at a path; None where any step of it is missing."""
    value: Any = obj
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def pod_count(element: Mapping[str, Any], paths: PodSetPaths) -> int:
    """How many pods the pod set of a job (or of an element of its list) runs at a time."""
    count = 1
    for factor in paths.counts:
        first, *others = (value_at(element, path) for path in factor)
        count *= min([1 if first is None else int(first), *(int(one) for one in others if one is not None)])
    return count


def pod_set_elements(job: Mapping[str, Any], paths: PodSetPaths) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The name of each pod set, and the part of the job that its paths start from."""
    if not paths.each:
        yield paths.name, job
        return
    for element in value_at(job, paths.each) or ():
        yield str(element.get(paths.name)), element


def true_condition(job: Mapping[str, Any], types: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The first condition of one of these types that is True."""
    for condition in value_at(job, ("status", "conditions")) or ():
        if condition.get("type") in types and condition.get("status") == "True":
            found: Mapping[str, Any] = condition
            return found
    return None
