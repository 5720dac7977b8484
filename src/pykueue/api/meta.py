# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""What every object carries: metadata, owners, conditions, label selectors, times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pykueue.api.condition_lists import new_condition, remove_condition, set_condition
from pykueue.api.model import REQUIRED, Model, Rule, atomic
from pykueue.api.selectors import OPERATORS, Requirement, Selector, SelectorError
from pykueue.api.times import format_micro_time, format_time, parse_time

__all__ = [
    "Condition",
    "ConditionStatus",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ObjectMeta",
    "OwnerReference",
    "Requirement",
    "Selector",
    "SelectorError",
    "Time",
    "condition_is",
    "find_condition",
    "format_micro_time",
    "format_time",
    "new_condition",
    "parse_time",
    "remove_condition",
    "set_condition",
]

#: An RFC 3339 time; see parse_time.
Time = Annotated[str, Rule(format="date-time")]

ConditionStatus = Literal["True", "False", "Unknown"]


class OwnerReference(Model):
    """An object this one belongs to and is collected with."""

    api_version: str
    kind: str
    name: str
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Model):
    """Names an object and says where it stands in its life."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def created(self) -> float:
        """Seconds since 1970 UTC; 0 where the object does not say."""
        return parse_time(self.creation_timestamp) if self.creation_timestamp else 0.0

    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object, if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None

    @property
    def controller_uid(self) -> str:
        """The uid of that owner; empty where there is none."""
        owner = self.controller()
        return "" if owner is None else owner.uid


class Condition(Model):
    """One aspect of an object's state."""

    type: Annotated[
        str,
        Rule(
            maxLength=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    """What is observed, in CamelCase."""
    status: ConditionStatus
    """Whether it holds."""
    last_transition_time: Annotated[Time | None, REQUIRED] = None
    """When the status last changed."""
    reason: Annotated[
        str,
        Rule(minLength=1, maxLength=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        REQUIRED,
    ] = ""
    """Why, as one CamelCase word for programs."""
    message: Annotated[str, Rule(maxLength=32768), REQUIRED] = ""
    """Why, for people."""
    observed_generation: Annotated[int, Rule(format="int64", minimum=0)] = 0
    """The metadata.generation this was observed at."""


class LabelSelectorRequirement(Model):
    """One term of a label selector."""

    key: str
    """The label it is about."""
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[list[str], atomic()] = []
    """Non-empty for In and NotIn, empty for the others."""


class LabelSelector(Model):
    """Chooses objects by their labels; all of its terms must hold, and no terms hold for everything."""

    match_labels: dict[str, str] = {}
    """Labels an object must carry."""
    match_expressions: Annotated[list[LabelSelectorRequirement], atomic()] = []
    """Further terms."""

    def selector(self) -> Selector:
        """The compiled form. Raises SelectorError for a term that means nothing."""
        requirements = [Requirement(key, "In", (value,)) for key, value in self.match_labels.items()]
        for expression in self.match_expressions:
            if expression.operator not in OPERATORS[:4]:
                raise SelectorError(
                    f"{expression.operator!r} is not an operator of label selectors: "
                    "In, NotIn, Exists, DoesNotExist are"
                )
            if (expression.operator in ("In", "NotIn")) != bool(expression.values):
                raise SelectorError(
                    f"{expression.operator} on label {expression.key!r} "
                    + ("needs values" if not expression.values else "takes no values")
                )
            requirements.append(Requirement(expression.key, expression.operator, tuple(expression.values)))
        return Selector(requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is chosen. Compile with `selector()` to match many."""
        return self.selector().matches(labels)


def find_condition(conditions: Iterable[Condition], type: str) -> Condition | None:
    """The condition of that type, if the object has it."""
    for condition in conditions:
        if condition.type == type:
            return condition
    return None


def condition_is(conditions: Iterable[Condition], type: str, status: str = "True") -> bool:
    """Whether the object has that condition with that status."""
    for condition in conditions:
        if condition.type == type:
            return condition.status == status
    return False
