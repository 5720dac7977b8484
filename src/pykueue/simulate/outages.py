"""Interventions in nodes: what they make of the manifests, and which hosts go out of use and come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykueue.api.objects import Object, labels_of, true_condition
from pykueue.api.topologies import HOSTNAME
from pykueue.embedded.objects.patch import merge_patch
from pykueue.engine import Removed, Upsert
from pykueue.engine.events import Event
from pykueue.simulate.changes import Identity, manifest_identity
from pykueue.simulate.plan import ObjectChange
from pykueue.simulate.scenario.reading import ScenarioError
from pykueue.simulate.scenario.types import NodeInterventions, NodeSelection


class Hosts:
    """The hosts in use, as interventions change the nodes."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._drained: frozenset[str] = frozenset()
        self._in_use = self._usable(objects)

    def change(
        self, at: float, events: list[Event], objects: Iterable[Object], drained: frozenset[str]
    ) -> ObjectChange:
        """The change that these events are, after which `objects` are there."""
        if not any(map(_is_node, events)):
            return ObjectChange(at, events)
        self._drained |= drained
        before, self._in_use = self._in_use, self._usable(objects)
        lost = before - self._in_use
        return ObjectChange(
            at, events, lost - self._drained, lost & self._drained, restored=self._in_use - before
        )

    def _usable(self, objects: Iterable[Object]) -> frozenset[str]:
        nodes = [one for one in objects if one["kind"] == "Node"]
        # Cordoned nodes keep their pods; those of drained ones are gone.
        self._drained &= {_host(node) for node in nodes if (node.get("spec") or {}).get("unschedulable")}
        ready = {_host(node) for node in nodes if true_condition(node.get("status"), "Ready") is not None}
        return frozenset(ready) - self._drained


def intervene(
    objects: dict[Identity, Object], nodes: NodeInterventions, where: str
) -> tuple[list[Identity], frozenset[str]]:
    """Changes the manifests of nodes; which ones, and the hosts that are drained. Raises ScenarioError."""
    changed: list[Identity] = []
    drained: set[str] = set()
    for selection, name, spec, status in (
        (nodes.fail, "fail", {}, "False"),
        (nodes.drain, "drain", {"unschedulable": True}, ""),
        (nodes.restore, "restore", {"unschedulable": None}, "True"),
    ):
        if selection is None:
            continue
        for node in _selected(objects, selection, f"{where}.{name}"):
            patch: dict[str, Any] = {"spec": spec}
            if status:
                conditions = (node.get("status") or {}).get("conditions") or ()
                others = [each for each in conditions if each.get("type") != "Ready"]
                patch["status"] = {"conditions": [*others, {"type": "Ready", "status": status}]}
            identity = manifest_identity(node)
            objects[identity] = merge_patch(node, patch)
            changed.append(identity)
            if name == "drain":
                drained.add(_host(node))
    return changed, frozenset(drained)


def _selected(objects: dict[Identity, Object], selection: NodeSelection, where: str) -> list[Object]:
    for name in selection.names:
        if ("Node", "", name) not in objects:
            raise ScenarioError(f"{where}.names: Node {name} is not among the manifests")
    found = [
        one
        for one in objects.values()
        if one["kind"] == "Node"
        and (not selection.names or one["metadata"]["name"] in selection.names)
        and selection.labels.items() <= labels_of(one).items()
    ]
    if not found:
        raise ScenarioError(f"{where}: no node has these labels")
    return found


def _is_node(event: Event) -> bool:
    if isinstance(event, Removed):
        return event.kind == "Node"
    return isinstance(event, Upsert) and type(event.obj).__name__ == "Node"


def _host(node: Object) -> str:
    return labels_of(node).get(HOSTNAME) or str(node["metadata"]["name"])
