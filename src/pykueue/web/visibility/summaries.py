"""What waits in a queue, from what the manager knows: the engine's order, the objects' names.

Source: docs/reference/kueue-api.md, section 7.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from pykueue.api.objects import Object, get
from pykueue.manager.manager import Manager

#: Items of one answer where the request names no number, and at most.
DEFAULT_LIMIT, MOST = 1000, 100_000
#: Ordering a queue takes a microsecond per pending workload. From this number of workloads on, the order is
#: cached for this time (seconds), so that frequent requests do not delay scheduling cycles.
LONG, KEPT_TIME = 2000, 0.5

#: Of the metadata, and of an owner.
_SHOWN, _OWNER = ("name", "namespace", "creationTimestamp"), ("apiVersion", "kind", "name", "uid")


class Summaries:
    """The pending workloads of queues. Items are those of a PendingWorkloadsSummary."""

    def __init__(self, manager: Manager) -> None:
        self._cluster = manager.cluster
        self._engine = manager.engine
        #: The order of long queues, and until when, in the loop's seconds, it is cached.
        self._kept: dict[str, tuple[float, list[str]]] = {}

    @property
    def ready(self) -> bool:
        """Whether the cluster has been read: before, nothing could be said."""
        return self._cluster.has_synced

    def of_cluster_queue(self, name: str, offset: int, limit: int) -> list[Object] | None:
        """What waits in a ClusterQueue, from position `offset` on; None when there is no such queue."""
        if self._engine.cluster_queue(name) is None:
            return None
        return _part(self._items(name), offset, limit)

    def of_local_queue(self, namespace: str, name: str, offset: int, limit: int) -> list[Object] | None:
        """What waits in a LocalQueue; None when there is none, or it is stopped: it queues nothing then."""
        queue = self._cluster.local_queues.get(namespace, name)
        if queue is None or (get(queue, "spec", "stopPolicy") or "None") != "None":
            return None
        if self._engine.local_queue(namespace, name) is None:
            return None
        items = self._items(get(queue, "spec", "clusterQueue") or "")
        own = (
            item
            for item in items
            if item["localQueueName"] == name and item["metadata"]["namespace"] == namespace
        )
        return _part(own, offset, limit)

    def of_namespace(self, namespace: str) -> Iterator[tuple[str, Object]]:
        """The pending workloads of a namespace, or of all with the empty one, each with its ClusterQueue."""
        queues = self._cluster.local_queues.list(namespace or None)
        names = {str(get(queue, "spec", "clusterQueue") or "") for queue in queues}
        for name in sorted(names):
            if self._engine.cluster_queue(name) is not None:
                for item in self._items(name):
                    if namespace in ("", item["metadata"]["namespace"]):
                        yield name, item

    def _items(self, cluster_queue: str) -> Iterator[Object]:
        before: Counter[tuple[str, str]] = Counter()
        for position, key in enumerate(self._order(cluster_queue)):
            namespace, _, name = key.partition("/")
            workload = self._cluster.workloads.get(namespace, name)
            if workload is None:
                continue  # it went a moment ago: what is behind it moves up when the engine knows
            spec, meta = workload.get("spec") or {}, workload["metadata"]
            local = spec.get("queueName") or ""
            yield {
                "metadata": _shown(meta),
                "priority": spec.get("priority") or 0,
                "localQueueName": local,
                "positionInClusterQueue": position,
                "positionInLocalQueue": before[namespace, local],
            }
            before[namespace, local] += 1

    def _order(self, cluster_queue: str) -> list[str]:
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(cluster_queue)
        if kept is not None and now < kept[0]:
            return kept[1]
        order = self._engine.pending(cluster_queue)
        self._kept = {name: one for name, one in self._kept.items() if now < one[0]}
        if len(order) >= LONG:
            self._kept[cluster_queue] = (now + KEPT_TIME, order)
        return order


def _shown(metadata: Object) -> Object:
    shown = {field: metadata[field] for field in _SHOWN if field in metadata}
    owners = [{field: owner[field] for field in _OWNER} for owner in metadata.get("ownerReferences") or ()]
    return {**shown, "ownerReferences": owners} if owners else shown


def _part(items: Iterator[Object], offset: int, limit: int) -> list[Object]:
    part: list[Object] = []
    for index, item in enumerate(items):
        if index >= offset + limit:
            break
        if index >= offset:
            part.append(item)
    return part
