# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""How full queues, cohorts, flavors and nodes are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from pykueue.api.core import PodSpec
from pykueue.api.decoding import decode_as
from pykueue.api.objects import Object, get
from pykueue.api.pods import is_terminal
from pykueue.api.quantity import parse
from pykueue.engine import Engine
from pykueue.engine.explain.quota_queries import NodeQuota, NodeView
from pykueue.engine.explain.render import amount
from pykueue.engine.flavors.requests import pod_requests
from pykueue.engine.quota.usage import to_quantity, units
from pykueue.questions.answers import Answer

#: Quota units by flavor and resource.
Amounts = dict[tuple[str, str], int]


class QuotaUse(Answer, kw_only=True):
    """Quota of one resource in one flavor, and what is used of it."""

    flavor: str
    resource: str
    nominal: str
    quota: str
    """Of a cohort, with what its members lend it; of a ClusterQueue, its nominal quota."""
    reserved: str
    """Held by workloads with a quota reservation."""
    used: str
    """Of that, held by admitted workloads."""
    borrowed: str
    lent: str
    available: str
    """How much more could be reserved now."""
    borrowing_limit: str = ""
    """Empty for none."""
    lending_limit: str = ""
    """Empty for none."""
    fraction: float
    """Reserved by quota; above 1 where quota is borrowed, 0 where there is no quota and no use."""


class QueueUse(Answer, kw_only=True):
    """A ClusterQueue or a cohort."""

    name: str
    kind: Literal["ClusterQueue", "Cohort"]
    parent: str = ""
    depth: int
    """0 for a root."""
    pending: int
    reserving: int
    admitted: int
    """Numbers of workloads; of a cohort, those of all queues below it."""
    weight: float
    weighted_share: float | None
    """In thousandths; null for infinite."""
    problems: list[str] = []
    requested: dict[str, str] = {}
    """What pending workloads request, by resource."""
    quotas: list[QuotaUse] = []


class FlavorUse(Answer, kw_only=True):
    """A resource of a flavor over all queues and cohorts."""

    flavor: str
    resource: str
    nominal: str
    reserved: str
    fraction: float


class NodeUse(Answer, kw_only=True):
    """A resource of a node, and what its pods request."""

    node: str
    resource: str
    allocatable: str
    requested: str
    fraction: float


class DomainUse(Answer, kw_only=True):
    """A domain of the lowest level of a topology, and whose pods it is assigned to."""

    flavor: str
    topology: str
    domain: list[str]
    """Its value at each level, the highest first."""
    pods: dict[str, int] = {}
    """Assigned pods by workload (`namespace/name`)."""


class Top(Answer, kw_only=True):
    """How full everything is."""

    queues: list[QueueUse]
    """Each below its parent."""
    flavors: list[FlavorUse]
    nodes: list[NodeUse] = []
    domains: list[DomainUse] = []
    """Of all flavors with a topology."""
    unread: list[str] = []
    notes: list[str] = []


def top(engine: Engine, nodes: Iterable[Object] = (), pods: Iterable[Object] = ()) -> Top:
    """How full queues, cohorts and flavors are, and nodes where they and their pods are given."""
    views = engine.nodes()
    used = _used(engine, views)
    rows = [_queue(engine, view, used[view.kind, view.name]) for view in views]
    by_name = {(row.kind, row.name): row for row in rows}
    for view, row in zip(views, rows, strict=True):
        for above in view.path[:-1]:
            cohort = by_name.get(("Cohort", above))
            if cohort is not None and row.kind == "ClusterQueue":
                cohort.pending += row.pending
                cohort.reserving += row.reserving
                cohort.admitted += row.admitted
    return Top(
        queues=rows,
        flavors=_flavors(views),
        nodes=list(_nodes(nodes, pods)),
        domains=[
            DomainUse(flavor=leaf.flavor, topology=leaf.topology, domain=list(leaf.values), pods=leaf.pods)
            for leaf in engine.topology_leaves()
        ],
    )


def _queue(engine: Engine, view: NodeView, used: Amounts) -> QueueUse:
    queue = engine.cluster_queue(view.name) if view.kind == "ClusterQueue" else None
    requested = engine.pending_requests(view.name) if queue is not None else {}
    return QueueUse(
        name=view.name,
        kind=view.kind,
        parent=view.parent,
        depth=len(view.path) - 1,
        pending=queue.pending if queue is not None else 0,
        reserving=queue.reserving if queue is not None else 0,
        admitted=queue.admitted if queue is not None else 0,
        weight=view.weight,
        weighted_share=None if view.share == float("inf") else round(view.share, 3),
        problems=[text for _, text in queue.problems] if queue is not None else [],
        requested={resource: str(value) for resource, value in requested.items()},
        quotas=[_quota(quota, view, used) for quota in view.quotas],
    )


def _used(engine: Engine, views: Iterable[NodeView]) -> dict[tuple[str, str], Amounts]:
    """What admitted workloads hold, by kind and name: of a queue, and of all queues below a cohort."""
    used: dict[tuple[str, str], Amounts] = defaultdict(dict)
    for view in views:
        queue = engine.cluster_queue(view.name) if view.kind == "ClusterQueue" else None
        for each in queue.usage if queue is not None else ():
            key, value = (each.flavor, each.resource), units(each.resource, each.total)
            for at in (("ClusterQueue", view.name), *(("Cohort", name) for name in view.path[:-1])):
                used[at][key] = used[at].get(key, 0) + value
    return used


def _quota(quota: NodeQuota, view: NodeView, used: Amounts) -> QuotaUse:
    resource = quota.resource
    limits = [
        amount(resource, limit) if limit is not None else ""
        for limit in (quota.borrowing_limit, quota.lending_limit)
    ]
    return QuotaUse(
        flavor=quota.flavor,
        resource=resource,
        nominal=amount(resource, quota.nominal),
        quota=amount(resource, quota.subtree),
        reserved=amount(resource, quota.reserved),
        used=amount(resource, used.get((quota.flavor, resource), 0)),
        borrowed=amount(resource, quota.borrowed),
        lent=amount(resource, quota.lent),
        available=amount(resource, max(0, quota.available)),
        borrowing_limit=limits[0],
        lending_limit=limits[1],
        fraction=_fraction(quota.reserved, quota.subtree),
    )


def _fraction(used: int, quota: int) -> float:
    if quota <= 0:
        return 0.0 if used <= 0 else 1.0
    return round(used / quota, 4)


def _flavors(views: Iterable[NodeView]) -> list[FlavorUse]:
    nominal: dict[tuple[str, str], int] = {}
    reserved: dict[tuple[str, str], int] = {}
    for view in views:
        for quota in view.quotas:
            key = (quota.flavor, quota.resource)
            nominal[key] = nominal.get(key, 0) + quota.nominal
            if view.kind == "ClusterQueue":
                reserved[key] = reserved.get(key, 0) + quota.reserved
    return [
        FlavorUse(
            flavor=flavor,
            resource=resource,
            nominal=amount(resource, total),
            reserved=amount(resource, reserved.get((flavor, resource), 0)),
            fraction=_fraction(reserved.get((flavor, resource), 0), total),
        )
        for (flavor, resource), total in sorted(nominal.items())
    ]


def _nodes(nodes: Iterable[Object], pods: Iterable[Object]) -> Iterable[NodeUse]:
    """Nodes with what the pods on them request, by name."""
    requested: dict[str, dict[str, int]] = {}
    for pod in pods:
        node = get(pod, "spec", "nodeName")
        if not node or is_terminal(pod):
            continue
        amounts = requested.setdefault(node, {})
        for resource, value in {**pod_requests(decode_as(PodSpec, pod["spec"])), "pods": 1}.items():
            amounts[resource] = amounts.get(resource, 0) + value
    for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
        name = node["metadata"]["name"]
        taken = requested.get(name, {})
        for resource, allocatable in (get(node, "status", "allocatable") or {}).items():
            total, use = units(resource, parse(allocatable)), taken.get(resource, 0)
            if resource in ("cpu", "memory", "pods") or use:
                yield NodeUse(
                    node=name,
                    resource=resource,
                    allocatable=str(to_quantity(resource, total)),
                    requested=str(to_quantity(resource, use)),
                    fraction=_fraction(use, total),
                )
