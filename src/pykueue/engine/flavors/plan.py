"""How the flavors of a queue could serve a scheduling class: everything that usage does not change.

A `Plan` is made once for a class and a queue and holds until the quotas or flavors of the queue change: the
order in which resources are looked at, the flavors that taints and affinity leave, and the nodes to ask for
room. Source of the rules: docs/reference/kueue-semantics.md 6.1 to 6.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.core import Affinity, NodeSelectorRequirement
from pykueue.api.hybrid import HybridRequest
from pykueue.api.kueue.names import MULTIKUEUE_CONTROLLER
from pykueue.api.selectors import Requirement
from pykueue.engine.explanation import Blocker
from pykueue.engine.flavors.scheduling_class import AllowedFlavors, PodSetClass, SchedulingClass
from pykueue.engine.queues.cluster_queue import PODS, ClusterQueue
from pykueue.engine.quota.usage import FlavorUsage

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


def visiting_rank(resource: str) -> int:
    """64-bit FNV-1a hash of a resource name: the order in which resources are looked at (6.2)."""
    value = _FNV_OFFSET
    for byte in resource.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


class Option:
    """One flavor for the resources of a step."""

    __slots__ = ("blocker", "detail", "flavor", "flavor_usages")

    def __init__(self, flavor: str, flavor_usages: list[FlavorUsage], blocker: Blocker, detail: str) -> None:
        self.flavor = flavor
        #: One for each resource of the step.
        self.flavor_usages = flavor_usages
        #: Why pods of this scheduling class cannot go there, or empty.
        self.blocker: Blocker = blocker
        self.detail = detail


class Split(NamedTuple):
    """The flavors that the pods of a pod set may be split over."""

    options: list[Option]
    """In the order of preference."""
    request: HybridRequest | None
    problem: str
    """Why they cannot be split; empty: they can be."""


class Step:
    """Resources of one resource group, which get one flavor together."""

    __slots__ = ("amounts", "options", "resources", "split", "trigger")

    def __init__(self, trigger: str, resources: list[str], amounts: list[int], options: list[Option]) -> None:
        #: The resource that is looked at first.
        self.trigger = trigger
        self.resources = resources
        #: For all pods of the pod-set group, at full size.
        self.amounts = amounts
        #: Empty if no resource group of the queue covers the resource.
        self.options = options
        #: None where all pods get the same flavor.
        self.split: Split | None = None


class GroupPlan:
    """Pod sets that get the same flavors; every pod set is a group of its own unless it names one (6.1)."""

    __slots__ = ("members", "name", "steps")

    def __init__(self, members: list[int], name: str, steps: list[Step]) -> None:
        self.members = members
        self.name = name
        self.steps = steps


class Plan:
    """All of it, for one scheduling class in one queue."""

    __slots__ = ("flavor_usages", "groups", "implied", "reservations", "splits")

    def __init__(
        self, flavor_usages: dict[int, FlavorUsage], groups: list[GroupPlan], implied: bool = False
    ) -> None:
        #: Pods of a pod set may be split over several flavors.
        self.splits = any(step.split is not None for group in groups for step in group.steps)
        #: Those of the queue when the plan was made; others make it void.
        self.flavor_usages = flavor_usages
        self.groups = groups
        #: All flavors of the queue have a topology.
        self.implied = implied
        #: What workloads were given by it before, by flavors.
        self.reservations: dict[tuple[str, ...], Any] = {}


class TopologyTerms(NamedTuple):
    """What flavors are checked against under topology-aware scheduling."""

    topologies: Mapping[str, kueue.Topology]
    checks: Mapping[str, kueue.AdmissionCheck]
    layers: bool
    """Slices may have several layers."""

    def runs_elsewhere(self, queue: ClusterQueue) -> bool:
        """Whether the workloads of a queue go to worker clusters, by a MultiKueue check."""
        return queue.has_check_of(MULTIKUEUE_CONTROLLER, self.checks)


class _FlavorRules(NamedTuple):
    """What decides whether a pod set can use a flavor."""

    flavors: Mapping[str, kueue.ResourceFlavor]
    topology: TopologyTerms | None
    """None where topologies play no part."""
    implied: bool
    """All flavors of the queue have a topology: pod sets that do not ask for one are placed as well."""
    allowed: AllowedFlavors
    """The flavors that the workload may use; None: all."""
    remote: bool
    """Workloads go to worker clusters, whose topologies decide."""


def make_plan(
    scheduling_class: SchedulingClass,
    queue: ClusterQueue,
    flavors: Mapping[str, kueue.ResourceFlavor],
    ignore_undeclared: bool,
    topology: TopologyTerms | None = None,
    *,
    splits: bool = False,
) -> Plan:
    """The plan of a scheduling class in a queue; `splits`: pod sets may be split over flavors."""
    order: dict[str, list[int]] = {}
    for index, pods in enumerate(scheduling_class.pod_sets):
        order.setdefault(f"group {pods.group}" if pods.group else f"pod set {index}", []).append(index)
    rules = _FlavorRules(
        flavors,
        topology,
        _only_topology_flavors(queue, flavors),
        scheduling_class.allowed,
        topology is not None and topology.runs_elsewhere(queue),
    )
    groups = [
        GroupPlan(
            members,
            scheduling_class.pod_sets[members[0]].name,
            _steps([scheduling_class.pod_sets[i] for i in members], queue, rules, ignore_undeclared),
        )
        for members in order.values()
    ]
    # Variants of a workload have one flavor each: they are not split.
    for group in groups if splits and rules.allowed is None else ():
        if len(group.members) == 1:
            _split(scheduling_class.pod_sets[group.members[0]], group.steps, queue, rules)
    return Plan(queue.flavor_usages, groups, rules.implied)


def _steps(
    members: list[PodSetClass],
    queue: ClusterQueue,
    rules: _FlavorRules,
    ignore_undeclared: bool,
) -> list[Step]:
    requested = group_requests(members, [pods.count for pods in members], PODS in queue.group_of)
    steps: list[Step] = []
    assigned: set[str] = set()
    order = sorted(requested, key=visiting_rank)
    for resource in order:
        if resource in assigned:
            continue
        group = queue.group_of.get(resource)
        if group is None:
            if requested[resource] > 0 and not ignore_undeclared:
                steps.append(Step(resource, [resource], [requested[resource]], []))
            continue
        resources = [name for name in order if queue.group_of.get(name) is group]
        assigned.update(resources)
        options = []
        for name, flavor_resources in group.flavors:
            blocker, detail = _blocker(members, name, rules, group.resources)
            options.append(
                Option(name, [queue.flavor_usages[flavor_resources[r]] for r in resources], blocker, detail)
            )
        steps.append(Step(resource, resources, [requested[r] for r in resources], options))
    return steps


def _split(pods: PodSetClass, steps: list[Step], queue: ClusterQueue, rules: _FlavorRules) -> None:
    """Let one of the steps split the pods over flavors, if the pod set asks for that."""
    if pods.hybrid is None and not pods.hybrid_problem:
        return
    problem = pods.hybrid_problem
    if not problem and (pods.wants_topology or rules.implied):
        problem = "a pod set that is placed by topology cannot be split over flavors"
    wanted = [flavor.name for flavor in pods.hybrid.flavors] if pods.hybrid is not None else []
    for step in steps:
        offered = {option.flavor: option for option in step.options}
        options = [offered[name] for name in wanted if name in offered]
        if options and len(options) < len(wanted):
            other = next(name for name in wanted if name not in offered)
            problem = problem or f"flavors {options[0].flavor} and {other} are not in the same resource group"
        if options or problem:
            step.split = Split(options, pods.hybrid, problem)
            return
    if steps:
        text = f"ClusterQueue {queue.name} has none of the flavors {', '.join(wanted)} for its resources"
        steps[0].split = Split([], pods.hybrid, text)


def group_requests(
    members: Iterable[PodSetClass], counts: Iterable[int], counts_pods: bool
) -> dict[str, int]:
    """What some pod sets ask for together at these sizes."""
    total: dict[str, int] = {}
    for pods, count in zip(members, counts, strict=True):
        for resource, amount in pods.per_pod.items():
            total[resource] = total.get(resource, 0) + amount * count
        if counts_pods:
            total[PODS] = total.get(PODS, 0) + count
    return total


def _only_topology_flavors(queue: ClusterQueue, flavors: Mapping[str, kueue.ResourceFlavor]) -> bool:
    return bool(queue.all_flavors) and all(
        name in flavors and flavors[name].spec.topology_name for name in queue.all_flavors
    )


def _blocker(
    members: Iterable[PodSetClass], name: str, rules: _FlavorRules, covered: Collection[str]
) -> tuple[Blocker, str]:
    if rules.allowed is not None and name not in rules.allowed:
        return "FlavorNotAllowed", ""
    flavor = rules.flavors.get(name)
    if flavor is None:
        return "FlavorNotFound", name
    for pods in members:
        if rules.topology is not None:
            unfit = _topology_blocker(pods, flavor, rules, covered)
            if unfit:
                return "Topology", unfit
        for taint in flavor.spec.node_taints:
            if taint.effect not in ("NoSchedule", "NoExecute"):
                continue
            tolerations = (*pods.tolerations, *flavor.spec.tolerations)
            if not any(toleration.tolerates(taint) for toleration in tolerations):
                text = f"{taint.key}={taint.value}" if taint.value else taint.key
                return "Taint", f"{text}:{taint.effect}"
        if not _matches(pods, flavor.spec.node_labels):
            return "Affinity", name
    return "", ""


def _topology_blocker(
    pods: PodSetClass, flavor: kueue.ResourceFlavor, rules: _FlavorRules, covered: Collection[str]
) -> str:
    """Why a pod set cannot use a flavor because of its topology, or the lack of one; empty if it can (6)."""
    assert rules.topology is not None
    name, topology_name = flavor.metadata.name, flavor.spec.topology_name
    if not pods.wants_topology:
        if topology_name and not rules.implied:
            return f"flavor {name} is for workloads that ask for a topology"
        return ""
    if not topology_name:
        if any(resource in covered for resource in pods.node_requests):
            return f"flavor {name} has no topology"
        return ""
    if rules.remote:
        return ""
    topology = rules.topology.topologies.get(topology_name)
    if topology is None:
        return f"topology {topology_name} of flavor {name} does not exist"
    levels = {level.node_label for level in topology.spec.levels}
    lacking = [level for level in _levels(pods, rules.topology.layers) if level not in levels]
    return f"the topology of flavor {name} has no level {lacking[0]}" if lacking else ""


def _levels(pods: PodSetClass, layers: bool) -> list[str]:
    """The levels that a pod set names."""
    request = pods.topology
    assert request is not None
    named = [request.required, request.preferred]
    constraints = request.podset_slice_required_topology_constraints
    if constraints and layers:
        named += [each.topology for each in constraints]
    else:
        named.append(request.pod_set_slice_required_topology)
    return [level for level in named if level]


def _matches(pods: PodSetClass, labels: Mapping[str, str]) -> bool:
    """Node selector and required node affinity against a flavor's labels; keys it does not have do not
    matter."""
    for key, value in pods.node_selector.items():
        if key in labels and labels[key] != value:
            return False
    return _affinity_matches(pods.affinity, labels)


def _affinity_matches(affinity: Affinity | None, labels: Mapping[str, str]) -> bool:
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return True
    terms = affinity.node_affinity.required.node_selector_terms
    if not terms:
        return True
    for term in terms:
        known = [expression for expression in term.match_expressions if expression.key in labels]
        if all(_requirement(expression).matches(labels) for expression in known):
            return True
    return False


def _requirement(expression: NodeSelectorRequirement) -> Requirement:
    return Requirement(expression.key, expression.operator, tuple(expression.values))
