"""Creates a LocalQueue in every namespace that the namespaceSelector of a ClusterQueue matches.

Source: docs/reference/kueue-api.md 8.4.
"""

from __future__ import annotations

import logging
from typing import Any

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import LabelSelector
from pykueue.api.objects import Object, get, is_deleting, labels_of
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES
from pykueue.api.selectors import SelectorError
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.manager.components import Component, Context
from pykueue.manager.satellites import POPULATOR

from .configuration import PopulatorConfiguration

#: The name under which it emits events, and of its Lease.
NAME = POPULATOR.name

#: On LocalQueues that it made.
GENERATED_LABEL = "kueue.x-k8s.io/auto-generated"

log = logging.getLogger(__name__)


class Populator:
    """Keyed by namespace; LocalQueues are never changed or deleted."""

    def __init__(
        self,
        configuration: PopulatorConfiguration,
        client: Client,
        recorder: EventRecorder,
        clock: Clock,
        namespaces: Informer,
        cluster_queues: Informer,
        workers: int = 1,
    ) -> None:
        self._configuration = configuration
        self._client = client
        self._recorder = recorder
        self._namespaces = namespaces
        self._cluster_queues = cluster_queues
        self._controller = Controller(
            NAME,
            self._reconcile,
            clock=clock,
            workers=workers,
            wait_for=[namespaces.synced, cluster_queues.synced],
        )
        namespaces.on_event(self._namespace_changed)
        cluster_queues.on_event(self._cluster_queue_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _namespace_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._controller.queue.add(new["metadata"]["name"])

    def _cluster_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is None or (old is not None and get(old, "spec") == get(new, "spec")):
            return
        for namespace in self._namespaces.list():
            self._controller.queue.add(namespace["metadata"]["name"])

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(None, name)
        if namespace is None or is_deleting(namespace):
            return
        if not self._configuration.namespaces.matches(labels_of(namespace)):
            return
        queues = sorted(self._cluster_queues.list(), key=lambda one: str(one["metadata"]["name"]))
        for queue in queues:
            if not is_deleting(queue) and _admits(queue, namespace):
                await self._ensure(queue, name)

    async def _ensure(self, cluster_queue: Object, namespace: str) -> None:
        """Create the LocalQueue, unless one of its name is there. Raises ApiError."""
        target = cluster_queue["metadata"]["name"]
        name = self._configuration.local_queue_name or target
        found = await self._client.find(LOCAL_QUEUES, name, namespace)
        if found is not None:
            if get(found, "spec", "clusterQueue") != target:
                self._recorder.event(
                    cluster_queue,
                    WARNING,
                    "LocalQueueExists",
                    f"Skipping LocalQueue creation in namespace {namespace}, "
                    f"a LocalQueue with name {name} already exists",
                )
            return
        metadata = {"name": name, "namespace": namespace, "labels": {GENERATED_LABEL: "true"}}
        head = {"apiVersion": LOCAL_QUEUES.api_version, "kind": LOCAL_QUEUES.kind, "metadata": metadata}
        try:
            await self._client.create(LOCAL_QUEUES, {**head, "spec": {"clusterQueue": target}})
        except ApiError as error:
            if error.already_exists:
                raise
            self._recorder.event(
                cluster_queue,
                WARNING,
                "LocalQueueCreationFailed",
                f"Failed to create LocalQueue {name} in namespace {namespace}: {error}",
            )
            raise
        self._recorder.event(
            cluster_queue, NORMAL, "LocalQueueCreated", f"Created LocalQueue {name} in namespace {namespace}"
        )


def component(configuration: PopulatorConfiguration) -> Component:
    """The populator as a part of a manager (`Manager.add`)."""

    def build(context: Context) -> Populator:
        return Populator(
            configuration,
            context.connection.client,
            context.recorder(NAME),
            context.clock,
            context.connection.informer(NAMESPACES),
            context.connection.informer(CLUSTER_QUEUES),
            context.workers,
        )

    return Component(
        POPULATOR.command,
        "Creates a LocalQueue in every namespace that a ClusterQueue admits from.",
        build,
        watches=POPULATOR.watches,
        writes=POPULATOR.writes,
    )


def _admits(cluster_queue: Object, namespace: Object) -> bool:
    """Whether the ClusterQueue's selector, all namespaces where there is none, matches a namespace."""
    selector = get(cluster_queue, "spec", "namespaceSelector")
    if selector is None:
        return True
    try:
        return decode_as(LabelSelector, selector).matches(labels_of(namespace))
    except (DecodeError, SelectorError) as error:
        log.warning("ClusterQueue %s: namespaceSelector: %s", cluster_queue["metadata"]["name"], error)
        return False
