"""What is filled into a JobSet when it is created (docs/reference/cluster-workloads.md 2.1)."""

from __future__ import annotations

from pykueue.api.objects import Object


def with_defaults(jobset: Object) -> Object:
    """The JobSet as it is to be stored; nothing that is there is changed."""
    spec = jobset.get("spec") or {}
    network = spec.get("network") or {}
    filled: Object = {
        **spec,
        "network": {
            **network,
            "enableDNSHostnames": _or(network.get("enableDNSHostnames"), True),
            "publishNotReadyAddresses": _or(network.get("publishNotReadyAddresses"), True),
        },
        "successPolicy": spec.get("successPolicy") or {"operator": "All"},
        "startupPolicy": spec.get("startupPolicy") or {"startupPolicyOrder": "AnyOrder"},
        "replicatedJobs": [_with_job_defaults(one) for one in spec.get("replicatedJobs") or ()],
    }
    policy = spec.get("failurePolicy")
    if policy and policy.get("rules"):
        rules = [
            rule if rule.get("name") else {**rule, "name": f"failurePolicyRule{number}"}
            for number, rule in enumerate(policy["rules"])
        ]
        filled["failurePolicy"] = {**policy, "rules": rules}
    return {**jobset, "spec": filled}


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _with_job_defaults(replicated_job: Object) -> Object:
    template = replicated_job.get("template") or {}
    spec = template.get("spec") or {}
    pod = spec.get("template") or {}
    pod_spec = pod.get("spec") or {}
    pod = {**pod, "spec": {**pod_spec, "restartPolicy": pod_spec.get("restartPolicy") or "OnFailure"}}
    spec = {**spec, "completionMode": spec.get("completionMode") or "Indexed", "template": pod}
    return {**replicated_job, "template": {**template, "spec": spec}}
