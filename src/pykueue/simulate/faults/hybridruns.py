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
from typing import Any

from pykueue.api.hybrid import parts_in
from pykueue.api.kueue.names import (
    FLAVOR_LABEL,
    HYBRID_ASSIGNMENT_ANNOTATION,
    HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION,
)
from pykueue.api.objects import Object, get, labels_of, replaced
from pykueue.embedded.nodes.pool import NodePool, Simulation

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


def hybrid_scenario(rng: random.Random) -> Scenario:
    """A scenario whose ClusterQueues have two flavors, and whose Jobs may need both."""
    plan = scenario(rng)
    objects = [_permitting(obj) if obj["kind"] == "ClusterQueue" else obj for obj in plan.objects]
    jobs = [(at, _requested(rng, job)) for at, job in plan.jobs]
    return replace(plan, objects=objects, jobs=jobs)


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


def play_hybrid(seed: int) -> Report:
    """Play the run of this seed, in virtual time."""
    rng = random.Random(f"hybrid {seed}")
    return replace(play_run(HybridRun, seed, hybrid_scenario(rng), rng, True), options=" --hybrid")
