"""Why: what was asked, what was there, what stood in the way. Data only; `render` turns it into sentences.

Amounts are integers in the units the quota is counted in: thousandths for cpu, base units for every other
resource (docs/reference/kueue-semantics.md 2.1). An amount of `quota.usage.UNLIMITED` or more means no bound.

There are several of each for every waiting workload. None refers back to what it is part of, so the cycle
collector need not visit them; they are encoded without the names of their fields.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

__all__ = ["Attempt", "Blocker", "Explanation", "Level", "Mode", "Search", "Target"]

#: How far a flavor can serve a request, from worst to best (docs/reference/kueue-semantics.md 6.4).
Mode = Literal["NoFit", "NoCandidates", "Preempt", "Reclaim", "Fit"]

#: What stands in the way of a request in a flavor.
Blocker = Literal[
    "",
    "ResourceNotCovered",
    "FlavorNotFound",
    "FlavorNotNominated",
    "FlavorOfReplacedSlice",
    "FlavorNotAllowed",
    "Topology",
    "Taint",
    "Affinity",
    "NotSplit",
    "ExceedsMaximum",
    "OwnQuota",
    "BorrowingLimit",
    "LendingLimit",
    "CohortExhausted",
]


class Level(Struct, array_like=True, gc=False):
    """What a node of the quota tree had left for the request, seen from that node."""

    node: str
    kind: Literal["ClusterQueue", "Cohort"]
    quota: int
    """Quota of the node and everything its members lend it."""
    usage: int
    available: int


class Attempt(Struct, array_like=True, gc=False):
    """One flavor looked at for one resource of one pod set."""

    pod_set: str
    resource: str
    flavor: str
    mode: Mode
    borrowing_level: int = 0
    """0: within the queue's own quota; else the height of the cohort whose quota it needs."""
    requested: int = 0
    """What the pod set asks for."""
    assumed: int = 0
    """What earlier pod sets of the workload already take of it."""
    blocker: Blocker = ""
    detail: str = ""
    """The taint, the node whose limit binds, or why a pod set cannot be split over flavors."""
    maximum: int = 0
    """With ExceedsMaximum: the most the queue could ever have."""
    levels: tuple[Level, ...] = ()
    """From the queue up to the root."""
    continued: int = 0
    """What the workload slice that is replaced holds of it."""

    @property
    def total_requested(self) -> int:
        """What is needed beside what the replaced slice holds."""
        return self.requested + self.assumed - self.continued

    @property
    def available(self) -> int:
        return max(0, self.levels[0].available) if self.levels else 0


class Target(Struct, array_like=True, gc=False):
    """A workload chosen for preemption."""

    key: str
    reason: str


class Search(Struct, array_like=True, gc=False):
    """How the search for workloads to preempt went."""

    needed: tuple[tuple[str, str], ...] = ()
    """(flavor, resource) pairs that lack room."""
    considered: int = 0
    """Workloads looked at."""
    removed: int = 0
    """Workloads taken away before the request fitted (or the candidates ran out)."""
    targets: tuple[Target, ...] = ()
    stopped: Literal["Fits", "NoCandidates", "Exhausted"] = "NoCandidates"
    protected: int = 0
    """How often a policy kept a candidate from being preempted."""
    protection: str = ""
    """The policy of the candidate that may be preempted first, and until when it is protected."""
    protected_until: float | None = None
    """When that is, in seconds since 1970; None: no time is known."""


#: Certainty in percent of what follows from declared run times alone: Kueue's limit is enforced. 0: assumed.
DECLARED: Final = 100


class Shadow(Struct, array_like=True, gc=False):
    """The reservation of a workload that does not fit yet: when it starts at the latest."""

    start: float
    """In seconds since 1970."""
    declared: bool
    """It follows from declared run times alone; else some were assumed."""
    policy: str
    """The BackfillPolicy."""
    probability: int = 0
    """Where no run time was assumed and some were fitted: with what probability each is kept, in percent."""


def basis_of(certainty: int) -> tuple[bool, int]:
    """Of times with this certainty in percent: whether they are declared, else `probability`."""
    return certainty == DECLARED, certainty % DECLARED


def shadow_of(start: float, certainty: int, policy: str) -> Shadow:
    """A reservation that follows from ends of this certainty in percent."""
    declared, probability = basis_of(certainty)
    return Shadow(start, declared, policy, probability)


class BackfillProof(Struct, array_like=True, gc=False):
    """Why a workload may start, or may not, before another one that is first in order."""

    policy: str
    """The BackfillPolicy, or the Reservation."""
    head: str
    """Key of the workload with the reservation; empty for a Reservation."""
    start: float
    """When that one starts at the latest, in seconds since 1970."""
    end: float
    """When this workload ends at the latest if it starts now, in seconds since 1970."""
    declared: bool
    """Both follow from declared run times alone; else some were assumed."""
    kind: Literal["EndsBefore", "SpareCapacity", "WouldDelay", "RunsIntoReservation"]
    """EndsBefore: this workload ends before. SpareCapacity: what it needs is free beside the reservation."""
    probability: int = 0
    """Where no run time was assumed and some were fitted: with what probability each is kept, in percent."""


class Explanation(Struct, array_like=True, gc=False):
    """Everything a decision about one workload rests on."""

    attempts: list[Attempt] = []
    search: Search | None = None
    problem: str = ""
    """What is wrong with the workload or its queue, in words, when it was not evaluated at all."""
    outcome: Literal[
        "",
        "Admitted",
        "NoFit",
        "NoCandidates",
        "PreemptionLimit",
        "PreemptionGated",
        "Deferred",
        "TargetsTaken",
        "NoLongerFits",
        "Preempting",
        "PodsNotReady",
        "PreferredVariantAdmitted",
        "MigrationNotAllowed",
        "Migrating",
        "WouldDelay",
    ] = ""
    recomputed: bool = False
    """It was evaluated a second time, because an earlier entry of the cycle had taken its targets."""
    counts: dict[str, int] = {}
    """Pod counts considered, by pod set, when smaller than asked for (partial admission)."""
    shortages: tuple[str, ...] = ()
    """Why shared capacities are not enough, one sentence each."""
    pending_preemptions: int = 0
    shadow: Shadow | None = None
    """Its reservation, under a BackfillPolicy; of an admitted workload the first it had."""
    backfill: BackfillProof | None = None
    """The reservation of another workload that it starts before, or would delay."""
