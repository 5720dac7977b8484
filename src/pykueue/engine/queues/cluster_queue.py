"""A ClusterQueue as the engine sees it: its rules compiled, its pending and reserving workloads.

A queue that workloads or LocalQueues name but that has no object yet is kept as well, without quota and
inactive.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.admission_checks import required_with
from pykueue.api.hybrid import is_permitted
from pykueue.api.selectors import Selector, SelectorError
from pykueue.engine.queues.pending import Pending
from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.quota.tree import Node, fair_weight
from pykueue.engine.undo_log import UndoLog
from pykueue.engine.workload import End, WorkloadInfo

#: Resource counted in pods (2.6).
PODS: Final = "pods"


class UsageCounts:
    """What workloads use together: their number and the amount by FlavorResource, reserved and admitted."""

    __slots__ = ("admitted", "reserved", "reserving", "used")

    def __init__(self) -> None:
        self.reserving = 0
        self.admitted = 0
        self.reserved: dict[int, int] = {}
        self.used: dict[int, int] = {}

    def reserve(self, usage: tuple[tuple[int, int], ...], sign: int, admitted: bool) -> None:
        """Counts a workload that holds quota (sign 1), or no longer counts it (-1)."""
        self.reserving += sign
        reserved = self.reserved
        for flavor_resource, amount in usage:
            reserved[flavor_resource] = reserved.get(flavor_resource, 0) + sign * amount
        if admitted:
            self.admit(usage, sign)

    def admit(self, usage: tuple[tuple[int, int], ...], sign: int) -> None:
        """Counts a workload that holds quota as admitted (sign 1), or no longer (-1)."""
        self.admitted += sign
        used = self.used
        for flavor_resource, amount in usage:
            used[flavor_resource] = used.get(flavor_resource, 0) + sign * amount


class Candidate(NamedTuple):
    """Position of a workload that holds quota in the order in which workloads are preempted (8.4)."""

    priority: int
    newest_first: float
    """When it got its quota, negated."""
    uid: str
    key: str
    info: WorkloadInfo


class BackfillRules(NamedTuple):
    """The BackfillPolicy of a ClusterQueue."""

    policy: str
    depth: int | None
    """Number of pending workloads with reservations; None: all."""
    assumed: float
    """Run time of workloads that declare none, in seconds."""
    percentile: int = 0
    """Percentage of finished workloads whose run time is assumed instead, where enough are known; 0: none."""


class Group:
    """A resource group: resources that get the same flavor, and the flavors in order of preference."""

    __slots__ = ("flavors", "resources")

    def __init__(self, resources: list[str], flavors: list[tuple[str, dict[str, int]]]) -> None:
        self.resources = resources
        #: (name, FlavorResource by resource).
        self.flavors = flavors


class ClusterQueue(Node):
    """One ClusterQueue."""

    __slots__ = (
        "_flavor_resources",
        "_undo_log",
        "all_flavors",
        "backfill",
        "borrow_threshold",
        "borrow_try_next",
        "borrow_within",
        "candidate_order",
        "check_rules",
        "ends",
        "evicted",
        "fair_by_usage",
        "generation",
        "group_of",
        "groups",
        "inactive",
        "obj",
        "pending",
        "preempt_try_next",
        "prefer_preemption",
        "reclaim",
        "reservations",
        "selector",
        "splits",
        "strict",
        "usage_counts",
        "variants",
        "within",
    )

    is_queue = True

    def __init__(self, name: str, flavor_resources: FlavorResources, undo_log: UndoLog) -> None:
        super().__init__(name)
        self._flavor_resources = flavor_resources
        self._undo_log = undo_log
        self.obj: kueue.ClusterQueue | None = None
        self.pending = Pending(undo_log)
        #: Workloads that hold quota, by key.
        self.reservations: dict[str, WorkloadInfo] = {}
        #: The order in which they are preempted.
        self.candidate_order: list[Candidate] = []
        #: Those of them that are on their way out.
        self.evicted: dict[str, WorkloadInfo] = {}
        self.usage_counts = UsageCounts()
        #: Advances when a workload of this queue goes or the quota of its tree changes (3.7).
        self.generation = 0
        #: (reason, text) of everything that keeps the queue from admitting (3.9).
        self.inactive: tuple[tuple[str, str], ...] = (("NotFound", "the ClusterQueue does not exist"),)
        self.groups: list[Group] = []
        self.group_of: dict[str, Group] = {}
        self.all_flavors: frozenset[str] = frozenset()
        self.selector: Selector | None = None
        self.strict = False
        #: Reservations for pending workloads instead of the queueing strategy, where a policy says so.
        self.backfill: BackfillRules | None = None
        #: When its workloads with reserved quota end, while there is a BackfillPolicy.
        self.ends: list[End] = []
        self.borrow_try_next = False
        self.preempt_try_next = True
        self.prefer_preemption = False
        self.within = "Never"
        self.reclaim = "Never"
        self.borrow_within = False
        self.borrow_threshold: int | None = None
        #: (check, flavors it applies to; empty: all).
        self.check_rules: list[tuple[str, frozenset[str]]] = []
        #: LocalQueues compete by what they used (10).
        self.fair_by_usage = False
        #: Workloads compete for each flavor by a variant (11.10), where the gate is on.
        self.variants: kueue.ConcurrentAdmissionPolicy | None = None
        #: Pod sets that ask for it may be split over several flavors.
        self.splits = False

    def has_check_of(self, controller: str, checks: Mapping[str, kueue.AdmissionCheck]) -> bool:
        """Whether it has an admission check of this controller, among those that there are."""
        found = (checks.get(name) for name, _ in self.check_rules)
        return any(check is not None and check.spec.controller_name == controller for check in found)

    # --- configuration ----------------------------------------------------------------------------------

    def configure(self, obj: kueue.ClusterQueue | None) -> None:
        """Takes the rules from the object; without one the queue has no quota."""
        put = self._undo_log.set
        put(self, "obj", obj)
        spec = obj.spec if obj is not None else kueue.ClusterQueueSpec()
        groups = []
        group_of: dict[str, Group] = {}
        flavors: set[str] = set()
        for group in spec.resource_groups:
            compiled = Group(
                list(group.covered_resources),
                [
                    (
                        flavor.name,
                        {
                            quota.name: self._flavor_resources.index_of(flavor.name, quota.name)
                            for quota in flavor.resources
                        },
                    )
                    for flavor in group.flavors
                ],
            )
            groups.append(compiled)
            flavors.update(name for name, _ in compiled.flavors)
            for resource in compiled.resources:
                group_of.setdefault(resource, compiled)
        put(self, "groups", groups)
        put(self, "group_of", group_of)
        put(self, "all_flavors", frozenset(flavors))
        try:
            selector = spec.namespace_selector.selector() if spec.namespace_selector is not None else None
        except SelectorError:
            selector = None  # admission refuses it; a queue that got past it matches no namespace
        put(self, "selector", selector)
        put(self, "strict", spec.queueing_strategy == "StrictFIFO")
        fungibility = spec.flavor_fungibility
        put(self, "borrow_try_next", fungibility.when_can_borrow == "TryNextFlavor")
        put(self, "preempt_try_next", fungibility.when_can_preempt == "TryNextFlavor")
        put(self, "prefer_preemption", fungibility.preference == "PreemptionOverBorrowing")
        preemption = spec.preemption
        put(self, "within", preemption.within_cluster_queue)
        put(self, "reclaim", preemption.reclaim_within_cohort)
        put(self, "borrow_within", preemption.borrow_within_cohort.policy != "Never")
        put(self, "borrow_threshold", preemption.borrow_within_cohort.max_priority_threshold)
        strategy = spec.admission_checks_strategy
        rules = strategy.admission_checks if strategy is not None else []
        put(self, "check_rules", [(rule.name, frozenset(rule.on_flavors)) for rule in rules])
        put(self, "weight", fair_weight(spec.fair_sharing))
        put(self, "variants", spec.concurrent_admission_policy)
        put(self, "splits", obj is not None and is_permitted(obj.metadata.annotations))
        scope = spec.admission_scope
        put(
            self,
            "fair_by_usage",
            scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing",
        )

    def resource_groups(self) -> list[kueue.ResourceGroup]:
        """Quotas as the object says them."""
        return self.obj.spec.resource_groups if self.obj is not None else []

    def quota_percents(self) -> tuple[int | None, int | None]:
        """borrowingLimitPercent and lendablePercent."""
        if self.obj is None:
            return None, None
        return self.obj.spec.borrowing_limit_percent, self.obj.spec.lendable_percent

    def rebuilt(self) -> None:
        self.advance()

    def advance(self) -> None:
        """Makes what was remembered of earlier cycles older (3.7)."""
        self._undo_log.set(self, "generation", self.generation + 1)

    @property
    def blocks(self) -> bool:
        """Whether a workload that does not fit keeps those behind it from being considered."""
        return self.strict and self.backfill is None

    @property
    def is_active(self) -> bool:
        return not self.inactive

    @property
    def flavor_resource_names(self) -> list[tuple[str, str]]:
        """(flavor, resource) by FlavorResource."""
        return self._flavor_resources.names

    def required_checks(self, flavors: Iterable[str]) -> list[str]:
        """Admission checks a workload with these flavors must pass (11.4)."""
        return required_with(self.check_rules, flavors)

    def flavor_order(self) -> list[str]:
        """The flavors of its first resource group, the most preferred first."""
        return [name for name, _ in self.groups[0].flavors] if self.groups else []

    # --- what is held -----------------------------------------------------------------------------------

    def reserved_flavor_resources(self) -> Iterator[int]:
        """FlavorResources that workloads of this queue use, whether or not the queue has quota for them."""
        return (flavor_resource for flavor_resource, amount in self.usage_counts.reserved.items() if amount)

    def reserved_amount(self, flavor_resource: int) -> int:
        return self.usage_counts.reserved.get(flavor_resource, 0)

    def add_candidate(self, info: WorkloadInfo) -> None:
        """Puts a workload that holds quota into the order of candidates."""
        info.candidate = Candidate(info.priority, -info.reserved_at, info.uid, info.key, info)
        insort(self.candidate_order, info.candidate)

    def remove_candidate(self, info: WorkloadInfo) -> None:
        queue_candidates = self.candidate_order
        assert info.candidate is not None
        at = bisect_left(queue_candidates, info.candidate)
        assert queue_candidates[at] is info.candidate
        del queue_candidates[at]
        info.candidate = None
