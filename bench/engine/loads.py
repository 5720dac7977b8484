"""The loads by name, with their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import shapes, topology
from .harness import Shape

#: Load -> (how it is made, sizes from small to full). The full size is the one with a goal.
LOADS: dict[str, tuple[Callable[[Any], Shape], tuple[Any, Any, Any]]] = {
    "baseline": (shapes.baseline, (0.25, 0.5, 1.0)),
    "fair": (shapes.fair, (0.25, 0.5, 1.0)),
    "large": (shapes.large, (0.2, 0.5, 1.0)),
    "contended": (shapes.contended, (100, 200, 400)),
    "backlogged": (shapes.backlogged, (100, 200, 400)),
    "deep": (shapes.deep, (25_000, 50_000, 100_000)),
    "wide": (shapes.wide, (500, 1000, 2000)),
    "flavors": (shapes.flavors, (1000, 2000, 4000)),
    "storm": (shapes.storm, (2500, 5000, 10_000)),
    "topology": (topology.published, (0.25, 0.5, 1.0)),
    "balanced": (topology.balanced, (0.25, 0.5, 1.0)),
    "packed": (topology.packed, (0.25, 0.5, 1.0)),
    "node-storm": (topology.node_storm, (500, 1000, 2000)),
    "nodes": (topology.many_nodes, (1250, 2500, 5000)),
}
