# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Admission checks and the configuration of their controllers. Source: docs/reference/kueue-api.md 1.8 to
1.11."""

from __future__ import annotations

from typing import Annotated, Literal

from pykueue.api.kueue.common import LABEL, SUBDOMAIN, Conditions, ObjectName, ResourceName
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import DEFAULTED, Cel, Model, Rule, atomic, checked, map_by, set_of


class AdmissionCheckParameters(Model):
    """An object that configures the check."""

    api_group: Annotated[str, Rule(minLength=1, maxLength=253, pattern=SUBDOMAIN)]
    """API group of the object."""
    kind: Annotated[str, Rule(minLength=1, maxLength=63, pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$")]
    """Kind of the object."""
    name: Annotated[str, Rule(minLength=1, maxLength=63, pattern=LABEL)]
    """Name of the object."""


class AdmissionCheckSpec(Model):
    """Who carries the check out, and how."""

    controller_name: Annotated[
        str,
        Rule(minLength=1, maxLength=253),
        Cel("self == oldSelf", "controllerName is immutable"),
    ]
    """The controller that carries the check out, such as kueue.x-k8s.io/provisioning-request. Immutable."""
    parameters: AdmissionCheckParameters | None = None
    """An object that configures the check."""


class AdmissionCheckStatus(Model):
    """Whether the check can be carried out."""

    conditions: Conditions = []
    """Active is set by the check's controller."""


class AdmissionCheck(Model):
    """A check that workloads must pass between getting quota and starting."""

    metadata: ObjectMeta
    spec: AdmissionCheckSpec
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class KubeConfig(Model):
    """Where the credentials of a cluster are."""

    location: Annotated[str, Rule(minLength=1, maxLength=256)]
    """Name of the Secret (its key is kubeconfig) in the manager's namespace, or path of the file."""
    location_type: Annotated[Literal["Secret", "Path"], DEFAULTED] = "Secret"
    """What location is."""


class ClusterProfileReference(Model):
    """A cluster in the cluster inventory."""

    name: Annotated[str, Rule(minLength=1, maxLength=256)]
    """Name of the ClusterProfile in the manager's namespace."""


@checked(
    Cel(
        "has(self.kubeConfig) != has(self.clusterProfileRef)",
        "exactly one of kubeConfig and clusterProfileRef is required",
    )
)
class ClusterSource(Model):
    """How to reach a cluster: exactly one of the fields."""

    kube_config: KubeConfig | None = None
    """By a kubeconfig."""
    cluster_profile_ref: ClusterProfileReference | None = None
    """By the cluster inventory."""


class MultiKueueClusterSpec(Model):
    """How to reach the cluster."""

    cluster_source: ClusterSource
    """How to reach the cluster."""


class MultiKueueClusterStatus(Model):
    """Whether the cluster is reached."""

    conditions: Conditions = []
    """Active says whether the cluster is connected."""


class MultiKueueCluster(Model):
    """A cluster that workloads can be sent to."""

    metadata: ObjectMeta
    spec: MultiKueueClusterSpec
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()


class MultiKueueConfigSpec(Model):
    """The clusters to choose from."""

    clusters: Annotated[
        list[Annotated[str, Rule(minLength=1, maxLength=256)]],
        atomic(minItems=1, maxItems=20),
        Cel("self.all(x, self.exists_one(y, x == y))", "clusters must be distinct"),
    ]
    """Names of MultiKueueClusters, most preferred first."""
    quota_management: Annotated[Literal["Manual", "Automated"], DEFAULTED] = "Manual"
    """Whether quotas of the manager's queues follow those of the workers."""


class MultiKueueConfig(Model):
    """Clusters a MultiKueue admission check chooses from."""

    metadata: ObjectMeta
    spec: MultiKueueConfigSpec


class ProvisioningRequestRetryStrategy(Model):
    """When to ask again after a failed request: base * 2^(n-1) seconds, at most the maximum."""

    backoff_limit_count: Annotated[int, DEFAULTED] = 3
    """How many times."""
    backoff_base_seconds: Annotated[int, DEFAULTED] = 60
    """Seconds before the first repetition."""
    backoff_max_seconds: Annotated[int, DEFAULTED] = 1800
    """Longest wait in seconds."""


class ProvisioningRequestPodSetUpdatesNodeSelector(Model):
    """A node label whose value comes from the answer to the request."""

    key: Annotated[str, Rule(minLength=1, maxLength=317)]
    """The node label."""
    value_from_provisioning_class_detail: Annotated[str, Rule(minLength=1, maxLength=32768)]
    """Key of the request's provisioningClassDetails that holds the value."""


class ProvisioningRequestPodSetUpdates(Model):
    """What to change in pods once capacity is there."""

    node_selector: Annotated[
        list[ProvisioningRequestPodSetUpdatesNodeSelector], map_by("key", maxItems=8)
    ] = []
    """Node labels to select."""


class ProvisioningRequestConfigSpec(Model):
    """How capacity is asked for."""

    provisioning_class_name: ObjectName
    """The class of the ProvisioningRequests made."""
    parameters: Annotated[dict[str, Annotated[str, Rule(maxLength=255)]], Rule(maxProperties=100)] = {}
    """Parameters of the ProvisioningRequests made."""
    managed_resources: Annotated[list[ResourceName], set_of(maxItems=100)] = []
    """Only pod sets that ask for one of these need a request; empty means all do."""
    retry_strategy: Annotated[ProvisioningRequestRetryStrategy, DEFAULTED] = (
        ProvisioningRequestRetryStrategy()
    )
    """When to ask again after a failed request."""
    pod_set_updates: ProvisioningRequestPodSetUpdates | None = None
    """What to change in pods once capacity is there."""
    pod_set_merge_policy: (
        Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None
    ) = None
    """Which pod sets are asked for as one; unset means none."""


class ProvisioningRequestConfig(Model):
    """How a provisioning admission check asks the cluster autoscaler for capacity."""

    metadata: ObjectMeta
    spec: ProvisioningRequestConfigSpec
