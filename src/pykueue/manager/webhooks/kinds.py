"""Admission rules of the project's own kinds; what they say is in `api.defaults` and `api.validation`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pykueue.api import conditions, quantity
from pykueue.api.backfill_policies import BACKFILL_POLICIES, BackfillPolicy
from pykueue.api.budgets import BUDGETS, Budget
from pykueue.api.decoding import decode_as
from pykueue.api.defaults import default_on_create
from pykueue.api.model import Model
from pykueue.api.objects import Object, get, labels_of
from pykueue.api.preemption_policies import PREEMPTION_POLICIES, PreemptionPolicy
from pykueue.api.quantity import Quantity
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import CLUSTER_QUEUES, COHORTS, RESOURCE_FLAVORS, WORKLOADS, Resource
from pykueue.api.validation import FieldError, validate
from pykueue.api.validation.budgets import duplicate_errors
from pykueue.api.validation.fields import INVALID
from pykueue.api.validation.scopes import overlap_errors
from pykueue.manager.configuration import Configuration
from pykueue.manager.workloads.transitions import reclaimable_at_most

from .review import CREATE, Rules


class KindRules:
    """The rules of one of our kinds."""

    checked: Mapping[str, Any] | None = None
    namespaced_selector = False
    by_queue = False

    def __init__(
        self,
        resource: Resource,
        configuration: Configuration,
        defaults: tuple[str, ...],
        subresources: tuple[str, ...],
        reclaimable: Callable[[Object], Mapping[str, int] | None] = lambda workload: None,
    ) -> None:
        self.resource = resource
        self.defaults = defaults
        self.subresources = subresources
        self._gates = configuration.gates
        self._reclaimable = reclaimable

    def default(self, obj: Object) -> Object:
        return default_on_create(obj, self._gates)

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        if old is not None and get(old, "status", "reclaimablePods"):
            # What the status claims beyond what the job says may be taken back.
            counts = self._reclaimable(old)
            old = old if counts is None else reclaimable_at_most(old, counts)
        return validate(obj, old, self._gates)

    def warnings(self, obj: Object, old: Object | None) -> Iterable[str]:
        changed = old is None or old.get("spec") != obj.get("spec")
        return _rounded_quotas(obj) if changed and self.resource in (CLUSTER_QUEUES, COHORTS) else ()


class WorkloadRules(KindRules):
    """The rules of Workloads; `budgets` returns all Budgets."""

    def __init__(
        self,
        configuration: Configuration,
        defaults: tuple[str, ...],
        reclaimable: Callable[[Object], Mapping[str, int] | None],
        budgets: Callable[[], Iterable[Object]],
    ) -> None:
        super().__init__(WORKLOADS, configuration, defaults, ("status",), reclaimable)
        self._budgets = budgets

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        yield from super().validate(obj, old)
        if old is None or labels_of(obj) == labels_of(old) or not conditions.has_quota(old):
            return
        for budget in self._budgets():
            key = get(budget, "spec", "selector", "label")
            value = labels_of(obj).get(key) if key else None
            if key and value != labels_of(old).get(key):
                why = f"must not change while Budget {budget['metadata']['name']} counts the workload by it"
                yield FieldError(f"metadata.labels[{key}]", INVALID, value, why)


class PolicyRules(KindRules):
    """The rules of policies and Budgets, which must not contradict others of their kind.

    `others` returns all objects of the kind, `conflicts` what contradicts one of them. Of two created at the
    same time, their status says which is in force.
    """

    def __init__(
        self,
        resource: Resource,
        configuration: Configuration,
        others: Callable[[], Iterable[Object]],
        conflicts: Callable[[Object, Iterable[Object]], Iterable[FieldError]],
    ) -> None:
        super().__init__(resource, configuration, (), ())
        self._others = others
        self._conflicts = conflicts

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        return validate(obj, old, self._gates) or self._conflicts(obj, self._others())


def _policy_conflicts(kind: type[Model], obj: Object, others: Iterable[Object]) -> Iterable[FieldError]:
    policy: Any = decode_as(kind, obj)
    return overlap_errors(kind, policy, others)


def _budget_conflicts(obj: Object, others: Iterable[Object]) -> Iterable[FieldError]:
    return duplicate_errors(decode_as(Budget, obj), others)


def _rounded_quotas(obj: Object) -> Iterable[str]:
    """The fractional quotas that count as more than is written: shares of a device add up to too many."""
    for group in get(obj, "spec", "resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                for field in ("nominalQuota", "borrowingLimit", "lendingLimit"):
                    if resource["name"] == "cpu" or resource.get(field) is None:
                        continue
                    amount = quantity.parse(resource[field])
                    if amount != Quantity.of(amount.value()):
                        yield (
                            f"{field} {resource[field]} of {resource['name']} in flavor {flavor['name']} "
                            f"counts as {amount.value()}: all but cpu is counted in whole units, rounded up"
                        )


def kind_rules(
    configuration: Configuration,
    reclaimable: Callable[[Object], Mapping[str, int] | None] = lambda workload: None,
    policies: Callable[[Resource], Iterable[Object]] = lambda resource: (),
    budgets: Callable[[], Iterable[Object]] = tuple,
) -> list[Rules]:
    """Rules of every kind that has any beyond its schema (docs/reference/kueue-api.md 1.0).

    `reclaimable` returns what the job of a Workload says; None: there is no job to ask. `policies` returns
    all policies of a kind, `budgets` all Budgets.
    """
    # With partial admission nothing is filled in, and no review is spent on it.
    workload_defaults = () if configuration.gates["PartialAdmission"] else CREATE
    return [
        KindRules(CLUSTER_QUEUES, configuration, defaults=CREATE, subresources=()),
        KindRules(RESOURCE_FLAVORS, configuration, defaults=CREATE, subresources=()),
        KindRules(COHORTS, configuration, defaults=(), subresources=()),
        WorkloadRules(configuration, workload_defaults, reclaimable, budgets),
        KindRules(RESERVATIONS, configuration, defaults=(), subresources=()),
        *(
            PolicyRules(
                resource, configuration, partial(policies, resource), partial(_policy_conflicts, kind)
            )
            for resource, kind in (
                (BACKFILL_POLICIES, BackfillPolicy),
                (PREEMPTION_POLICIES, PreemptionPolicy),
            )
        ),
        PolicyRules(BUDGETS, configuration, budgets, _budget_conflicts),
    ]
