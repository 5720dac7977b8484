"""The configuration file's sections as values, in the current version of the file (v1beta2).

Every field is spelt as in the file with underscores instead of capitals; its default is the file's default.
Durations are seconds. What each field means: docs/reference/kueue-api.md 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pykueue.jobs.identifiers import Identifiers

from .decode import Bounds, Duration, Raw
from .gates import FeatureGates

Seconds = Annotated[float, Duration()]
NotNegative = Annotated[float, Duration(minimum=0.0)]
Port = Annotated[int, Bounds(0, 65535)]


@dataclass(frozen=True)
class Webhook:
    """`webhook`: where the webhook server listens, and its certificate files."""

    port: Port = 9443
    host: str = ""
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"


@dataclass(frozen=True)
class LeaderElection:
    """`leaderElection`: the Lease by which one replica leads."""

    leader_elect: bool = True
    lease_duration: Seconds = 15.0
    renew_deadline: Seconds = 10.0
    retry_period: Seconds = 2.0
    resource_name: str = "c1f6bfd2.kueue.x-k8s.io"
    resource_lock: Literal["leases"] = "leases"
    resource_namespace: str = ""


@dataclass(frozen=True)
class CustomLabel:
    """`metrics.customLabels[]`: a metric label whose value is read from an object's label or annotation."""

    name: str
    source_label_key: str = ""
    source_annotation_key: str = ""
    source_kind: Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"] = "ClusterQueue"
    tracked_values: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalQueueMetrics:
    """`metrics.localQueueMetrics`: whether and which LocalQueues have metrics."""

    enable: bool = False
    local_queue_selector: Annotated[dict[str, Any] | None, Raw("a label selector")] = None


@dataclass(frozen=True)
class Metrics:
    """`metrics`: the metrics endpoint and which optional series and labels it has."""

    bind_address: str = ":8443"
    enable_cluster_queue_resources: bool = False
    custom_labels: tuple[CustomLabel, ...] = ()
    local_queue_metrics: LocalQueueMetrics = field(default_factory=lambda: LocalQueueMetrics(enable=True))


@dataclass(frozen=True)
class Health:
    """`health`: the endpoint of readiness and liveness probes."""

    health_probe_bind_address: str = ":8081"
    readiness_endpoint_name: str = "readyz"
    liveness_endpoint_name: str = "healthz"


@dataclass(frozen=True)
class Controller:
    """`controller`: concurrency by kind, and how long caches may take to fill."""

    group_kind_concurrency: dict[str, Annotated[int, Bounds(1, None)]] = field(default_factory=dict)
    cache_sync_timeout: Annotated[float, Duration(above=0.0)] = 120.0


@dataclass(frozen=True)
class Tls:
    """`tls`: what the manager's servers accept."""

    min_version: Literal["", "VersionTLS12", "VersionTLS13"] = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()


@dataclass(frozen=True)
class InternalCertManagement:
    """`internalCertManagement`: whether the manager issues its own certificates, and where it keeps them."""

    enable: bool = True
    webhook_service_name: str = "kueue-webhook-service"
    webhook_secret_name: str = "kueue-webhook-server-cert"


@dataclass(frozen=True)
class RequeuingStrategy:
    """`waitForPodsReady.requeuingStrategy`: the back-off of workloads that did not become ready in time."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    #: None: retried forever.
    backoff_limit_count: Annotated[int | None, Bounds(0, None)] = None
    backoff_base_seconds: Annotated[int, Bounds(0, None)] = 60
    backoff_max_seconds: Annotated[int, Bounds(0, None)] = 3600


@dataclass(frozen=True)
class WaitForPodsReady:
    """`waitForPodsReady`: how long the pods of admitted workloads may take to become ready."""

    #: Seconds from Admitted to PodsReady. 0 in the file means the default.
    timeout: NotNegative = 1800.0
    #: Seconds a workload may be without a ready pod it had; 0: no limit; None in the file: as `timeout`.
    recovery_timeout: Annotated[float | None, Duration(minimum=0.0)] = None
    block_admission: bool = False
    requeuing_strategy: RequeuingStrategy = field(default_factory=RequeuingStrategy)


@dataclass(frozen=True)
class ClientConnection:
    """`clientConnection`: limits of requests to the API server."""

    #: Requests per second; None: not limited by the client; negative: not limited.
    qps: float | None = None
    burst: int | None = None


@dataclass(frozen=True)
class Integrations:
    """`integrations`: which kinds of jobs are managed."""

    #: Empty until settled: what is switched on where the file names none depends on the cluster.
    frameworks: tuple[str, ...] = ()
    external_frameworks: tuple[str, ...] = ()
    #: Files with JobKinds, which describe further kinds as JobKind objects do; not a field of Kueue's.
    job_kind_files: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExternalFramework:
    name: str


@dataclass(frozen=True)
class IncrementalDispatcher:
    step_size: Annotated[int, Bounds(1, None)] = 3


@dataclass(frozen=True)
class AccessProvider:
    name: str
    exec_config: Annotated[dict[str, Any], Raw("an exec configuration")] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterProfile:
    """`multiKueue.clusterProfile`: how credentials of worker clusters are obtained."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()


@dataclass(frozen=True)
class MultiKueue:
    """`multiKueue`: dispatching to worker clusters."""

    gc_interval: NotNegative = 60.0
    origin: str = "multikueue"
    worker_lost_timeout: NotNegative = 900.0
    dispatcher_name: str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None
    incremental_dispatcher_config: IncrementalDispatcher | None = None


@dataclass(frozen=True)
class FairSharing:
    """`fairSharing`: in which order preemption strategies are tried."""

    preemption_strategies: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...]


@dataclass(frozen=True)
class AdmissionFairSharing:
    """`admissionFairSharing`: how past usage decays and what it weighs."""

    usage_half_life_time: NotNegative = 0.0
    usage_sampling_interval: Annotated[float, Duration(above=0.0)] = 300.0
    resource_weights: dict[str, Annotated[float, Bounds(0, None)]] = field(default_factory=dict)


@dataclass(frozen=True)
class Transformation:
    """`resources.transformations[]`: a resource that is counted as others."""

    input: str
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = ""
    outputs: Annotated[dict[str, Any], Raw("a map of resource names to quantities")] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class DeviceSelectorCel:
    expression: str


@dataclass(frozen=True)
class DeviceSelector:
    cel: DeviceSelectorCel


@dataclass(frozen=True)
class DeviceMeasure:
    name: str
    driver: str
    device_selector: DeviceSelector | None = None


@dataclass(frozen=True)
class DeviceSource:
    counter: DeviceMeasure | None = None
    capacity: DeviceMeasure | None = None


@dataclass(frozen=True)
class DeviceClassMapping:
    name: str
    device_class_names: tuple[str, ...] = ()
    sources: tuple[DeviceSource, ...] = ()


@dataclass(frozen=True)
class Resources:
    """`resources`: which requested resources count against quota, and as what."""

    exclude_resource_prefixes: tuple[str, ...] = ()
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    transformations: tuple[Transformation, ...] = ()
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()


@dataclass(frozen=True)
class WorkloadRetention:
    #: Seconds; None: kept forever.
    after_finished: Annotated[float | None, Duration(minimum=0.0)] = None
    after_deactivated_by_kueue: Annotated[float | None, Duration(minimum=0.0)] = None


@dataclass(frozen=True)
class ObjectRetentionPolicies:
    workloads: WorkloadRetention | None = None


@dataclass(frozen=True)
class VisibilityServer:
    """`visibilityServer`: where the visibility API listens."""

    bind_address: str = ""
    bind_port: Port = 8082


@dataclass(frozen=True)
class Configuration:
    """The whole file. `wait_for_pods_ready` is None where the feature is switched off."""

    namespace: str = "kueue-system"
    webhook: Webhook = field(default_factory=Webhook)
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    metrics: Metrics = field(default_factory=Metrics)
    health: Health = field(default_factory=Health)
    pprof_bind_address: str = ""
    controller: Controller = field(default_factory=Controller)
    tls: Tls | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: Annotated[dict[str, Any] | None, Raw("a label selector")] = None
    internal_cert_management: InternalCertManagement = field(default_factory=InternalCertManagement)
    wait_for_pods_ready: WaitForPodsReady | None = field(default_factory=WaitForPodsReady)
    client_connection: ClientConnection = field(default_factory=ClientConnection)
    integrations: Integrations = field(default_factory=Integrations)
    multi_kueue: MultiKueue = field(default_factory=MultiKueue)
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    resources: Resources = field(default_factory=Resources)
    feature_gates: dict[str, bool] = field(default_factory=dict)
    object_retention_policies: ObjectRetentionPolicies = field(default_factory=ObjectRetentionPolicies)
    visibility_server: VisibilityServer = field(default_factory=VisibilityServer)

    @property
    def gates(self) -> FeatureGates:
        """Every feature gate with its value; `feature_gates` holds only what was chosen."""
        return FeatureGates(self.feature_gates)

    @property
    def identifiers(self) -> Identifiers:
        """Where jobs name their pod groups and prebuilt Workloads."""
        return Identifiers(self.gates["WorkloadIdentifierAnnotations"])

    @property
    def workload_name_limit(self) -> int:
        """Most characters in the name of a Workload; with ShortWorkloadNames it may be a label's value."""
        return 63 if self.gates["ShortWorkloadNames"] else 253

    @property
    def labels_to_copy(self) -> tuple[str, ...]:
        """Keys of the labels a Workload has from its job: those asked for, and those that metrics show."""
        shown = (
            label.source_label_key or label.name
            for label in self._labels_of_workloads()
            if not label.source_annotation_key
        )
        return (*self.integrations.label_keys_to_copy, *shown)

    @property
    def annotations_to_copy(self) -> tuple[str, ...]:
        """Keys of the annotations a Workload has from its job, because metrics show them."""
        keys = (label.source_annotation_key for label in self._labels_of_workloads())
        return tuple(filter(None, keys))

    def _labels_of_workloads(self) -> list[CustomLabel]:
        if not self.gates["CustomMetricLabels"]:
            return []
        return [label for label in self.metrics.custom_labels if label.source_kind == "Workload"]
