"""Trees and results in the notation of docs/reference/topology-aware-scheduling.md 19.

`r1{h1:3,h2:3}` is a rack with two hosts of 3 cpu each; `h1:3 h2:1` are pods by host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pykueue.api.kueue.workload import PodSetTopologyRequest, TopologyConstraint
from pykueue.api.topologies import HOSTNAME
from pykueue.engine.topology.balanced import place_unit
from pykueue.engine.topology.counts import CountSpec, amounts_of, counts_of
from pykueue.engine.topology.nodes import NodeFacts, PodFilter
from pykueue.engine.topology.placement import Placed, Shortage
from pykueue.engine.topology.requests import Layout, TopologyRules, layout, level_request
from pykueue.engine.topology.tree import FlavorTree, LeafUsage

LEVELS: Mapping[str, str] = {"H": HOSTNAME, "R": "rack", "B": "block"}


def hosts_of(text: str) -> Iterator[tuple[tuple[str, ...], dict[str, int]]]:
    """(values of all levels, capacity) of each host; `8/3` is 8 cpu and at most 3 pods."""
    path: list[str] = []
    for token in re.findall(r"\w+\{|\}|\w+:[\d/]+", text):
        if token == "}":
            path.pop()
        elif token.endswith("{"):
            path.append(token[:-1])
        else:
            name, _, numbers = token.partition(":")
            cpu, _, pods = numbers.partition("/")
            yield (*path, name), {"cpu": int(cpu) * 1000, "pods": int(pods or 110)}


def tree_of(levels: str, text: str) -> FlavorTree:
    """The tree of a flavor with these nodes; `levels` are initials, widest first, such as BRH."""
    labels = [LEVELS[each] for each in levels]
    tree = FlavorTree("tas", "topology", labels, {})
    usages: dict[tuple[str, ...], LeafUsage] = {}
    for values, capacity in hosts_of(text):
        node = NodeFacts(values[-1], dict(zip(labels, values, strict=True)), (), True, capacity)
        tree.put(node, {}, usages)
    return tree


def request_of(text: str) -> PodSetTopologyRequest | None:
    """`required rack`, `preferred H slice H/2`, `unconstrained`, `slice rack/4 H/2`; empty: none."""
    words = [HOSTNAME if word == "H" else word for word in text.replace("H/", f"{HOSTNAME}=").split()]
    fields: dict[str, Any] = {}
    while words and words[0] != "slice":
        mode = words.pop(0)
        fields[mode] = True if mode == "unconstrained" else words.pop(0)
    layers = [re.fullmatch(r"(.*)[=/](\d+)", word).groups() for word in words[1:]]  # type: ignore[union-attr]
    if len(layers) == 1:
        fields |= {"pod_set_slice_required_topology": layers[0][0], "pod_set_slice_size": int(layers[0][1])}
    elif layers:
        fields["podset_slice_required_topology_constraints"] = [
            TopologyConstraint(topology=level, size=int(size)) for level, size in layers
        ]
    return PodSetTopologyRequest(**fields) if fields else None


def place(
    tree: FlavorTree,
    request: str,
    pods: int,
    leader: int | None = None,
    rules: TopologyRules | None = None,
    cpu: int = 1,
) -> Placed | Shortage | str:
    """Place pods of `cpu` cpu each; `leader` is the cpu of a leader."""
    rules = rules or TopologyRules()
    found = layout(level_request(request_of(request), rules), tree.levels, rules)
    if isinstance(found, str):
        return found
    counts = counts_of(tree, spec_of(found, leader, cpu), PodFilter())
    return place_unit(counts, found, pods, rules.by_affinity)


def spec_of(found: Layout, leader: int | None, cpu: int = 1) -> CountSpec:
    """Pods of `cpu` cpu each, and a leader of `leader` cpu, on the nodes as they are used."""
    return CountSpec(
        amounts_of([("cpu", cpu * 1000)]),
        amounts_of([("cpu", leader * 1000)]) if leader is not None else (),
        PodFilter().key,
        found.slice_level,
        found.slice_size,
        found.units,
        False,
    )


def result(placed: Placed | Shortage | str) -> str:
    """`h1:3 h2:1`, `leader h1 workers h1:3`, or `fails: 3 of 4`."""
    if isinstance(placed, str):
        return placed
    if isinstance(placed, Shortage):
        return f"fails: {placed.fitting} of {placed.needed}"
    workers = " ".join(f"{leaf.values[-1]}:{pods}" for leaf, pods in placed.workers)
    return f"leader {placed.leader.values[-1]}, workers {workers}" if placed.leader else workers
