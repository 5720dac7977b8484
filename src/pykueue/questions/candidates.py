"""Changes to try for a workload that does not get quota, each with guesses of its smallest amount.

A guess saves trials where it is right; where it is not, the amount is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.quantity import Quantity
from pykueue.engine import Engine, Explanation
from pykueue.engine.explain.quota_queries import NodeQuota, NodeView
from pykueue.engine.quota.usage import is_unlimited, to_quantity, units
from pykueue.questions import mutations
from pykueue.questions.answers import ChangeKind
from pykueue.questions.mutations import Knob, Mutations, QuotaField, Ref
from pykueue.questions.rights import EVERYTHING, Rights
from pykueue.questions.smallest import Amounts

_QUOTA_KINDS: Final[dict[QuotaField, ChangeKind]] = {
    "nominalQuota": "Quota",
    "borrowingLimit": "BorrowingLimit",
    "lendingLimit": "LendingLimit",
}
#: Lenders whose lending limits are tried: those with most of the resource unused.
LENDERS_MAX: Final = 3
#: Other LocalQueues of the namespace that are tried.
QUEUES_MAX: Final = 20
#: LocalQueues of other namespaces that are tried.
OTHER_NAMESPACES_MAX: Final = 3


#: The number that all amounts of a resource in the tree are multiples of.
Grain = Callable[[str], int]


class Candidate(NamedTuple):
    """A kind of change with amounts, all zero for no change."""

    kind: ChangeKind
    make: Callable[[Amounts], Mutations]
    text: Callable[[Amounts], str]
    guesses: Sequence[Amounts]
    """Tried in order, likely ones first."""
    ceiling: Amounts
    resources: tuple[str, ...] = ()
    """For changes of quota: the resource of each amount."""
    grid: tuple[int, ...] = ()
    """Of each amount, a number of which the smallest one is probably a multiple."""
    thresholds: tuple[int, ...] = ()
    """For priorities: the only amounts at which the outcome can change, ascending, in place of guesses."""


def candidates(
    engine: Engine, workload: kueue.Workload, explanation: Explanation | None, rights: Rights = EVERYTHING
) -> Iterator[Candidate]:
    """The changes to try for a pending workload; `explanation` is that of the present state.

    Changes of other queues and of cohorts are among them for those who may list ClusterQueues.
    """
    key = workload.metadata.key
    view = engine.workload(key)
    if view is None:
        return
    queue = engine.cluster_queue_object(view.cluster_queue)
    node = engine.node(view.cluster_queue, "ClusterQueue")
    if queue is None or node is None:
        return
    need: dict[str, int] = {}
    for _, amounts in view.requests:
        for resource, quantity in amounts.items():
            need[resource] = need.get(resource, 0) + units(resource, quantity)
    grain = cache(partial(engine.granularity, view.cluster_queue))
    yield from _pod_counts(workload, view.requests, node)
    priorities = higher_priority(engine, workload, engine.priorities(view.cluster_queue, pending=False))
    if priorities is not None:
        yield priorities
    yield from _queues(engine, workload)
    if rights.may_list_queues:
        yield from _namespaces(engine, workload, need, rights.may_list_workloads)
    yield from _quotas(grain, queue, node, need)
    if rights.may_list_queues:
        yield from _cohort_quotas(engine, grain, node, need)
    yield from _limits(engine, node, need, explanation, grain, rights.may_list_queues)
    for ladder in mutations.looser_preemption(queue):
        if ladder:
            yield Candidate(
                "PreemptionPolicy",
                partial(_rung, ladder),
                partial(_policy_text, ladder),
                [(1,)],
                (len(ladder),),
            )


def _rung(ladder: Mutations, amounts: Amounts) -> Mutations:
    (index,) = amounts
    return (ladder[index - 1],) if index else ()


def _policy_text(ladder: Mutations, amounts: Amounts) -> str:
    mutation = ladder[amounts[0] - 1]
    return f"set {mutation.field} of {mutation.ref} to {mutation.after} (now {mutation.before})"


# --- quotas -------------------------------------------------------------------------------------------------


def _quotas(
    grain: Grain, queue: kueue.ClusterQueue, node: NodeView, need: dict[str, int]
) -> Iterator[Candidate]:
    """More nominal quota of the ClusterQueue, in one flavor of each group of resources at a time."""
    have = {(quota.flavor, quota.resource): quota for quota in node.quotas}
    groups: list[list[list[Knob]]] = []
    for group in queue.spec.resource_groups:
        wanted = [resource for resource in group.covered_resources if need.get(resource)]
        if not wanted:
            continue
        options = []
        for flavor in group.flavors:
            knobs = [
                _knob(node, have[flavor.name, resource], "nominalQuota")
                for resource in wanted
                if (flavor.name, resource) in have
            ]
            if knobs and not any(is_unlimited(knob.base) for knob in knobs):
                options.append(knobs)
        if options:
            groups.append(options)
    for index, options in enumerate(groups):
        for option in options:
            others = [
                min(each, key=lambda knobs: sum(_shortages(knobs, have, need)))
                for at, each in enumerate(groups)
                if at != index
            ]
            if index and not any(_shortages(option, have, need)):
                continue  # the first group tries it already
            yield _raise(grain, [knob for knobs in (option, *others) for knob in knobs], have, need)


def _cohort_quotas(engine: Engine, grain: Grain, node: NodeView, need: dict[str, int]) -> Iterator[Candidate]:
    """More nominal quota of each cohort above that has its own quota, in one flavor at a time."""
    for name in reversed(node.path[:-1]):
        cohort, view = engine.cohort_object(name), engine.node(name, "Cohort")
        if cohort is None or view is None:
            continue
        have = {(quota.flavor, quota.resource): quota for quota in view.quotas}
        for group in cohort.spec.resource_groups:
            for flavor in group.flavors:
                own = {quota.name for quota in flavor.resources}
                knobs = [
                    _knob(view, have[flavor.name, resource], "nominalQuota")
                    for resource in need
                    if resource in own and need[resource] and (flavor.name, resource) in have
                ]
                if knobs and not any(is_unlimited(knob.base) for knob in knobs):
                    yield _raise(grain, knobs, have, need)._replace(kind="CohortQuota")


def _knob(node: NodeView, quota: NodeQuota, field: QuotaField) -> Knob:
    base = {
        "nominalQuota": quota.nominal,
        "borrowingLimit": quota.borrowing_limit,
        "lendingLimit": quota.lending_limit,
    }[field]
    return Knob(Ref(node.kind, "", node.name), quota.flavor, quota.resource, field, base or 0)


def _shortages(
    knobs: Sequence[Knob], have: dict[tuple[str, str], NodeQuota], need: dict[str, int]
) -> Amounts:
    """How much of each is lacking now."""
    return tuple(max(0, need[knob.resource] - have[knob.flavor, knob.resource].available) for knob in knobs)


def _raise(
    grain: Grain, knobs: Sequence[Knob], have: dict[tuple[str, str], NodeQuota], need: dict[str, int]
) -> Candidate:
    """Raises of some quotas or limits of the same kind."""
    short = _shortages(knobs, have, need)
    own = tuple(
        max(0, need[knob.resource] + quota.reserved - quota.subtree)
        for knob in knobs
        for quota in [have[knob.flavor, knob.resource]]
    )
    # What the workload asks for, on top of whatever the node owes by now.
    ceiling = tuple(
        need[knob.resource] + max(lack, 0) + max(over, 0)
        for knob, lack, over in zip(knobs, short, own, strict=True)
    )
    guesses = [short, own] if knobs[0].field == "nominalQuota" else [short]

    def make(amounts: Amounts) -> Mutations:
        return tuple(knob.raised(by) for knob, by in zip(knobs, amounts, strict=True) if by)

    return Candidate(
        _QUOTA_KINDS[knobs[0].field],
        make,
        partial(_raise_text, tuple(knobs)),
        guesses,
        ceiling,
        tuple(knob.resource for knob in knobs),
        tuple(grain(knob.resource) for knob in knobs),
    )


def _raise_text(knobs: Sequence[Knob], amounts: Amounts) -> str:
    parts = [
        f"{to_quantity(knob.resource, by)} {knob.resource} of flavor {knob.flavor} "
        f"(from {to_quantity(knob.resource, knob.base)} to {to_quantity(knob.resource, knob.base + by)})"
        for knob, by in zip(knobs, amounts, strict=True)
        if by
    ]
    return f"raise {knobs[0].field} of {knobs[0].ref} by {' and '.join(parts)}"


def _limits(
    engine: Engine,
    node: NodeView,
    need: dict[str, int],
    explanation: Explanation | None,
    grain: Grain,
    name_lenders: bool,
) -> Iterator[Candidate]:
    """Higher borrowing limits of what is above the workload, and lending limits of those that could lend."""
    attempts = explanation.attempts if explanation is not None else []
    flavors = dict.fromkeys(attempt.flavor for attempt in attempts if attempt.flavor)
    have = {(quota.flavor, quota.resource): quota for quota in node.quotas}
    above = [engine.node(name, "Cohort") for name in node.path[:-1]]
    others = _others(engine, node) if name_lenders else []
    nodes = [node, *(each for each in reversed(above) if each is not None)]
    for flavor in flavors:
        wanted = [resource for resource in need if (flavor, resource) in have]
        for each in nodes:
            knobs = [
                _knob(each, quota, "borrowingLimit")
                for quota in each.quotas
                if quota.flavor == flavor and quota.resource in wanted and quota.borrowing_limit is not None
            ]
            if knobs:
                yield _raise(grain, knobs, have, need)
        for lender in _lenders(others, flavor, wanted):
            knobs = [
                _knob(lender, quota, "lendingLimit")
                for quota in lender.quotas
                if quota.flavor == flavor and quota.resource in wanted and quota.lending_limit is not None
            ]
            yield _raise(grain, knobs, have, need)


def _others(engine: Engine, node: NodeView) -> list[NodeView]:
    """The other nodes of the tree that have a lending limit."""
    return [
        other
        for other in engine.nodes(root=node.path[0])
        if other.name != node.name and any(quota.lending_limit is not None for quota in other.quotas)
    ]


def _lenders(others: Iterable[NodeView], flavor: str, resources: Sequence[str]) -> list[NodeView]:
    """Those that keep unused quota of a flavor by a lending limit, the largest amounts first."""
    found = []
    for other in others:
        kept = [
            quota.subtree - quota.reserved
            for quota in other.quotas
            if quota.flavor == flavor and quota.resource in resources and quota.lending_limit is not None
        ]
        if kept and max(kept) > 0:
            found.append((-max(kept), other.name, other))
    return [other for _, _, other in sorted(found, key=lambda each: each[:2])[:LENDERS_MAX]]


# --- the workload -------------------------------------------------------------------------------------------


def _pod_counts(
    workload: kueue.Workload, requests: Sequence[tuple[str, dict[str, Quantity]]], node: NodeView
) -> Iterator[Candidate]:
    """Fewer pods of one pod set."""
    by_pod_set = dict(requests)
    for pods in workload.spec.pod_sets:
        if pods.count < 2:
            continue
        amounts = {
            resource: units(resource, quantity)
            for resource, quantity in by_pod_set.get(pods.name, {}).items()
        }
        guesses = sorted(
            {
                fewer
                for flavor in dict.fromkeys(quota.flavor for quota in node.quotas)
                if 0 < (fewer := _fewer(flavor, amounts, pods.count, node)) < pods.count
            }
        )
        yield Candidate(
            "PodCount",
            partial(_fewer_pods, workload, pods.name),
            partial(_fewer_text, pods.name, pods.count),
            [(fewer,) for fewer in guesses],
            (pods.count - 1,),
        )


def _fewer(flavor: str, amounts: dict[str, int], count: int, node: NodeView) -> int:
    """How many pods too many there are for what is available in a flavor."""
    most = 0
    for quota in node.quotas:
        amount = amounts.get(quota.resource, 0)
        if quota.flavor == flavor and amount > quota.available:
            per_pod = max(1, amount // count)
            most = max(most, -((quota.available - amount) // per_pod))
    return most


def _fewer_pods(workload: kueue.Workload, pod_set: str, amounts: Amounts) -> Mutations:
    return (mutations.pods_fewer(workload, pod_set, amounts[0]),)


def _fewer_text(pod_set: str, count: int, amounts: Amounts) -> str:
    return f"run {count - amounts[0]} pods of pod set {pod_set} in place of {count}"


def higher_priority(engine: Engine, workload: kueue.Workload, others: Iterable[int]) -> Candidate | None:
    """A higher priority: only those just above, or equal to, that of another workload change anything."""
    mine = engine.priority(workload.metadata.key)
    thresholds = sorted({value - mine for each in others for value in (each, each + 1) if value > mine})
    if not thresholds:
        return None

    def make(amounts: Amounts) -> Mutations:
        return (mutations.priority(workload, mine, mine + amounts[0]),)

    def text(amounts: Amounts) -> str:
        return f"give it a priority of at least {mine + amounts[0]} (now {mine})"

    return Candidate("Priority", make, text, [], (thresholds[-1],), thresholds=tuple(thresholds))


def _queues(engine: Engine, workload: kueue.Workload) -> Iterator[Candidate]:
    """The other LocalQueues of the namespace, one of each ClusterQueue."""
    own = workload.spec.queue_name
    seen: set[str] = set()
    for local in engine.local_queue_objects(workload.metadata.namespace):
        if local.metadata.name == own:
            seen.add(local.spec.cluster_queue)
    for local in engine.local_queue_objects(workload.metadata.namespace):
        target = local.spec.cluster_queue
        if target in seen or local.spec.stop_policy != "None" or len(seen) > QUEUES_MAX:
            continue
        seen.add(target)
        name = local.metadata.name
        yield Candidate(
            "Queue",
            partial(_other_queue, workload, name),
            partial(_queue_text, name, target),
            [(1,)],
            (1,),
        )


def _other_queue(workload: kueue.Workload, name: str, amounts: Amounts) -> Mutations:
    return (mutations.queue_name(workload, name),)


def _queue_text(name: str, cluster_queue: str, amounts: Amounts) -> str:
    return f"use LocalQueue {name} (ClusterQueue {cluster_queue})"


def _namespaces(
    engine: Engine, workload: kueue.Workload, need: dict[str, int], may_see: Callable[[str], bool]
) -> Iterator[Candidate]:
    """LocalQueues of other namespaces, one of each ClusterQueue without a LocalQueue in this one.

    Only ClusterQueues with enough unused quota of each resource in some flavor, which others may not get.
    """
    own = workload.metadata.namespace
    seen = {local.spec.cluster_queue for local in engine.local_queue_objects(own)}
    tried = 0
    for local in engine.local_queue_objects():
        target = local.spec.cluster_queue
        namespace = local.metadata.namespace
        if target in seen or local.spec.stop_policy != "None" or not may_see(namespace):
            continue
        seen.add(target)
        if not _has_room(engine.node(target, "ClusterQueue"), need):
            continue
        name = local.metadata.name
        yield Candidate(
            "Namespace",
            partial(_other_namespace, workload, namespace, name),
            partial(_namespace_text, namespace, name, target),
            [(1,)],
            (1,),
        )
        tried += 1
        if tried == OTHER_NAMESPACES_MAX:
            return


def _has_room(node: NodeView | None, need: dict[str, int]) -> bool:
    if node is None:
        return False
    most: dict[str, int] = {}
    for quota in node.quotas:
        most[quota.resource] = max(quota.available, most.get(quota.resource, 0))
    return all(most.get(resource, 0) >= amount for resource, amount in need.items())


def _other_namespace(workload: kueue.Workload, namespace: str, name: str, amounts: Amounts) -> Mutations:
    moved = mutations.namespace(workload, namespace)
    return (moved,) if name == workload.spec.queue_name else (moved, mutations.queue_name(workload, name))


def _namespace_text(namespace: str, name: str, cluster_queue: str, amounts: Amounts) -> str:
    return f"create it in namespace {namespace} with LocalQueue {name} (ClusterQueue {cluster_queue})"
