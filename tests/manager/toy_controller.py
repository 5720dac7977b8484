"""A custom component: counts the ConfigMaps of each namespace into an annotation of the namespace."""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import replaced
from pykueue.api.resources import CONFIG_MAPS, NAMESPACES
from pykueue.kube.controller import Controller
from pykueue.manager.components import Component, Context
from pykueue.manager.rights import allow

ANNOTATION = "example.com/config-maps"


class ConfigMapCounter:
    """Keyed by namespace."""

    def __init__(self, context: Context) -> None:
        self._writer = context.connection.writer
        self._namespaces = context.cluster.namespaces
        self._config_maps = context.connection.informer(CONFIG_MAPS)
        self.controller = Controller(
            "config map counter",
            self.reconcile,
            clock=context.clock,
            workers=context.workers,
            wait_for=[self._config_maps.synced],
        )
        self._config_maps.on_event(self._changed)

    async def run(self) -> None:
        await self.controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        self.controller.queue.add((old if new is None else new)["metadata"]["namespace"])

    async def reconcile(self, name: str) -> None:
        namespace = self._namespaces.get("", name)
        if namespace is not None:
            count = str(len(self._config_maps.list(name)))
            desired = replaced(namespace, ("metadata", "annotations", ANNOTATION), count)
            await self._writer.change(self._namespaces, namespace, desired)


TOY = Component(
    "config-maps",
    "Counts ConfigMaps.",
    ConfigMapCounter,
    watches=(CONFIG_MAPS, NAMESPACES),
    writes=(allow(NAMESPACES, "patch"),),
    workers=2,
)
