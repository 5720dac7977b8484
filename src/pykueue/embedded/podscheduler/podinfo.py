"""Pods as the scheduler sees them: what they ask for, shared by all pods that ask for the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from pykueue.api.json_bytes import encode_kept, exact
from pykueue.api.objects import Key, Object
from pykueue.api.quantity import QuantityError
from pykueue.embedded.kinds.devices import claims_of
from pykueue.embedded.kinds.podspec import Amounts, amounts_of, pod_requests
from pykueue.embedded.podscheduler.terms import (
    NO_RELATIONS,
    UNSCHEDULABLE_TAINT,
    NodeChoice,
    NodeTerm,
    Relations,
    Taint,
    Toleration,
    node_choice,
    preferred_nodes,
    relations,
    tolerations,
)

#: What a container without requests counts as when nodes are scored (4.7): thousandths of a core, bytes.
UNSAID_CPU = 100
UNSAID_MEMORY = 200 << 20

#: A port on the node: address, protocol, number.
Port = tuple[str, str, int]
_ANY_ADDRESS = "0.0.0.0"


class Shape:
    """What a pod asks of a node by itself, without regard to other pods. Equal shapes are the same object."""

    __slots__ = (
        "choice",
        "cpu",
        "memory",
        "ports",
        "preferred",
        "requests",
        "scored_cpu",
        "scored_memory",
        "tolerates_cordon",
        "tolerations",
    )

    def __init__(self, spec: Object) -> None:
        amounts = pod_requests(spec)
        #: Non-zero requests as whole numbers, in the order in which shortages are named.
        self.requests: tuple[tuple[str, int], ...] = tuple(
            sorted(((name, value) for name, value in amounts.items() if value), key=_shortage_order)
        )
        self.cpu, self.memory = amounts.get("cpu", 0), amounts.get("memory", 0)
        scored = pod_requests(spec, _scored)
        self.scored_cpu, self.scored_memory = scored.get("cpu", 0), scored.get("memory", 0)
        self.choice: NodeChoice | None = node_choice(spec)
        self.preferred: tuple[tuple[int, NodeTerm], ...] = preferred_nodes(spec)
        self.tolerations: tuple[Toleration, ...] = tolerations(spec.get("tolerations") or ())
        self.tolerates_cordon = self.tolerates(Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule"))
        self.ports: frozenset[Port] = host_ports(spec)

    def tolerates(self, taint: Taint) -> bool:
        """Whether one of its tolerations tolerates the taint."""
        return any(one.tolerates(taint) for one in self.tolerations)


def _shortage_order(item: tuple[str, int]) -> tuple[int, str]:
    order = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}
    return order.get(item[0], 3), item[0]


def _scored(container: Object) -> Amounts:
    asked = amounts_of((container.get("resources") or {}).get("requests"))
    return {"cpu": asked.get("cpu", UNSAID_CPU), "memory": asked.get("memory", UNSAID_MEMORY)}


def host_ports(spec: Object) -> frozenset[Port]:
    """The node's ports a pod takes for itself."""
    return frozenset(
        (port.get("hostIP") or _ANY_ADDRESS, port.get("protocol") or "TCP", port["hostPort"])
        for container in spec.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def ports_clash(left: Port, right: Port) -> bool:
    """Whether two pods cannot have these ports on one node."""
    return left[1:] == right[1:] and (left[0] == right[0] or _ANY_ADDRESS in (left[0], right[0]))


class PodInfo:
    """One pod. `node` is where it runs or is about to; "" while it waits."""

    __slots__ = (
        "claims",
        "created",
        "generation",
        "key",
        "labels",
        "manifest",
        "name",
        "namespace",
        "node",
        "nominated",
        "preempts",
        "priority",
        "related",
        "relations",
        "shape",
        "terminating",
        "uid",
    )

    #: As an item of the queue: a pod is placed or it is not, and keeps its turn.
    begun = False
    tie = ""

    def __init__(self, manifest: Object, shape: Shape, related: Relations, related_key: object) -> None:
        metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
        self.manifest = manifest
        self.uid: str = metadata["uid"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace") or ""
        self.key = f"{self.namespace}/{self.name}"
        self.labels: Mapping[str, str] = metadata.get("labels") or {}
        self.created: str = metadata.get("creationTimestamp") or ""
        self.generation: Any = metadata.get("generation")
        self.terminating = metadata.get("deletionTimestamp") is not None
        self.priority: int = spec.get("priority") or 0
        #: Whether it may push others off a node.
        self.preempts = spec.get("preemptionPolicy") != "Never"
        self.node: str = spec.get("nodeName") or ""
        self.nominated: str = status.get("nominatedNodeName") or ""
        self.shape = shape
        self.relations = related
        #: Equal for pods that say the same about other pods and are the same to them.
        self.related = related_key
        #: Claims of devices that it uses.
        self.claims: tuple[Key, ...] = claims_of(manifest) or ()

    def at(self, node: str) -> PodInfo:
        """The same pod as it will be on a node."""
        placed: PodInfo = PodInfo.__new__(PodInfo)
        for name in PodInfo.__slots__:
            setattr(placed, name, getattr(self, name))
        placed.node = node
        return placed

    @property
    def started(self) -> str:
        """When the pod began to run, else when it was created; later is less important (4.7)."""
        return (self.manifest.get("status") or {}).get("startTime") or self.created


def unchanged(known: PodInfo, manifest: Object) -> bool:
    """Whether a pod on its node is, at a glance, as it was but for its status."""
    metadata = manifest["metadata"]
    return bool(
        known.generation is not None
        and known.generation == metadata.get("generation")
        and known.node == manifest["spec"]["nodeName"]
        and known.terminating == (metadata.get("deletionTimestamp") is not None)
        and known.labels == (metadata.get("labels") or {})
    )


def takes_the_same(known: PodInfo, pod: PodInfo) -> bool:
    """Whether a pod on its node takes there what it took before."""
    return (
        known.node == pod.node
        and known.shape is pod.shape
        and known.priority == pod.priority
        and known.terminating == pod.terminating
        and known.related == pod.related
        and known.labels == pod.labels
    )


def alike(old: Object, new: Object) -> bool:
    """Whether a change of a waiting pod leaves it with the same chances."""
    return bool(
        old["spec"] == new["spec"]
        and old["metadata"].get("labels") == new["metadata"].get("labels")
        and old["metadata"].get("deletionTimestamp") == new["metadata"].get("deletionTimestamp")
    )


class PodReader:
    """Makes PodInfo from manifests, parsing each distinct shape and set of relations once."""

    def __init__(self, remembered: int = 4096) -> None:
        self._remembered = remembered
        self._shapes: dict[bytes, Shape] = {}
        self._relations: dict[bytes, Relations] = {}

    def read(self, manifest: Object) -> PodInfo | None:
        """The pod, or None when its amounts cannot be understood (the API refuses such pods)."""
        spec = manifest["spec"]
        try:
            shape = self._shape(spec)
        except QuantityError:
            return None
        affinity = spec.get("affinity") or {}
        spread = spec.get("topologySpreadConstraints")
        claims = spec.get("resourceClaims")
        if (
            not spread
            and not claims
            and not affinity.get("podAffinity")
            and not affinity.get("podAntiAffinity")
        ):
            return PodInfo(manifest, shape, NO_RELATIONS, None)
        metadata = manifest["metadata"]
        labels = metadata.get("labels") or {}
        namespace = metadata.get("namespace") or ""
        key = encode_kept((affinity, spread, namespace, labels, claims))
        found = self._relations.get(key)
        if found is None:
            found = relations(spec, namespace, labels)
            _remember(self._relations, key, found, self._remembered)
        return PodInfo(manifest, shape, found, key)

    def _shape(self, spec: Object) -> Shape:
        key = orjson.dumps(
            (
                [(one.get("resources"), one.get("ports")) for one in spec.get("containers") or ()],
                [
                    (one.get("resources"), one.get("restartPolicy"))
                    for one in spec.get("initContainers") or ()
                ],
                spec.get("overhead"),
                spec.get("nodeSelector"),
                (spec.get("affinity") or {}).get("nodeAffinity"),
                spec.get("tolerations"),
            )
        )
        shape = self._shapes.get(key)
        if shape is None:
            shape = Shape(spec)
            _remember(self._shapes, key, shape, self._remembered)
        return shape


def _remember(store: dict[bytes, Any], key: bytes, value: Any, limit: int) -> None:
    if len(store) >= limit:
        del store[next(iter(store))]
    store[exact(key)] = value
