"""The parts that a manager is made of, as values: what each one watches, may write, and needs to run.

A manager is a list of components. The role that an installation gives to it (`install.roles`) and the page
about it (docs/develop/components.md) follow from the same list. See docs/decisions/0010-components.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from pykueue.api.resources import EVENTS, WORKLOADS, Resource
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.kube.events import EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.connection import Connection
from pykueue.manager.jobkinds.controller import Host
from pykueue.manager.metrics import Metrics
from pykueue.manager.multikueue.kubeconfig import connect as connect_over_http
from pykueue.manager.multikueue.remote import Connect
from pykueue.manager.rights import READ, Rule, allow, merged
from pykueue.manager.workloads.reservations import Reservations


class Runnable(Protocol):
    """Anything that works until it is cancelled."""

    async def run(self) -> None: ...


@dataclass(frozen=True)
class Context:
    """What a component is built from: the cluster, and what the components of one manager share."""

    connection: Connection
    cluster: Cluster
    engine: Engine
    reservations: Reservations
    metrics: Metrics
    clock: Clock
    #: Emits events under a name; the same name twice is one recorder.
    recorder: Callable[[str], EventRecorder]
    #: A separate source of random numbers.
    random: Callable[[], random.Random]
    #: Reconciliations at a time, as the component declares.
    workers: int = 1
    #: Opens connections to worker clusters.
    connect: Connect = connect_over_http
    #: Starts and stops the controllers of kinds that are described while the manager runs.
    host: Host | None = None


@dataclass(frozen=True)
class Component:
    """One controller, or another part of the manager that runs."""

    #: Unique among the components of a manager.
    name: str
    #: One sentence, for documentation.
    purpose: str
    #: Subscribes to the watch caches and returns what runs. A cache that it adds must be among `watches`.
    build: Callable[[Context], Runnable]
    #: What it reads, all of it through watch caches.
    watches: tuple[Resource, ...] = ()
    #: What it may do besides reading.
    writes: tuple[Rule, ...] = ()
    #: What it reads in the manager's own namespace only.
    own_namespace: tuple[Resource, ...] = ()
    workers: int = 1
    #: Whether it runs on the one replica that leads; otherwise on every replica.
    needs_leader: bool = True

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rights that it needs."""
        return (*(allow(resource, *READ) for resource in self.watches), *self.writes)


def rules(components: Iterable[Component], granted: Iterable[Rule] = ()) -> list[Rule]:
    """All rights that a manager of these components needs anywhere in the cluster, beyond those `granted`."""
    return merged((rule for component in components for rule in component.rules), granted)


#: The right of a component that emits events.
RECORD_EVENTS = allow(EVENTS, "create", "patch")
#: The right of a component that writes the status of Workloads.
WRITE_WORKLOAD_STATUS = allow(WORKLOADS, "patch", subresource="status")
