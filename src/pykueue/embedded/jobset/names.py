"""Names of the JobSet API: labels, annotations, and the names of what belongs to a set.

Source: docs/reference/cluster-workloads.md 2.2, 2.3 and 2.11.
"""

from __future__ import annotations

import hashlib
from typing import Final

from pykueue.api.objects import Object

_PREFIX: Final = "jobset.sigs.k8s.io/"
JOBSET_NAME: Final = _PREFIX + "jobset-name"
JOBSET_UID: Final = _PREFIX + "jobset-uid"
REPLICATED_JOB_NAME: Final = _PREFIX + "replicatedjob-name"
RESTART_ATTEMPT: Final = _PREFIX + "restart-attempt"
REPLICATED_JOB_REPLICAS: Final = _PREFIX + "replicatedjob-replicas"
GLOBAL_REPLICAS: Final = _PREFIX + "global-replicas"
JOB_INDEX: Final = _PREFIX + "job-index"
JOB_GLOBAL_INDEX: Final = _PREFIX + "job-global-index"
JOB_KEY: Final = _PREFIX + "job-key"
GROUP_NAME: Final = _PREFIX + "group-name"
GROUP_REPLICAS: Final = _PREFIX + "group-replicas"
JOB_GROUP_INDEX: Final = _PREFIX + "job-group-index"
COORDINATOR: Final = _PREFIX + "coordinator"
PRIORITY: Final = _PREFIX + "priority"

#: One Job per topology domain: the node label that says which domain a node belongs to.
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
#: Exclusive placement by nodes labelled beforehand instead of by affinity.
NODE_SELECTOR_STRATEGY: Final = "alpha.jobset.sigs.k8s.io/node-selector"
NAMESPACED_JOB: Final = "alpha.jobset.sigs.k8s.io/namespaced-job"
NO_SCHEDULE: Final = "alpha.jobset.sigs.k8s.io/no-schedule"

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

#: `spec.managedBy` of the sets that the built-in controller reconciles; the same as an absent field.
CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"


def job_name(jobset: str, replicated_job: str, index: int) -> str:
    """Name of a child Job."""
    return f"{jobset}-{replicated_job}-{index}"


def job_key(namespace: str, name: str) -> str:
    """Value of the label `job-key` of a child Job and its pods."""
    return hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()


def has_hostnames(spec: Object) -> bool:
    """Whether pods of the set have stable names."""
    enabled = (spec.get("network") or {}).get("enableDNSHostnames")
    return enabled is None or bool(enabled)


def subdomain(jobset: Object) -> str:
    """Subdomain of the pods, and name of the headless Service."""
    network = jobset["spec"].get("network") or {}
    return str(network.get("subdomain") or jobset["metadata"]["name"])


def coordinator_address(jobset: Object) -> str | None:
    """The stable address of the coordinator; None where the set has none."""
    coordinator = jobset["spec"].get("coordinator")
    if not coordinator:
        return None
    job = job_name(jobset["metadata"]["name"], coordinator["replicatedJob"], coordinator.get("jobIndex") or 0)
    return f"{job}-{coordinator.get('podIndex') or 0}.{subdomain(jobset)}"


def replicas(replicated_job: Object) -> int:
    """Number of its Jobs."""
    value = replicated_job.get("replicas")
    return 1 if value is None else int(value)


def pods_per_job(replicated_job: Object) -> int:
    """How many pods one of its Jobs runs at a time."""
    spec = (replicated_job.get("template") or {}).get("spec") or {}
    return job_pods(spec)


def job_pods(spec: Object) -> int:
    """How many pods a Job of this spec runs at a time."""
    parallelism = spec.get("parallelism")
    parallelism = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))
