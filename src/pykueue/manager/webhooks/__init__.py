"""Admission rules: what is filled in and what is refused when jobs and the project's own kinds are written.

`webhooks` gives one registration per rule set. On the embedded cluster the server calls `review` in process;
on a real one the same functions stand behind HTTPS. Sources: docs/reference/kueue-integrations.md 9.2,
docs/reference/kueue-api.md 10.2.
"""

from __future__ import annotations

from dataclasses import replace

from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.pod import POD
from pykueue.jobs.user import UserJob
from pykueue.manager.configuration import Configuration

from .jobs import JobRules, Lookups
from .kinds import kind_rules
from .pods import pod_rules
from .review import Registration, Rules, registrations

__all__ = ["Lookups", "Registration", "Rules", "webhooks"]


def webhooks(configuration: Configuration, lookups: Lookups, kinds: JobKinds) -> list[Registration]:
    """All registrations, defaulting ones first."""
    namespaces = {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": sorted({"kube-system", configuration.namespace}),
            }
        ]
    }
    rules: list[Rules] = [
        JobRules(integration, configuration, lookups)
        for integration in kinds.jobs.values()
        if integration.kind is not POD and not isinstance(integration, UserJob)
    ]
    rules.extend(pod_rules(configuration, lookups, kinds))
    rules.extend(
        kind_rules(
            configuration,
            lambda workload: lookups.reclaimable(workload),
            lambda resource: lookups.policies(resource),
            lambda: lookups.budget_objects(),
        )
    )
    found = [registration for each in rules for registration in registrations(each, namespaces)]
    for integration in kinds.jobs.values():
        if isinstance(integration, UserJob):
            job_rules = JobRules(integration, configuration, lookups)
            found += [_in_group(one, integration) for one in registrations(job_rules, namespaces)]
    return sorted(found, key=lambda registration: (not registration.mutating, registration.name))


def _in_group(registration: Registration, job: UserJob) -> Registration:
    """Under a name of the kind's group: a described kind may be called as one of another group is."""
    resource = job.kind.resource
    prefix = "m" if registration.mutating else "v"
    return replace(registration, name=f"{prefix}{resource.kind.lower()}.{resource.group}")
