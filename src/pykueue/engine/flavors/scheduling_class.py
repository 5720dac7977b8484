"""What workloads ask for: requests per pod, constraints on nodes, and what queues remember about it.

Workloads that ask for the same thing share one `SchedulingClass`, made once (`scheduling_classes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pykueue.api.core import Affinity, PodSpec, Toleration
from pykueue.api.hybrid import HybridRequest, parse_request
from pykueue.api.kueue import PodSet
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.engine.flavors.devices import Dependency
from pykueue.engine.flavors.host_ports import host_port_amounts
from pykueue.engine.flavors.templates import hybrid_text

#: The flavors that a workload may use; None: all.
AllowedFlavors = tuple[str, ...] | None


class Environment(NamedTuple):
    """What pod templates were read under: numbers that are never the same again after a change."""

    classes: int
    """Of RuntimeClasses, and of the DeviceClasses that back extended resources."""
    limits: int
    """Of LimitRanges."""
    devices: int = 0
    """Of templates of claims, their DeviceClasses and devices; 0 for pods that name no template."""
    namespace: str = ""
    """Whose templates of claims; empty for pods that name none."""


class PodSetClass:
    """What every pod of a pod set asks for, and how many of them there are."""

    __slots__ = (
        "affinity",
        "count",
        "full_count",
        "group",
        "host_ports",
        "hybrid",
        "hybrid_problem",
        "min_count",
        "name",
        "node_requests",
        "node_selector",
        "per_pod",
        "tolerations",
        "topology",
        "total",
        "wants_topology",
    )

    def __init__(
        self,
        pod_set: PodSet,
        count: int,
        spec: PodSpec,
        per_pod: dict[str, int],
        node_requests: dict[str, int],
    ) -> None:
        self.name = pod_set.name
        #: Pods that need quota.
        self.count = count
        #: Pods in the spec, those no longer needed included.
        self.full_count = pod_set.count
        self.min_count = pod_set.min_count
        topology = self.topology = pod_set.topology_request
        #: Pod sets of one group get the same flavors.
        self.group = topology.pod_set_group_name if topology is not None else None
        self.wants_topology = topology is not None and topology.explicit
        #: The flavors that its pods may be split over; None: it gets one flavor.
        self.hybrid: HybridRequest | None = None
        #: What is wrong with its request for several flavors, or empty.
        self.hybrid_problem = ""
        text = hybrid_text(pod_set.template)
        if text:
            try:
                self.hybrid = parse_request(text)
            except ValueError as error:
                self.hybrid_problem = f"annotation {HYBRID_ASSIGNMENT_ANNOTATION}: {error}"
        #: Of quota.
        self.per_pod = per_pod
        #: Of a node: what the template requests itself.
        self.node_requests = node_requests
        self.total = {resource: amount * count for resource, amount in per_pod.items()}
        #: Of its host: amounts by port.
        self.host_ports: Mapping[str, int] = host_port_amounts(spec)
        self.node_selector: Mapping[str, str] = spec.node_selector
        self.affinity: Affinity | None = spec.affinity
        self.tolerations: Sequence[Toleration] = spec.tolerations


class SchedulingClass:
    """What a workload asks for, the same object for all workloads that ask for the same."""

    __slots__ = (
        "__weakref__",
        "allowed",
        "dependencies",
        "environment",
        "kept_out",
        "node_request",
        "plans",
        "pod_sets",
        "problem",
        "shrinkable",
        "source",
    )

    def __init__(
        self,
        pod_sets: tuple[PodSetClass, ...],
        problem: str,
        kept_out: bool,
        source: list[PodSet],
        environment: Environment,
        allowed: AllowedFlavors,
        dependencies: frozenset[Dependency],
    ) -> None:
        self.pod_sets = pod_sets
        #: The flavors that it may use; None: all.
        self.allowed = allowed
        #: What it was read under.
        self.environment = environment
        #: The pod sets it was made from: to the engine as good as those of any workload of this class.
        self.source = source
        #: Why it can never be admitted as it is (2.9, 3 and 4), or empty.
        self.problem = problem
        #: Whether the problem is one of its claims: then it does not enter a queue (2.10).
        self.kept_out = kept_out
        #: What decides the cost of its claims of devices; empty without claims of templates.
        self.dependencies = dependencies
        self.shrinkable = any(
            pods.min_count is not None and pods.min_count < pods.full_count for pods in pod_sets
        )
        #: By name of ClusterQueue: how its flavors serve this scheduling class (see plan.Plan).
        self.plans: dict[str, Any] = {}
        #: What it requests of nodes, once that was asked for (see engine.topology).
        self.node_request: Any = None
