"""A synthetic scenario fitted to a trace: it can be shared where the trace cannot.

Arrivals are a Poisson process by hour of the week, jobs are drawn by kind, run times follow a log-normal law
for each kind. Neither names of users and jobs nor single records are part of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pykueue.simulate.scenario.reading import KIND, VERSION

from .summary import Kind, KindSummary, Summary

#: Kinds of jobs of a scenario; rarer ones are left out.
KINDS_MAX: Final = 250
#: Nominal quota of a queue, by what its jobs hold on average.
_HEADROOM: Final = 1.5
_API: Final = "kueue.x-k8s.io/v1beta2"
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9-]+")


def fitted(
    summary: Summary, name: str, gpu: str = "nvidia.com/gpu", anonymous: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A scenario of one week, and the manifests of its queues (`queues.yaml`).

    With `anonymous`, queues and classes are numbered instead of named. Raises ValueError for a trace without
    a job that ran.
    """
    kinds = sorted(summary.kinds.items(), key=lambda each: (-each[1].count, each[0]))[:KINDS_MAX]
    if not kinds:
        raise ValueError("no job of the trace ran")
    queues = {queue: number for number, queue in enumerate(dict.fromkeys(kind.queue for kind, _ in kinds))}
    names = {
        queue: f"queue-{number}" if anonymous else _name(queue, number) for queue, number in queues.items()
    }
    jobs = [_job(kind, one, number, names[kind.queue], gpu) for number, (kind, one) in enumerate(kinds)]
    if anonymous:
        for number, job in enumerate(jobs):
            job["name"] = f"class-{number}"
    kept = sum(one.count for _, one in kinds)
    hours = max(1.0, summary.hours)
    generator: dict[str, Any] = {
        "perHour": round(kept / hours, 4),
        "end": "7d",
        "jobs": jobs,
    }
    if hours >= len(summary.week):
        generator["profile"] = summary.week
    scenario = {
        "apiVersion": VERSION,
        "kind": KIND,
        "name": name,
        "manifests": ["queues.yaml"],
        "horizon": "7d",
        "arrivals": [{"generator": generator}],
    }
    return scenario, list(_manifests(kinds, names, hours, gpu))


def _job(kind: Kind, one: KindSummary, number: int, queue: str, gpu: str) -> dict[str, Any]:
    law: dict[str, Any] = {"logNormal": {"median": _duration(one.median), "sigma": round(one.sigma, 3)}}
    job: dict[str, Any] = {
        "name": f"{kind.job_class or 'job'}-{number}",
        "queue": f"{queue}/jobs",
        "podSets": [{"requests": _requests(kind, gpu), "count": kind.pods}],
        "runTime": law if one.sigma else {"fixed": _duration(one.median)},
        "weight": one.count,
    }
    if one.failed:
        job["failureProbability"] = round(one.failed / one.count, 4)
    return job


def _requests(kind: Kind, gpu: str) -> dict[str, Any]:
    requests: dict[str, Any] = {}
    if kind.gpus:
        # Kubernetes counts extended resources in whole pieces only.
        requests[gpu] = max(1, round(kind.gpus))
    if kind.cpu or not requests:
        requests["cpu"] = f"{max(1, round(kind.cpu * 1000))}m"
    if kind.memory:
        requests["memory"] = str(round(kind.memory))
    return requests


def _manifests(
    kinds: Sequence[tuple[Kind, KindSummary]],
    names: dict[str, str],
    hours: float,
    gpu: str,
) -> list[dict[str, Any]]:
    """Queues in one cohort, each with a half more quota than its jobs hold on average."""
    held: dict[str, dict[str, float]] = {name: {} for name in names.values()}
    largest: dict[str, dict[str, float]] = {name: {} for name in names.values()}
    for kind, one in kinds:
        name = names[kind.queue]
        for resource, each in (
            (gpu, kind.gpus),
            ("cpu", kind.cpu),
            ("memory", kind.memory),
        ):
            if each:
                amount = each * kind.pods
                held[name][resource] = held[name].get(resource, 0.0) + amount * one.seconds / (hours * 3600)
                largest[name][resource] = max(largest[name].get(resource, 0.0), amount)
    resources = sorted({resource for amounts in held.values() for resource in amounts} or {"cpu"})
    found: list[dict[str, Any]] = [
        {
            "apiVersion": _API,
            "kind": "ResourceFlavor",
            "metadata": {"name": "default"},
            "spec": {},
        }
    ]
    for name, amounts in held.items():
        quotas = [
            {
                "name": resource,
                "nominalQuota": _quota(
                    max(
                        amounts.get(resource, 0.0) * _HEADROOM,
                        largest[name].get(resource, 0.0),
                    )
                ),
            }
            for resource in resources
        ]
        flavors = [{"name": "default", "resources": quotas}]
        spec = {
            "cohortName": "all",
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": resources, "flavors": flavors}],
        }
        found.append(
            {
                "apiVersion": _API,
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": spec,
            }
        )
        metadata = {"name": "jobs", "namespace": name}
        found.append(
            {
                "apiVersion": _API,
                "kind": "LocalQueue",
                "metadata": metadata,
                "spec": {"clusterQueue": name},
            }
        )
    return found


def _quota(amount: float) -> str:
    return str(int(amount) + (amount > int(amount)))


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))}s"


def _name(queue: str, number: int) -> str:
    """A queue's name as that of an object."""
    clean = _NOT_IN_NAMES.sub("-", queue.lower()).strip("-")[:40]
    return f"q-{clean}" if clean else f"queue-{number}"
