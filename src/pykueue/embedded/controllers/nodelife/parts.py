"""The controllers of this package, wired together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pykueue.api.resources import (
    DEVICE_TAINT_RULES,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from pykueue.clock import Clock
from pykueue.embedded.controllers.inventory import Inventory
from pykueue.embedded.controllers.nodelife.devicetaints import DeviceTaintEviction
from pykueue.embedded.controllers.nodelife.disruption import DisruptionController
from pykueue.embedded.controllers.nodelife.eviction import TaintEviction
from pykueue.embedded.controllers.nodelife.monitor import LEASE_NAMESPACE, NodeMonitor
from pykueue.embedded.controllers.nodelife.podgc import PodGarbageCollector
from pykueue.kube.client import Client
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import InformerFactory


class Component(Protocol):
    """Something that works until cancelled."""

    async def run(self) -> None:
        """Work until cancelled."""


def node_controllers(
    client: Client,
    informers: InformerFactory,
    inventory: Inventory,
    recorder: Callable[[str], EventRecorder],
    clock: Clock,
) -> tuple[Component, ...]:
    """The controllers of nodes and their pods; `recorder` returns the event recorder of a component."""
    nodes, pods = informers.informer(NODES), informers.informer(PODS)
    leases = informers.informer(LEASES, LEASE_NAMESPACE)
    budgets = informers.informer(POD_DISRUPTION_BUDGETS)
    node_events, taint_events = recorder("node-controller"), recorder("taint-eviction-controller")
    budget_events = recorder("controllermanager")
    device_events = recorder("device-taint-eviction-controller")
    claims, slices = informers.informer(RESOURCE_CLAIMS), informers.informer(RESOURCE_SLICES)
    rules = informers.informer(DEVICE_TAINT_RULES)
    return (
        node_events,
        taint_events,
        device_events,
        budget_events,
        NodeMonitor(client, nodes, leases, pods, node_events, clock),
        TaintEviction(client, nodes, pods, taint_events, clock),
        DeviceTaintEviction(client, pods, claims, slices, rules, device_events, clock),
        PodGarbageCollector(client, nodes, pods, clock),
        DisruptionController(client, budgets, pods, inventory, budget_events, clock),
    )
