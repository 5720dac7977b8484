"""A small cluster with its troubles, made from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.kueue.names import MAX_EXEC_TIME_LABEL, PRIORITY_CLASS_LABEL, QUEUE_LABEL
from pykueue.api.meta import format_time
from pykueue.api.objects import Object
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.clock import VIRTUAL_EPOCH

from .transport import Rates

API = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "default"
#: The one admission check there may be.
CHECK = "check"
FLAVORS = ("f0", "f1")
#: The node label that distinguishes flavors.
FLAVOR_LABEL = "example.com/flavor"
#: From what a PreemptionPolicy protects workloads.
_PROTECTED_FROM = ("withinClusterQueue", "reclaimWithinCohort", "fairSharing")
PRIORITIES = {"low": 10, "mid": 100, "high": 1000}


@dataclass
class Scenario:
    """Everything a run begins with."""

    configuration: str
    #: Flavors, queues, priority classes, in an order in which they can be created.
    objects: list[Object]
    #: Jobs and JobSets, and the seconds after which each is created.
    jobs: list[tuple[float, Object]]
    rates: Rates
    #: How likely a start of a job is one in which its pods do not get ready.
    stuck: float
    #: Seconds during which there are faults, and how many things users do in that time.
    trouble: float
    acts: int
    #: How many times the manager dies at a write at most, and how many times at a random time.
    deaths: int
    kills: int
    #: Whether clocks jump.
    jumps: bool
    #: The kinds of its jobs that stand-in operators run.
    kinds: tuple[str, ...] = ()

    def of_kind(self, kind: str) -> list[Object]:
        """The objects of a kind, in the order of their creation."""
        return [obj for obj in self.objects if obj["kind"] == kind]

    def room(self) -> int:
        """The least quota of a flavor in cpu: so much fits each queue when that is empty."""
        return _room(self.of_kind("ClusterQueue"))

    def with_jobs(self, jobs: Iterable[tuple[float, Object]], frameworks: Iterable[str]) -> Scenario:
        """The same cluster with these jobs instead, and their integrations enabled."""
        lines = [
            line
            for line in self.configuration.splitlines()
            if not re.match(r"integrations:|  frameworks:", line)
        ]
        lines.append(f"integrations: {{frameworks: [{', '.join(frameworks)}]}}")
        return replace(self, configuration="\n".join(lines) + "\n", jobs=_in_order(jobs))

    def with_memory(self) -> Scenario:
        """The same cluster with quotas for memory in proportion to those for cpu."""
        objects = [_with_memory(obj) if obj["kind"] == "ClusterQueue" else obj for obj in self.objects]
        return replace(self, objects=objects)

    def with_preemption_policy(self, rng: random.Random) -> Scenario:
        """The same cluster with a PreemptionPolicy for all of its ClusterQueues."""
        limits: list[Object] = [
            {"minAdmitDuration": {name: rng.choice(("2s", "20s", "2m")) for name in _PROTECTED_FROM}},
            {"coolDown": {"base": rng.choice(("1s", "10s")), "max": "2m", "window": "10m"}},
            {"maxPreemptionsPerHour": rng.randint(1, 5)},
            {"candidateOrder": "LeastLostWork"},
        ]
        policy = _object(PREEMPTION_POLICIES.kind, "policy", {})
        policy["apiVersion"] = PREEMPTION_POLICIES.api_version
        for limit in rng.sample(limits, rng.randint(1, len(limits))):
            policy["spec"] |= limit
        return replace(self, objects=[*self.objects, policy])

    def with_backfill_policy(self, rng: random.Random) -> Scenario:
        """The same cluster with a BackfillPolicy for all ClusterQueues, and more declared run times."""
        policy = _object(BACKFILL_POLICIES.kind, "backfill", {})
        policy["apiVersion"] = BACKFILL_POLICIES.api_version
        policy["spec"] = {"assumedRunTime": rng.choice(("1s", "30s", "10m"))}
        if rng.random() < 0.4:
            policy["spec"]["strategy"] = "Conservative"
        else:
            policy["spec"]["depth"] = rng.randint(1, 3)
        for _, obj in self.jobs:
            labels = obj["metadata"].get("labels")
            if obj["kind"] == "Job" and labels and rng.random() < 0.6:
                labels.setdefault(MAX_EXEC_TIME_LABEL, str(rng.choice((600, 1200, 7200))))
        return replace(self, objects=[*self.objects, policy])

    def with_reservation(self, rng: random.Random) -> Scenario:
        """The same cluster with a Reservation whose only window is over before the trouble is."""
        queue = rng.choice([each for each in self.objects if each["kind"] == "ClusterQueue"])
        begin = rng.uniform(0.0, self.trouble * 0.7)
        length = int(rng.uniform(1.0, self.trouble - begin))
        flavors = [
            {"name": flavor["name"], "resources": [{"name": "cpu", "quantity": str(rng.randint(1, 8))}]}
            for group in queue["spec"]["resourceGroups"]
            for flavor in group["flavors"]
        ]
        reservation = _object(RESERVATIONS.kind, "reservation", {})
        reservation["apiVersion"] = RESERVATIONS.api_version
        reservation["spec"] = {
            "clusterQueue": queue["metadata"]["name"],
            "purpose": rng.choice(("Capacity", "Maintenance")),
            "flavors": flavors,
            "start": format_time(int(VIRTUAL_EPOCH.timestamp() + begin)),
            "duration": f"{max(1, length)}s",
        }
        return replace(self, objects=[*self.objects, reservation])


def scenario(rng: random.Random) -> Scenario:
    """The scenario that the next numbers of `rng` stand for."""
    waits = rng.random() < 0.5
    cohorts = rng.choice(([], ["all"], ["all"], ["left", "right"]))
    queues = [_cluster_queue(rng, f"cq{number}", cohorts) for number in range(rng.randint(1, 3))]
    objects: list[Object] = [_flavor(name) for name in FLAVORS]
    objects += [
        {**_object("WorkloadPriorityClass", name, None), "value": value} for name, value in PRIORITIES.items()
    ]
    if cohorts and rng.random() < 0.5:
        objects.append(_cohort(rng, cohorts))
    if rng.random() < 0.25:
        objects.append(_object("AdmissionCheck", CHECK, {"controllerName": "example.com/check"}))
        for queue in queues:
            if rng.random() < 0.7:
                queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    objects += queues
    locals_ = [_local_queue(f"lq{number}", queue) for number, queue in enumerate(queues)]
    if rng.random() < 0.4:
        locals_.append(_local_queue("lqx", rng.choice(queues)))
    objects += locals_
    trouble = rng.uniform(20.0, 60.0)
    sets = rng.random() < 0.3
    jobs = [
        (rng.uniform(0.0, trouble * 0.6), _job(rng, f"j{number}", rng.choice(locals_), queues, sets))
        for number in range(rng.randint(3, 7) if rng.random() < 0.95 else rng.randint(8, 16))
    ]
    return Scenario(
        _configuration(rng, waits, sets),
        objects,
        _in_order(jobs),
        _rates(rng),
        rng.choice((0.0, 0.3)) if waits else 0.0,
        trouble,
        rng.choice((0, 3, 6, 10)),
        rng.choice((0, 0, 1, 3)),
        rng.choice((0, 0, 0, 1)),
        rng.random() < 0.2,
    )


def _object(kind: str, name: str, spec: Object | None) -> Object:
    obj: Object = {"apiVersion": API, "kind": kind, "metadata": {"name": name}}
    return obj if spec is None else {**obj, "spec": spec}


def _flavor(name: str) -> Object:
    toleration = {"key": FLAVOR_LABEL, "operator": "Equal", "value": name, "effect": "NoSchedule"}
    return _object("ResourceFlavor", name, {"nodeLabels": {FLAVOR_LABEL: name}, "tolerations": [toleration]})


def _configuration(rng: random.Random, waits: bool, sets: bool) -> str:
    lines = ["apiVersion: config.kueue.x-k8s.io/v1beta2", "kind: Configuration"]
    if sets:
        lines += ["integrations:", "  frameworks: [batch/job, jobset.x-k8s.io/jobset]"]
    if waits:
        lines += [
            "waitForPodsReady:",
            f"  timeout: {rng.choice((6, 12, 30))}s",
            f"  blockAdmission: {'true' if rng.random() < 0.3 else 'false'}",
            "  requeuingStrategy:",
            f"    timestamp: {rng.choice(('Eviction', 'Creation'))}",
            f"    backoffBaseSeconds: {rng.choice((1, 5, 20))}",
        ]
        if rng.random() < 0.4:
            lines.append(f"    backoffLimitCount: {rng.choice((0, 1, 3))}")
        if rng.random() < 0.3:
            lines.append(f"  recoveryTimeout: {rng.choice((3, 10))}s")
    if rng.random() < 0.2:
        lines += [
            "fairSharing:",
            "  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]",
        ]
    return "\n".join(lines) + "\n"


def _cluster_queue(rng: random.Random, name: str, cohorts: list[str]) -> Object:
    flavors = ["f0", "f1"] if rng.random() < 0.3 else ["f0"]
    cohort = rng.choice(cohorts) if cohorts else ""
    spec: Object = {
        "namespaceSelector": {},
        "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": flavor, "resources": [_quota(rng, bool(cohort))]} for flavor in flavors],
            }
        ],
        "preemption": {
            "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        },
        "stopPolicy": "None",
    }
    if cohort:
        spec["cohortName"] = cohort
        spec["preemption"]["reclaimWithinCohort"] = rng.choice(("Never", "LowerPriority", "Any"))
        if spec["preemption"]["reclaimWithinCohort"] != "Never" and rng.random() < 0.3:
            spec["preemption"]["borrowWithinCohort"] = {"policy": "LowerPriority"}
    return _object("ClusterQueue", name, spec)


def _quota(rng: random.Random, in_cohort: bool) -> Object:
    nominal = rng.choice((4, 6, 8))
    quota: Object = {"name": "cpu", "nominalQuota": nominal}
    if in_cohort and rng.random() < 0.3:
        quota["borrowingLimit"] = rng.choice((0, 2, 4))
    if in_cohort and rng.random() < 0.3:
        quota["lendingLimit"] = rng.choice((0, 2, nominal))
    return quota


def _with_memory(queue: Object) -> Object:
    """The ClusterQueue with enough memory for one pod of a small Spark application per cpu."""
    (group,) = queue["spec"]["resourceGroups"]
    flavors = []
    for flavor in group["flavors"]:
        (cpu,) = flavor["resources"]
        memory = {"name": "memory", "nominalQuota": f"{cpu['nominalQuota']}Gi"}
        flavors.append({**flavor, "resources": [cpu, memory]})
    covered = {"coveredResources": ["cpu", "memory"], "flavors": flavors}
    return {**queue, "spec": {**queue["spec"], "resourceGroups": [covered]}}


def _cohort(rng: random.Random, names: list[str]) -> Object:
    resources = [{"name": "cpu", "nominalQuota": rng.choice((0, 2, 4))}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f0", "resources": resources}]}]
    spec: Object = {"resourceGroups": groups}
    if len(names) > 1:
        spec["parentName"] = "root"
    return _object("Cohort", names[0], spec)


def _local_queue(name: str, cluster_queue: Object) -> Object:
    obj = _object(
        "LocalQueue", name, {"clusterQueue": cluster_queue["metadata"]["name"], "stopPolicy": "None"}
    )
    return {**obj, "metadata": {"name": name, "namespace": NAMESPACE}}


def _room(queues: Iterable[Object]) -> int:
    return min(
        int(flavor["resources"][0]["nominalQuota"])
        for queue in queues
        for flavor in queue["spec"]["resourceGroups"][0]["flavors"]
    )


def _in_order(jobs: Iterable[tuple[float, Object]]) -> list[tuple[float, Object]]:
    return sorted(jobs, key=lambda pair: (pair[0], pair[1]["metadata"]["name"]))


def job_labels(rng: random.Random, local_queue: Object) -> dict[str, str]:
    """The labels of a job in a queue: half of the jobs have a priority class."""
    labels = {QUEUE_LABEL: local_queue["metadata"]["name"]}
    if rng.random() < 0.5:
        labels[PRIORITY_CLASS_LABEL] = rng.choice(list(PRIORITIES))
    return labels


def _job(rng: random.Random, name: str, local_queue: Object, queues: list[Object], sets: bool) -> Object:
    """A Job, or with `sets` perhaps a JobSet, that fits its queue when that is empty."""
    size = _room(queues)
    cpu = rng.choice((1, 1, 2))
    parallelism = rng.randint(1, size // cpu)
    labels = job_labels(rng, local_queue)
    if rng.random() < 0.1:
        labels[MAX_EXEC_TIME_LABEL] = "15"
    if sets and rng.random() < 0.6:
        return jobset(name, labels, parallelism, cpu)
    annotations: dict[str, str] = {}
    if parallelism > 1 and rng.random() < 0.2:
        annotations["kueue.x-k8s.io/job-min-parallelism"] = str(rng.randint(1, parallelism - 1))
    return job(name, labels, annotations, parallelism, cpu, parallelism * rng.choice((1, 1, 2)))


def job(
    name: str,
    labels: dict[str, str],
    annotations: dict[str, str],
    parallelism: int,
    cpu: int,
    completions: int,
) -> Object:
    """A Job manifest."""
    container: Object = {"name": "main", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": parallelism,
            "completions": completions,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def jobset(name: str, labels: dict[str, str], size: int, cpu: int) -> Object:
    """A JobSet of a leader and workers: as many pods in all as `size`."""
    parts = [("leader", 1, 1)]
    if size > 1:
        parts.append(("workers", 1, size - 1) if size % 2 else ("workers", size - 1, 1))
    replicated = [
        {
            "name": part,
            "replicas": replicas,
            "template": {"spec": job(name, {}, {}, parallelism, cpu, parallelism)["spec"]},
        }
        for part, replicas, parallelism in parts
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicatedJobs": replicated},
    }


def _rates(rng: random.Random) -> Rates:
    """Some runs have a little of everything, others much of one thing."""

    def some(*values: float) -> float:
        return rng.choice((0.0, 0.0, *values))

    delay = some(0.05, 0.5, 3.0)
    stall_time = some(0.2, 2.0, 8.0)
    rates = Rates(
        conflict=some(0.02, 0.2),
        error=some(0.02, 0.1),
        patience=some(0.02, 0.1),
        lost=some(0.02, 0.1),
        unsure=some(0.02, 0.2),
        slow=rng.choice((0.1, 0.5, 1.0)) if delay else 0.0,
        delay=delay,
        drop=some(0.02, 0.2),
        gone=some(0.1, 0.5),
        stall=rng.choice((0.05, 0.3)) if stall_time else 0.0,
        stall_time=stall_time,
        crash=some(0.01, 0.03),
        no_events=rng.random() < 0.8,
    )
    return rates if rng.random() < 0.9 else replace(rates, unsure=0.4)
