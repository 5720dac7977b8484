"""Deletes pods that do not end because their node is unreachable, where their annotation allows it.

Such a pod keeps its quota, and its Job waits for it, until it is deleted by force or its node is gone.
Source: the annotation of docs/reference/kueue-api.md 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykueue.api.kueue.names import SAFE_TO_DELETE_ANNOTATION
from pykueue.api.meta import parse_time
from pykueue.api.objects import Key, Object, annotations_of, get, is_deleting, key_of
from pykueue.api.pods import is_terminal
from pykueue.api.resources import NODES, PODS
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.kube.controller import Controller
from pykueue.kube.events import WARNING, EventRecorder
from pykueue.manager.connection import Connection

#: Seconds after the end of a pod's grace period.
GRACE: Final = 60.0
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_CONDITION: Final = "KueueFailureRecovery"
_REASON: Final = "KueueForcefullyDeleted"


class FailureRecovery:
    """Reconciles pods; run by `run`."""

    def __init__(self, connection: Connection, recorder: EventRecorder, clock: Clock, workers: int) -> None:
        self._writer = connection.writer
        self._pods = connection.informer(PODS, transform=_outline)
        self._nodes = connection.informer(NODES, transform=_taints)
        self._recorder = recorder
        self._clock = clock
        self._pods.add_index("node", lambda pod: [str(get(pod, "spec", "nodeName") or "")])
        self.controller: Controller[Key] = Controller(
            "failure recovery",
            self.reconcile,
            clock=clock,
            workers=workers,
            wait_for=[self._pods.synced, self._nodes.synced],
        )
        self._pods.on_event(self._pod_changed)
        self._nodes.on_event(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and _is_concerned(new):
            self.controller.queue.add(key_of(new))

    def _node_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and _is_unreachable(new):
            for pod in self._pods.by_index("node", new["metadata"]["name"]):
                self._pod_changed(type_, None, pod)

    async def reconcile(self, key: Key) -> float | None:
        """Delete the pod if it should have ended `GRACE` ago; otherwise the seconds until then."""
        pod = self._pods.get(*key)
        if pod is None or not _is_concerned(pod):
            return None
        left = parse_time(pod["metadata"]["deletionTimestamp"]) + GRACE - self._clock.time()
        if left > 0:
            return left
        name = get(pod, "spec", "nodeName")
        node = self._nodes.get("", name) if name else None
        if node is None or not _is_unreachable(node):
            return None
        text = (
            f"Pod forcefully terminated {GRACE:g}s after its grace period, as node {name} is unreachable "
            f"(annotation {SAFE_TO_DELETE_ANNOTATION})"
        )
        written = await self._writer.update(self._pods, key, lambda newest: self._failed(newest, text))
        if written is not None:
            self._recorder.event(written, WARNING, _REASON, text)
        await self._writer.delete(self._pods, pod, grace_period=0)
        return None

    def _failed(self, pod: Mapping[str, Any], text: str) -> Object | None:
        """The pod with the phase and the condition that say what happened; None where it has them."""
        status = pod.get("status") or {}
        conditions = status.get("conditions") or []
        if any(one.get("type") == _CONDITION for one in conditions):
            return None
        condition = {
            "type": _CONDITION,
            "status": "True",
            "reason": _REASON,
            "message": text,
            "lastTransitionTime": format_time(self._clock.time()),
        }
        phase = status.get("phase") if is_terminal(pod) else "Failed"
        return {**pod, "status": {**status, "phase": phase, "conditions": [*conditions, condition]}}


def _is_concerned(pod: Mapping[str, Any]) -> bool:
    return is_deleting(pod) and annotations_of(pod).get(SAFE_TO_DELETE_ANNOTATION) == "true"


def _is_unreachable(node: Mapping[str, Any]) -> bool:
    return any(taint.get("key") == _UNREACHABLE for taint in get(node, "spec", "taints") or ())


def _outline(pod: Object) -> Object:
    """The fields of a pod that are read; fewer for a pod without the annotation."""
    metadata = pod["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "annotations")
    outline: Object = {
        "metadata": {field: metadata[field] for field in kept if field in metadata},
        "spec": {"nodeName": get(pod, "spec", "nodeName")},
    }
    value = annotations_of(pod).get(SAFE_TO_DELETE_ANNOTATION)
    if value != "true":
        outline["metadata"].pop("annotations", None)
        return outline
    status = pod.get("status") or {}
    fields = ("phase", "conditions")
    return {**outline, "status": {field: status[field] for field in fields if field in status}}


def _taints(node: Object) -> Object:
    metadata = node["metadata"]
    return {
        "metadata": {"name": metadata["name"], "resourceVersion": metadata["resourceVersion"]},
        "spec": {"taints": get(node, "spec", "taints") or []},
    }
