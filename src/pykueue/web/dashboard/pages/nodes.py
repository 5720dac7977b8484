"""Nodes as a map: in the domains of topologies where flavors have one, with what is requested of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pykueue.api.quantity import Quantity
from pykueue.api.resources import NODES, TOPOLOGIES, WORKLOADS
from pykueue.engine.topology.view import LeafView
from pykueue.questions.top import NodeUse
from pykueue.web.dashboard.state.board import Board
from pykueue.web.dashboard.state.figures import node_figures

from .base import Page, Part, View, everywhere, part_of

#: Nodes and domains on one page.
NODES_MAX: Final = 120
LEAVES_MAX: Final = 240
#: Workloads named in a domain.
NAMED_MAX: Final = 4


class _Named(Protocol):
    @property
    def resource(self) -> str: ...


T = TypeVar("T", bound=_Named)


def in_order(uses: Iterable[T]) -> list[T]:
    """Accelerators and other devices first, then cpu and memory, then the rest; pods last."""
    last = ("cpu", "memory", "ephemeral-storage", "pods")
    return sorted(uses, key=lambda use: last.index(use.resource) if use.resource in last else -1)


class Use(NamedTuple):
    """What is requested of one resource of a domain, as `NodeUse` says of a node."""

    resource: str
    requested: str
    allocatable: str
    fraction: float


async def build(view: View) -> Mapping[str, Any]:
    view.require("list", NODES)
    text = view.query.get("q", "").lower()
    by_node: dict[str, list[NodeUse]] = {}
    for each in node_figures(view.board).nodes:
        if text in each.node.lower():
            by_node.setdefault(each.node, []).append(each)
    part: Part[str] = part_of(list(by_node), view, "/nodes", NODES_MAX)
    context: dict[str, Any] = {
        "part": part,
        "nodes": [(name, in_order(by_node[name])) for name in part.items],
    }
    if view.grants.lists(TOPOLOGIES):
        leaves = view.board.memo("leaves", view.board.engine.topology_leaves)
        context["maps"] = list(_maps(view, leaves[:LEAVES_MAX]))
        context["more_leaves"] = max(0, len(leaves) - LEAVES_MAX)
    else:
        context["maps"], context["more_leaves"] = [], 0
    return context


def _maps(view: View, leaves: Iterable[LeafView]) -> Iterable[dict[str, Any]]:
    """The domains of each flavor's topology, as nested groups."""
    maps: dict[tuple[str, str], dict[str, Any]] = {}
    for leaf in leaves:
        found = maps.setdefault(
            (leaf.flavor, leaf.topology),
            {"flavor": leaf.flavor, "topology": leaf.topology, "levels": leaf.levels, "groups": {}},
        )
        found["groups"].setdefault(leaf.values[:-1], []).append(_leaf(view, leaf))
    return maps.values()


def _leaf(view: View, leaf: LeafView) -> dict[str, Any]:
    uses = []
    for resource, available in leaf.available.items():
        used = leaf.used.get(resource, Quantity(0))
        fraction = float(used) / float(available) if available > Quantity(0) else 0.0
        if used.nanos or resource in ("cpu", "memory", "nvidia.com/gpu"):
            uses.append(Use(resource, str(used), str(available), fraction))
    named, hidden = [], 0
    for key, pods in leaf.pods.items():
        namespace, _, name = key.partition("/")
        if view.grants.lists(WORKLOADS, namespace):
            named.append(
                {
                    "namespace": namespace,
                    "name": name,
                    "title": _title(view.board, namespace, name),
                    "pods": pods,
                }
            )
        else:
            hidden += pods
    return {
        "name": leaf.values[-1],
        "uses": in_order(uses),
        "workloads": named[:NAMED_MAX],
        "more": len(named) - len(named[:NAMED_MAX]),
        "hidden": hidden,
    }


def _title(board: Board, namespace: str, name: str) -> str:
    row = board.workloads.get((namespace, name))
    return row.job_name if row is not None else name


PAGE = Page(
    "/nodes",
    "Nodes and topology",
    "nodes.html",
    build,
    lambda params: everywhere(NODES, TOPOLOGIES, WORKLOADS),
    section="Nodes",
    seconds=2.0,
)
