"""ClusterQueues and LocalQueues: lists, and each with its pending workloads in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.objects import condition_of, get
from pykueue.api.resources import CLUSTER_QUEUES, EVENTS, LOCAL_QUEUES, WORKLOADS
from pykueue.web.dashboard.security.reviews import Need
from pykueue.web.dashboard.state.figures import fair_shares, figures, local_counts, queue_figures
from pykueue.web.dashboard.state.rows import IN_QUEUE

from .base import NotFoundError, Page, Part, View, everywhere, part_of
from .trends import reserved_chart, workloads_chart


async def _cluster_queues(view: View) -> Mapping[str, Any]:
    view.require("list", CLUSTER_QUEUES)
    text = view.query.get("q", "").lower()
    queues = [
        each
        for each in figures(view.board).queues
        if each.kind == "ClusterQueue" and text in each.name.lower()
    ]
    queues.sort(key=lambda each: each.name)
    return {"part": part_of(queues, view, "/cluster-queues")}


async def _cluster_queue(view: View) -> Mapping[str, Any]:
    view.require("get", CLUSTER_QUEUES)
    board, name = view.board, view.name
    obj, queue = board.get("ClusterQueue", "", name), queue_figures(board).get(("ClusterQueue", name))
    if obj is None or queue is None:
        raise NotFoundError(f"There is no ClusterQueue {name}.")
    return {
        "obj": obj,
        "queue": queue,
        "shares": next((each for each in fair_shares(board).queues if each.name == name), None),
        "stop_policy": get(obj, "spec", "stopPolicy") or "None",
        "active": condition_of(obj.get("status"), "Active"),
        "line": _line(view, name, f"/cluster-queues/{name}"),
        "local_queues": [
            key
            for key, target in sorted(board.local_queues.items())
            if target == name and view.grants.lists(LOCAL_QUEUES, key[0])
        ],
        "may_update": view.grants.may("patch", CLUSTER_QUEUES),
        "events": board.events_of(("ClusterQueue", "", name))[:20] if view.grants.lists(EVENTS) else [],
        "trend": workloads_chart(view, name),
        "usage": reserved_chart(view, name),
    }


def _line(
    view: View, cluster_queue: str, path: str, local: tuple[str, str] | None = None
) -> Part[dict[str, Any]]:
    """Pending workloads in queue order; those that the user may not list have a position and no name."""
    board = view.board
    keys = board.memo(f"line/{cluster_queue}", lambda: board.engine.pending(cluster_queue))
    items = list(enumerate(keys))
    if local is not None:
        items = [(at, key) for at, key in items if _queue_of(view, key) == local]
    part = part_of(items, view, path)
    shown = []
    for at, key in part.items:
        namespace, _, name = key.partition("/")
        row = board.workloads.get((namespace, name))
        may = view.grants.lists(WORKLOADS, namespace)
        shown.append({"position": at, "row": row if may else None, "hidden": not may})
    return Part(shown, part.number, part.count, part.size, path, view.query)


def _queue_of(view: View, key: str) -> tuple[str, str] | None:
    namespace, _, name = key.partition("/")
    row = view.board.workloads.get((namespace, name))
    return (row.namespace, row.queue) if row is not None else None


async def _local_queues(view: View) -> Mapping[str, Any]:
    view.require_some(LOCAL_QUEUES)
    board, counts = view.board, local_counts(view.board)
    text, namespace = view.query.get("q", "").lower(), view.query.get("namespace", "")
    keys = [
        key
        for key in sorted(board.local_queues)
        if view.grants.lists(LOCAL_QUEUES, key[0])
        and text in key[1].lower()
        and (not namespace or key[0] == namespace)
    ]
    part = part_of(keys, view, "/local-queues")
    rows = []
    for key in part.items:
        obj = board.get("LocalQueue", *key)
        rows.append(
            {
                "namespace": key[0],
                "name": key[1],
                "cluster_queue": board.local_queues[key],
                "pending": sum(counts[key[0], key[1], state] for state in IN_QUEUE),
                "admitted": counts[key[0], key[1], "Admitted"] + counts[key[0], key[1], "Running"],
                "stop_policy": (get(obj, "spec", "stopPolicy") or "None") if obj else "None",
                "active": condition_of(obj.get("status"), "Active") if obj else None,
            }
        )
    namespaces = sorted({key[0] for key in board.local_queues if view.grants.lists(LOCAL_QUEUES, key[0])})
    return {"part": part, "rows": rows, "namespaces": namespaces}


async def _local_queue(view: View) -> Mapping[str, Any]:
    view.require("get", LOCAL_QUEUES, view.namespace)
    board, key = view.board, (view.namespace, view.name)
    obj = board.get("LocalQueue", *key)
    if obj is None:
        raise NotFoundError(f"There is no LocalQueue {view.namespace}/{view.name}.")
    cluster_queue = board.local_queues.get(key, "")
    counts = local_counts(board)
    sees = view.grants.lists(WORKLOADS, view.namespace)
    return {
        "obj": obj,
        "cluster_queue": cluster_queue,
        "status": obj.get("status") or {},
        "stop_policy": get(obj, "spec", "stopPolicy") or "None",
        "active": condition_of(obj.get("status"), "Active"),
        "pending": sum(counts[(*key, state)] for state in IN_QUEUE),
        "admitted": counts[(*key, "Admitted")] + counts[(*key, "Running")],
        "sees_workloads": sees,
        "line": _line(view, cluster_queue, f"/local-queues/{key[0]}/{key[1]}", key) if sees else None,
        "may_update": view.grants.may("patch", LOCAL_QUEUES, view.namespace),
        "events": board.events_of(("LocalQueue", *key))[:20]
        if view.grants.lists(EVENTS, view.namespace)
        else [],
    }


def _cluster_queue_needs(params: Mapping[str, str]) -> list[Need]:
    return [
        Need("get", CLUSTER_QUEUES),
        Need("patch", CLUSTER_QUEUES),
        *everywhere(WORKLOADS, LOCAL_QUEUES, EVENTS),
    ]


def _local_queue_needs(params: Mapping[str, str]) -> list[Need]:
    namespace = params["namespace"]
    return [
        Need("get", LOCAL_QUEUES, namespace),
        Need("patch", LOCAL_QUEUES, namespace),
        Need("list", WORKLOADS, namespace),
        Need("list", EVENTS, namespace),
    ]


PAGES = (
    Page(
        "/cluster-queues",
        "ClusterQueues",
        "cluster_queues.html",
        _cluster_queues,
        lambda params: everywhere(CLUSTER_QUEUES),
        section="ClusterQueues",
    ),
    Page(
        "/cluster-queues/{name}",
        "ClusterQueue {name}",
        "cluster_queue.html",
        _cluster_queue,
        _cluster_queue_needs,
        parent="/cluster-queues",
    ),
    Page(
        "/local-queues",
        "LocalQueues",
        "local_queues.html",
        _local_queues,
        lambda params: everywhere(LOCAL_QUEUES),
        section="LocalQueues",
    ),
    Page(
        "/local-queues/{namespace}/{name}",
        "LocalQueue {namespace}/{name}",
        "local_queue.html",
        _local_queue,
        _local_queue_needs,
        parent="/local-queues",
    ),
)
