"""What the manifests alone show: names of objects that do not exist, and fields that change no decision.

What a limit allows is computed by the engine, with and without the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec

from pykueue.api import kueue
from pykueue.api.quantity import Quantity
from pykueue.api.similar import did_you_mean
from pykueue.engine.explain.quota_queries import NodeView
from pykueue.engine.explain.render import amount

from .findings import Finding, Severity
from .policy import Policy, Tree, changed, engine_of, potentials, quotas_of

#: A flavor resource.
_Key = tuple[str, str]


def declared(policy: Policy) -> Iterator[Finding]:
    """All findings that need no workloads."""
    yield from _references(policy)
    yield from _flavors(policy)
    for tree in policy.trees():
        yield from _sharing(policy, tree)
        for name in tree.cluster_queues:
            yield from _quotas(policy, name)
            yield from _policies(policy, tree, name)
    yield from _cohorts(policy)
    yield from _limits(policy)


def _found(policy: Policy, rule: str, name: str, message: str, level: Severity | None = None) -> Finding:
    return Finding(rule, name, message, policy.place(name), level=level)


# --- names ------------------------------------------------------------------------------------------------


def _references(policy: Policy) -> Iterator[Finding]:
    """Objects that name others that do not exist."""
    for name, queue in policy.cluster_queues.items():
        title, spec = f"ClusterQueue {name}", queue.spec
        for flavor in dict.fromkeys(flavor for flavor, _ in quotas_of(queue)):
            if flavor not in policy.flavors:
                near = did_you_mean(flavor, policy.flavors)
                message = (
                    f"ResourceFlavor {flavor} is not among the manifests, and the queue stays inactive{near}"
                )
                yield _found(policy, "missing-object", title, message)
        rules = spec.admission_checks_strategy.admission_checks if spec.admission_checks_strategy else ()
        for check in (rule.name for rule in rules):
            if check not in policy.checks:
                near = did_you_mean(check, policy.checks)
                message = (
                    f"AdmissionCheck {check} is not among the manifests, and the queue stays inactive{near}"
                )
                yield _found(policy, "missing-object", title, message)
    for name, flavor_object in policy.flavors.items():
        topology = flavor_object.spec.topology_name
        if topology and topology not in policy.topologies:
            near = did_you_mean(topology, policy.topologies)
            message = f"Topology {topology} is not among the manifests{near}"
            yield _found(policy, "missing-object", f"ResourceFlavor {name}", message)
    for key, local in policy.local_queues.items():
        queue_name = local.spec.cluster_queue
        if queue_name not in policy.cluster_queues:
            near = did_you_mean(queue_name, policy.cluster_queues)
            message = f"ClusterQueue {queue_name} is not among the manifests{near}"
            yield _found(policy, "missing-object", f"LocalQueue {key}", message)


# --- quota that no workload uses --------------------------------------------------------------------------


def _quotas(policy: Policy, name: str) -> Iterator[Finding]:
    """Quota of a queue that no workload can ever use."""
    title, spec = f"ClusterQueue {name}", policy.cluster_queues[name].spec
    if not spec.resource_groups:
        yield _found(policy, "unreachable-quota", title, "it has no resource groups, and admits nothing")
        return
    if spec.namespace_selector is None:
        message = "namespaceSelector is unset, which matches no namespace: it admits nothing"
        yield _found(policy, "unreachable-quota", title, message)
    if spec.stop_policy != "None":
        message = f"stopPolicy is {spec.stop_policy}: it admits nothing until that is removed"
        yield _found(policy, "unreachable-quota", title, message, Severity.NOTE)
    if policy.local_queues and all(one.spec.cluster_queue != name for one in policy.local_queues.values()):
        message = "no LocalQueue among the manifests leads to it"
        yield _found(policy, "unreachable-quota", title, message, Severity.NOTE)
    yield from _uncovered(policy, name)
    for flavor, quota in quotas_of(policy.cluster_queues[name]):
        yield from _beyond_nodes(policy, title, flavor, quota)


def _uncovered(policy: Policy, name: str) -> Iterator[Finding]:
    """Quota beside which pods get nothing of another resource that their flavor covers."""
    most = policy.most
    for group in policy.cluster_queues[name].spec.resource_groups:
        for flavor in group.flavors:
            limits = {one.name: most.get((name, flavor.name, one.name), 0) for one in flavor.resources}
            none = [resource for resource, limit in limits.items() if limit == 0]
            some = [one.name for one in flavor.resources if one.nominal_quota.nanos]
            if none and some and {"cpu", "memory", "pods"} & set(none):
                message = (
                    f"quota of {', '.join(some)} in flavor {flavor.name} serves only pods that request no "
                    f"{' and no '.join(none)}, of which the queue can never have any"
                )
                yield _found(policy, "unreachable-quota", f"ClusterQueue {name}", message)


def _beyond_nodes(policy: Policy, title: str, flavor: str, quota: kueue.ResourceQuota) -> Iterator[Finding]:
    """Nominal quota above what all nodes of a flavor have, where nodes are among the manifests."""
    obj = policy.flavors.get(flavor)
    if obj is None or not policy.nodes:
        return
    labels = obj.spec.node_labels.items()
    nodes = [node for node in policy.nodes.values() if labels <= node.metadata.labels.items()]
    total = sum((node.status.allocatable.get(quota.name, Quantity(0)).nanos for node in nodes), 0)
    if quota.nominal_quota.nanos > total:
        message = (
            f"nominalQuota of {quota.name} in flavor {flavor} is {quota.nominal_quota}, and the {len(nodes)} "
            f"nodes with the labels of the flavor have {Quantity(total)}"
        )
        yield _found(policy, "unreachable-quota", title, message)


# --- flavors ----------------------------------------------------------------------------------------------


def _flavors(policy: Policy) -> Iterator[Finding]:
    """Flavors that are the same nodes, or come after one that is never left."""
    used = {flavor for queue in policy.cluster_queues.values() for flavor, _ in quotas_of(queue)}
    used |= {flavor for cohort in policy.cohorts.values() for flavor, _ in quotas_of(cohort)}
    for first, second in combinations(sorted(used & policy.flavors.keys()), 2):
        one, other = policy.flavors[first].spec, policy.flavors[second].spec
        if one.node_labels == other.node_labels and one.topology_name == other.topology_name:
            nodes = (
                "the nodes with the same labels"
                if one.node_labels
                else "all nodes, as neither has nodeLabels"
            )
            message = (
                f"it stands for {nodes} as ResourceFlavor {first}: their quotas count the same nodes twice"
            )
            yield _found(policy, "hidden-flavor", f"ResourceFlavor {second}", message)
    for name in policy.flavors.keys() - used:
        message = "no ClusterQueue or Cohort has quota of it"
        yield _found(policy, "hidden-flavor", f"ResourceFlavor {name}", message, Severity.NOTE)
    most = policy.most
    for name, queue in policy.cluster_queues.items():
        title, rules = f"ClusterQueue {name}", queue.spec.flavor_fungibility
        for group in queue.spec.resource_groups:
            for first_quotas, second_quotas in zip(group.flavors, group.flavors[1:], strict=False):
                first, second = first_quotas.name, second_quotas.name
                limits = [most.get((name, first, one.name), 0) for one in first_quotas.resources]
                own = any(one.nominal_quota.nanos for one in second_quotas.resources)
                if own and limits and all(limit is None for limit in limits):
                    message = (
                        f"flavor {second} is never used: quota of {first}, which comes before, has no bound"
                    )
                    yield _found(policy, "hidden-flavor", title, message)
                elif (
                    own
                    and rules.when_can_borrow == "MayStopSearch"
                    and any(
                        limit is not None and limit > _nominal(policy.views[name], first, one.name)
                        for limit, one in zip(limits, first_quotas.resources, strict=True)
                    )
                ):
                    message = (
                        f"flavor {second} is used only when no more of {first} can be borrowed, also while "
                        "its nominal quota is unused (flavorFungibility.whenCanBorrow: MayStopSearch)"
                    )
                    yield _found(policy, "hidden-flavor", title, message, Severity.NOTE)


def _nominal(view: NodeView | None, flavor: str, resource: str) -> int:
    """Nominal quota of a queue or cohort in quota units."""
    quotas = view.quotas if view is not None else ()
    return next((one.nominal for one in quotas if (one.flavor, one.resource) == (flavor, resource)), 0)


# --- limits -----------------------------------------------------------------------------------------------


def _limits(policy: Policy) -> Iterator[Finding]:
    """Borrowing and lending limits without which every queue could use just as much."""
    before = policy.most
    objects: list[tuple[str, kueue.ClusterQueue | kueue.Cohort]] = [
        *((f"ClusterQueue {name}", queue) for name, queue in policy.cluster_queues.items()),
        *((f"Cohort {name}", cohort) for name, cohort in policy.cohorts.items()),
    ]
    for title, obj in objects:
        for flavor, quota in quotas_of(obj):
            for field in ("borrowing_limit", "lending_limit"):
                limit = getattr(quota, field)
                if limit is None:
                    continue
                free = _without(obj, flavor, quota.name, field)
                if potentials(engine_of(policy, [free]).nodes()) == before:
                    camel = "borrowingLimit" if field == "borrowing_limit" else "lendingLimit"
                    why = (
                        "no more could be borrowed without it"
                        if field == "borrowing_limit"
                        else "no queue could use more without it"
                    )
                    message = f"{camel} {limit} of {quota.name} in flavor {flavor} has no effect: {why}"
                    yield _found(policy, "ineffective-limit", title, message)


def _without(
    obj: kueue.ClusterQueue | kueue.Cohort, flavor: str, resource: str, field: str
) -> kueue.ClusterQueue | kueue.Cohort:
    """The object without one limit."""
    replace = msgspec.structs.replace
    groups = [
        replace(
            group,
            flavors=[
                replace(
                    one,
                    resources=[
                        replace(quota, **{field: None})
                        if (one.name, quota.name) == (flavor, resource)
                        else quota
                        for quota in one.resources
                    ],
                )
                for one in group.flavors
            ],
        )
        for group in obj.spec.resource_groups
    ]
    return changed(obj, resource_groups=groups)


def _policies(policy: Policy, tree: Tree, name: str) -> Iterator[Finding]:
    """Preemption policies and weights that change no decision."""
    title, spec = f"ClusterQueue {name}", policy.cluster_queues[name].spec
    rules, alone = spec.preemption, tree.root.startswith("/")
    in_cohort = rules.reclaim_within_cohort != "Never"
    if alone and in_cohort:
        message = f"reclaimWithinCohort: {rules.reclaim_within_cohort} has no effect without a cohort"
        yield _found(policy, "ineffective-limit", title, message)
    if rules.borrow_within_cohort.policy != "Never":
        threshold = rules.borrow_within_cohort.max_priority_threshold
        if policy.options.fair_sharing:
            message = "borrowWithinCohort has no effect under fair sharing, where shares decide"
            yield _found(policy, "ineffective-limit", title, message)
        elif threshold is not None and policy.priorities and threshold < min(policy.priorities.values()):
            message = (
                f"borrowWithinCohort.maxPriorityThreshold {threshold} is below the priority of every class: "
                "it concerns only workloads without a class"
            )
            yield _found(policy, "ineffective-limit", title, message, Severity.NOTE)
    if spec.fair_sharing is not None and spec.fair_sharing.weight is not None:
        reason = (
            "" if policy.options.fair_sharing else "fair sharing is off in the configuration of the manager"
        )
        if alone:
            reason = "the queue has no cohort"
        if reason:
            message = f"fairSharing.weight has no effect: {reason}"
            yield _found(policy, "ineffective-limit", title, message)
    if spec.admission_scope is not None and policy.options.admission_fair_sharing is None:
        message = (
            "admissionScope has no effect: admission fair sharing is off in the configuration of the manager"
        )
        yield _found(policy, "ineffective-limit", title, message)


# --- cohorts ----------------------------------------------------------------------------------------------


def _sharing(policy: Policy, tree: Tree) -> Iterator[Finding]:
    """A tree of several queues in which none can use more than its own quota."""
    if tree.root.startswith("/"):
        return
    title = tree.title
    own = [quota for name in tree.cluster_queues for _, quota in quotas_of(policy.cluster_queues[name])]
    inner = [
        cohort
        for cohort_name, cohort in policy.cohorts.items()
        if tree.root in (cohort_name, cohort.spec.parent_name) and list(quotas_of(cohort))
    ]
    if len(tree.cluster_queues) == 1 and not inner:
        name = tree.cluster_queues[0]
        message = f"ClusterQueue {name} is its only member: there is nothing to share"
        place = policy.place(title)
        if not place.file:
            place = policy.place(f"ClusterQueue {name}")
        yield Finding("dead-cohort", title, message, place)
        return
    most, views = policy.most, policy.views
    if own and not any(
        most[name, quota.flavor, quota.resource] is None
        or (most[name, quota.flavor, quota.resource] or 0) > quota.nominal
        for name in tree.cluster_queues
        for quota in views[name].quotas
    ):
        message = "limits, or different flavors, keep every queue from more than its own nominal quota"
        place = policy.place(title)
        if not place.file:
            place = policy.place(f"ClusterQueue {tree.cluster_queues[0]}")
        yield Finding("dead-cohort", title, message, place)


def _cohorts(policy: Policy) -> Iterator[Finding]:
    """Cohorts without a queue below, in a circle, or with quota that no queue below uses."""
    parents = {name: cohort.spec.parent_name for name, cohort in policy.cohorts.items()}
    above: dict[str, set[str]] = {}
    for queue_name, queue in policy.cluster_queues.items():
        name, seen = queue.spec.cohort_name, set[str]()
        while name and name not in seen:
            seen.add(name)
            above.setdefault(name, set()).add(queue_name)
            name = parents.get(name)
    for name, cohort in policy.cohorts.items():
        title = f"Cohort {name}"
        if _in_circle(parents, name):
            message = "its parents form a circle: the queues below are inactive"
            yield _found(policy, "dead-cohort", title, message, Severity.ERROR)
            continue
        if name not in above:
            yield _found(policy, "dead-cohort", title, "no ClusterQueue is below it")
            continue
        yield from _unused(policy, title, cohort, above[name])


def _unused(policy: Policy, title: str, cohort: kueue.Cohort, queues: set[str]) -> Iterator[Finding]:
    """Quota of a cohort that no queue below can use."""
    below: set[_Key] = {
        (flavor, quota.name) for name in queues for flavor, quota in quotas_of(policy.cluster_queues[name])
    }
    views = [policy.views[name] for name in sorted(queues)]
    for flavor, quota in quotas_of(cohort):
        if not quota.nominal_quota.nanos:
            continue
        if (flavor, quota.name) not in below:
            message = f"no ClusterQueue below has {quota.name} in flavor {flavor}"
            yield _found(policy, "unreachable-quota", title, message)
            continue
        limits = [
            one for view in views for one in view.quotas if (one.flavor, one.resource) == (flavor, quota.name)
        ]
        if all(one.borrowing_limit is not None for one in limits):
            borrowed = sum(one.borrowing_limit or 0 for one in limits)
            view = engine_of(policy).node(cohort.metadata.name, "Cohort")
            own = _nominal(view, flavor, quota.name)
            if borrowed < own:
                message = (
                    f"of {amount(quota.name, own)} {quota.name} in flavor {flavor}, the borrowing limits "
                    f"of the queues below let them use {amount(quota.name, borrowed)} at most"
                )
                yield _found(policy, "unreachable-quota", title, message)


def _in_circle(parents: dict[str, str | None], name: str) -> bool:
    seen, current = {name}, parents.get(name)
    while current:
        if current == name:
            return True
        if current in seen:
            return False
        seen.add(current)
        current = parents.get(current)
    return False
