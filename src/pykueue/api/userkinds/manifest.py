# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The kind JobKind (pykueue.io/v1alpha1): how a custom resource is queued, in fields and expressions.

A text that begins with a dot is a path such as `.spec.replicas`; any other text where a number is needed is
CEL over `self`, the job, and `element`, the element of `forEach`. What is written is named by paths only.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pykueue.api.kueue.common import LABEL, LABEL_KEY, SUBDOMAIN, Conditions
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import DEFAULTED, Cel, Model, Rule, atomic, checked
from pykueue.api.resources import OWN_GROUP, Resource

GROUP: Final = OWN_GROUP
VERSION: Final = "v1alpha1"
JOB_KINDS: Final = Resource(GROUP, VERSION, "jobkinds", "JobKind", False)

PATH: Final = r"^(\.[A-Za-z_][A-Za-z0-9_-]*)+$"
#: Where the manager may write: below spec, and neither spec itself nor anything beside it.
SPEC_PATH: Final = r"^\.spec(\.[A-Za-z_][A-Za-z0-9_-]*)+$"

ReadPath = Annotated[str, Rule(maxLength=256, pattern=PATH)]
WrittenPath = Annotated[str, Rule(maxLength=256, pattern=SPEC_PATH)]
#: A path or a CEL expression.
Value = Annotated[str, Rule(minLength=1, maxLength=1024)]


@checked(
    Cel(
        "[has(self.condition), has(self.path), has(self.cel)].filter(x, x).size() == 1",
        "exactly one of condition, path and cel is required",
    ),
    Cel("has(self.path) == has(self.values)", "path and values are only accepted together"),
    Cel("!has(self.status) || has(self.condition)", "status is only accepted with condition"),
)
class Test(Model):
    """A question about a job: exactly one of condition, path and cel. It fails where a field is missing."""

    condition: Annotated[str | None, Rule(minLength=1, maxLength=316)] = None
    """Type of a condition in .status.conditions."""
    status: Literal["True", "False", "Unknown"] | None = None
    """Status of that condition; True by default."""
    path: ReadPath | None = None
    """Field whose value is one of values."""
    values: Annotated[list[Annotated[str, Rule(maxLength=256)]] | None, atomic(minItems=1, maxItems=32)] = (
        None
    )
    """Accepted values of the field at path; true, false and numbers are written as text."""
    cel: Annotated[str | None, Rule(minLength=1, maxLength=1024)] = None
    """CEL expression over self, the job, that is true or false."""


class ManagedBy(Model):
    """The field that names the controller responsible for a job."""

    path: WrittenPath
    """Path of the field."""
    controller: Annotated[str, Rule(maxLength=316)] = ""
    """Value that stands for the kind's ordinary controller, the same as if the field were absent."""


@checked(
    Cel(
        "has(self.forEach) == has(self.namePath)",
        "forEach and namePath are only accepted together",
    ),
    Cel("has(self.forEach) != has(self.name)", "exactly one of name and forEach is required"),
    Cel("has(self.forEach) || self.template.startsWith('.spec.')", "template must be below .spec"),
)
class PodSet(Model):
    """A pod template and its number of pods; with forEach one for each element of a list."""

    name: Annotated[str | None, Rule(maxLength=63, pattern=LABEL)] = None
    """Name of the pod set."""
    for_each: WrittenPath | None = None
    """Path of a list with one pod set for each of its elements; template and count start from these."""
    name_path: ReadPath | None = None
    """With forEach: path from the element to the name of its pod set."""
    template: ReadPath
    """Path of the pod template; a start writes node selector, tolerations, labels, annotations and gates."""
    count: Annotated[Value, DEFAULTED] = "1"
    """Number of pods that run at a time: path or CEL expression. A path without a value counts as 1."""
    reclaimable_pods: Value | None = None
    """Number of pods that will not run again while the job goes on: path or CEL expression."""
    when: Test | None = None
    """The pod set only exists where this holds."""
    pod_index_label: Annotated[str | None, Rule(maxLength=316, pattern=LABEL_KEY)] = None
    """Label with the index of a pod in its pod set, for topology-aware scheduling."""


class JobKindSpec(Model):
    """How objects of a kind are queued."""

    group: Annotated[
        str, Rule(minLength=1, maxLength=253, pattern=SUBDOMAIN), Cel("self == oldSelf", "is immutable")
    ]
    """API group of the kind. Groups of Kubernetes, Kueue and this project are refused."""
    version: Annotated[str, Rule(minLength=1, maxLength=63, pattern=LABEL)]
    """Version in which objects are read and written."""
    kind: Annotated[
        str,
        Rule(minLength=1, maxLength=63, pattern=r"^[A-Z][A-Za-z0-9]*$"),
        Cel("self == oldSelf", "is immutable"),
    ]
    """Name of the kind."""
    suspend: Annotated[WrittenPath, DEFAULTED] = ".spec.suspend"
    """Boolean field that stops a job and keeps it from starting."""
    managed_by: ManagedBy | None = None
    """Field that names the responsible controller; absent: the kind has none."""
    pod_sets: Annotated[list[PodSet], atomic(minItems=1, maxItems=18)]
    """Where pod templates and numbers of pods are."""
    active: Test | None = None
    """Pods of the job run. Quota of a stopped job is not released before this no longer holds."""
    ready: Test | None = None
    """All pods are ready; absent: a started job counts as ready."""
    succeeded: Test | None = None
    """The job has ended well."""
    failed: Test | None = None
    """The job has ended without success."""
    message: ReadPath | None = None
    """Field with the reason of an end that is not a condition."""
    priority_class: ReadPath | None = None
    """Field with the pods' PriorityClass, which is read before the pod templates."""
    pod_labels: Annotated[dict[str, Annotated[str, Rule(maxLength=256)]], Rule(maxProperties=8)] = {}
    """Labels that all pods of a job have; {name} stands for the job's name, {uid} for its uid."""


class JobKindStatus(Model):
    """Whether the kind is queued."""

    conditions: Conditions = []
    """Active says whether jobs of the kind are queued, and if not, why."""


@checked(
    Cel(
        "self.metadata.name.endsWith('.' + self.spec.group)",
        "metadata.name must be <plural>.<group>, such as widgets.example.com",
    )
)
class JobKind(Model):
    """A kind of job that a description makes known. Only administrators should be able to write JobKinds."""

    metadata: ObjectMeta
    spec: JobKindSpec
    status: JobKindStatus = JobKindStatus()
