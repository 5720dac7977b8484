"""Runs of jobs whose pods are split over flavors.

Troubles, queues and most of what users do are those of every run. Added is what must hold of parts, by API
objects alone: a flavor gets no more pods of a Workload than its part has, and pods select its nodes.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from pykueue.api import conditions
from pykueue.api.conditions import admitted_counts
from pykueue.api.hybrid import parts_in
from pykueue.api.kueue.names import (
    FLAVOR_LABEL,
    HYBRID_ASSIGNMENT_ANNOTATION,
    HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION,
    HYBRID_LOSS_POLICY_ANNOTATION,
    MIN_PARALLELISM_ANNOTATION,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from pykueue.api.objects import Object, annotations_of, get, key_of, labels_of, replaced
from pykueue.api.pods import has_gate, is_terminal
from pykueue.api.resources import PODS
from pykueue.api.times import parse_time
from pykueue.embedded.nodes.pool import NodePool, Simulation

from .nodeusers import NodeUsers
from .quota import holds_quota
from .realpods import RealPods
from .run import Report, Run, play_run
from .scenario import FLAVOR_LABEL as NODE_LABEL
from .scenario import FLAVORS, Scenario, scenario
from .ungating import Ungating

#: Nodes enough for all quota of each flavor.
POOLS = [
    NodePool(
        name=f"node-{flavor}",
        count=8,
        labels={NODE_LABEL: flavor},
        allocatable={"cpu": "8", "memory": "200Gi", "pods": "200"},
        simulation=Simulation(run_time="1s-2m", ready_delay="0s-2s", stop_delay="0s-3s", failure_rate=0.02),
    )
    for flavor in FLAVORS
]


#: What jobs have that lose pods: those do not count as failures.
_DISRUPTION = {"type": "DisruptionTarget", "status": "True"}
_IGNORED = {"rules": [{"action": "Ignore", "onPodConditions": [_DISRUPTION]}]}


#: Two large nodes for each flavor, so that a flavor may be without any.
FEW = [
    NodePool(
        name=pool.name,
        count=2,
        labels=pool.labels,
        allocatable={"cpu": "40", "memory": "400Gi", "pods": "400"},
        simulation=pool.simulation,
    )
    for pool in POOLS
]


def hybrid_scenario(rng: random.Random) -> Scenario:
    """A scenario whose ClusterQueues have two flavors, and whose Jobs may need both."""
    plan = scenario(rng)
    objects = [_permitting(obj) if obj["kind"] == "ClusterQueue" else obj for obj in plan.objects]
    jobs = [(at, _requested(rng, job)) for at, job in plan.jobs]
    return replace(plan, objects=objects, jobs=jobs)


def with_losses(plan: Scenario, rng: random.Random) -> Scenario:
    """The scenario with policies for lost flavors, and more that happens to nodes for a longer time."""
    policy: Object = {"lostAfter": rng.choice(("2s", "5s")), "retryAfter": rng.choice(("10s", "40s"))}
    if rng.random() < 0.5:
        policy["shrinkAfter"] = rng.choice(("1s", "10s"))
    objects = [
        replaced(obj, ("metadata", "annotations", HYBRID_LOSS_POLICY_ANNOTATION), json.dumps(policy))
        if obj["kind"] == "ClusterQueue"
        else obj
        for obj in plan.objects
    ]
    jobs = [(at, _tolerant(rng, job)) for at, job in plan.jobs]
    trouble, acts = plan.trouble * rng.choice((3.0, 10.0)), plan.acts + rng.choice((6, 12, 20))
    return replace(plan, objects=objects, jobs=jobs, trouble=trouble, acts=acts)


def _tolerant(rng: random.Random, job: Object) -> Object:
    if job["kind"] != "Job" or "completionMode" not in job["spec"]:
        return job
    job = replaced(job, ("spec", "podFailurePolicy"), _IGNORED)
    job = replaced(job, ("spec", "backoffLimitPerIndex"), 20)
    if job["spec"]["parallelism"] > 2 and rng.random() < 0.5:
        minimum = str(rng.randint(1, job["spec"]["parallelism"] - 1))
        job = replaced(job, ("metadata", "annotations", MIN_PARALLELISM_ANNOTATION), minimum)
    return job


def _permitting(queue: Object) -> Object:
    """The ClusterQueue with the same quota of each flavor, and with the permission."""
    (group,) = queue["spec"]["resourceGroups"]
    flavors = [{**group["flavors"][0], "name": flavor} for flavor in FLAVORS]
    queue = replaced(queue, ("spec", "resourceGroups"), [{**group, "flavors": flavors}])
    return replaced(queue, ("metadata", "annotations"), {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true"})


def _requested(rng: random.Random, job: Object) -> Object:
    """Most Jobs with a request for both flavors, and twice as many pods as one of them has quota for."""
    if job["kind"] != "Job" or rng.random() < 0.2:
        return job
    order = rng.sample(FLAVORS, len(FLAVORS))
    request = {"flavors": [{"name": flavor} for flavor in order]}
    path = ("spec", "template", "metadata", "annotations")
    job = replaced(job, path, {HYBRID_ASSIGNMENT_ANNOTATION: json.dumps(request)})
    for field in ("parallelism", "completions"):
        job = replaced(job, ("spec", field), 2 * job["spec"][field])
    return replaced(job, ("spec", "completionMode"), "Indexed") if rng.random() < 0.5 else job


class HybridInvariants(Ungating):
    """No flavor has more pods of a Workload than its part, and they select its nodes."""

    def _assigned(self, workload: Mapping[str, Any] | None) -> Counter[str]:
        return parts(workload)

    def _place(self, pod: Object) -> str:
        return str(labels_of(pod).get(FLAVOR_LABEL, ""))

    def _reassigned(self, workload: Object | None, old: Counter[str], new: Counter[str]) -> None:
        if new:
            self._trace.note("hybrid", f"splits into {dict(new)}")
        if old and new and workload is not None:
            self._counts_all(workload, new)
            if sum(new.values()) > sum(admitted_counts(workload).values()):
                self._violate(workload, f"has more pods in parts than it is admitted with: {dict(new)}")

    def _workload(self, before: Object | None, after: Object | None) -> None:
        super()._workload(before, after)
        if before is None or after is None or not (holds_quota(before) and holds_quota(after)):
            return
        old, new = admitted_counts(before), admitted_counts(after)
        for pod_set in get(after, "spec", "podSets") or () if old != new else ():
            name, least = pod_set["name"], pod_set.get("minCount", pod_set["count"])
            if old.get(name) != new.get(name) and not least <= new[name] < old[name]:
                self._violate(after, f"changed from {old[name]} to {new[name]} pods, at least {least}")

    def _counts_all(self, workload: Object, new: Counter[str]) -> None:
        """No part may shrink below the pods that have its flavor.

        Pods of an earlier admission may be there still, on nodes that do not answer: they count for none.
        """
        key, reserved = key_of(workload), conditions.since(workload, conditions.QUOTA_RESERVED)
        there = Counter(
            self._place(pod)
            for pod in self.objects(PODS)
            if not is_terminal(pod)
            and not has_gate(pod, TOPOLOGY_GATE)
            and _deleted(pod) >= reserved
            and (pod["metadata"]["namespace"], annotations_of(pod).get(WORKLOAD_ANNOTATION)) == key
        )
        for flavor, pods in there.items():
            if flavor and pods > new[flavor]:
                self._violate(workload, f"has {pods} ungated pods on {flavor}, its part is {new[flavor]}")

    def _ungated(self, pod: Object) -> None:
        super()._ungated(pod)
        if get(pod, "spec", "nodeSelector", NODE_LABEL) != self._place(pod):
            selected = get(pod, "spec", "nodeSelector")
            self._violate(pod, f"has flavor {self._place(pod)} and selects {selected}")


def parts(workload: Mapping[str, Any] | None) -> Counter[str]:
    """Pods by flavor of a Workload with quota that is split."""
    total: Counter[str] = Counter()
    if workload is not None and holds_quota(workload):
        for given in get(dict(workload), "status", "admission", "podSetAssignments") or ():
            total += Counter({part.flavor: part.pods for part in parts_in(given)})
    return total


class HybridRun(Run):
    """A run of jobs that are split over flavors."""

    invariants_class = HybridInvariants

    def real_pods(self) -> RealPods:
        return RealPods(self.server, self.clock, self._fork(), self.plan.kinds, POOLS)


class LossUsers(NodeUsers):
    """Users beside whom the nodes of the flavors fail."""

    pools = FEW


class LossRun(HybridRun):
    """A run of jobs that are split over flavors, whose nodes fail."""

    users_class = LossUsers

    def real_pods(self) -> RealPods:
        return RealPods(self.server, self.clock, self._fork(), self.plan.kinds, FEW)


def play_hybrid(seed: int) -> Report:
    """Play the run of this seed, in virtual time; in half of them nodes fail."""
    rng = random.Random(f"hybrid {seed}")
    plan, kind = hybrid_scenario(rng), HybridRun
    if seed % 2:
        plan, kind = with_losses(plan, random.Random(f"losses {seed}")), LossRun
    return replace(play_run(kind, seed, plan, rng, True), options=" --hybrid")


def _deleted(pod: Object) -> float:
    """When its deletion was requested, in seconds since 1970; infinite where it was not."""
    metadata = pod["metadata"]
    ends = metadata.get("deletionTimestamp")
    return inf if ends is None else parse_time(ends) - (metadata.get("deletionGracePeriodSeconds") or 0)
