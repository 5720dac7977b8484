"""What Budgets and ledgers say, compiled: whose workloads they are for, and what use of a flavor counts.

Amounts are whole nanos (10^-9) of resource-seconds: cpus, bytes or units times seconds, times the weight of
the flavor. Source of the rules: docs/reference/policies.md 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pykueue.api import kueue
from pykueue.api.budgets import Budget, BudgetLedger
from pykueue.api.preemption_policies import seconds
from pykueue.engine.flavors.reservation import reserved_amounts
from pykueue.engine.options import Options
from pykueue.engine.quota.usage import in_gibi, is_bytes, to_quantity
from pykueue.engine.workload import effective_counts

HOUR = 3600
#: The weight of flavors that a Budget does not name, in thousandths.
_ONE = 1000

#: A ledger: name of the Budget, and value of the label that it selects by (empty otherwise).
LedgerKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """One Budget."""

    name: str
    local_queue: str
    """`namespace/name`; empty: not selected by LocalQueue. The same holds for the other selectors."""
    cluster_queue: str
    cohort: str
    namespace: str
    label: str
    limit: Mapping[str, int]
    """Nanos of resource-seconds of a window, by resource."""
    weights: Mapping[str, Mapping[str, int]]
    """Thousandths, by resource and flavor."""
    declared: bool
    """An admission sets aside what the workload may still use."""
    default_maximum: int
    """Seconds; 0: none."""

    def covers(self, namespace: str, local_queue: str, path: tuple[str, ...]) -> bool:
        """Whether it is for workloads of a LocalQueue, by name, whose ClusterQueue has that path."""
        if self.label:
            return True
        if self.namespace:
            return self.namespace == namespace
        if self.local_queue:
            return self.local_queue == f"{namespace}/{local_queue}"
        if self.cluster_queue:
            return bool(path) and path[-1] == self.cluster_queue
        return self.cohort in path[:-1]

    def value(self, labels: Mapping[str, str]) -> str:
        """The value that picks the ledger of a job with these labels."""
        return labels.get(self.label, "") if self.label else ""

    def rates(self, use: Iterable[tuple[str, str, int]]) -> dict[str, int]:
        """What a workload uses in a second, by resource, given (resource, flavor, amount in quota units)."""
        found: dict[str, int] = {}
        for resource, flavor, amount in use:
            if resource not in self.limit:
                continue
            weight = self.weights.get(resource, {}).get(flavor, _ONE)
            rate = to_quantity(resource, amount).nanos * weight // 1000
            if rate:
                found[resource] = found.get(resource, 0) + rate
        return found

    def seconds_left(self, workload: kueue.Workload) -> int | None:
        """Seconds that a workload may still run by its maximum execution time; None: it has none."""
        past = workload.status.accumulated_past_execution_time_seconds or 0
        own = workload.spec.maximum_execution_time_seconds
        if own:
            # One that has run for its own maximum is admitted and then deactivated for that.
            return max(1, own - past)
        return max(0, self.default_maximum - past) if self.default_maximum else None


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What a BudgetLedger says that admission depends on."""

    limit: Mapping[str, int]
    used: Mapping[str, int]
    reserved: Mapping[str, Mapping[str, int]]
    """By uid of each running workload: what it may still use, by resource."""
    action: str


def budget_rules(budget: Budget) -> BudgetRules:
    """A Budget, compiled."""
    spec, selector = budget.spec, budget.spec.selector
    local = selector.local_queue
    return BudgetRules(
        name=budget.metadata.name,
        local_queue=f"{local.namespace}/{local.name}" if local is not None else "",
        cluster_queue=selector.cluster_queue or "",
        cohort=selector.cohort or "",
        namespace=selector.namespace or "",
        label=selector.label or "",
        limit={each.name: each.hours.nanos * HOUR for each in spec.resources},
        weights={
            each.name: {given.name: given.weight.milli() for given in each.flavor_weights}
            for each in spec.resources
        },
        declared=spec.reservation == "Declared",
        default_maximum=int(seconds(spec.default_maximum)),
    )


def ledger_view(ledger: BudgetLedger) -> LedgerView:
    """A ledger, compiled."""
    spec = ledger.spec
    return LedgerView(
        limit={name: amount.nanos for name, amount in spec.limit.items()},
        used={name: amount.nanos for name, amount in spec.used.items()},
        reserved={
            each.uid: {
                name: rate.nanos * max(0, each.reserved_seconds - each.seconds)
                for name, rate in each.rates.items()
            }
            for each in spec.running
        },
        action=spec.action,
    )


def current_use(workload: kueue.Workload, options: Options) -> list[tuple[str, str, int]]:
    """(resource, flavor, amount in quota units) of an admitted workload, by the pods that need quota."""
    admission = workload.status.admission
    if admission is None:
        return []
    pod_sets = workload.spec.pod_sets
    counts = dict(zip([pods.name for pods in pod_sets], effective_counts(workload, options), strict=True))
    full = {pods.name: pods.count for pods in pod_sets}
    return [
        use
        for given in admission.pod_set_assignments
        for use in reserved_amounts(given, full.get(given.name, 0), counts.get(given.name))
    ]


def use_of(admission: kueue.Admission) -> list[tuple[str, str, int]]:
    """(resource, flavor, amount in quota units) of all pod sets of an admission."""
    return [
        use
        for given in admission.pod_set_assignments
        for use in reserved_amounts(given, given.count or 0, None)
    ]


def hours_text(resource: str, hours: float) -> str:
    """Resource-hours as tables show them; those of bytes in Gi-hours. Less than one has three decimals."""
    amount = in_gibi(resource, hours)
    return f"{amount:.{3 if 0 < amount < 1 else 2}f}{' Gi·h' if is_bytes(resource) else ' h'}"
