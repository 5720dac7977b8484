"""ResourceFlavors: how much of each is reserved, and by which queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.objects import get
from pykueue.api.resources import CLUSTER_QUEUES, NODES, RESOURCE_FLAVORS
from pykueue.web.dashboard.security.reviews import Need
from pykueue.web.dashboard.state.figures import figures

from .base import NotFoundError, Page, View, everywhere, part_of


async def _flavors(view: View) -> Mapping[str, Any]:
    view.require("list", RESOURCE_FLAVORS)
    objects = view.board.memo(
        "flavor objects",
        lambda: sorted(view.board.objects("ResourceFlavor"), key=lambda obj: str(obj["metadata"]["name"])),
    )
    part = part_of(objects, view, "/resource-flavors")
    uses = figures(view.board).flavors
    rows = []
    for obj in part.items:
        name = obj["metadata"]["name"]
        rows.append(
            {
                "name": name,
                "labels": get(obj, "spec", "nodeLabels") or {},
                "topology": get(obj, "spec", "topologyName") or "",
                "uses": [use for use in uses if use.flavor == name],
            }
        )
    return {"part": part, "rows": rows}


async def _flavor(view: View) -> Mapping[str, Any]:
    view.require("get", RESOURCE_FLAVORS)
    obj = view.board.get("ResourceFlavor", "", view.name)
    if obj is None:
        raise NotFoundError(f"There is no ResourceFlavor {view.name}.")
    labels = get(obj, "spec", "nodeLabels") or {}
    nodes = None
    if view.grants.lists(NODES):
        nodes = sorted(
            node["metadata"]["name"]
            for node in view.board.objects("Node")
            if labels and labels.items() <= (node["metadata"].get("labels") or {}).items()
        )
    queues = []
    if view.grants.lists(CLUSTER_QUEUES):
        for each in figures(view.board).queues:
            quotas = [quota for quota in each.quotas if quota.flavor == view.name]
            if each.kind == "ClusterQueue" and quotas:
                queues.append((each.name, quotas))
    return {
        "obj": obj,
        "uses": [use for use in figures(view.board).flavors if use.flavor == view.name],
        "labels": labels,
        "taints": get(obj, "spec", "nodeTaints") or [],
        "topology": get(obj, "spec", "topologyName") or "",
        "nodes": nodes,
        "queues": queues,
    }


PAGES = (
    Page(
        "/resource-flavors",
        "ResourceFlavors",
        "flavors.html",
        _flavors,
        lambda params: everywhere(RESOURCE_FLAVORS),
        section="Flavors",
    ),
    Page(
        "/resource-flavors/{name}",
        "ResourceFlavor {name}",
        "flavor.html",
        _flavor,
        lambda params: [Need("get", RESOURCE_FLAVORS), *everywhere(CLUSTER_QUEUES, NODES)],
        parent="/resource-flavors",
    ),
)
