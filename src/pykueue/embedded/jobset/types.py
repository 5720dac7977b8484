# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The types of `jobset.x-k8s.io/v1alpha2`: what the CustomResourceDefinition is generated from.

Source: docs/reference/cluster-workloads.md 2.1 and 2.5.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pykueue.api.kueue.common import Conditions
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import DEFAULTED, REQUIRED, Cel, Model, Published, Rule, atomic, map_by

JOB_TEMPLATE: Final = Published("io.k8s.api.batch.v1.JobTemplateSpec")
CLAIM: Final = Published("io.k8s.api.core.v1.PersistentVolumeClaim")
IMMUTABLE: Final = Cel("self == oldSelf", "Value is immutable")

Count = Annotated[int, Rule(minimum=0)]
Targets = Annotated[list[str], atomic()]


class DependsOn(Model):
    """A replicated job that must have come so far before this one is created."""

    name: str
    """Name of an earlier replicated job."""
    status: Literal["Ready", "Complete"]
    """What that one must have reached."""


class ReplicatedJob(Model):
    """Jobs made from one template."""

    name: str
    """Name, part of the names of its Jobs."""
    group_name: Annotated[str, DEFAULTED] = "default"
    """Group of replicated jobs that its Jobs are numbered in."""
    template: Annotated[dict[str, Any], JOB_TEMPLATE]
    """Template of its Jobs."""
    replicas: Annotated[Count, DEFAULTED] = 1
    """Number of Jobs."""
    depends_on: Annotated[list[DependsOn], map_by("name", maxItems=5)] = []
    """What must be there before its Jobs are created; not together with the startup policy InOrder."""


class Network(Model):
    """How pods of the set find each other."""

    enable_dns_hostnames: bool | None = None
    """Whether pods get a stable name, by a headless Service; true unless said otherwise."""
    subdomain: str | None = None
    """Name of that Service and subdomain of the pods; the name of the JobSet unless said otherwise."""
    publish_not_ready_addresses: bool | None = None
    """Whether names resolve before pods are ready; true unless said otherwise."""


class SuccessPolicy(Model):
    """When the set is complete."""

    operator: Literal["All", "Any"]
    """Whether all target Jobs must succeed, or any one of them."""
    target_replicated_jobs: Targets = []
    """The replicated jobs that count; all of them where none is named."""


class FailurePolicyRule(Model):
    """What to do about some failures."""

    name: str | None = None
    """Name, part of the reason of the restart's condition."""
    action: Literal[
        "FailJobSet",
        "RestartJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
        "RestartJob",
        "RestartJobAndIgnoreMaxRestarts",
    ]
    """What is done."""
    on_job_failure_reasons: Annotated[list[str], atomic()] = []
    """Reasons of the Job's Failed condition that the rule is for; every one where none is named."""
    on_job_failure_message_patterns: Annotated[list[str], atomic()] = []
    """Regular expressions, one of which the message of that condition must contain."""
    target_replicated_jobs: Targets = []
    """The replicated jobs the rule is for; all of them where none is named."""


class FailurePolicy(Model):
    """What happens when a Job fails."""

    max_restarts: Annotated[Count, DEFAULTED] = 0
    """How often the set may be restarted before it fails."""
    restart_strategy: Annotated[Literal["Recreate", "BlockingRecreate", "InPlaceRestart"], DEFAULTED] = (
        "Recreate"
    )
    """How it is restarted."""
    rules: Annotated[list[FailurePolicyRule], atomic(maxItems=20)] = []
    """The first that matches decides; RestartJobSet where none does."""


class StartupPolicy(Model):
    """In which order replicated jobs start."""

    startup_policy_order: Literal["AnyOrder", "InOrder"]
    """InOrder: each one when the one before is ready."""


class Coordinator(Model):
    """The pod whose address is written to an annotation and label of every pod of the set."""

    replicated_job: str
    """Its replicated job."""
    job_index: Annotated[Count, DEFAULTED] = 0
    """Index of its Job."""
    pod_index: Annotated[Count, DEFAULTED] = 0
    """Completion index of the pod."""


class RetentionPolicy(Model):
    """How long volume claims are kept."""

    when_deleted: Annotated[Literal["Delete", "Retain"], DEFAULTED] = "Delete"
    """What becomes of them when the set is deleted."""


class VolumeClaimPolicy(Model):
    """Volume claims shared by all pods of the set."""

    templates: Annotated[list[Annotated[dict[str, Any], CLAIM]], atomic(maxItems=50), REQUIRED]
    """The claims; each is mounted where a container mounts a volume of its name."""
    retention_policy: RetentionPolicy | None = None
    """How long they are kept."""


class JobSetSpec(Model):
    """What the set consists of."""

    replicated_jobs: Annotated[list[ReplicatedJob], map_by("name")] = []
    """The groups of Jobs."""
    network: Network | None = None
    """How pods find each other."""
    success_policy: Annotated[SuccessPolicy, IMMUTABLE] | None = None
    """When the set is complete; when all Jobs are, unless said otherwise."""
    failure_policy: Annotated[FailurePolicy, IMMUTABLE] | None = None
    """What happens when a Job fails; without it the set fails."""
    startup_policy: Annotated[StartupPolicy, IMMUTABLE] | None = None
    """In which order replicated jobs start."""
    suspend: bool | None = None
    """Whether no pod may run."""
    coordinator: Coordinator | None = None
    """The pod whose address is written to an annotation and label of every pod."""
    managed_by: Annotated[str, Rule(maxLength=63), IMMUTABLE] | None = None
    """Controller of the set; the built-in one leaves alone what names another."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds after its end when the set is deleted; never, unless said otherwise."""
    volume_claim_policies: Annotated[list[VolumeClaimPolicy], atomic(maxItems=50), IMMUTABLE] = []
    """Volume claims shared by all pods."""


class ReplicatedJobStatus(Model):
    """How far a replicated job is."""

    name: str
    """Name of the replicated job."""
    ready: Annotated[int, REQUIRED] = 0
    """Jobs all of whose pods are ready or have succeeded."""
    succeeded: Annotated[int, REQUIRED] = 0
    """Jobs that are complete."""
    failed: Annotated[int, REQUIRED] = 0
    """Jobs that have failed."""
    active: Annotated[int, REQUIRED] = 0
    """Jobs with pods."""
    suspended: Annotated[int, REQUIRED] = 0
    """Jobs that are suspended."""


class JobSetStatus(Model):
    """What has become of the set."""

    conditions: Conditions = []
    """Completed, Failed, Suspended, StartupPolicyInProgress, StartupPolicyCompleted, RestartingJobSet."""
    restarts: Annotated[int, DEFAULTED] = 0
    """Restarts so far; also the number of the current attempt."""
    restarts_count_towards_max: int | None = None
    """Restarts that count towards the failure policy's maxRestarts."""
    terminal_state: str | None = None
    """Completed or Failed, once the set has ended."""
    replicated_jobs_status: Annotated[list[ReplicatedJobStatus], map_by("name")] = []
    """How far each replicated job is."""


class JobSet(Model):
    """Jobs that make up one whole: they start, succeed, fail and restart together."""

    metadata: ObjectMeta
    spec: JobSetSpec | None = None
    """What the set consists of."""
    status: JobSetStatus | None = None
    """What has become of it."""
