# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""What each queue is entitled to, and what it has: fair shares of the quota of cohorts.

Entitled is what weighted fair sharing gives a queue or cohort for what its workloads hold and request now: of
its own quota as much as they need, and of what the other members leave a part in proportion to its weight,
within its borrowing limit. Quota in different flavors is added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pykueue.engine import Engine
from pykueue.engine.explain.quota_queries import NodeView
from pykueue.engine.explain.render import amount
from pykueue.engine.quota.usage import units
from pykueue.questions.answers import Answer


class ResourceShare(Answer, kw_only=True):
    """The share of one resource."""

    resource: str
    demand: str
    """What workloads hold and pending ones request."""
    entitled: str
    received: str
    """What workloads hold."""
    borrowed: str
    lent: str
    debt: str
    """Entitled and not received; negative where more was received."""


class QueueShare(Answer, kw_only=True):
    """A ClusterQueue or a cohort."""

    name: str
    kind: str
    parent: str = ""
    depth: int
    weight: float
    weighted_share: float | None
    """Borrowed by lendable of the dominant resource, in thousandths, by the weight; null for infinite."""
    dominant: str = ""
    resources: list[ResourceShare] = []


class PastUsage(Answer, kw_only=True):
    """What a LocalQueue used before, by which admission fair sharing orders its ClusterQueue."""

    namespace: str
    name: str
    cluster_queue: str
    weight: float
    amounts: dict[str, str] = {}
    """By resource, with a half-life; without the penalties of workloads that were just admitted."""
    last_update: str = ""


class Shares(Answer, kw_only=True):
    """The shares of all queues and cohorts, each below its parent, and the past usage of LocalQueues."""

    queues: list[QueueShare]
    past_usage: list[PastUsage] = []
    unread: list[str] = []
    notes: list[str] = []


#: Kind and name of a node, and a resource.
Key = tuple[str, str, str]


class _Part:
    """A node of a tree and one resource of it, in quota units."""

    def __init__(self, view: NodeView, resource: str) -> None:
        quotas = [quota for quota in view.quotas if quota.resource == resource]
        self.weight = view.weight
        self.quota = sum(quota.subtree for quota in quotas)
        self.received = sum(quota.reserved for quota in quotas)
        self.borrowed = sum(quota.borrowed for quota in quotas)
        self.lent = sum(quota.lent for quota in quotas)
        #: What lending limits keep for the node itself.
        self.kept = sum(
            max(0, quota.subtree - quota.lending_limit) for quota in quotas if quota.lending_limit is not None
        )
        limits = [quota.borrowing_limit for quota in quotas]
        #: The most it may borrow; None for no limit.
        self.limit: int | None = None
        if limits and None not in limits:
            self.limit = sum(limit for limit in limits if limit is not None)
        self.demand = 0
        self.entitled = 0


class Entitlement(NamedTuple):
    """What a queue or cohort is entitled to of one resource, in quota units."""

    demand: int
    """What workloads hold and pending ones request."""
    entitled: int
    received: int
    """What workloads hold."""


def entitlements(engine: Engine) -> dict[Key, Entitlement]:
    """What each queue and cohort is entitled to and has received, by kind, name and resource."""
    _, _, parts = _divide(engine)
    return {key: Entitlement(part.demand, part.entitled, part.received) for key, part in parts.items()}


def shares(engine: Engine) -> Shares:
    """What each queue and cohort is entitled to and has received."""
    views, resources, parts = _divide(engine)
    return Shares(queues=[_row(view, parts, resources) for view in views], past_usage=_past_usage(engine))


def _past_usage(engine: Engine) -> list[PastUsage]:
    """The past usage that the status of LocalQueues shows."""
    found = []
    for queue in engine.local_queue_objects():
        status = queue.status.fair_sharing
        past = status.admission_fair_sharing_status if status is not None else None
        if past is not None:
            sharing, amounts = queue.spec.fair_sharing, sorted(past.consumed_resources.items())
            found.append(
                PastUsage(
                    namespace=queue.metadata.namespace,
                    name=queue.metadata.name,
                    cluster_queue=queue.spec.cluster_queue,
                    weight=1.0 if sharing is None else float(sharing.weight),
                    amounts={name: str(quantity) for name, quantity in amounts},
                    last_update=past.last_update or "",
                )
            )
    return found


def _divide(engine: Engine) -> tuple[list[NodeView], list[str], dict[Key, _Part]]:
    """The nodes of all trees, their resources, and what each node is entitled to."""
    views = engine.nodes()
    resources = sorted({quota.resource for view in views for quota in view.quotas})
    parts: dict[Key, _Part] = {
        (view.kind, view.name, resource): _Part(view, resource) for view in views for resource in resources
    }
    for view in reversed(views):  # members before their cohort
        requested = engine.pending_requests(view.name) if view.kind == "ClusterQueue" else {}
        for resource in resources:
            part = parts[view.kind, view.name, resource]
            if view.kind == "ClusterQueue":
                pending = requested.get(resource)
                part.demand = part.received + (units(resource, pending) if pending is not None else 0)
            above = parts.get(("Cohort", view.parent, resource))
            if above is not None:
                above.demand += part.demand
    for resource in resources:
        _entitle(views, parts, resource)
    return views, resources, parts


def _entitle(views: Sequence[NodeView], parts: Mapping[Key, _Part], resource: str) -> None:
    """Divides the quota of every cohort among its members, from the roots down."""
    members: dict[str, list[_Part]] = {}
    for view in views:
        if view.parent:
            members.setdefault(view.parent, []).append(parts[view.kind, view.name, resource])
    for view in views:
        part = parts[view.kind, view.name, resource]
        if not view.parent:
            part.entitled = min(part.demand, part.quota)
        if view.kind != "Cohort":
            continue
        below = members.get(view.name, [])
        own = {member: min(member.demand, member.quota) for member in below}
        lendable = part.quota + max(0, part.entitled - min(part.demand, part.quota))
        pool = lendable - sum(max(0, amount - member.kept) for member, amount in own.items())
        wanted = {
            member: member.demand - member.quota
            if member.limit is None
            else min(member.demand - member.quota, member.limit)
            for member in below
            if member.demand > member.quota
        }
        for member, more in _divided(max(0, pool), wanted).items():
            own[member] += more
        for member, amount_ in own.items():
            member.entitled = amount_


def _divided(pool: int, wanted: Mapping[_Part, int]) -> dict[_Part, int]:
    """A pool divided in proportion to weights, no part above what is wanted; weight 0 gets what is left."""
    result = dict.fromkeys(wanted, 0)
    for weighted in (True, False):
        open_ = {part for part in wanted if (part.weight > 0) == weighted and wanted[part] > 0}
        while open_ and pool > 0:
            total = sum(part.weight for part in open_) or float(len(open_))
            offer = {part: int(pool * ((part.weight or 1.0) / total)) for part in open_}
            full = {part for part in open_ if offer[part] >= wanted[part] - result[part]}
            if not full:
                for part in open_:
                    result[part] += offer[part]
                return result
            for part in full:
                pool -= wanted[part] - result[part]
                result[part] = wanted[part]
            open_ -= full
    return result


def _row(view: NodeView, parts: Mapping[Key, _Part], resources: Sequence[str]) -> QueueShare:
    named = {quota.resource for quota in view.quotas}
    rows = []
    for resource in resources:
        part = parts[view.kind, view.name, resource]
        if resource not in named and not part.demand:
            continue
        debt = part.entitled - part.received
        rows.append(
            ResourceShare(
                resource=resource,
                demand=amount(resource, part.demand),
                entitled=amount(resource, part.entitled),
                received=amount(resource, part.received),
                borrowed=amount(resource, part.borrowed),
                lent=amount(resource, part.lent),
                debt=amount(resource, debt) if debt >= 0 else f"-{amount(resource, -debt)}",
            )
        )
    return QueueShare(
        name=view.name,
        kind=view.kind,
        parent=view.parent,
        depth=len(view.path) - 1,
        weight=view.weight,
        weighted_share=None if view.share == float("inf") else round(view.share, 3),
        dominant=view.dominant,
        resources=rows,
    )
