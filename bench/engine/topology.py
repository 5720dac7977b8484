"""Loads on nodes: the recorded shape of the reference implementation, and those in which nodes decide."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from random import Random
from typing import Final

from pykueue.api import kueue
from pykueue.api.core import Node
from pykueue.api.topologies import HOSTNAME
from pykueue.engine import Options

from . import objects
from .harness import Arrival, Shape

BLOCK: Final = "example.com/block"
RACK: Final = "example.com/rack"
CPU_PER_NODE: Final = 96

Request = kueue.PodSetTopologyRequest
REQUIRED: Final = Request(required=RACK)
PREFERRED: Final = Request(preferred=RACK)
UNCONSTRAINED: Final = Request(unconstrained=True)


def sliced(size: int) -> Request:
    """Preferably in one rack, each `size` pods on one host."""
    return Request(preferred=RACK, pod_set_slice_required_topology=HOSTNAME, pod_set_slice_size=size)


def _nodes(blocks: int, racks: int, hosts: int, cpu: int) -> list[object]:
    """The objects of so many blocks of racks of hosts, and of flavor `default` on them."""
    made: list[object] = [
        objects.topology("default", (BLOCK, RACK, HOSTNAME)),
        objects.flavor("default", "default"),
    ]
    for number in range(blocks * racks * hosts):
        made.append(_node(number, racks, hosts, cpu))
    return made


def _node(number: int, racks: int, hosts: int, cpu: int, ready: bool = True) -> Node:
    rack, name = number // hosts, f"n{number:05d}"
    labels = {BLOCK: f"b{rack // racks}", RACK: f"r{rack}", HOSTNAME: name}
    return objects.node(name, labels, cpu, ready)


def published(scale: float = 1.0) -> Shape:
    """1 block of 10 racks of 64 nodes; 5 cohorts of 6 queues with 500 workloads each, as in the baseline."""
    classes = [
        ("small", 350, 100, 2, 0.5, 200, 50, (REQUIRED, PREFERRED, sliced(1))),
        ("medium", 100, 500, 4, 1.25, 500, 100, (REQUIRED, PREFERRED, sliced(2))),
        ("large", 50, 1200, 8, 2.5, 1000, 200, (REQUIRED, PREFERRED, sliced(2))),
    ]
    setup = _nodes(1, 10, 64, CPU_PER_NODE)
    streams = []
    for cohort in range(5):
        for number in range(6):
            queue = f"cq-{cohort}-{number}"
            setup.append(
                objects.cluster_queue(
                    queue,
                    {"default": (20, 100)},
                    f"cohort-{cohort}",
                    reclaim="Any",
                    within="LowerPriority",
                )
            )
            setup.append(objects.local_queue(queue, queue))
            for kind, count, every, pods, cpu, runs, priority, requests in classes:
                streams.append(
                    [
                        Arrival(
                            at // len(requests) * every,
                            kind,
                            f"{queue}-{kind}-{at}",
                            queue,
                            cpu,
                            priority,
                            runs,
                            pods,
                            requests[at % len(requests)],
                        )
                        for at in range(round(count * scale))
                    ]
                )
    return Shape(f"topology {scale:g}", setup, merge(*streams, key=lambda arrival: arrival.at))


def packed(scale: float = 1.0) -> Shape:
    """Quota equal to what the nodes have, 90 % full and fragmented; required racks keep coming."""
    racks = max(1, round(20 * scale))
    cpu = 16 * 8 * racks
    setup = _nodes(1, racks, 16, 8)
    setup += [objects.cluster_queue("q", {"default": (cpu, None)}), objects.local_queue("q", "q")]

    def arrivals() -> Iterator[Arrival]:
        random = Random(1)
        total, at = 0, 0
        while total < 0.9 * cpu:
            pods = random.choice((1, 2, 3, 5, 7))
            total += pods
            runs = random.choice((20_000, 60_000, 90_000))
            yield Arrival(0, "filling", f"f{at}", "q", 1, 0, runs, pods, UNCONSTRAINED)
            at += 1
        for number in range(100 * racks):
            pods = random.choice((4, 8, 16, 24, 48))
            arrives = round(number * 2_000 / racks)
            runs = random.choice((5_000, 10_000, 15_000))
            yield Arrival(arrives, "rack", f"w{number}", "q", 1, 0, runs, pods, REQUIRED)

    return Shape(f"packed {racks * 16} nodes", setup, arrivals())


def node_storm(nodes: int) -> Shape:
    """Nodes full of workloads that may be preempted, and more important ones that each need half a rack."""
    racks = max(1, nodes // 20)
    cpu = nodes * 8
    setup = _nodes(1, racks, 20, 8)
    setup += [
        objects.cluster_queue("q", {"default": (cpu, None)}, within="LowerPriority"),
        objects.local_queue("q", "q"),
    ]
    running = max(1, round(nodes * 0.35))

    def arrivals() -> Iterator[Arrival]:
        pods = cpu // running
        for number in range(running):
            yield Arrival(0, "running", f"r{number}", "q", 1, number % 10, 3_600_000, pods, UNCONSTRAINED)
        for number in range(20):
            at = 60_000 + number * 1000
            yield Arrival(at, "urgent", f"u{number}", "q", 1, 1000, 3_600_000, 80, REQUIRED)

    return Shape(f"node storm {nodes}, {running} candidates", setup, arrivals(), until=120_000)


def many_nodes(nodes: int) -> Shape:
    """20 pods per node, all that quota allows, and as many again; then 250 nodes fail and return."""
    racks, hosts = 5, 50
    blocks = max(1, nodes // (racks * hosts))
    nodes, cpu = blocks * racks * hosts, 20 * blocks * racks * hosts
    setup = _nodes(blocks, racks, hosts, CPU_PER_NODE)
    setup += [objects.cluster_queue("q", {"default": (cpu, None)}), objects.local_queue("q", "q")]
    requests = (REQUIRED, PREFERRED, sliced(2), Request(preferred=BLOCK), UNCONSTRAINED)

    def arrivals() -> Iterator[Arrival]:
        count = 2 * cpu // 10
        for number in range(count):
            runs = 1000 * (20 + number % 40)
            request = requests[number % len(requests)]
            yield Arrival(number * 40_000 // count, "work", f"w{number}", "q", 1, 0, runs, 10, request)

    def events() -> Iterator[Node]:
        random = Random(1)
        for _ in range(250):
            number = random.randrange(nodes)
            for ready in (False, True):
                yield _node(number, racks, hosts, CPU_PER_NODE, ready)

    return Shape(f"{nodes} nodes, {cpu} pods", setup, arrivals(), node_events=events())


def balanced(scale: float = 1.0) -> Shape:
    """The published shape with the gate TASBalancedPlacement."""
    shape = published(scale)
    shape.name = f"balanced {scale:g}"
    shape.options = Options(gates={"TASBalancedPlacement": True})
    return shape
