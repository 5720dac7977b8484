"""Random scenarios for two clusters: queues and jobs of one namespace, and one change of a user at a time.

A scenario is made from its seed alone. The names of its objects end with the seed, so that many scenarios can
be played on one cluster at the same time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykueue.api.resources import (
    CLUSTER_QUEUES,
    JOBS,
    RESOURCE_CLAIM_TEMPLATES,
    Resource,
)
from queue_manifests import cluster_queue, flavor, local_queue, priority

Object = dict[str, Any]

LABEL = "kueue.x-k8s.io/"
DRIVER = "gpu.example.com"
GPUS, NICS, MEMORY, LINKS = (f"example.com/{name}" for name in ("gpus", "nics", "gpu-memory", "links"))
_TRY_PREFERRED = {"migration": {"mode": "TryPreferredFlavors"}}
#: WorkloadPriorityClasses that all scenarios share.
PRIORITIES = {"low": -10, "high": 10}


@dataclass(frozen=True)
class Change:
    """One thing that a user does."""

    do: str
    resource: Resource
    name: str = ""
    body: Object = field(default_factory=dict)
    """The object to create, or the merge patch."""


@dataclass(frozen=True)
class Scenario:
    """Objects that there are at first, and changes one after the other."""

    seed: int
    objects: list[Object]
    changes: list[Change]

    @property
    def namespace(self) -> str:
        return f"s{self.seed}"


def shared() -> list[Object]:
    """What there is once for all scenarios: priorities and device classes."""
    classes = (DRIVER, f"big.{DRIVER}", "nic.example.com", f"unmapped.{DRIVER}", f"part.{DRIVER}")
    return [
        *(priority(name, value) for name, value in PRIORITIES.items()),
        *(_device_class(name) for name in classes),
        _device_class("link.example.com", "example.com/link"),
        _device_class("cable.example.com", "example.com/cable"),
    ]


def configuration() -> Object:
    """What the configuration of both managers has in common."""
    mappings = [
        {"name": GPUS, "deviceClassNames": [DRIVER, f"big.{DRIVER}"]},
        {"name": NICS, "deviceClassNames": ["nic.example.com"]},
        {"name": LINKS, "deviceClassNames": ["link.example.com"]},
        {
            "name": MEMORY,
            "deviceClassNames": [f"part.{DRIVER}"],
            "sources": [
                {
                    "counter": {
                        "name": "memory",
                        "driver": f"part.{DRIVER}",
                        "deviceSelector": {"cel": {"expression": "true"}},
                    }
                }
            ],
        },
    ]
    return {"resources": {"deviceClassMappings": mappings}, "featureGates": {"ConcurrentAdmission": True}}


def devices() -> list[Object]:
    """The section `devices` of the nodes."""
    return [
        {"driver": DRIVER, "name": "gpu", "count": 6, "attributes": {"model": "a100"}},
        {"driver": "nic.example.com", "name": "nic", "count": 2},
        {
            "driver": f"part.{DRIVER}",
            "name": "gpu",
            "count": 1,
            "capacity": {"memory": "8Gi"},
            "partitions": [
                {"name": "half", "count": 2, "capacity": {"memory": "4Gi"}},
                {"name": "part", "count": 8, "capacity": {"memory": "1Gi"}},
            ],
        },
    ]


def _device_class(name: str, extended: str | None = None) -> Object:
    driver = name if name != f"big.{DRIVER}" else DRIVER
    spec: Object = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    if extended is not None:
        spec["extendedResourceName"] = extended
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


class _Plan:
    """What the scenarios of all kinds have in common."""

    def __init__(self, seed: int, kind: str) -> None:
        self.rng = random.Random(f"{kind}-{seed}")
        self.seed = seed
        self.namespace = f"s{seed}"
        self.queues = [f"q{number}-{seed}" for number in range(self.rng.choice((1, 1, 2)))]
        self.flavors = [f"f{number}-{seed}" for number in range(self.rng.choice((1, 1, 2)))]
        self.jobs: list[str] = []
        self.changes: list[Change] = []

    def quota(self, resources: dict[str, tuple[int, int]]) -> dict[str, dict[str, str | int]]:
        return {
            each: {name: self.rng.randint(*bounds) for name, bounds in resources.items()}
            for each in self.flavors
        }

    def objects(self, resources: dict[str, tuple[int, int]], **spec: Any) -> list[Object]:
        """Namespace, flavors and queues."""
        rng = self.rng
        made: list[Object] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}]
        made += [flavor(name) for name in self.flavors]
        for name in self.queues:
            if len(self.queues) > 1:
                spec["cohortName"] = f"c-{self.seed}"
            preemption = {
                "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerPriority")),
                "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
            }
            made.append(
                cluster_queue(name, self.quota(resources), preemption=preemption, **spec),
            )
            made.append(local_queue(name, name, self.namespace))
        return made

    def job(self, pods: int, requests: Object, annotations: Object, **pod: Any) -> Object:
        """A Job whose pods run until they are deleted."""
        rng = self.rng
        name = f"j{len(self.jobs)}"
        self.jobs.append(name)
        labels = {LABEL + "queue-name": rng.choice(self.queues)}
        if rng.random() < 0.5:
            labels[LABEL + "priority-class"] = rng.choice(list(PRIORITIES))
        amounts = {key: str(value) for key, value in requests.items()}
        resources = {"requests": amounts, "limits": {k: v for k, v in amounts.items() if "/" in k}}
        containers = pod.pop("containers", [{"name": "c", "image": "i", "resources": resources}])
        template = {
            "metadata": {"annotations": {"sim.pykueue.io/run-time": "forever"}},
            "spec": {"restartPolicy": "Never", "containers": containers, **pod},
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "parallelism": pods,
                "completions": 100 if annotations else pods,
                "suspend": True,
                "template": template,
            },
        }

    def create(self, resource: Resource, obj: Object) -> None:
        self.changes.append(Change("create", resource, obj["metadata"]["name"], obj))

    def patch(self, resource: Resource, name: str, body: Object) -> None:
        self.changes.append(Change("patch", resource, name, body))

    def delete(self, resource: Resource, name: str) -> None:
        self.changes.append(Change("delete", resource, name))

    def delete_job(self) -> None:
        if self.jobs:
            self.delete(JOBS, self.jobs.pop(self.rng.randrange(len(self.jobs))))

    def new_quota(self, resources: dict[str, tuple[int, int]]) -> None:
        name = self.rng.choice(self.queues)
        group = {
            "coveredResources": list(resources),
            "flavors": [
                {"name": each, "resources": [{"name": n, "nominalQuota": str(a)} for n, a in amounts.items()]}
                for each, amounts in self.quota(resources).items()
            ],
        }
        self.patch(CLUSTER_QUEUES, name, {"spec": {"resourceGroups": [group]}})

    def stop(self) -> None:
        """Stop a queue, or let it go on."""
        policy = self.rng.choice(("None", "None", "Hold", "HoldAndDrain"))
        self.patch(CLUSTER_QUEUES, self.rng.choice(self.queues), {"spec": {"stopPolicy": policy}})

    def act(self, acts: dict[Callable[[], None], int], steps: int) -> None:
        for _ in range(steps):
            self.rng.choices(list(acts), list(acts.values()))[0]()

    def scenario(self, objects: list[Object]) -> Scenario:
        return Scenario(self.seed, objects, self.changes)


def elastic(seed: int, steps: int = 12) -> Scenario:
    """Jobs, most of them elastic, that are resized, preempted and deleted while quota changes."""
    plan = _Plan(seed, "elastic")
    rng, cpu = plan.rng, {"cpu": (3, 10)}
    objects = plan.objects(cpu)
    names: set[str] = set()

    def submit() -> None:
        size = rng.randint(1, 5)
        annotations = {LABEL + "elastic-job": "true"} if rng.random() < 0.8 else {}
        job = plan.job(size, {"cpu": rng.choice(("1", "1", "2", "500m"))}, annotations)
        while (name := job["metadata"]["name"]) in names:
            job["metadata"]["name"] = plan.jobs[-1] = f"{name}x"
        names.add(name)
        plan.create(JOBS, job)

    def resize() -> None:
        if plan.jobs:
            size = rng.randint(1, 8)
            plan.patch(JOBS, rng.choice(plan.jobs), {"spec": {"parallelism": size}})

    submit()
    plan.act({submit: 4, resize: 8, plan.delete_job: 1, lambda: plan.new_quota(cpu): 2, plan.stop: 1}, steps)
    return plan.scenario(objects)


def variants(seed: int, steps: int = 10) -> Scenario:
    """Jobs in queues with concurrent admission."""
    plan = _Plan(seed, "variants")
    rng, cpu = plan.rng, {"cpu": (2, 8)}
    plan.flavors = [f"f{number}-{seed}" for number in range(rng.choice((2, 2, 3)))]
    migration: Object = {
        "mode": rng.choice(("TryPreferredFlavors", "TryPreferredFlavors", "RetainFirstAdmission"))
    }
    if migration["mode"] == "TryPreferredFlavors" and rng.random() < 0.3:
        migration["constraints"] = {"lastAcceptableFlavorName": rng.choice(plan.flavors)}
    objects = plan.objects(cpu, concurrentAdmissionPolicy={"migration": migration})

    def submit() -> None:
        job = plan.job(rng.randint(1, 5), {"cpu": rng.choice(("1", "1", "2"))}, {})
        job["metadata"]["name"] = plan.jobs[-1] = f"j{len(plan.changes)}"
        plan.create(JOBS, job)

    submit()
    plan.act({submit: 5, plan.delete_job: 2, lambda: plan.new_quota(cpu): 3, plan.stop: 1}, steps)
    return plan.scenario(objects)


def preempted_variant() -> Scenario:
    """Two jobs fill the preferred flavor; a third one of higher priority preempts the first there."""
    plan = _Plan(0, "preempted")
    plan.queues, plan.flavors = ["q0-0"], ["f0-0", "f1-0"]
    objects = plan.objects({"cpu": (6, 6)}, concurrentAdmissionPolicy=_TRY_PREFERRED)
    queue = next(each for each in objects if each["kind"] == "ClusterQueue")
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    queue["spec"]["flavorFungibility"] = {"whenCanPreempt": "TryNextFlavor"}
    for pods, level in ((3, "low"), (2, "low"), (4, "high")):
        job = plan.job(pods, {"cpu": "1"}, {})
        job["metadata"]["labels"][LABEL + "priority-class"] = level
        plan.create(JOBS, job)
    return plan.scenario(objects)


def claims(seed: int, steps: int = 10) -> Scenario:
    """Jobs whose pods claim devices by templates that come and go."""
    plan = _Plan(seed, "claims")
    rng = plan.rng
    covered = {"cpu": (4, 12), GPUS: (1, 8), NICS: (0, 4), MEMORY: (1 << 30, 8 << 30), LINKS: (0, 4)}
    if rng.random() < 0.2:
        del covered[NICS]
    objects = plan.objects(covered)
    templates = [f"t{number}" for number in range(3)]
    objects += [_template(rng, name, plan.namespace) for name in templates]

    def offer() -> None:
        # Kueue does not read pending workloads again for a template: jobs name it only once it exists.
        templates.append(f"t{len(templates)}")
        plan.create(RESOURCE_CLAIM_TEMPLATES, _template(rng, templates[-1], plan.namespace))

    def submit() -> None:
        job = _claiming(plan, templates)
        job["metadata"]["name"] = plan.jobs[-1] = f"j{len(plan.changes)}"
        plan.create(JOBS, job)

    submit()
    plan.act(
        {submit: 6, offer: 4, plan.delete_job: 2, lambda: plan.new_quota(covered): 2, plan.stop: 1}, steps
    )
    return plan.scenario(objects)


def _claiming(plan: _Plan, templates: list[str]) -> Object:
    """A Job with claims in its containers and init containers, or with an extended resource."""
    rng = plan.rng
    count = rng.randint(1, 3)
    requests = {"cpu": "1"}
    if rng.random() < 0.2:
        requests[rng.choice(("example.com/link", "example.com/cable"))] = str(rng.randint(1, 2))
        return plan.job(count, requests, {})
    claims: list[Object] = []
    for number in range(rng.choice((1, 1, 2))):
        source: Object = {"resourceClaimTemplateName": rng.choice(templates)}
        if rng.random() < 0.06:
            source = rng.choice(({"resourceClaimName": "shared"}, {"resourceClaimTemplateName": "missing"}))
        claims.append({"name": f"d{number}", **source})
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    used = [{"name": claim["name"]} for claim in claims]
    first = {**container, "resources": {**container["resources"], "claims": used}}
    pod: Object = {"containers": [first], "resourceClaims": claims}
    if rng.random() < 0.2:
        second = {**first, "name": "d"}
        if rng.random() < 0.5:
            pod["containers"] = [first, second]
        else:
            pod["initContainers"] = [second]
    return plan.job(count, {}, {}, **pod)


def _template(rng: random.Random, name: str, namespace: str) -> Object:
    """A ResourceClaimTemplate; some cannot be counted."""
    requests = [_request(rng, f"r{number}") for number in range(rng.choice((1, 1, 1, 2)))]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def _request(rng: random.Random, name: str) -> Object:
    exactly: Object = {
        "deviceClassName": rng.choices(
            [DRIVER, f"big.{DRIVER}", "nic.example.com", f"part.{DRIVER}", f"unmapped.{DRIVER}", "missing"],
            [8, 3, 4, 4, 1, 1],
        )[0],
    }
    if rng.random() < 0.6:
        exactly["count"] = rng.randint(1, 3)
    elif rng.random() < 0.1:
        exactly["allocationMode"] = "All"
    if rng.random() < 0.3:
        driver = f"part.{DRIVER}" if exactly["deviceClassName"].startswith("part") else DRIVER
        expressions = [
            f"device.attributes['{driver}'].index < {rng.randint(0, 3)}",
            f"device.attributes['{DRIVER}'].model == 'a100'",
            f"device.driver == '{driver}'",
            "true",
            "false",
        ]
        if driver != DRIVER:
            expressions.append(f"device.capacity['{driver}'].memory.compareTo(quantity('2Gi')) <= 0")
        exactly["selectors"] = [{"cel": {"expression": rng.choice(expressions)}}]
    if rng.random() < 0.05:
        return {"name": name, "firstAvailable": [{"name": "a", "deviceClassName": DRIVER}]}
    return {"name": name, "exactly": exactly}


KINDS: dict[str, Callable[[int], Scenario]] = {"elastic": elastic, "variants": variants, "claims": claims}
