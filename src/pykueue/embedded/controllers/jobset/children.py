"""What a JobSet creates: Jobs, the headless Service, volume claims. Pure.

Source: docs/reference/cluster-workloads.md 2.2, 2.3, 2.11 and 2.12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykueue.api.objects import Object, controller_reference
from pykueue.api.resources import JOB_SETS
from pykueue.embedded.jobset.names import (
    COORDINATOR,
    EXCLUSIVE_TOPOLOGY,
    GLOBAL_REPLICAS,
    GROUP_NAME,
    GROUP_REPLICAS,
    JOB_GLOBAL_INDEX,
    JOB_GROUP_INDEX,
    JOB_INDEX,
    JOB_KEY,
    JOBSET_NAME,
    JOBSET_UID,
    NAMESPACED_JOB,
    NO_SCHEDULE,
    NODE_SELECTOR_STRATEGY,
    REPLICATED_JOB_NAME,
    REPLICATED_JOB_REPLICAS,
    RESTART_ATTEMPT,
    coordinator_address,
    has_hostnames,
    job_key,
    job_name,
    replicas,
    subdomain,
)
from pykueue.embedded.jobset.validation import mounts

_RETAIN = "Retain"


def job(jobset: Object, replicated_job: Object, index: int, restarts: int) -> Object:
    """A child Job of the current attempt."""
    metadata, spec = jobset["metadata"], jobset["spec"]
    name = job_name(metadata["name"], replicated_job["name"], index)
    template: Object = replicated_job["template"]
    job_spec: Object = template["spec"]
    own = _own_labels(jobset, replicated_job, index, restarts)
    placement = _placement(jobset, replicated_job)
    pod = _extended(job_spec["template"], own, {**own, **placement})
    pod_spec = dict(pod["spec"])
    if has_hostnames(spec):
        pod_spec["subdomain"] = subdomain(jobset)
    if EXCLUSIVE_TOPOLOGY in placement and NODE_SELECTOR_STRATEGY in placement:
        selector = {NAMESPACED_JOB: f"{metadata['namespace']}_{name}"}
        toleration = {"key": NO_SCHEDULE, "operator": "Exists"}
        pod_spec["nodeSelector"] = {**(pod_spec.get("nodeSelector") or {}), **selector}
        pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or ()), toleration]
    claimed = _volumes(jobset, pod_spec)
    if claimed:
        pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), *claimed]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            **_extended(template, own, {**own, **placement})["metadata"],
            "ownerReferences": [controller_reference(jobset, JOB_SETS.api_version, JOB_SETS.kind)],
        },
        "spec": {
            **job_spec,
            "template": {**pod, "spec": pod_spec},
            "suspend": bool(spec.get("suspend")),
        },
    }


def _extended(template: Object, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    """A template with more labels and annotations."""
    metadata = template.get("metadata") or {}
    return {
        **template,
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
        },
    }


def _own_labels(jobset: Object, replicated_job: Object, index: int, restarts: int) -> dict[str, str]:
    metadata = jobset["metadata"]
    everything: list[Object] = jobset["spec"]["replicatedJobs"]
    group = replicated_job.get("groupName") or "default"
    before = everything[: [one["name"] for one in everything].index(replicated_job["name"])]

    def total(jobs: list[Object], of_group: bool = False) -> int:
        return sum(
            replicas(one) for one in jobs if not of_group or (one.get("groupName") or "default") == group
        )

    found = {
        JOBSET_NAME: metadata["name"],
        JOBSET_UID: metadata["uid"],
        REPLICATED_JOB_NAME: replicated_job["name"],
        RESTART_ATTEMPT: str(restarts),
        REPLICATED_JOB_REPLICAS: str(replicas(replicated_job)),
        GLOBAL_REPLICAS: str(total(everything)),
        JOB_INDEX: str(index),
        JOB_GLOBAL_INDEX: str(total(before) + index),
        JOB_KEY: job_key(metadata["namespace"], job_name(metadata["name"], replicated_job["name"], index)),
        GROUP_NAME: group,
        GROUP_REPLICAS: str(total(everything, of_group=True)),
        JOB_GROUP_INDEX: str(total(before, of_group=True) + index),
    }
    coordinator = coordinator_address(jobset)
    return found if coordinator is None else {**found, COORDINATOR: coordinator}


def _placement(jobset: Object, replicated_job: Object) -> dict[str, str]:
    """The annotations about exclusive placement: of the set, or of the one replicated job."""
    of_job = (replicated_job["template"].get("metadata") or {}).get("annotations") or {}
    for given in (jobset["metadata"].get("annotations") or {}, of_job):
        if EXCLUSIVE_TOPOLOGY in given:
            names = (EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY)
            return {name: given[name] for name in names if name in given}
    return {}


def _volumes(jobset: Object, pod_spec: Object) -> list[Object]:
    """The volumes of the claims that containers of a pod mount."""
    mounted = mounts(pod_spec)
    return [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{jobset['metadata']['name']}"}}
        for name, _, _ in _claim_templates(jobset)
        if name in mounted
    ]


def _claim_templates(jobset: Object) -> Iterator[tuple[str, Object, bool]]:
    """Name, template, and whether the claim outlives the set."""
    for policy in jobset["spec"].get("volumeClaimPolicies") or ():
        retained = (policy.get("retentionPolicy") or {}).get("whenDeleted") == _RETAIN
        for template in policy["templates"]:
            yield template["metadata"]["name"], template, retained


def claims(jobset: Object) -> Iterator[Object]:
    """The volume claims of the set."""
    metadata = jobset["metadata"]
    for name, template, retained in _claim_templates(jobset):
        given = {
            key: value for key, value in template["metadata"].items() if key in ("labels", "annotations")
        }
        claim: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**given, "name": f"{name}-{metadata['name']}", "namespace": metadata["namespace"]},
            "spec": template.get("spec") or {},
        }
        if not retained:
            claim["metadata"]["ownerReferences"] = [
                controller_reference(jobset, JOB_SETS.api_version, JOB_SETS.kind)
            ]
        yield claim


def service(jobset: Object) -> Object | None:
    """The headless Service behind the pods' names; None where they have none."""
    metadata, spec = jobset["metadata"], jobset["spec"]
    if not has_hostnames(spec):
        return None
    early = (spec.get("network") or {}).get("publishNotReadyAddresses")
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": subdomain(jobset),
            "namespace": metadata["namespace"],
            "ownerReferences": [controller_reference(jobset, JOB_SETS.api_version, JOB_SETS.kind)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {JOBSET_NAME: metadata["name"]},
            "publishNotReadyAddresses": True if early is None else bool(early),
        },
    }


def resumed_template(job: Object, replicated_job: Object) -> Object:
    """The pod template of a Job that runs again: what the set's template says now, merged into it (2.9).

    Merged, not replaced: what an earlier start added and the set no longer says stays.
    """
    template: Object = job["spec"]["template"]
    wanted: Object = replicated_job["template"]["spec"]["template"]
    extra = wanted.get("metadata") or {}
    metadata = dict(template.get("metadata") or {})
    for key in ("labels", "annotations"):
        if extra.get(key):
            metadata[key] = {**(metadata.get(key) or {}), **extra[key]}
    spec, extra = dict(template["spec"]), wanted["spec"]
    if extra.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **extra["nodeSelector"]}
    for key in ("tolerations", "schedulingGates"):
        present = spec.get(key) or []
        added = [one for one in extra.get(key) or () if one not in present]
        if added:
            spec[key] = [*present, *added]
    return {**template, "metadata": metadata, "spec": spec}
