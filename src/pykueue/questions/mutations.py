"""Changes of objects, as they are tried: each names the field it changes and makes the changed object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.budgets import Budget, BudgetLedger, Credit
from pykueue.api.kueue.common import ResourceGroup, ResourceQuota
from pykueue.api.model import Model
from pykueue.api.quantity import Quantity
from pykueue.api.reservations import Reservation
from pykueue.engine import Engine, Upsert
from pykueue.engine.quota.usage import to_quantity, units
from pykueue.manager.budgets.ledger import Ledger, Terms
from pykueue.questions.answers import Edit

#: Added to `metadata.generation` of a Workload whose spec is changed: the same number means the same spec.
_NEW_GENERATION: Final = 1 << 32


class Ref(NamedTuple):
    """An object: kind, namespace (empty for cluster-scoped kinds) and name."""

    kind: Literal["Budget", "ClusterQueue", "Cohort", "LocalQueue", "Reservation", "Workload"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Mutation(NamedTuple):
    """One changed field of an object."""

    ref: Ref
    field: str
    """Path of the field, with names in place of indexes."""
    before: str
    after: str
    apply: Callable[[Any], Model]

    def edit(self) -> Edit:
        """As answers show it."""
        return Edit(
            kind=self.ref.kind,
            namespace=self.ref.namespace,
            name=self.ref.name,
            field=self.field,
            before=self.before,
            after=self.after,
        )


Mutations = tuple[Mutation, ...]


def events(engine: Engine, mutations: Iterable[Mutation]) -> list[Upsert]:
    """The changed objects; those of the same object are combined."""
    found: dict[Ref, Model] = {}
    for mutation in mutations:
        obj = found.get(mutation.ref) or _object(engine, mutation.ref)
        assert obj is not None
        found[mutation.ref] = mutation.apply(obj)
    changed = [Upsert(obj) for obj in found.values()]
    ledgers = (_ledgers(engine, obj) for obj in found.values() if isinstance(obj, Budget))
    return [*changed, *chain.from_iterable(ledgers)]


def _ledgers(engine: Engine, budget: Budget) -> Iterator[Upsert]:
    """The ledgers of a Budget as they are once it is changed."""
    for obj in engine.budget_ledgers(budget.metadata.name):
        ledger = Ledger.read(obj.spec)
        begin = ledger.window[0] if ledger.window is not None else 0
        ledger.advance(max(ledger.now, begin), Terms(budget.spec, ledger.value))
        yield Upsert(BudgetLedger(metadata=obj.metadata, spec=ledger.spec()))


def _object(engine: Engine, ref: Ref) -> Model | None:
    match ref.kind:
        case "Budget":
            return engine.budget_object(ref.name)
        case "Reservation":
            return engine.reservation_object(ref.name)
        case "ClusterQueue":
            return engine.cluster_queue_object(ref.name)
        case "Cohort":
            return engine.cohort_object(ref.name)
        case "LocalQueue":
            locals_ = engine.local_queue_objects(ref.namespace)
            return next((obj for obj in locals_ if obj.metadata.name == ref.name), None)
        case _:
            return engine.workload_object(f"{ref.namespace}/{ref.name}")


# --- quotas -------------------------------------------------------------------------------------------------

QuotaField = Literal["nominalQuota", "borrowingLimit", "lendingLimit"]
_ATTRIBUTES: Final = {
    "nominalQuota": "nominal_quota",
    "borrowingLimit": "borrowing_limit",
    "lendingLimit": "lending_limit",
}


class Knob(NamedTuple):
    """An amount of a queue's or cohort's quota that can be raised."""

    ref: Ref
    flavor: str
    resource: str
    field: QuotaField
    base: int
    """What it is now, in quota units."""

    def raised(self, by: int) -> Mutation:
        """The amount raised by `by` quota units."""
        value = to_quantity(self.resource, self.base + by)

        def change(obj: kueue.ClusterQueue | kueue.Cohort) -> Model:
            groups = [self._group(group, value) for group in obj.spec.resource_groups]
            return replace(obj, spec=replace(obj.spec, resource_groups=groups))

        before = to_quantity(self.resource, self.base)
        path = f"spec.resourceGroups.flavors[{self.flavor}].resources[{self.resource}].{self.field}"
        return Mutation(self.ref, path, str(before), str(value), change)

    def _group(self, group: ResourceGroup, value: Any) -> ResourceGroup:
        def changed(quota: ResourceQuota) -> ResourceQuota:
            if quota.name != self.resource:
                return quota
            return replace(quota, **{_ATTRIBUTES[self.field]: value})

        flavors = [
            replace(flavor, resources=[changed(quota) for quota in flavor.resources])
            if flavor.name == self.flavor
            else flavor
            for flavor in group.flavors
        ]
        return replace(group, flavors=flavors)


# --- workloads ----------------------------------------------------------------------------------------------


def _respecified(obj: kueue.Workload, **fields: Any) -> kueue.Workload:
    metadata = obj.metadata
    if metadata.generation:
        metadata = replace(metadata, generation=metadata.generation + _NEW_GENERATION)
    return replace(obj, metadata=metadata, spec=replace(obj.spec, **fields))


def workload_ref(workload: kueue.Workload) -> Ref:
    """The Workload's reference."""
    return Ref("Workload", workload.metadata.namespace, workload.metadata.name)


def priority(workload: kueue.Workload, effective: int, value: int) -> Mutation:
    """Another effective priority; a boost by annotation stays as it is."""
    base = workload.spec.priority or 0
    new = base + value - effective
    return Mutation(
        workload_ref(workload),
        "spec.priority",
        str(base),
        str(new),
        lambda obj: _respecified(obj, priority=new),
    )


def pods_fewer(workload: kueue.Workload, pod_set: str, fewer: int) -> Mutation:
    """The count of a pod set reduced by `fewer` pods."""
    count = next(pods.count for pods in workload.spec.pod_sets if pods.name == pod_set)

    def change(obj: kueue.Workload) -> kueue.Workload:
        pod_sets = []
        for pods in obj.spec.pod_sets:
            if pods.name == pod_set:
                least = min(pods.min_count, pods.count - fewer) if pods.min_count is not None else None
                pods = replace(pods, count=pods.count - fewer, min_count=least)
            pod_sets.append(pods)
        return _respecified(obj, pod_sets=pod_sets)

    path = f"spec.podSets[{pod_set}].count"
    return Mutation(workload_ref(workload), path, str(count), str(count - fewer), change)


def queue_name(workload: kueue.Workload, name: str) -> Mutation:
    """Another LocalQueue of the namespace."""
    before = workload.spec.queue_name or ""
    return Mutation(
        workload_ref(workload),
        "spec.queueName",
        before,
        name,
        lambda obj: _respecified(obj, queue_name=name),
    )


def namespace(workload: kueue.Workload, name: str) -> Mutation:
    """The same Workload in another namespace, and not in its own."""

    def change(obj: kueue.Workload) -> kueue.Workload:
        return replace(obj, metadata=replace(obj.metadata, namespace=name))

    return Mutation(workload_ref(workload), "metadata.namespace", workload.metadata.namespace, name, change)


def activated(workload: kueue.Workload) -> Mutation:
    """A deactivated Workload is active again."""
    return Mutation(
        workload_ref(workload), "spec.active", "false", "true", lambda obj: _respecified(obj, active=True)
    )


def maximum_execution_time(workload: kueue.Workload, seconds: int) -> Mutation:
    """Another declared maximum execution time."""
    before = workload.spec.maximum_execution_time_seconds
    return Mutation(
        workload_ref(workload),
        "spec.maximumExecutionTimeSeconds",
        "" if before is None else str(before),
        str(seconds),
        lambda obj: _respecified(obj, maximum_execution_time_seconds=seconds),
    )


# --- policies -----------------------------------------------------------------------------------------------


def budget_hours(budget: Budget, resource: str, milli: int) -> Mutation:
    """Thousandths of hours more of a resource in each window."""
    before = next(each.hours for each in budget.spec.resources if each.name == resource)
    after = before + Quantity.of_milli(milli)

    def change(obj: Budget) -> Budget:
        found = [replace(each, hours=after) if each.name == resource else each for each in obj.spec.resources]
        return replace(obj, spec=replace(obj.spec, resources=found))

    ref = Ref("Budget", "", budget.metadata.name)
    return Mutation(ref, f"spec.resources[{resource}].hours", str(before), str(after), change)


def budget_credit(
    budget: Budget, value: str, resource: str, milli: int, workload: kueue.Workload
) -> Mutation:
    """A credit of thousandths of hours, for the value of the label that a workload has."""
    name, hours = f"{workload.metadata.name[:40]}-{len(budget.spec.credits)}", Quantity.of_milli(milli)
    credit = Credit(
        name=name,
        resource=resource,
        hours=hours,
        reason=f"for Workload {workload.metadata.key}",
        granted_by="pykueue why",
        value=value if budget.spec.selector.label is not None else None,
    )

    def change(obj: Budget) -> Budget:
        return replace(obj, spec=replace(obj.spec, credits=[*obj.spec.credits, credit]))

    ref = Ref("Budget", "", budget.metadata.name)
    return Mutation(ref, f"spec.credits[{name}].hours", "", str(hours), change)


def reserved_less(reservation: Reservation, flavor: str, resource: str, by: int) -> Mutation:
    """A Reservation of `by` quota units less."""
    before = next(
        one.quantity
        for each in reservation.spec.flavors
        if each.name == flavor
        for one in each.resources
        if one.name == resource
    )
    after = to_quantity(resource, units(resource, before) - by)

    def change(obj: Reservation) -> Reservation:
        flavors = []
        for each in obj.spec.flavors:
            if each.name == flavor:
                amounts = [
                    replace(one, quantity=after) if one.name == resource else one for one in each.resources
                ]
                each = replace(each, resources=amounts)
            flavors.append(each)
        return replace(obj, spec=replace(obj.spec, flavors=flavors))

    ref = Ref("Reservation", "", reservation.metadata.name)
    field = f"spec.flavors[{flavor}].resources[{resource}].quantity"
    return Mutation(ref, field, str(before), str(after), change)


# --- queues -------------------------------------------------------------------------------------------------


def resumed(queue: kueue.ClusterQueue | kueue.LocalQueue) -> Mutation:
    """A stopped queue admits again."""
    kind: Any = type(queue).__name__
    ref = Ref(kind, queue.metadata.namespace, queue.metadata.name)

    def change(obj: Any) -> Model:
        changed: Model = replace(obj, spec=replace(obj.spec, stop_policy="None"))
        return changed

    return Mutation(ref, "spec.stopPolicy", queue.spec.stop_policy, "None", change)


#: Policies that name workloads that may be preempted, by field, from the strictest to the loosest value.
_PREEMPTION: Final = {
    "withinClusterQueue": ("within_cluster_queue", ("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
    "reclaimWithinCohort": ("reclaim_within_cohort", ("Never", "LowerPriority", "Any")),
}


def looser_preemption(queue: kueue.ClusterQueue) -> Iterable[tuple[Mutation, ...]]:
    """For each field of `spec.preemption`, its looser values: the smallest change first."""
    ref = Ref("ClusterQueue", "", queue.metadata.name)
    now = queue.spec.preemption
    for field, (attribute, values) in _PREEMPTION.items():
        if field == "reclaimWithinCohort" and not queue.spec.cohort_name:
            continue
        before = getattr(now, attribute)
        looser = values[values.index(before) + 1 :]
        yield tuple(_preemption(ref, field, before, value, **{attribute: value}) for value in looser)
    borrowing = now.borrow_within_cohort
    if queue.spec.cohort_name and now.reclaim_within_cohort != "Never" and borrowing.policy == "Never":
        looser_borrowing = replace(borrowing, policy="LowerPriority")
        field = "borrowWithinCohort.policy"
        yield (_preemption(ref, field, "Never", "LowerPriority", borrow_within_cohort=looser_borrowing),)


def _preemption(ref: Ref, field: str, before: str, after: str, **fields: Any) -> Mutation:
    def change(obj: kueue.ClusterQueue) -> kueue.ClusterQueue:
        preemption = replace(obj.spec.preemption, **fields)
        return replace(obj, spec=replace(obj.spec, preemption=preemption))

    return Mutation(ref, f"spec.preemption.{field}", before, after, change)
