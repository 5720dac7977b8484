"""The files of Kueue's performance generator: queues and a load in one, run as they stand.

Queues and namespaces are named by their class and number; every ClusterQueue has its own LocalQueue.
A balanced constraint is a slice of that size in a domain of its level, as in the generator itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from pykueue.api import kueue
from pykueue.api.objects import Object
from pykueue.manager.configuration.decode import Bounds, Problem, decode
from pykueue.manifests.files import InputError, read_text

from .jobs import Job, pod_set
from .reading import ScenarioError
from .types import Count, PodSet, Topology

_API = "kueue.x-k8s.io/v1beta2"
_FLAVOR = "default"
_Milliseconds = Annotated[int, Bounds(0, None)]


@dataclass(frozen=True)
class _Workload:
    runtime_ms: _Milliseconds
    request: Any
    class_name: str = "workload"
    priority: int = 0
    pod_count: Count = 1
    tas_constraint: Literal["", "required", "preferred", "balanced"] = ""
    tas_level: str = ""
    slice_size: Count | None = None


@dataclass(frozen=True)
class _WorkloadsSet:
    count: Count
    workloads: tuple[_Workload, ...]
    creation_interval_ms: _Milliseconds = 0


@dataclass(frozen=True)
class _QueuesSet:
    count: Count
    nominal_quota: Any
    class_name: str = "cq"
    borrowing_limit: Any = None
    reclaim_within_cohort: str = "Never"
    within_cluster_queue: str = "Never"
    workloads_sets: tuple[_WorkloadsSet, ...] = ()


@dataclass(frozen=True)
class _Cohort:
    count: Count
    queues_sets: tuple[_QueuesSet, ...]
    class_name: str = "cohort"


@dataclass(frozen=True)
class _Level:
    name: str
    count: Count
    node_label: str
    capacity: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Topology:
    name: str
    levels: tuple[_Level, ...]


@dataclass(frozen=True)
class _Flavor:
    name: str
    node_label: str = ""
    topology_name: str = ""


@dataclass(frozen=True)
class _File:
    cohorts: tuple[_Cohort, ...]
    topology: _Topology | None = None
    resource_flavor: _Flavor | None = None


class KueueGenerator:
    """One such file."""

    def __init__(self, file: Path, where: str) -> None:
        """Raises ScenarioError for a file that cannot be read or is not accepted."""
        try:
            document = yaml.safe_load(read_text(file))
        except InputError as error:
            raise ScenarioError(f"{where}: {error}") from None
        except yaml.YAMLError as error:
            raise ScenarioError(f"{where}: {file}: {error}") from None
        problems: list[Problem] = []
        found = decode(_File, document, problems) if isinstance(document, dict) else None
        if problems or found is None:
            lines = [f"{where}: {file}: {problem}" for problem in problems]
            raise ScenarioError("\n".join(lines) or f"{where}: {file}: a map with cohorts is required")
        self._file = found
        self._where = where

    def objects(self) -> Iterator[Object]:
        """Flavors, topology, nodes and queues."""
        flavor = self._file.resource_flavor
        name = flavor.name if flavor is not None else _FLAVOR
        spec: Object = {}
        if flavor is not None and flavor.topology_name:
            spec = {"topologyName": flavor.topology_name, "nodeLabels": {flavor.node_label: flavor.name}}
        yield _object("ResourceFlavor", name, spec)
        if self._file.topology is not None:
            yield from self._nodes(self._file.topology, flavor)
        for cohort, one, number in self._queues():
            quota = {"name": "cpu", "nominalQuota": str(one.nominal_quota)}
            if one.borrowing_limit is not None:
                quota["borrowingLimit"] = str(one.borrowing_limit)
            queue = f"{cohort}-{one.class_name}-{number}"
            yield _object(
                "ClusterQueue",
                queue,
                {
                    "cohortName": cohort,
                    "namespaceSelector": {},
                    "preemption": {
                        "reclaimWithinCohort": one.reclaim_within_cohort,
                        "withinClusterQueue": one.within_cluster_queue,
                    },
                    "resourceGroups": [
                        {"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": [quota]}]}
                    ],
                },
            )
            local = _object("LocalQueue", queue, {"clusterQueue": queue})
            local["metadata"]["namespace"] = queue
            yield local

    def _nodes(self, topology: _Topology, flavor: _Flavor | None) -> Iterator[Object]:
        levels = [{"nodeLabel": level.node_label} for level in topology.levels]
        yield _object("Topology", topology.name, {"levels": levels})
        domains: list[tuple[str, dict[str, str]]] = [("", {})]
        for level in topology.levels:
            domains = [
                (domain, {**labels, level.node_label: domain})
                for name, labels in domains
                for number in range(level.count)
                for domain in [f"{name}-{level.name}-{number}".removeprefix("-")]
            ]
        capacity = {"pods": "110", **topology.levels[-1].capacity}
        for name, labels in domains:
            if flavor is not None and flavor.node_label:
                labels = {**labels, flavor.node_label: flavor.name}
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
                "status": {
                    "allocatable": capacity,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }

    def _queues(self) -> Iterator[tuple[str, _QueuesSet, int]]:
        for cohort in self._file.cohorts:
            for number in range(cohort.count):
                name = f"{cohort.class_name}-{number}"
                for one in cohort.queues_sets:
                    for queue in range(one.count):
                        yield name, one, queue

    def jobs(self) -> Iterator[Job]:
        """In the order of their arrival."""
        specs: dict[tuple[int, int, int], kueue.WorkloadSpec] = {}
        streams = []
        for cohort, one, number in self._queues():
            queue = f"{cohort}-{one.class_name}-{number}"
            for index, each in enumerate(one.workloads_sets):
                streams.append(self._stream(queue, one, index, each, specs))
        return merge(*streams, key=lambda job: job.at)

    def _stream(
        self,
        queue: str,
        one: _QueuesSet,
        index: int,
        loads: _WorkloadsSet,
        specs: dict[tuple[int, int, int], kueue.WorkloadSpec],
    ) -> Iterator[Job]:
        made = [(load, self._spec(queue, load)) for load in loads.workloads]
        for number in range(loads.count):
            for place, (load, spec) in enumerate(made):
                at = (number * len(made) + place) * loads.creation_interval_ms / 1000
                name = f"{load.class_name}-{index}-{number}" + (f"-{place}" if place else "")
                yield Job(at, queue, name, load.class_name, spec, load.runtime_ms / 1000)

    def _spec(self, queue: str, load: _Workload) -> kueue.WorkloadSpec:
        topology = None
        match load.tas_constraint:
            case "required":
                topology = Topology(required=load.tas_level)
            case "preferred":
                topology = Topology(preferred=load.tas_level)
            case "balanced":
                topology = Topology(slice_required=load.tas_level, slice_size=load.slice_size)
        pods = PodSet(requests={"cpu": load.request}, count=load.pod_count, topology=topology)
        return kueue.WorkloadSpec(
            queue_name=queue, priority=load.priority, pod_sets=[pod_set(pods, self._where)]
        )


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}
