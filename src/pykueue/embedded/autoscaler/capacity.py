"""Trial placement of pods on a copy of the nodes and their pods.

Node filters alone decide: resources, node selectors and affinity, taints, ports. Affinity between pods and
topology spread are not considered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.pods import is_terminal
from pykueue.embedded.nodes.pool import NodePool
from pykueue.embedded.podscheduler.cluster import Cluster, NodeInfo
from pykueue.embedded.podscheduler.filters import refusal
from pykueue.embedded.podscheduler.podinfo import PodInfo, PodReader, Shape


class Room(NamedTuple):
    """Nodes that can be added to a pool, by number."""

    pool: NodePool
    numbers: Sequence[int]


class NewNode(NamedTuple):
    """A node to add to a pool."""

    pool: NodePool
    number: int

    @property
    def name(self) -> str:
        return self.pool.name_of(self.number)


class Capacity:
    """Free capacity; what is placed stays placed, and what is opened stays open."""

    def __init__(self, reader: PodReader) -> None:
        self._reader = reader
        self._cluster = Cluster()
        self._trial: list[str] = []
        #: Nodes opened by the placement in progress.
        self._opened: list[NewNode] = []
        self._used: set[str] = set()

    def add_node(self, node: Object) -> None:
        """A node that exists or is starting."""
        self._cluster.set_node(node)
        self._used.add(node["metadata"]["name"])

    def add_pods(self, pods: Iterable[Object]) -> None:
        """Pods with a node, which use it until they end."""
        for pod in pods:
            if pod["spec"].get("nodeName") and not is_terminal(pod):
                info = self._reader.read(pod)
                if info is not None:
                    self._cluster.add_pod(info)

    def place(self, pods: Sequence[Object], rooms: Sequence[Room] = ()) -> list[NewNode] | None:
        """Place all pods, or none: the nodes that `rooms` must add for them; None where they do not fit.

        Existing nodes are tried first, in their order, then rooms in theirs.
        """
        self._trial, self._opened = [], []
        starts: dict[Shape, int] = {}
        for pod in pods:
            info = self._reader.read(pod)
            if info is None or not self._place(info, rooms, starts):
                self._undo()
                return None
        return list(self._opened)

    def _place(self, info: PodInfo, rooms: Sequence[Room], starts: dict[Shape, int]) -> bool:
        # A node that refused one pod of a shape refuses the next ones too, as nodes only fill up.
        for index in range(starts.get(info.shape, 0), len(self._cluster.nodes)):
            if refusal(info.shape, self._cluster.nodes[index]) is None:
                starts[info.shape] = index
                self._put(info, self._cluster.nodes[index])
                return True
        starts[info.shape] = len(self._cluster.nodes)
        for room in rooms:
            for number in room.numbers:
                new = NewNode(room.pool, number)
                if new.name in self._used:
                    continue
                self._cluster.set_node(room.pool.node(number))
                node = self._cluster.node(new.name)
                assert node is not None
                if refusal(info.shape, node) is None:
                    self._opened.append(new)
                    self._used.add(new.name)
                    starts[info.shape] = len(self._cluster.nodes) - 1
                    self._put(info, node)
                    return True
                self._cluster.remove_node(new.name)
                if not room.pool.zones and not room.pool.topology:
                    break  # the others are like it
        return False

    def _put(self, info: PodInfo, node: NodeInfo) -> None:
        info.node = node.name
        self._cluster.add_pod(info)
        self._trial.append(info.uid)

    def _undo(self) -> None:
        for uid in self._trial:
            self._cluster.remove_pod(uid)
        for new in reversed(self._opened):
            self._cluster.remove_node(new.name)
            self._used.discard(new.name)

    def is_empty(self, node: str) -> bool:
        """Whether nothing is placed on a node."""
        found = self._cluster.node(node)
        return found is not None and not found.pods
