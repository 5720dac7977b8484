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

from pykueue.api.hybrid import parts_in
from pykueue.api.kueue import names
from pykueue.api.kueue.names import (
    FLAVOR_LABEL,
    HYBRID_ASSIGNMENT_ANNOTATION,
    HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION,
)
from pykueue.api.objects import Object, annotations_of, get, key_of, labels_of, replaced
from pykueue.api.pods import has_gate, is_terminal
from pykueue.api.resources import PODS, WORKLOADS
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.nodes.pool import NodePool, Simulation
from pykueue.manager.configuration import Configuration

from .causes import Causes
from .invariants import Invariants
from .priority_order import AnyOrder
from .quota import holds_quota
from .realpods import RealPods
from .run import Report, Run, play_run
from .scenario import FLAVOR_LABEL as NODE_LABEL
from .scenario import FLAVORS, NAMESPACE, Scenario, scenario
from .topologyruns import MEMORY
from .trace import Trace

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


class HybridInvariants(Invariants):
    """No flavor has more pods of a Workload than its part, and they select its nodes."""

    def __init__(
        self, server: Server, clock: Clock, trace: Trace, causes: Causes, configuration: Configuration
    ) -> None:
        super().__init__(server, clock, trace, causes, configuration)
        self._order = AnyOrder(self, configuration)
        #: Pods by flavor that Workloads had, and when that ended.
        self._before: dict[tuple[str, str], list[tuple[float, Counter[str]]]] = {}

    def _workload(self, before: Object | None, after: Object | None) -> None:
        super()._workload(before, after)
        old, new = parts(before), parts(after)
        if new and new != old:
            self._trace.note("hybrid", f"splits into {dict(new)}")
        if old and old != new and before is not None:
            self._before.setdefault(key_of(before), []).append((self._clock.time(), old))

    def _pod(self, before: Object | None, after: Object | None) -> None:
        super()._pod(before, after)
        gated = before is not None and has_gate(before, names.TOPOLOGY_GATE)
        if gated and after is not None and not has_gate(after, names.TOPOLOGY_GATE):
            self._has_part(after)

    def _has_part(self, pod: Object) -> None:
        """The flavor of a pod that lost its gate has no more pods of the Workload than its part."""
        key = (NAMESPACE, annotations_of(pod).get(names.WORKLOAD_ANNOTATION, ""))
        flavor = labels_of(pod).get(FLAVOR_LABEL, "")
        if get(pod, "spec", "nodeSelector", NODE_LABEL) != flavor:
            self._violate(pod, f"has flavor {flavor} and selects {get(pod, 'spec', 'nodeSelector')}")
        now = self._clock.time()
        known = [each for until, each in self._before.get(key, ()) if now < until + MEMORY]
        known.append(parts(self.find(WORKLOADS, *key)))
        there = sum(
            not is_terminal(other)
            and annotations_of(other).get(names.WORKLOAD_ANNOTATION) == key[1]
            and labels_of(other).get(FLAVOR_LABEL) == flavor
            for other in self.objects(PODS)
        )
        most = max(each[flavor] for each in known)
        if there > most:
            self._violate(pod, f"is one of {there} pods of flavor {flavor}, the part has {most}")


def parts(workload: Mapping[str, object] | None) -> Counter[str]:
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
