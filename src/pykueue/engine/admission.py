"""Writing a choice of flavors down: the Admission that goes into the workload's status, and the usage it
stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pykueue.api.kueue import Admission, PodSetAssignment
from pykueue.engine.assignment import Assignment, Choice
from pykueue.engine.cluster_queue import PODS
from pykueue.engine.names import Pairs
from pykueue.engine.plan import Plan
from pykueue.engine.quota import to_quantity, units
from pykueue.engine.requests import PodShape, Shape


class Holding(NamedTuple):
    """What a workload holds."""

    admission: Admission
    usage: tuple[tuple[int, int], ...]
    """(pair, amount), each pair once, no zero amounts."""
    pairs: frozenset[int]
    """Pairs it holds, those with amount zero included."""


def holding_of(shape: Shape, plan: Plan, queue: str, assignment: Assignment) -> Holding:
    """What a workload of this shape gets; workloads of one shape with the same flavors share one value."""
    if assignment.shrunk:
        return _make(shape, queue, assignment)
    flavors = tuple([choice.flavor for choices in assignment.choices for choice in choices.values()])
    holding = plan.holdings.get(flavors)
    if holding is None:
        holding = plan.holdings[flavors] = _make(shape, queue, assignment)
    return holding


def _make(shape: Shape, queue: str, assignment: Assignment) -> Holding:
    given = []
    total: dict[int, int] = {}
    pairs = set()
    for pods, count, choices in _pod_sets(shape, assignment):
        amounts = {
            resource: count if resource == PODS else pods.per_pod[resource] * count
            for resource in sorted(choices)
        }
        given.append(
            PodSetAssignment(
                name=pods.name,
                flavors={resource: choices[resource].flavor for resource in amounts},
                resource_usage={
                    resource: to_quantity(resource, amount) for resource, amount in amounts.items()
                },
                count=count,
            )
        )
        for resource, amount in amounts.items():
            pair = choices[resource].cell.pair
            pairs.add(pair)
            if amount:
                total[pair] = total.get(pair, 0) + amount
    admission = Admission(cluster_queue=queue, pod_set_assignments=given)
    return Holding(admission, tuple(total.items()), frozenset(pairs))


def _pod_sets(shape: Shape, assignment: Assignment) -> Iterator[tuple[PodShape, int, dict[str, Choice]]]:
    return zip(shape.pod_sets, assignment.counts, assignment.choices, strict=True)


def held_amounts(
    given: PodSetAssignment, full_count: int, effective: int | None
) -> Iterator[tuple[str, str, int]]:
    """(resource, flavor, amount) of one pod set, given the pods that still need quota (2.7).

    `full_count` is the size in the spec, `effective` that size without the pods no longer needed.
    """
    admitted = given.count if given.count is not None else full_count
    for resource, flavor in given.flavors.items():
        quantity = given.resource_usage.get(resource)
        amount = units(resource, quantity) if quantity is not None else 0
        if effective is not None and effective < admitted:
            amount = amount // admitted * effective
        yield resource, flavor, amount


def holding_from(
    admission: Admission, full: dict[str, int], effective: dict[str, int], numbers: Pairs
) -> Holding:
    """What an admission stands for, given sizes by pod set."""
    total: dict[int, int] = {}
    pairs = set()
    for given in admission.pod_set_assignments:
        for resource, flavor, amount in held_amounts(
            given, full.get(given.name, 0), effective.get(given.name)
        ):
            pair = numbers.number(flavor, resource)
            pairs.add(pair)
            if amount:
                total[pair] = total.get(pair, 0) + amount
    return Holding(admission, tuple(total.items()), frozenset(pairs))


def requests_of(shape: Shape) -> Sequence[tuple[str, dict[str, int]]]:
    """Amounts asked for by pod set, for publication (2.11)."""
    return [(pods.name, pods.total) for pods in shape.pod_sets]
