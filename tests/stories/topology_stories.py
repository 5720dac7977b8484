"""Clusters with blocks, racks and hosts for stories, and what stories read of placements."""

from __future__ import annotations

from typing import Any

from stories_world import Story

from pykueue.api.decoding import decode_as
from pykueue.api.kueue import TopologyAssignment
from pykueue.api.topologies import HOSTNAME, Domain, expand
from pykueue.embedded.nodes.pool import Level, NodePool
from queue_manifests import cluster_queue, flavor, local_queue, topology

Object = dict[str, Any]

BLOCK, RACK = "cloud.example.com/block", "cloud.example.com/rack"
D = "kueue.x-k8s.io"
TOPOLOGY = topology("dc", BLOCK, RACK, HOSTNAME)


def hosts(racks: int = 2, of: int = 2, cpu: int = 4, blocks: int = 1, **more: Any) -> list[NodePool]:
    """A pool `n` of nodes n-0, n-1, ...: `of` hosts per rack, `racks` per block."""
    levels = [Level(BLOCK, blocks), Level(RACK, racks)]
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    count = blocks * racks * of
    labels = {"tas": "yes"}
    return [NodePool(name="n", count=count, allocatable=amounts, labels=labels, topology=levels, **more)]


def queues(cpu: int = 100, memory: str = "", **spec: Any) -> list[Object]:
    """A topology, a flavor that refers to it, and a queue `q` with that flavor."""
    tas = flavor("tas", nodeLabels={"tas": "yes"}, topologyName="dc")
    quota: dict[str, str | int] = {"cpu": cpu, **({"memory": memory} if memory else {})}
    return [TOPOLOGY, tas, cluster_queue("q", {"tas": quota}, **spec), local_queue("q")]


def annotated(made: Object, **annotations: str) -> Object:
    """The job with topology annotations on its pod template; `required=RACK` and so on."""
    written = made["spec"]["template"]["metadata"].setdefault("annotations", {})
    keys = {"slice": "slice-required-topology", "size": "slice-size", "group": "group-name"}
    for key, value in annotations.items():
        written[f"{D}/podset-{keys.get(key, f'{key}-topology')}"] = value
    return made


async def assigned(story: Story, job: str, pod_set: str = "main") -> dict[str, int]:
    """Pods by domain (values joined with commas) in the assignment of a job's Workload."""
    workload = await story.workload(job)
    given = (workload["status"].get("admission") or {}).get("podSetAssignments") or ()
    found = next((one for one in given if one["name"] == pod_set), {})
    return {",".join(domain.values): domain.pods for domain in domains_of(found)}


def domains_of(given: Object) -> list[Domain]:
    """The domains of a pod set assignment; none where it has no topology assignment."""
    assignment = given.get("topologyAssignment")
    return [] if assignment is None else list(expand(decode_as(TopologyAssignment, assignment)))


async def bound(story: Story, prefix: str) -> dict[str, int]:
    """Pods that have not terminated by the node they are bound to; "" for none."""
    found: dict[str, int] = {}
    for pod in await story.pods(prefix):
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            node = pod["spec"].get("nodeName", "")
            found[node] = found.get(node, 0) + 1
    return found
