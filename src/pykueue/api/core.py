# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Views of the core objects: the fields this project reads, decoded once.

A view is for reading. Writing an object back is done on the manifest it came from: a view would lose fields.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pykueue.api.meta import LabelSelector, ObjectMeta
from pykueue.api.model import Model
from pykueue.api.quantity import Quantity

#: Amounts by resource name.
ResourceList = dict[str, Quantity]


class StatusCondition(Model):
    """A condition as core objects carry it, where all but type and status may be missing."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ResourceRequirements(Model):
    """What a container requests, and at most may use, by resource."""

    limits: ResourceList = {}
    requests: ResourceList = {}
    claims: list[dict[str, Any]] = []


class Container(Model):
    """A container: the fields that queueing and scheduling read."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    #: Always makes an init container a sidecar that runs beside the regular ones.
    restart_policy: str | None = None
    command: list[str] = []
    args: list[str] = []
    env: list[dict[str, Any]] = []
    ports: list[dict[str, Any]] = []
    readiness_probe: dict[str, Any] | None = None


class Toleration(Model):
    """Lets pods onto nodes with a matching taint."""

    key: str = ""
    """The taint's key; empty with operator Exists matches every taint."""
    operator: str = ""
    """Equal (the default) or Exists."""
    value: str = ""
    """The taint's value, with operator Equal."""
    effect: str = ""
    """The taint's effect; empty matches every effect."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is tolerated; unset means forever."""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers that taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and bool(self.key) and self.value == taint.value


class Taint(Model):
    """Keeps pods that do not tolerate it off a node."""

    key: str
    """Label-like name of the taint."""
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""
    value: str = ""
    """Label-like value of the taint."""
    time_added: str | None = None
    """When a NoExecute taint was added."""


class NodeSelectorRequirement(Model):
    """A requirement on labels or fields of nodes."""

    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Model):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Model):
    #: A node that satisfies any one term is chosen.
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Model):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Model):
    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class PodAffinityTerm(Model):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Model):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Model):
    required: list[PodAffinityTerm] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(Model):
    """Rules about the nodes a pod may run on, and about the pods beside it."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Model):
    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None


class SchedulingGate(Model):
    name: str


class PodSpec(Model):
    """The spec of a pod: the fields that queueing and scheduling read."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    #: Pod-level requests and limits.
    resources: ResourceRequirements | None = None
    overhead: ResourceList = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[SchedulingGate] = []
    node_name: str = ""
    scheduler_name: str = ""
    runtime_class_name: str | None = None
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    restart_policy: str = "Always"
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    hostname: str = ""
    subdomain: str = ""
    service_account_name: str = ""
    resource_claims: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []


class PodTemplateSpec(Model):
    """What a controller makes pods from."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class ContainerStatus(Model):
    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: dict[str, Any] = {}
    last_state: dict[str, Any] = {}


class PodStatus(Model):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[StatusCondition] = []
    host_ip: str = msgspec.field(name="hostIP", default="")
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: str | None = None
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    qos_class: str = ""


class Pod(Model):
    """A v1 Pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(Model):
    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(name="providerID", default="")
    pod_cidr: str = msgspec.field(name="podCIDR", default="")


class NodeAddress(Model):
    type: str
    address: str


class NodeStatus(Model):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: list[StatusCondition] = []
    addresses: list[NodeAddress] = []


class Node(Model):
    """A v1 Node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceStatus(Model):
    phase: str = ""
    conditions: list[StatusCondition] = []


class Namespace(Model):
    """A v1 Namespace."""

    metadata: ObjectMeta
    status: NamespaceStatus = NamespaceStatus()


class ServicePort(Model):
    """A port of a Service."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str | None = None


class ServiceSpec(Model):
    selector: dict[str, str] = {}
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: list[ServicePort] = []
    type: str = "ClusterIP"


class Service(Model):
    """A v1 Service."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class ConfigMap(Model):
    """A v1 ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool = False


class Secret(Model):
    """A v1 Secret; values of `data` are base64."""

    metadata: ObjectMeta
    #: Values are base64.
    data: dict[str, str] = {}
    type: str = "Opaque"


class ObjectReference(Model):
    """A reference to an object, or to a field of it, in an Event."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class Event(Model):
    """A v1 Event."""

    metadata: ObjectMeta
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    action: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""


class LimitRangeItem(Model):
    type: str
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class LimitRangeSpec(Model):
    """The limits of a namespace."""

    limits: list[LimitRangeItem] = []


class LimitRange(Model):
    """A v1 LimitRange: defaults and limits of what pods and containers of a namespace request."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class ResourceQuotaSpec(Model):
    hard: ResourceList = {}
    scopes: list[str] = []
    scope_selector: dict[str, Any] | None = None


class ResourceQuotaStatus(Model):
    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(Model):
    """A v1 ResourceQuota: hard limits of a namespace."""

    metadata: ObjectMeta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class Overhead(Model):
    """What the runtime needs for a pod beside its containers."""

    pod_fixed: ResourceList = {}


class RuntimeClassScheduling(Model):
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class RuntimeClass(Model):
    """A node.k8s.io/v1 RuntimeClass."""

    metadata: ObjectMeta
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: RuntimeClassScheduling | None = None


class PriorityClass(Model):
    """A scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""
