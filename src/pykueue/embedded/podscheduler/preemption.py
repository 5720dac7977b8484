"""Preemption: which pods of lower priority must be deleted so that a pod fits.

Rules: docs/reference/cluster-workloads.md, 4.7, "Preemption".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from pykueue.api.times import parse_time
from pykueue.embedded.podscheduler.checks import check_of
from pykueue.embedded.podscheduler.cluster import Cluster, NodeInfo
from pykueue.embedded.podscheduler.filters import Refusal, refusal
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.embedded.podscheduler.relations import repelling

NOT_HELPFUL = Refusal(("Preemption is not helpful for scheduling",), True)
NO_VICTIMS = Refusal(("No preemption victims found for incoming pod",), False)

#: At least this many nodes, or a tenth of those in question, are tried.
MIN_CANDIDATES = 100
#: Makes every priority count as positive, so that more victims never weigh less than fewer.
_PRIORITY_SHIFT = 2**31


class Plan(NamedTuple):
    """The node to use, and the victims on it."""

    node: str
    victims: tuple[PodInfo, ...]
    #: How many of them a disruption budget would rather keep.
    violations: int


def full_refusal(cluster: Cluster, pod: PodInfo, node: NodeInfo) -> Refusal | None:
    """Why the node cannot take the pod as things are now, other pods' demands included."""
    found = refusal(pod.shape, node)
    if found is not None:
        return found
    repelled_by = repelling(cluster, pod) if cluster.repelling else ()
    check = check_of(cluster, pod, repelled_by)
    return check.refusal(node) if check is not None else None


def plan(
    cluster: Cluster,
    pod: PodInfo,
    refusals: list[Refusal],
    rng: random.Random,
    guests: Callable[[PodInfo, str], list[PodInfo]],
) -> Plan | list[Refusal]:
    """The cheapest preemption; `refusals` are the nodes' answers so far, in order of the nodes.

    `guests` are pods that are nominated to a node, and which come before this one. Without any way, why
    each node cannot be cleared.
    """
    answers = [NOT_HELPFUL if one.final else NO_VICTIMS for one in refusals]
    if not any(priority < pod.priority for priority in cluster.priorities):
        return answers
    open_to = [index for index, one in enumerate(refusals) if not one.final]
    if not open_to:
        return answers
    wanted = max(MIN_CANDIDATES, len(open_to) // 10)
    offset = rng.randrange(len(open_to))
    found: list[Plan] = []
    for index in (*open_to[offset:], *open_to[:offset]):
        node = cluster.nodes[index]
        outcome = _clear(cluster, pod, node, guests(pod, node.name))
        if isinstance(outcome, Refusal):
            answers[index] = outcome
            continue
        found.append(outcome)
        if len(found) == wanted:
            break
    return min(found, key=_cost) if found else answers


def _clear(cluster: Cluster, pod: PodInfo, node: NodeInfo, guests: list[PodInfo]) -> Plan | Refusal:
    """The fewest important pods that must leave the node, tried out on the books and undone again.

    Those that a disruption budget protects are spared first, then the more important ones.
    """
    lower = [one for one in node.pods.values() if one.priority < pod.priority]
    if not lower:
        return NO_VICTIMS
    lower.sort(key=lambda other: (-other.priority, other.started, other.key))
    protected = cluster.budgets.violated_by(lower)
    gone = {one.uid: one for one in lower}
    for one in lower:
        cluster.remove_pod(one.uid)
    for one in guests:
        cluster.add_pod(one)
    try:
        found = full_refusal(cluster, pod, node)
        if found is not None:
            return found
        for one in sorted(lower, key=lambda other: other.uid not in protected):
            cluster.add_pod(one)
            if full_refusal(cluster, pod, node) is None:
                del gone[one.uid]
            else:
                cluster.remove_pod(one.uid)
    finally:
        for one in guests:
            cluster.remove_pod(one.uid)
        for one in gone.values():
            cluster.add_pod(one)
    return Plan(node.name, tuple(gone.values()), len(protected & gone.keys()))


def _cost(found: Plan) -> tuple[int, int, int, int, float]:
    highest = max(one.priority for one in found.victims)
    started = min(one.started for one in found.victims if one.priority == highest)
    return (
        found.violations,
        highest,
        sum(one.priority + _PRIORITY_SHIFT for one in found.victims),
        len(found.victims),
        -parse_time(started) if started else 0.0,
    )
