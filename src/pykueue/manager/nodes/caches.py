"""Watch caches of nodes and pods, which are filled once a ResourceFlavor refers to a Topology.

Pods are watched as well once a Workload is split over flavors. A cluster without either pays nothing for
them. Every replica has them, as it has all caches.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, Object
from pykueue.api.pods import LIVE_PODS
from pykueue.api.queue_specs import topology_name
from pykueue.api.resources import NODES, PODS
from pykueue.kube.informer import Handler, Informer
from pykueue.manager.connection import Connection, Order

from .outlines import host_keys, hostname, node_outline, pod_outline, slice_keys


class NodeCaches:
    """The nodes, and the pods that have not ended, as outlines."""

    def __init__(self, connection: Connection, flavors: Informer, enabled: bool) -> None:
        self._connection = connection
        self.nodes: Informer | None = None
        self.pods: Informer | None = None
        self._node_handlers: list[tuple[Handler, int]] = []
        self._pod_handlers: list[tuple[Handler, int]] = []
        if enabled:
            flavors.on_event(self._flavor_changed, Order.OBSERVE)

    def _flavor_changed(self, type_: str, old: Any, new: Any) -> None:
        if self.nodes is None and new is not None and topology_name(new):
            self._start()

    def _start(self) -> None:
        self.nodes = self._connection.informer(NODES, transform=node_outline)
        self.nodes.add_index("hostname", lambda node: [hostname(node)])
        for handler, order in self._node_handlers:
            self.nodes.on_event(handler, order)
        self.watch_pods()

    def watch_pods(self) -> None:
        """Watch pods from now on."""
        if self.pods is not None:
            return
        self.pods = self._connection.informer(PODS, field_selector=LIVE_PODS, transform=pod_outline)
        self.pods.add_index("slice", slice_keys)
        self.pods.add_index("host", host_keys)
        for handler, order in self._pod_handlers:
            self.pods.on_event(handler, order)

    def on_node_event(self, handler: Handler, order: int = 0) -> None:
        """Call `handler` for every change of a node, from the time on at which they are watched."""
        self._node_handlers.append((handler, order))
        if self.nodes is not None:
            self.nodes.on_event(handler, order)

    def on_pod_event(self, handler: Handler, order: int = 0) -> None:
        """Call `handler` for every change of a pod; one that ended is DELETED."""
        self._pod_handlers.append((handler, order))
        if self.pods is not None:
            self.pods.on_event(handler, order)

    async def synced(self) -> None:
        """Wait until nodes and pods have been read once, if they are watched."""
        for informer in (self.nodes, self.pods):
            if informer is not None:
                await informer.synced()

    @property
    def has_synced(self) -> bool:
        """Whether nodes and pods have been read once, or are not watched."""
        return all(informer is None or informer.has_synced for informer in (self.nodes, self.pods))

    def nodes_of_host(self, name: str) -> list[Object]:
        """The nodes with this host name."""
        return [] if self.nodes is None else self.nodes.by_index("hostname", name)

    def pods_of_slice(self, key: Key) -> list[Object]:
        """The pods of a Workload, by its namespace and slice name, that are ungated one by one."""
        return [] if self.pods is None else self.pods.by_index("slice", key)

    def pods_of_host(self, name: str) -> list[Object]:
        """The pods placed by topology that are bound or pinned to a host."""
        return [] if self.pods is None else self.pods.by_index("host", name)
