"""Quota reservations: the Admission that goes into the status of a workload, and the usage it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pykueue.api.hybrid import Part, parts_of, shares_of, with_parts
from pykueue.api.kueue import Admission, PodSetAssignment
from pykueue.engine.flavors.assignment import Assignment, Choice
from pykueue.engine.flavors.plan import Plan
from pykueue.engine.flavors.scheduling_class import PodSetClass, SchedulingClass
from pykueue.engine.queues.cluster_queue import PODS
from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.quota.usage import to_quantity, units


class QuotaReservation(NamedTuple):
    """What a workload holds."""

    admission: Admission
    usage: tuple[tuple[int, int], ...]
    """(FlavorResource, amount), each FlavorResource once, no zero amounts."""
    flavor_resources: frozenset[int]
    """FlavorResources it reserves, those with amount zero included."""


def reservation_of(
    scheduling_class: SchedulingClass, plan: Plan, queue: str, assignment: Assignment
) -> QuotaReservation:
    """What a workload of this class gets; workloads of one class with the same flavors share one value."""
    if assignment.shrunk or assignment.parts:
        return _make(scheduling_class, queue, assignment)
    flavors = tuple([choice.flavor for choices in assignment.choices for choice in choices.values()])
    reservation = plan.reservations.get(flavors)
    if reservation is None:
        reservation = plan.reservations[flavors] = _make(scheduling_class, queue, assignment)
    return reservation


def _make(scheduling_class: SchedulingClass, queue: str, assignment: Assignment) -> QuotaReservation:
    given = []
    total: dict[int, int] = {}
    flavor_resources: set[int] = set()
    for index, (pods, count, choices) in enumerate(_pod_sets(scheduling_class, assignment)):
        amounts = {
            resource: count if resource == PODS else pods.per_pod[resource] * count
            for resource in sorted(choices)
        }
        one = PodSetAssignment(
            name=pods.name,
            flavors={resource: choices[resource].flavor for resource in amounts},
            resource_usage={resource: to_quantity(resource, amount) for resource, amount in amounts.items()},
            count=count,
        )
        parts = assignment.parts.get(index, ())
        split: set[str] = set()
        if parts:
            one = with_parts(one, [Part(part.flavor, part.pods) for part in parts])
        for part in parts:
            split.update(part.choices)
            for choice in part.choices.values():
                _add(choice, choice.amount, total, flavor_resources)
        given.append(one)
        for resource, amount in amounts.items():
            if resource not in split:
                _add(choices[resource], amount, total, flavor_resources)
    admission = Admission(cluster_queue=queue, pod_set_assignments=given)
    return QuotaReservation(admission, tuple(total.items()), frozenset(flavor_resources))


def _add(choice: Choice, amount: int, total: dict[int, int], flavor_resources: set[int]) -> None:
    flavor_resource = choice.flavor_usage.flavor_resource
    flavor_resources.add(flavor_resource)
    if amount:
        total[flavor_resource] = total.get(flavor_resource, 0) + amount


def _pod_sets(
    scheduling_class: SchedulingClass, assignment: Assignment
) -> Iterator[tuple[PodSetClass, int, dict[str, Choice]]]:
    return zip(scheduling_class.pod_sets, assignment.counts, assignment.choices, strict=True)


def reserved_amounts(
    given: PodSetAssignment, full_count: int, effective: int | None
) -> Iterator[tuple[str, str, int]]:
    """(resource, flavor, amount) of one pod set, given the pods that still need quota (2.7).

    `full_count` is the size in the spec, `effective` that size without the pods no longer needed.
    """
    admitted = given.count if given.count is not None else full_count
    parts = parts_of(given)
    for resource, flavor in given.flavors.items():
        quantity = given.resource_usage.get(resource)
        amount = units(resource, quantity) if quantity is not None else 0
        if parts:
            needed = admitted if effective is None else effective
            for part in shares_of(parts, flavor, admitted, needed):
                yield resource, part.flavor, amount // admitted * part.pods
            continue
        if effective is not None and effective < admitted:
            amount = amount // admitted * effective
        yield resource, flavor, amount


def reservation_from(
    admission: Admission, full: dict[str, int], effective: dict[str, int], flavor_resources: FlavorResources
) -> QuotaReservation:
    """What an admission stands for, given sizes by pod set."""
    total: dict[int, int] = {}
    reserved = set()
    for given in admission.pod_set_assignments:
        for resource, flavor, amount in reserved_amounts(
            given, full.get(given.name, 0), effective.get(given.name)
        ):
            flavor_resource = flavor_resources.index_of(flavor, resource)
            reserved.add(flavor_resource)
            if amount:
                total[flavor_resource] = total.get(flavor_resource, 0) + amount
    return QuotaReservation(admission, tuple(total.items()), frozenset(reserved))


def requests_of(scheduling_class: SchedulingClass) -> Sequence[tuple[str, dict[str, int]]]:
    """Amounts asked for by pod set, for publication (2.11)."""
    return [(pods.name, pods.total) for pods in scheduling_class.pod_sets]
