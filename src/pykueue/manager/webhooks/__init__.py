"""Admission rules: what is filled in and what is refused when jobs and the project's own kinds are written.

`webhooks` gives one registration per rule set. On the embedded cluster the server calls `review` in process;
on a real one the same functions stand behind HTTPS. Sources: docs/reference/kueue-integrations.md 9.2,
docs/reference/kueue-api.md 10.2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from pykueue.api.objects import Object
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.pod import POD
from pykueue.jobs.user import UserJob
from pykueue.manager.configuration import Configuration

from .jobs import JobRules, Lookups
from .kinds import kind_rules
from .pods import pod_rules
from .review import Registration, Rules, registrations

__all__ = ["JobAdvice", "Lookups", "Registration", "Rules", "webhooks"]


#: What the author of a job of some kind should know in a dry run.
JobAdvice = Callable[[JobIntegration, Object], Awaitable[Sequence[str]]]


def webhooks(
    configuration: Configuration, lookups: Lookups, kinds: JobKinds, advice: JobAdvice | None = None
) -> list[Registration]:
    """All registrations, defaulting ones first. Nothing but dry runs of new jobs waits for `advice`."""
    namespaces = {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": sorted({"kube-system", configuration.namespace}),
            }
        ]
    }
    found: list[Registration] = []
    for integration in kinds.jobs.values():
        if integration.kind is not POD:
            job_rules = JobRules(integration, configuration, lookups)
            about = None if advice is None else partial(advice, integration)
            entries = registrations(job_rules, namespaces, about)
            described = isinstance(integration, UserJob)
            found += [_in_group(one, integration) for one in entries] if described else entries
    rules: list[Rules] = []
    rules.extend(pod_rules(configuration, lookups, kinds))
    rules.extend(
        kind_rules(
            configuration,
            lambda workload: lookups.reclaimable(workload),
            lambda resource: lookups.policies(resource),
            lambda: lookups.budget_objects(),
        )
    )
    found += [registration for each in rules for registration in registrations(each, namespaces)]
    return sorted(found, key=lambda registration: (not registration.mutating, registration.name))


def _in_group(registration: Registration, job: JobIntegration) -> Registration:
    """Under a name of the kind's group: a described kind may be called as one of another group is."""
    resource = job.kind.resource
    prefix = "m" if registration.mutating else "v"
    return replace(registration, name=f"{prefix}{resource.kind.lower()}.{resource.group}")
