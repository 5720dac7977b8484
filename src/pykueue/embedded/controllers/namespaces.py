"""Namespaces: a deleted one goes when nothing is left in it.

Source: docs/reference/cluster-workloads.md, 4.9; docs/reference/kubernetes-api-machinery.md, 13.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pykueue.api.meta import new_condition
from pykueue.api.objects import Object, condition_of, is_deleting
from pykueue.api.resources import NAMESPACES, Resource
from pykueue.clock import Clock
from pykueue.embedded.controllers.inventory import Entry, Inventory
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.kube.transport import Request

FINALIZER = "kubernetes"
#: Seconds after which a namespace is looked at again when something in it went.
BATCH_DELAY = 0.1
#: Seconds after which a namespace whose content will not go is tried again.
RETRY = 5.0

WORKERS = 10

_DISCOVERED = "All resources successfully discovered"
_DELETED = "All content successfully deleted, may be waiting on finalization"


class NamespaceController:
    """Keyed by name; run by `run`, beside its inventory."""

    def __init__(self, client: Client, namespaces: Informer, inventory: Inventory, clock: Clock) -> None:
        self._client = client
        self._namespaces = namespaces
        self._inventory = inventory
        self._clock = clock
        self._controller: Controller[str] = Controller(
            "namespace",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[namespaces.synced, inventory.synced],
        )
        namespaces.on_event(self._namespace_changed)
        inventory.on_change(self._content_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _namespace_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and is_deleting(new):
            self._controller.queue.add(new["metadata"]["name"])

    def _content_changed(self, old: Entry | None, new: Entry | None) -> None:
        if old is None or new is not None or not old.namespace:
            return
        namespace = self._namespaces.get(None, old.namespace)
        if namespace is not None and is_deleting(namespace):
            self._controller.queue.add_after(old.namespace, BATCH_DELAY)

    async def _sync(self, name: str) -> float | None:
        namespace = self._namespaces.get(None, name)
        if namespace is None or not is_deleting(namespace):
            return None
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        if FINALIZER not in finalizers:
            return None
        content = self._inventory.content(name)
        if any(not entry.deleting for entry in content) or not content:
            if await self._empty(name, content):
                return RETRY  # the inventory shows it later
            content = self._inventory.content(name)
        if content:
            await self._report(namespace, content)
            return RETRY
        left = [one for one in finalizers if one != FINALIZER]
        try:
            await self._client.update(
                NAMESPACES, {**namespace, "spec": {"finalizers": left}}, subresource="finalize"
            )
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    async def _empty(self, name: str, content: list[Entry]) -> bool:
        """Delete all content; whether there was some that is not known here.

        When none is known the server is asked: a watch may be behind.
        """
        known = {entry.resource for entry in content if not entry.deleting}
        unknown = False
        for resource in self._inventory.namespaced:
            if resource.plural == "events":
                await self._client.delete_collection(resource, name)
            elif resource in known or (not content and await self._any(resource, name)):
                unknown |= resource not in known
                await self._client.delete_collection(resource, name)
        return unknown

    async def _any(self, resource: Resource, namespace: str) -> bool:
        found = await self._client.call(Request("GET", resource.path(namespace), {"limit": "1"}))
        return bool(found.get("items"))

    async def _report(self, namespace: Object, content: list[Entry]) -> None:
        """Write to the namespace's conditions what is left and which finalizers block it."""
        kinds = Counter(_qualified(entry.resource) for entry in content)
        holders = Counter(finalizer for entry in content for finalizer in entry.finalizers)
        left = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(kinds.items()))
        held = ", ".join(
            f"{finalizer} in {count} resource instances" for finalizer, count in sorted(holders.items())
        )
        wanted = [
            ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", _DISCOVERED),
            ("NamespaceDeletionContentFailure", "False", "ContentDeleted", _DELETED),
            (
                "NamespaceContentRemaining",
                "True",
                "SomeResourcesRemain",
                f"Some resources are remaining: {left}",
            ),
        ]
        if held:
            text = f"Some content in the namespace has finalizers remaining: {held}"
            wanted.append(("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", text))
        else:
            text = "All content-preserving finalizers finished"
            wanted.append(("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", text))
        status = namespace.get("status") or {}
        now = self._clock.time()
        conditions = [
            new_condition(condition_of(status, type_), type_, value, reason, message, now)
            for type_, value, reason, message in wanted
        ]
        if conditions != (status.get("conditions") or []):
            patch = {"status": {"conditions": conditions}}
            await self._client.patch(
                NAMESPACES, namespace["metadata"]["name"], None, patch, subresource="status"
            )


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"
