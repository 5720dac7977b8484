"""Pods leave nodes whose NoExecute taints they do not tolerate, or no longer.

Source: docs/reference/cluster-workloads.md, 4.6. A toleration's seconds count from when the taint was
added, where
the taint says so, and else from when it was first seen; for pods bound later, from when they were first seen.
"""

from __future__ import annotations

from math import inf
from typing import Any

from pykueue.api.objects import Key, Object, is_deleting, key_of
from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.embedded.controllers.disruption import disrupt, disruption
from pykueue.embedded.controllers.nodelife.monitor import BY_NODE
from pykueue.embedded.podscheduler.terms import Taint, Toleration, taints, tolerations
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.kube.informer import Informer

REASON = "DeletionByTaintManager"
MESSAGE = "Taint manager: deleting due to NoExecute taint"
EVENT = "TaintManagerEviction"
WORKERS = 8


class TaintEviction:
    """Keyed by pod; run by `run`."""

    def __init__(
        self, client: Client, nodes: Informer, pods: Informer, events: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._pods = pods
        self._events = events
        self._clock = clock
        #: Pods with a time at which they must leave, by uid: since when they have been on the tainted node.
        self._since: dict[str, float] = {}
        self._controller: Controller[Key] = Controller(
            "taint-eviction",
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
        before, after = _evicting(old), _evicting(new)
        if before != after:
            for pod in self._pods.by_index(BY_NODE, (new or old)["metadata"]["name"]):
                self._controller.queue.add(key_of(pod))

    def _on_pod(self, type_: str, old: Any, new: Any) -> None:
        if new is None:
            self._since.pop(old["metadata"]["uid"], None)
            return
        if old is not None and old["spec"] is new["spec"]:
            return
        name = new["spec"].get("nodeName")
        if name and _evicting(self._nodes.get(None, name)):
            self._controller.queue.add(key_of(new))

    async def _sync(self, key: Key) -> float | None:
        pod: Object | None = self._pods.get(*key)
        if pod is None:
            return None
        metadata, now = pod["metadata"], self._clock.time()
        uid = metadata["uid"]
        node = self._nodes.get(None, pod["spec"].get("nodeName") or "")
        found = _evicting(node)
        where = f"Pod {metadata['namespace']}/{metadata['name']}"
        if is_deleting(pod) or not found:
            planned = self._since.pop(uid, None) is not None
            if planned and node is not None and not is_deleting(pod):
                self._events.event(pod, NORMAL, EVENT, f"Cancelling deletion of {where}")
            return None
        seconds = _tolerated(pod, [one for one, _ in found])
        if seconds == inf:
            return None
        added = [parse_time(stamp) if stamp else now for _, stamp in found]
        since = self._since.setdefault(uid, max(max(added), _bound(pod)))
        left = since + seconds - now
        if left > 0 and seconds > 0:
            return left
        self._events.event(pod, NORMAL, EVENT, f"Marking for deletion {where}")
        await disrupt(self._client, pod, {"conditions": [disruption(REASON, MESSAGE, now)]})
        self._since.pop(uid, None)
        return None


def _evicting(node: Object | None) -> list[tuple[Taint, str]]:
    """A node's taints that evict, and when each was added as far as it says."""
    shown = ((node or {}).get("spec") or {}).get("taints") or ()
    return [
        (taint, one.get("timeAdded") or "")
        for taint, one in zip(taints(shown), shown, strict=True)
        if taint.effect == "NoExecute"
    ]


def _tolerated(pod: Object, found: list[Taint]) -> float:
    """Seconds for which the pod tolerates all the taints; infinite if it does so for good."""
    shown = pod["spec"].get("tolerations") or ()
    with_limits: list[tuple[Toleration, Any]] = [
        (toleration, one.get("tolerationSeconds"))
        for toleration, one in zip(tolerations(shown), shown, strict=True)
    ]
    used: set[int] = set()
    for taint in found:
        matching = {number for number, (one, _) in enumerate(with_limits) if one.tolerates(taint)}
        if not matching:
            return 0.0
        used |= matching
    limits = [float(with_limits[number][1]) for number in used if with_limits[number][1] is not None]
    return max(0.0, min(limits, default=inf))


def _bound(pod: Object) -> float:
    """When the pod was bound to its node, by its own account."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "True":
            return parse_time(one["lastTransitionTime"])
    return 0.0
