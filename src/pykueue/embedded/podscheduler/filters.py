"""Filters and scores that depend on one pod and one node alone.

Rules, texts and weights: docs/reference/cluster-workloads.md, 4.7.
"""

from __future__ import annotations

from typing import NamedTuple

from pykueue.embedded.podscheduler.cluster import Cluster, NodeInfo
from pykueue.embedded.podscheduler.podinfo import Shape, ports_clash


class Refusal(NamedTuple):
    """Why a node cannot take a pod; `final` when taking others off the node would not help."""

    reasons: tuple[str, ...]
    final: bool


CORDONED = Refusal(("node(s) were unschedulable",), True)
TAINTED = Refusal(("node(s) had untolerated taint(s)",), True)
NOT_CHOSEN = Refusal(("node(s) didn't match Pod's node affinity/selector",), True)
PORTS_TAKEN = Refusal(("node(s) didn't have free ports for the requested pod ports",), False)

TOO_MANY_PODS = "Too many pods"
MAX_SCORE = 100
TAINT_WEIGHT = 3
AFFINITY_WEIGHT = 2


def refusal(shape: Shape, node: NodeInfo) -> Refusal | None:
    """The first rule that keeps the pod off the node; None when it may go there."""
    if node.unschedulable and not shape.tolerates_cordon:
        return CORDONED
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not shape.tolerates(taint):
            return TAINTED
    if shape.choice is not None and not shape.choice.matches(node.labels, node.name):
        return NOT_CHOSEN
    if shape.ports and any(ports_clash(port, taken) for port in shape.ports for taken in node.ports):
        return PORTS_TAKEN
    return _shortage(shape, node)


def _shortage(shape: Shape, node: NodeInfo) -> Refusal | None:
    allocatable, used = node.allocatable, node.used
    reasons: list[str] = []
    final = False
    limit = allocatable.get("pods")
    if limit is not None and len(node.pods) >= limit:
        reasons.append(TOO_MANY_PODS)
        final = limit == 0
    for name, value in shape.requests:
        room = allocatable.get(name, 0)
        if value > room - used.get(name, 0) and (room or name not in node.backed):
            reasons.append(f"Insufficient {name}")
            final = final or value > room
    return Refusal(tuple(reasons), final) if reasons else None


def score(shape: Shape, node: NodeInfo) -> int:
    """How much capacity the node would have left, and how evenly used it would be; more is better.

    The sum of the least-allocated and the balanced-allocation scores, which have the same weight.
    """
    cpu, memory = node.allocatable.get("cpu", 0), node.allocatable.get("memory", 0)
    room = 0
    parts = 0
    if cpu > 0:
        parts += 1
        left = cpu - node.scored_cpu - shape.scored_cpu
        room += left * MAX_SCORE // cpu if left > 0 else 0
    if memory > 0:
        parts += 1
        left = memory - node.scored_memory - shape.scored_memory
        room += left * MAX_SCORE // memory if left > 0 else 0
    least_allocated = room // parts if parts else 0
    if parts < 2:
        balance = 75
    else:
        cpu_used, memory_used = node.used.get("cpu", 0), node.used.get("memory", 0)
        without = _evenness(cpu_used / cpu, memory_used / memory)
        with_pod = _evenness((cpu_used + shape.cpu) / cpu, (memory_used + shape.memory) / memory)
        balance = 50 + (50 + with_pod - without) // 2
    return least_allocated + balance


def _evenness(left: float, right: float) -> int:
    """100 when both resources are used alike, 50 when one is full and the other idle."""
    return int((1 - abs(min(left, 1.0) - min(right, 1.0)) / 2) * MAX_SCORE)


def preference_scores(cluster: Cluster, shape: Shape, nodes: list[NodeInfo]) -> list[int] | None:
    """Weighted scores for soft taints and preferred labels; None when no node differs from another."""
    total: list[int] | None = None
    if cluster.soft_tainted:
        counts = [_intolerable(shape, node) for node in nodes]
        worst = max(counts, default=0)
        if worst:
            total = [TAINT_WEIGHT * (MAX_SCORE - MAX_SCORE * count // worst) for count in counts]
    if shape.preferred:
        weights = [
            sum(weight for weight, term in shape.preferred if term.matches(node.labels, node.name))
            for node in nodes
        ]
        best = max(weights, default=0)
        if best:
            preferred = [AFFINITY_WEIGHT * (MAX_SCORE * weight // best) for weight in weights]
            total = (
                preferred
                if total is None
                else [one + other for one, other in zip(total, preferred, strict=True)]
            )
    return total


def _intolerable(shape: Shape, node: NodeInfo) -> int:
    return sum(taint.effect == "PreferNoSchedule" and not shape.tolerates(taint) for taint in node.taints)
