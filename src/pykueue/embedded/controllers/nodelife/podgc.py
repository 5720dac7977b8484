"""The pod garbage collector: pods of deleted nodes, pods deleted before they were bound, and finished pods.

Source: docs/reference/cluster-workloads.md, 4.6. Kubernetes checks every 20 s; here a pod is checked
when it, or its node, changes.
"""

from __future__ import annotations

import heapq
from typing import Any

from pykueue.api.objects import Key, Object, is_deleting, key_of
from pykueue.api.pods import is_terminal
from pykueue.api.resources import NODES
from pykueue.clock import Clock
from pykueue.embedded.controllers.disruption import disrupt, disruption
from pykueue.embedded.controllers.nodelife.monitor import BY_NODE
from pykueue.embedded.nodes.registration import is_ready
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer

#: Seconds for which a node must have been gone.
QUARANTINE = 40.0
#: Finished pods that are kept, whatever they belong to.
THRESHOLD = 12_500
#: Taint by which an administrator asserts that a node is off and none of its pods runs any more.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
WORKERS = 4


class PodGarbageCollector:
    """Keyed by pod; run by `run`. It keeps `threshold` finished pods."""

    def __init__(
        self, client: Client, nodes: Informer, pods: Informer, clock: Clock, *, threshold: int = THRESHOLD
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._pods = pods
        self._clock = clock
        self._threshold = threshold
        #: Since when a node that pods are bound to has been gone, by its name.
        self._gone: dict[str, float] = {}
        #: Finished pods that are not being deleted; those to delete as there are too many; all by age.
        self._finished: set[Key] = set()
        self._surplus: set[Key] = set()
        self._by_age: list[tuple[str, Key]] = []
        self._controller: Controller[Key] = Controller(
            "pod-garbage-collector",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[nodes.synced, pods.synced],
        )
        pods.add_index(BY_NODE, lambda pod: [pod["spec"].get("nodeName") or ""])
        nodes.on_event(self._on_node)
        pods.on_event(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _on_node(self, type_: str, old: Any, new: Any) -> None:
        name = (new or old)["metadata"]["name"]
        if new is not None:
            self._gone.pop(name, None)
        if new is None or _is_out_of_service(new):
            for pod in self._pods.by_index(BY_NODE, name):
                self._controller.queue.add(key_of(pod))

    def _on_pod(self, type_: str, old: Any, new: Any) -> None:
        key = key_of(new or old)
        if new is None:
            self._finished.discard(key)
            return
        deleting = is_deleting(new)
        if deleting:
            self._finished.discard(key)
        elif is_terminal(new) and key not in self._finished:
            self._finished.add(key)
            heapq.heappush(self._by_age, (new["metadata"]["creationTimestamp"], key))
            self._thin_out()
        node = new["spec"].get("nodeName")
        if deleting or (node and self._nodes.get(None, node) is None):
            self._controller.queue.add(key)

    def _thin_out(self) -> None:
        """Ask for the oldest finished pods to go when there are too many."""
        while len(self._finished) > self._threshold:
            _, key = heapq.heappop(self._by_age)
            if key in self._finished:
                self._finished.discard(key)
                self._surplus.add(key)
                self._controller.queue.add(key)

    async def _sync(self, key: Key) -> float | None:
        pod: Object | None = self._pods.get(*key)
        surplus = key in self._surplus
        self._surplus.discard(key)
        if pod is None:
            return None
        name = pod["spec"].get("nodeName")
        deleting = is_deleting(pod)
        if not name:
            if deleting:
                await self._remove(pod)
            return None
        node: Object | None = self._nodes.get(None, name)
        if node is None:
            return await self._orphaned(pod, name)
        if surplus or (deleting and _is_out_of_service(node)):
            await self._remove(pod)
        return None

    async def _orphaned(self, pod: Object, name: str) -> float | None:
        """A pod without its node; seconds until it goes."""
        now = self._clock.time()
        left = self._gone.setdefault(name, now) + QUARANTINE - now
        if left > 0:
            return left
        try:
            await self._client.get(NODES, name)
        except ApiError as error:
            if not error.not_found:
                raise
        else:
            return None
        await self._remove(pod, disruption("DeletionByPodGC", "PodGC: node no longer exists", now))
        return None

    async def _remove(self, pod: Object, condition: Object | None = None) -> None:
        status: Object = {} if is_terminal(pod) else {"phase": "Failed"}
        if condition is not None and status:
            status["conditions"] = [condition]
        await disrupt(self._client, pod, status, grace_period=0)


def _is_out_of_service(node: Object) -> bool:
    """Whether the node is not ready and has the out-of-service taint."""
    vouched = any(one.get("key") == OUT_OF_SERVICE for one in (node.get("spec") or {}).get("taints") or ())
    return vouched and not is_ready(node)
