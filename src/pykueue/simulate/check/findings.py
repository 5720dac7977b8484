"""Findings of a policy check, and the rules that report them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Severity(IntEnum):
    """How much a finding matters; ordered."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    @property
    def title(self) -> str:
        """As it is printed."""
        return self.name.lower()


class Rule(NamedTuple):
    """One kind of finding."""

    severity: Severity
    summary: str
    """What the rule reports, in one line."""
    remedy: str
    """What usually repairs it."""


#: Name -> rule.
RULES: Final = MappingProxyType(
    {
        "missing-object": Rule(
            Severity.ERROR,
            "An object names another one that is not among the manifests.",
            "Add the object, or correct the name.",
        ),
        "unreachable-quota": Rule(
            Severity.WARNING,
            "Quota that no workload can ever use.",
            "Remove the quota, or what keeps workloads from using it.",
        ),
        "hidden-flavor": Rule(
            Severity.WARNING,
            "A flavor is not used, or used late, because of another one.",
            "Give the flavors different nodes, or change the order or flavorFungibility.",
        ),
        "ineffective-limit": Rule(
            Severity.WARNING,
            "A limit or policy that changes no decision.",
            "Remove the field, or what makes it ineffective.",
        ),
        "dead-cohort": Rule(
            Severity.WARNING,
            "A cohort in which no quota is shared.",
            "Remove the cohort, or let its members lend and borrow.",
        ),
        "preemption-loop": Rule(
            Severity.ERROR,
            "Workloads preempt one another in a circle although nothing else changes.",
            "Set withinClusterQueue: Never for queues that preempt in the cohort; under fair sharing, use "
            "LessThanOrEqualToFinalShare as the only strategy.",
        ),
        "unreachable-share": Rule(
            Severity.WARNING,
            "A queue cannot reach its fair share by preemption.",
            "Set reclaimWithinCohort: Any for the queue.",
        ),
        "blocked-borrowing": Rule(
            Severity.WARNING,
            "A pending workload of one queue keeps other queues from borrowing unused quota.",
            "Set reclaimWithinCohort: Any for the queue that blocks, or BestEffortFIFO if it is StrictFIFO.",
        ),
        "starvation": Rule(
            Severity.WARNING,
            "A large workload can be pending for any length of time while smaller ones pass it.",
            "Set queueingStrategy: StrictFIFO, or let large workloads of a higher priority preempt.",
        ),
        "longer-waits": Rule(
            Severity.WARNING,
            "Workloads of the recorded period wait longer under the new manifests.",
            "Compare the quotas and policies of the queue with those of the record.",
        ),
        "starvation-bound": Rule(
            Severity.NOTE,
            "The longest time for which a workload can be first in its queue, or why none is derived.",
            "For a bound, set queueingStrategy: StrictFIFO in a ClusterQueue that shares no cohort.",
        ),
    }
)


class Place(NamedTuple):
    """Where an object stands."""

    file: str = ""
    line: int = 0
    """From 1; 0 where it is not known."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


_NOWHERE: Final = Place()


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a policy."""

    rule: str
    """A name of `RULES`."""
    object: str
    """Kind and name, as in `ClusterQueue team-a`."""
    message: str
    place: Place = _NOWHERE
    events: tuple[str, ...] = ()
    """The counterexample: what happens, in order."""
    remedy: str | None = None
    """Replaces that of the rule; empty for none."""
    level: Severity | None = None
    """Replaces that of the rule."""

    @property
    def severity(self) -> Severity:
        return RULES[self.rule].severity if self.level is None else self.level

    @property
    def advice(self) -> str:
        """What usually repairs it; empty where nothing is wrong."""
        return RULES[self.rule].remedy if self.remedy is None else self.remedy
