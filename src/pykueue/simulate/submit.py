"""Manifests into a cluster, as `kubectl create -f` would, at given times."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pykueue.api.yaml import load_documents
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.discovery import Discovery


def read(path: Path) -> list[dict[str, Any]]:
    """The objects of one manifest file."""
    return load_documents(path.read_text(), str(path))


class Submitter:
    """Creates and deletes the objects of manifests through the API."""

    def __init__(self, client: Client, discovery: Discovery, clock: Clock) -> None:
        self._client = client
        self._discovery = discovery
        self._clock = clock

    async def create(self, objects: Iterable[dict[str, Any]]) -> None:
        """Create each object in turn; raises ApiError at the first that is refused."""
        for obj in objects:
            resource = await self._discovery.find(obj["apiVersion"], obj["kind"])
            await self._client.create(resource, obj)

    async def create_at(self, schedule: Iterable[tuple[float, Iterable[dict[str, Any]]]]) -> None:
        """Create each group of objects at its time, in seconds from now; times must not decrease."""
        start = self._clock.time()
        for at, objects in schedule:
            await self._clock.sleep(start + at - self._clock.time())
            await self.create(objects)

    async def delete(self, objects: Iterable[dict[str, Any]]) -> None:
        """Delete each object, and in the background what it owns."""
        for obj in objects:
            resource = await self._discovery.find(obj["apiVersion"], obj["kind"])
            metadata = obj["metadata"]
            await self._client.delete(
                resource, metadata["name"], metadata.get("namespace"), propagation="Background"
            )
