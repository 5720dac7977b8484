"""The answers as data. Their fields, in camelCase, are part of the public interface; see `schema_of`.

Amounts are quantities as manifests write them. Keys of workloads are `namespace/name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

#: Where a workload stands; Unknown where its Workload says nothing and no verdict is possible.
State = Literal["Pending", "QuotaReserved", "Admitted", "Evicted", "Finished", "Unknown"]

ChangeKind = Literal[
    "Quota",
    "CohortQuota",
    "BorrowingLimit",
    "LendingLimit",
    "Priority",
    "PodCount",
    "Queue",
    "Namespace",
    "PreemptionPolicy",
    "BudgetHours",
    "BudgetCredit",
    "MaximumExecutionTime",
    "Reservation",
    "Resume",
]


class Answer(msgspec.Struct, rename="camel"):
    """Base of everything that is part of an answer."""


class Block(Answer, kw_only=True):
    """Something other than quota that keeps a workload from being admitted."""

    reason: str
    """Reason of its condition QuotaReserved or Admitted, or of the queue's condition Active."""
    message: str
    object: str = ""
    """`Kind name` of the object in question, where it is not the workload itself."""


class Position(Answer, kw_only=True):
    """Where a workload stands in the order of its ClusterQueue."""

    index: int
    """From 0, as the visibility API counts."""
    pending: int
    """Pending workloads of the ClusterQueue, this one included."""
    inadmissible: bool
    """It is considered again only after something it needs has changed."""


class LevelFact(Answer, kw_only=True):
    """What a node of the quota tree has of a resource in a flavor."""

    node: str
    kind: Literal["ClusterQueue", "Cohort"]
    quota: str
    used: str
    available: str


class HolderFact(Answer, kw_only=True):
    """A workload that holds quota of a resource in a flavor."""

    workload: str
    cluster_queue: str
    amount: str
    priority: int


class Holders(Answer, kw_only=True):
    """The workloads that hold quota of a resource in a flavor, in all queues that share it."""

    count: int
    total: str
    largest: list[HolderFact] = []
    """The largest of them, as far as their names may be listed."""
    hidden: int = 0
    """How many of `count` are in namespaces whose workloads may not be listed."""


class FlavorFact(Answer, kw_only=True):
    """One flavor looked at for one resource of one pod set."""

    pod_set: str
    resource: str
    flavor: str
    mode: str
    """`Fit`, `Preempt`, `Reclaim`, `NoCandidates` or `NoFit`."""
    requested: str
    """Earlier pod sets with the same flavor included."""
    available: str = ""
    """Empty where quota is not what the flavor lacks."""
    short: str = ""
    """How much more would be needed; empty where quota is not what the flavor lacks."""
    blocker: str = ""
    message: str = ""
    levels: list[LevelFact] = []
    """From the ClusterQueue up to the root cohort."""
    holders: Holders | None = None


class Edit(Answer, kw_only=True):
    """A field of an object that would have to change."""

    kind: str
    name: str
    namespace: str = ""
    field: str
    before: str
    after: str


class Change(Answer, kw_only=True):
    """A change that admits the workload, verified by deciding on a fork of the present state."""

    kind: ChangeKind
    text: str
    edits: list[Edit]
    cycles: int
    """Scheduling cycles until it is admitted; those in which others are preempted included."""
    smallest: bool = True
    """Each amount reduced by its smallest unit does not admit it. False: the outcome is not monotonic in the
    amounts, and a smaller change may do as well."""
    without_preemption: bool = False
    """A smaller change admits it too, but preempts other workloads."""
    preempted: list[str] = []
    """Workloads that would be preempted, as far as their names may be listed."""
    delayed: list[str] = []
    """Pending workloads that would be admitted without the change and not with it."""
    admits: list[str] = []
    """Other pending workloads that would be admitted because of the change."""
    hidden: int = 0
    """Workloads of these lists whose names may not be listed."""


class Prospect(Answer, kw_only=True):
    """What would become of the workload under one assumption about the other pending workloads."""

    outcome: Literal["Admitted", "Pending", "NotDetermined"]
    """As things are, without any change. `NotDetermined`: not within the trials that were allowed."""
    cycles: int = 0
    """Scheduling cycles until it is admitted, if it is."""
    preempted: list[str] = []
    """Workloads that it would preempt, as far as their names may be listed."""
    hidden: int = 0
    """How many more it would preempt."""
    message: str = ""
    changes: list[Change] = []
    """The smallest change of each kind that admits it."""
    beyond_quota: str = ""
    """Without changes: why it would still be pending if its ClusterQueue had all the quota that it requests.
    Empty where more quota was not tried, or the message would be the present one."""
    undecided: list[str] = []
    """Changes that admit it as the head, and for which no answer was found within the trials allowed."""


class Why(Answer, kw_only=True):
    """Why a workload is pending, and what would admit it."""

    workload: str
    job: str = ""
    """`Kind name` of the job it stands for."""
    state: State
    reason: str = ""
    message: str = ""
    local_queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    position: Position | None = None
    requests: dict[str, dict[str, str]] = {}
    """By pod set and resource."""
    blocks: list[Block] = []
    flavors: list[FlavorFact] = []
    head: Prospect | None = None
    """If it were the first of its queue and nothing else were pending. None: there is no verdict."""
    place: Prospect | None = None
    """At its place, with the queue as it is. None: not asked for, or there is no verdict."""
    unread: list[str] = []
    """What could not be read or decided on, and why. There is no verdict then."""
    notes: list[str] = []


def to_data(answer: Answer) -> Any:
    """An answer as plain JSON values."""
    return msgspec.to_builtins(answer)


def answer_from(document: Mapping[str, Any]) -> Why:
    """The answer that the manager serves. Raises msgspec.ValidationError for anything else."""
    return msgspec.convert(document, Why)


def schema_of(kind: type[Answer]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an answer."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
