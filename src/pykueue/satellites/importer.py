"""Imports pods that are already running: each gets an admitted Workload, so that its usage counts.

The manager must not manage pods while pods are imported: its webhook refuses queue labels on running pods.
Source: docs/reference/kueue-api.md 8.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykueue.api.core import PodSpec
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.kueue.names import MANAGED_LABEL, QUEUE_LABEL
from pykueue.api.objects import Object, get, labels_of, replaced
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.engine.flavors.requests import pod_requests
from pykueue.engine.quota.usage import to_quantity
from pykueue.jobs.identifiers import IDENTIFIERS
from pykueue.jobs.pod import PlainPod
from pykueue.jobs.workload import build
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

from .mapping import Rule, queue_of

#: Reason of the conditions of imported Workloads.
REASON = "Imported"

#: How the priority of a pod's PriorityClass is referred to.
_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass"}


class PodProblem(Exception):
    """Why a pod cannot be imported. Pods with the same problem have the same text."""


@dataclass(frozen=True)
class Options:
    """What is imported, and how."""

    namespaces: Sequence[str]
    rules: Sequence[Rule]
    #: Added to pods and Workloads.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Resources whose names begin so are not counted.
    excluded_prefixes: tuple[str, ...] = ()
    #: Pods imported concurrently.
    workers: int = 8


@dataclass(frozen=True)
class Plan:
    """What the import of one pod writes."""

    pod: Object
    queue: str
    cluster_queue: str
    workload: Object
    #: Flavors and amounts by resource.
    flavors: Mapping[str, str]
    usage: Mapping[str, str]


@dataclass
class Summary:
    """What became of the pods; `problems` has the pods of each problem as NAMESPACE/NAME."""

    checked: int = 0
    skipped: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Pods that cannot be, or were not, imported."""
        return sum(len(pods) for pods in self.problems.values())


class Importer:
    """Checks and imports the running pods of namespaces."""

    def __init__(self, client: Client, options: Options, clock: Clock) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._queues: dict[tuple[str, str], Object] = {}
        self._cluster_queues: dict[str, Object] = {}
        self._flavors: set[str] = set()
        self._priorities: dict[str, int] = {}

    async def load(self) -> None:
        """Read queues, flavors and priority classes. Raises ApiError and ConnectionError."""
        client = self._client
        for namespace in self._options.namespaces:
            for one in (await client.list(LOCAL_QUEUES, namespace)).items:
                self._queues[namespace, one["metadata"]["name"]] = one
        found = (await client.list(CLUSTER_QUEUES)).items
        self._cluster_queues = {one["metadata"]["name"]: one for one in found}
        self._flavors = {one["metadata"]["name"] for one in (await client.list(RESOURCE_FLAVORS)).items}
        classes = (await client.list(PRIORITY_CLASSES)).items
        self._priorities = {one["metadata"]["name"]: int(one["value"]) for one in classes}

    async def check(self) -> Summary:
        """Whether every pod can be imported; writes nothing."""

        async def nothing(plan: Plan) -> None:
            return None

        return await self._each(nothing)

    async def run(self) -> Summary:
        """Import every pod that can be. Repeating it completes what was interrupted."""
        return await self._each(self._import)

    def plan(self, pod: Object) -> Plan | None:
        """What importing a pod writes; None for a pod that a rule skips. Raises PodProblem."""
        rule = queue_of(self._options.rules, pod)
        if rule is None:
            raise PodProblem("no mapping found")
        if rule.skip:
            return None
        namespace = pod["metadata"]["namespace"]
        queue = self._queues.get((namespace, rule.queue))
        if queue is None:
            raise PodProblem(f"LocalQueue {rule.queue} not found")
        cluster_queue = str(get(queue, "spec", "clusterQueue") or "")
        flavors = self._flavors_of(cluster_queue)
        present = labels_of(pod).get(QUEUE_LABEL)
        if present is not None and present != rule.queue:
            raise PodProblem(f'another local queue name is set "{present}" expecting "{rule.queue}"')
        workload = self._workload(pod, rule.queue)
        assigned, usage = {}, {}
        for resource, amount in self._requests(pod).items():
            if not amount:
                continue
            if resource not in flavors:
                raise PodProblem(f'resource "{resource}" is not covered by ClusterQueue "{cluster_queue}"')
            assigned[resource] = flavors[resource]
            usage[resource] = str(to_quantity(resource, amount))
        return Plan(pod, rule.queue, cluster_queue, workload, assigned, usage)

    def _flavors_of(self, name: str) -> dict[str, str]:
        """The first flavor of each resource of a ClusterQueue. Raises PodProblem where it has none."""
        queue = self._cluster_queues.get(name)
        if queue is None:
            raise PodProblem(f"ClusterQueue {name} not found")
        groups = [one for one in get(queue, "spec", "resourceGroups") or () if one.get("flavors")]
        if not groups:
            raise PodProblem(f"ClusterQueue {name} has no resource groups")
        missing = sorted({one["name"] for group in groups for one in group["flavors"]} - self._flavors)
        if missing:
            raise PodProblem(f"ClusterQueue {name}: missing flavors {', '.join(missing)}")
        found: dict[str, str] = {}
        for group in groups:
            for resource in group["coveredResources"]:
                found.setdefault(resource, group["flavors"][0]["name"])
        return found

    def _requests(self, pod: Object) -> dict[str, int]:
        try:
            requests = pod_requests(decode_as(PodSpec, pod["spec"]))
        except DecodeError as error:
            raise PodProblem(f"the pod cannot be read: {error}") from None
        return {
            resource: amount
            for resource, amount in requests.items()
            if not resource.startswith(self._options.excluded_prefixes)
        }

    def _workload(self, pod: Object, queue: str) -> Object:
        """The Workload of a pod as if it had its labels already."""
        labels = {**labels_of(pod), **self._options.labels, QUEUE_LABEL: queue}
        labelled = replaced(pod, ("metadata", "labels"), labels)
        name = str(get(pod, "spec", "priorityClassName") or "")
        if name and name not in self._priorities:
            raise PodProblem(f'PriorityClass "{name}" not found')
        reference = {**_CLASS, "name": name} if name else None
        made = build(labelled, PlainPod(), self._priorities.get(name, 0), reference)
        metadata = made["metadata"]
        metadata["labels"] = {**metadata["labels"], **self._options.labels}
        metadata["name"] = IDENTIFIERS.prebuilt_name(pod) or metadata["name"]
        return made

    async def _each(self, work: Callable[[Plan], Awaitable[None]]) -> Summary:
        """Plan every pod and carry the plans out, several at a time. Raises ConnectionError."""
        summary = Summary()
        turn = asyncio.Semaphore(self._options.workers)

        async def one(pod: Object) -> None:
            summary.checked += 1
            try:
                plan = self.plan(pod)
                if plan is None:
                    summary.skipped += 1
                    return
                async with turn:
                    await work(plan)
            except (PodProblem, ApiError) as error:
                name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                summary.problems.setdefault(str(error), []).append(name)

        for namespace in self._options.namespaces:
            pods = (await self._client.list(PODS, namespace)).items
            running = [pod for pod in pods if get(pod, "status", "phase") not in ("Succeeded", "Failed")]
            async with asyncio.TaskGroup() as group:
                for pod in running:
                    group.create_task(one(pod))
        return summary

    async def _import(self, plan: Plan) -> None:
        """Label the pod, create its Workload, and admit that. Raises ApiError."""
        name, namespace = plan.pod["metadata"]["name"], plan.pod["metadata"]["namespace"]
        labels = {**self._options.labels, QUEUE_LABEL: plan.queue, MANAGED_LABEL: "true"}
        present = labels_of(plan.pod)
        if any(present.get(key) != value for key, value in labels.items()):
            await self._client.patch(PODS, name, namespace, {"metadata": {"labels": labels}})
        try:
            await self._client.create(WORKLOADS, plan.workload)
        except ApiError as error:
            if not error.already_exists:
                raise

        def admitted(workload: Object) -> Object | None:
            return self._admitted(workload, plan)

        workload = plan.workload["metadata"]["name"]
        await self._client.modify(WORKLOADS, workload, namespace, admitted, subresource="status")

    def _admitted(self, workload: Object, plan: Plan) -> Object | None:
        """The Workload with its admission; None where it has one."""
        if get(workload, "status", "admission"):
            return None
        now = format_time(self._clock.time())
        message = f"Imported into ClusterQueue {plan.cluster_queue}"
        pod_set = plan.workload["spec"]["podSets"][0]["name"]
        assignment = {"name": pod_set, "flavors": plan.flavors, "resourceUsage": plan.usage, "count": 1}
        conditions = [
            one
            for one in get(workload, "status", "conditions") or ()
            if one["type"] not in ("QuotaReserved", "Admitted")
        ]
        for kind in ("QuotaReserved", "Admitted"):
            condition: dict[str, Any] = {"type": kind, "status": "True", "reason": REASON, "message": message}
            conditions.append({**condition, "lastTransitionTime": now})
        status = {
            **(workload.get("status") or {}),
            "admission": {"clusterQueue": plan.cluster_queue, "podSetAssignments": [assignment]},
            "conditions": conditions,
        }
        return {**workload, "status": status}
