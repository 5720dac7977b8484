"""Queries about quota: objects that declare it, what each node of a tree has, which workloads hold it.

Amounts are integers in quota units (docs/reference/kueue-semantics.md 2.1): thousandths of a cpu, base units
of any other resource. An amount for which `quota.usage.is_unlimited` holds has no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Literal, NamedTuple

from pykueue.api import kueue
from pykueue.engine.fair_sharing.shares import share_of
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.tree import Cohort, Node
from pykueue.engine.quota.usage import FlavorUsage, is_unlimited
from pykueue.engine.state import State
from pykueue.engine.workload import RESERVED


class Holder(NamedTuple):
    """A workload that holds quota of one flavor resource."""

    key: str
    cluster_queue: str
    amount: int
    priority: int
    evicted: bool
    """It is evicted and has not stopped yet."""


class NodeQuota(NamedTuple):
    """What a node of a quota tree has and uses of one flavor resource."""

    flavor: str
    resource: str
    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None
    subtree: int
    """Quota of the node and everything its members lend it."""
    reserved: int
    """What workloads below hold, as counted at this node: what exceeds the quota of a member is borrowed."""
    borrowed: int
    lent: int
    """How much of the node's quota others have borrowed, divided in proportion to what each lender leaves
    unused."""
    potential: int
    """The most the node could ever use."""
    available: int
    """How much more the node could use now."""


class NodeView(NamedTuple):
    """A ClusterQueue or a cohort as a node of its tree."""

    name: str
    kind: Literal["ClusterQueue", "Cohort"]
    parent: str
    """Name of the cohort above; empty for a root."""
    path: tuple[str, ...]
    """From the root down to this node."""
    weight: float
    """Under fair sharing."""
    share: float
    """Dominant resource share in thousandths, divided by the weight; infinite for weight 0."""
    dominant: str
    """The resource that decides the share; empty where nothing is borrowed."""
    quotas: tuple[NodeQuota, ...]


class QuotaQueries:
    """The engine's read-only side, as far as it is about quota and the objects that declare it."""

    def __init__(self, state: State) -> None:
        self._state = state

    # --- objects ----------------------------------------------------------------------------------------

    def cluster_queue_object(self, name: str) -> kueue.ClusterQueue | None:
        """The ClusterQueue as it was applied."""
        queue = self._state.queues.get(name)
        return queue.obj if queue is not None else None

    def cohort_object(self, name: str) -> kueue.Cohort | None:
        """The Cohort as it was applied; None also for one that only others name."""
        cohort = self._state.forest.cohorts.get(name)
        return cohort.obj if cohort is not None else None

    def local_queue_objects(self, namespace: str | None = None) -> list[kueue.LocalQueue]:
        """The LocalQueues of a namespace, or of all, by namespace and name."""
        found = [
            local.obj
            for local in self._state.locals.values()
            if local.obj is not None and namespace in (None, local.obj.metadata.namespace)
        ]
        return sorted(found, key=lambda obj: (obj.metadata.namespace, obj.metadata.name))

    def workload_object(self, key: str) -> kueue.Workload | None:
        """The Workload (`namespace/name`) as it was applied; None for a finished one."""
        info = self._state.workloads.get(key)
        return info.obj if info is not None else None

    def workload_objects(self) -> Iterator[kueue.Workload]:
        """All unfinished Workloads, in no particular order."""
        return (info.obj for info in self._state.workloads.values())

    def reservation(self, key: str) -> tuple[kueue.Admission, bool] | None:
        """What a workload holds, and whether it is admitted; None if it holds no quota."""
        info = self._state.workloads.get(key)
        if info is None or info.place != RESERVED or info.admission is None:
            return None
        return info.admission, info.admitted

    def priority(self, key: str) -> int:
        """Priority of a workload in queues and preemption. Raises KeyError for one that is not known."""
        return self._state.workloads[key].priority

    def priorities(self, cluster_queue: str, pending: bool) -> set[int]:
        """Priorities of the workloads that hold quota in the queue's tree, or of those that are pending in
        it."""
        self._state.settle()
        queue = self._state.queues.get(cluster_queue)
        return {
            info.priority
            for member in (queue.tree.queues if queue is not None else ())
            for info in (member.pending.workloads if pending else member.reservations).values()
        }

    def granularity(self, cluster_queue: str, resource: str) -> int:
        """The largest amount that all quotas and reservations of a resource in the queue's tree are multiples
        of; 1 where there are none."""
        state = self._state
        state.settle()
        queue = state.queues.get(cluster_queue)
        found = 0
        names = state.flavor_resources.names
        for member in queue.tree.queues if queue is not None else ():
            for usage in member.flavor_usages.values():
                if usage.resource == resource:
                    limits = (usage.nominal, usage.borrowing_limit or 0, usage.lending_limit or 0)
                    found = gcd(found, usage.usage, *limits)
            for info in member.reservations.values():
                for flavor_resource, amount in info.usage:
                    if names[flavor_resource][1] == resource:
                        found = gcd(found, amount)
        return found or 1

    def back_off_end(self, key: str) -> float | None:
        """When the back-off of a pending workload ends, in seconds since 1970; None where there is none."""
        info = self._state.workloads.get(key)
        if info is None or info.requeue_at <= self._state.now:
            return None
        return info.requeue_at

    def not_ready(self) -> list[str]:
        """Keys of the workloads that block admission because their pods are not ready, sorted."""
        return sorted(self._state.unready)

    # --- trees ------------------------------------------------------------------------------------------

    def members(self, cluster_queue: str) -> list[str]:
        """Names of all ClusterQueues that share quota with this one, itself included, sorted."""
        self._state.settle()
        queue = self._state.queues.get(cluster_queue)
        return [member.name for member in queue.tree.queues] if queue is not None else []

    def holders(self, cluster_queue: str, flavor: str, resource: str) -> list[Holder]:
        """Workloads of the queue's tree that hold this flavor resource, largest amounts first."""
        state = self._state
        state.settle()
        queue = state.queues.get(cluster_queue)
        if queue is None:
            return []
        wanted = state.flavor_resources.index_of(flavor, resource)
        found = [
            Holder(info.key, member.name, amount, info.priority, info.evicted)
            for member in queue.tree.queues
            for info in member.reservations.values()
            for flavor_resource, amount in info.usage
            if flavor_resource == wanted and amount > 0
        ]
        return sorted(found, key=lambda each: (-each.amount, each.key))

    def node(self, name: str, kind: Literal["ClusterQueue", "Cohort"]) -> NodeView | None:
        """One node of a quota tree; None if there is none of that name."""
        state = self._state
        state.settle()
        nodes: dict[str, ClusterQueue] | dict[str, Cohort] = (
            state.queues if kind == "ClusterQueue" else state.forest.cohorts
        )
        node = nodes.get(name)
        return self._view(node, _Lending()) if node is not None else None

    def nodes(self, root: str = "") -> list[NodeView]:
        """All ClusterQueues that have an object and all cohorts, each below its parent, by name.

        `root`: only those below the node of that name, which has no parent.
        """
        state = self._state
        state.settle()
        found: list[Node] = [queue for queue in state.queues.values() if queue.obj is not None]
        found += state.forest.cohorts.values()
        if root:
            found = [node for node in found if node.path[0] == root]
        lending = _Lending()
        return [
            self._view(node, lending) for node in sorted(found, key=lambda node: (node.path, node.is_queue))
        ]

    def _view(self, node: Node, lending: _Lending) -> NodeView:
        share = share_of(node)
        names = self._state.flavor_resources.names
        return NodeView(
            node.name,
            "ClusterQueue" if node.is_queue else "Cohort",
            node.parent.name if node.parent is not None else "",
            node.path,
            node.weight,
            float("inf") if share.unbounded else share.value,
            share.resource,
            tuple(
                _quota(*names[flavor_resource], flavor_usage, lending)
                for flavor_resource, flavor_usage in node.flavor_usages.items()
            ),
        )


class _Lending:
    """What members of cohorts lend one another."""

    def __init__(self) -> None:
        #: What all members of a cohort borrow together, by the usage of the cohort.
        self._borrowed: dict[FlavorUsage, int] = {}

    def lent(self, usage: FlavorUsage) -> int:
        """How much of the quota of a node others have borrowed.

        Borrowed quota has no single lender: it is divided in proportion to what each member leaves unused.
        """
        above = usage.parent
        if above is None:
            return 0
        unused = usage.subtree - usage.local - max(0, usage.usage - usage.local)
        borrowed = self._borrowed.get(above)
        if borrowed is None:
            borrowed = self._borrowed[above] = sum(
                max(0, member.usage - member.subtree) for member in _members(above)
            )
        total = max(0, above.subtree - above.usage) + borrowed
        if unused <= 0 or not borrowed or is_unlimited(usage.subtree):
            return 0
        return min(unused, borrowed * unused // total)


def _members(usage: FlavorUsage) -> Iterator[FlavorUsage]:
    """The usages of the same flavor resource in the members of a cohort."""
    node = usage.node
    assert isinstance(node, Cohort)
    for child in (*node.children.values(), *node.queues.values()):
        found = child.flavor_usages.get(usage.flavor_resource)
        if found is not None:
            yield found


def _quota(flavor: str, resource: str, usage: FlavorUsage, lending: _Lending) -> NodeQuota:
    return NodeQuota(
        flavor,
        resource,
        usage.nominal,
        usage.borrowing_limit,
        usage.lending_limit,
        usage.subtree,
        usage.usage,
        max(0, usage.usage - usage.subtree) if usage.parent is not None else 0,
        lending.lent(usage),
        usage.potential,
        quota.available(usage),
    )
