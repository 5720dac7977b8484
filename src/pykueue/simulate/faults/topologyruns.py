"""Runs whose pods are placed by topology on racks of small nodes, which fail, are tainted and deleted.

Troubles, queues and most of what users do are those of every run. Added is what must hold of assignments, by
API objects alone: no host is assigned beyond its capacity, and pods go to the hosts of their Workload.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pykueue.api.decoding import decode_as
from pykueue.api.kueue import TopologyAssignment, names
from pykueue.api.objects import Object, annotations_of, get, replaced
from pykueue.api.pods import has_gate
from pykueue.api.quantity import parse
from pykueue.api.resources import WORKLOADS
from pykueue.api.topologies import HOSTNAME, expand
from pykueue.embedded.nodes.pool import Level, NodePool, Simulation

from .nodeusers import NodeUsers
from .quota import holds_quota
from .realpods import RealPods
from .run import Report, Run, play_run
from .scenario import API, FLAVOR_LABEL, FLAVORS, Scenario, scenario
from .stored import shows_quota
from .ungating import Ungating

RACK = "example.com/rack"
TOPOLOGY = "racks"
CPU = 4
#: Two racks of two hosts for each flavor: the largest job needs a rack.
POOLS = [
    NodePool(
        name=f"node-{flavor}",
        count=4,
        labels={FLAVOR_LABEL: flavor},
        topology=[Level(RACK, 2)],
        allocatable={"cpu": str(CPU), "memory": "200Gi", "pods": "200"},
        simulation=Simulation(run_time="1s-2m", ready_delay="0s-2s", stop_delay="0s-3s", failure_rate=0.02),
    )
    for flavor in FLAVORS
]
_ANNOTATIONS = {
    "required": names.REQUIRED_TOPOLOGY_ANNOTATION,
    "preferred": names.PREFERRED_TOPOLOGY_ANNOTATION,
    "unconstrained": names.UNCONSTRAINED_TOPOLOGY_ANNOTATION,
}


def topology_scenario(rng: random.Random) -> Scenario:
    """A scenario with flavors that have a topology, in which more happens to nodes, for a longer time."""
    plan = scenario(rng)
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]
    topology: Object = {
        "apiVersion": API,
        "kind": "Topology",
        "metadata": {"name": TOPOLOGY},
        "spec": {"levels": levels},
    }
    objects = [_with_topology(obj) if obj["kind"] == "ResourceFlavor" else obj for obj in plan.objects]
    jobs = [(at, _requested(rng, job)) for at, job in plan.jobs]
    return replace(
        plan,
        objects=[topology, *objects],
        jobs=jobs,
        trouble=plan.trouble * rng.choice((1.0, 3.0, 10.0)),
        acts=plan.acts + rng.choice((2, 6, 12)),
    )


def _with_topology(flavor: Object) -> Object:
    return replaced(flavor, ("spec", "topologyName"), TOPOLOGY)


def _requested(rng: random.Random, job: Object) -> Object:
    """The job with a request for topology on the template of its pods, or as it is."""
    if job["kind"] != "Job":
        return job
    requested = rng.choice(("required", "required", "preferred", "unconstrained", ""))
    if rng.random() < 0.5:
        job = replaced(job, ("spec", "completionMode"), "Indexed")
    if not requested:
        return job
    path = ("spec", "template", "metadata", "annotations", _ANNOTATIONS[requested])
    return replaced(job, path, "true" if requested == "unconstrained" else RACK)


class TopologyUsers(NodeUsers):
    """Users beside whom the nodes of the racks fail."""

    pools = POOLS


class TopologyInvariants(Ungating):
    """No host is assigned beyond its capacity, and pods go to hosts of their Workload."""

    def _assigned(self, workload: Mapping[str, Any] | None) -> Counter[str]:
        return assigned(workload)

    def _place(self, pod: Object) -> str:
        if has_gate(pod, names.TOPOLOGY_GATE):
            return ""
        return str(get(pod, "spec", "nodeSelector", HOSTNAME) or "")

    def _reassigned(self, workload: Object | None, old: Counter[str], new: Counter[str]) -> None:
        if old and new:
            self._trace.note("topology", f"moves from {dict(old)} to {dict(new)}")
        if new and workload is not None:
            self._has_room(workload, new)

    def _has_room(self, workload: Object, hosts: Mapping[str, int]) -> None:
        """All Workloads together fit on each host."""
        used: Counter[str] = Counter()
        for other in self.objects(WORKLOADS):
            for given in _given(other) if shows_quota(other) else ():
                cpu = _cpu_of_pod(other, str(given["name"]))
                for host, pods in _hosts(given).items():
                    used[host] += cpu * pods
        for host in hosts:
            if used[host] > CPU * 1000:
                self._violate(workload, f"its host {host} is assigned {used[host]}m cpu of {CPU * 1000}m")

    def _pod(self, before: Object | None, after: Object | None) -> None:
        super()._pod(before, after)
        if after is not None and get(after, "spec", "nodeName"):
            pinned = get(after, "spec", "nodeSelector", HOSTNAME)
            if pinned is None and names.UNCONSTRAINED_TOPOLOGY_ANNOTATION in annotations_of(after):
                self._violate(after, "runs without a domain")
            if pinned not in (None, get(after, "spec", "nodeName")):
                self._violate(after, f"runs on {get(after, 'spec', 'nodeName')}, its domain is {pinned}")


def _given(workload: Mapping[str, Any]) -> Iterable[Object]:
    for given in get(dict(workload), "status", "admission", "podSetAssignments") or ():
        if given.get("topologyAssignment"):
            yield given


def _hosts(given: Mapping[str, Any]) -> Counter[str]:
    domains = expand(decode_as(TopologyAssignment, given["topologyAssignment"]))
    return Counter({domain.values[-1]: domain.pods for domain in domains})


def assigned(workload: Mapping[str, Any] | None) -> Counter[str]:
    """Pods by host that a Workload with quota is assigned."""
    total: Counter[str] = Counter()
    if workload is not None and holds_quota(workload):
        for given in _given(workload):
            total += _hosts(given)
    return total


def _cpu_of_pod(workload: Mapping[str, Any], pod_set: str) -> int:
    """What one pod of a pod set requests, in thousandths."""
    for one in get(dict(workload), "spec", "podSets") or ():
        if one.get("name") == pod_set:
            containers = get(one, "template", "spec", "containers") or ()
            amounts = (get(container, "resources", "requests", "cpu") or "0" for container in containers)
            return sum(parse(amount).milli() for amount in amounts)
    return 0


class TopologyRun(Run):
    """A run of jobs that are placed by topology."""

    invariants_class = TopologyInvariants
    users_class = TopologyUsers

    def real_pods(self) -> RealPods:
        return RealPods(self.server, self.clock, self._fork(), self.plan.kinds, POOLS)


def play_topology(seed: int) -> Report:
    """Play the run of this seed, in virtual time."""
    rng = random.Random(seed)
    report = play_run(TopologyRun, seed, topology_scenario(rng), rng, True)
    return replace(report, options=" --topology")
