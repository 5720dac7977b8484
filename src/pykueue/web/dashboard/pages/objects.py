"""Objects as the cluster stores them, as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykueue.api import resources
from pykueue.api.budgets import BUDGETS
from pykueue.api.objects import Object
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import Resource
from pykueue.web.dashboard.security.reviews import Need
from pykueue.web.dashboard.state.board import Board

from .base import NotFoundError, Page, View

#: Types that addresses name, as KueueViz names them and as kubectl does.
TYPES: Final[Mapping[str, Resource]] = {
    name: resource
    for resource in (
        resources.WORKLOADS,
        resources.CLUSTER_QUEUES,
        resources.LOCAL_QUEUES,
        resources.RESOURCE_FLAVORS,
        resources.COHORTS,
        resources.TOPOLOGIES,
        resources.ADMISSION_CHECKS,
        resources.NODES,
        resources.PODS,
        resources.EVENTS,
        BUDGETS,
        RESERVATIONS,
    )
    for name in (resource.kind.lower(), resource.plural)
}


def raw_object(board: Board, kind: str, namespace: str, name: str) -> tuple[Resource, Object | None]:
    """The resource of a type, and an object of it. Raises NotFoundError for a type that is not shown."""
    resource = TYPES.get(kind.lower())
    if resource is None:
        accepted = ", ".join(sorted({each.kind.lower() for each in TYPES.values()}))
        raise NotFoundError(f"There is no type {kind!r}; accepted values: {accepted}.")
    return resource, board.get(resource.kind, namespace if resource.namespaced else "", name)


async def _build(view: View) -> Mapping[str, Any]:
    namespace = view.query.get("namespace", "")
    resource, obj = raw_object(view.board, view.params["type"], namespace, view.name)
    view.require("get", resource, namespace)
    if obj is None:
        raise NotFoundError(f"There is no {resource.kind} {f'{namespace}/' if namespace else ''}{view.name}.")
    return {"obj": obj, "kind": resource.kind, "namespace": namespace, "type": view.params["type"]}


def _needs(params: Mapping[str, str]) -> list[Need]:
    resource = TYPES.get(params["type"].lower())
    return [Need("get", resource)] if resource is not None else [Need("get", resources.WORKLOADS)]


PAGE = Page(
    "/objects/{type}/{name}",
    "{type} {name}",
    "object.html",
    _build,
    _needs,
)
