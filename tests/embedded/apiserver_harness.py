"""A server in virtual time, and short ways to say what a client does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH, MERGE_PATCH, Request, WatchEvent

Object = dict[str, Any]

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


class Api:
    """What one user can ask of the server."""

    def __init__(self, server: Server, clock: Clock, user: str = "system:admin", groups: Any = None) -> None:
        self.server, self.clock = server, clock
        self._transport = server.transport(user, ("system:masters",) if groups is None else groups)
        self._watches: list[asyncio.Task[None]] = []

    async def request(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        return await self._transport.call(Request(method, path, query, body))

    async def get(self, path: str, **query: str) -> Any:
        return await self.request("GET", path, **query)

    async def create(self, path: str, body: Any, **query: str) -> Any:
        return await self.request("POST", path, body, **query)

    async def replace(self, path: str, body: Any, **query: str) -> Any:
        return await self.request("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, kind: str = MERGE_PATCH, **query: str) -> Any:
        return await self._transport.call(Request("PATCH", path, query, body, kind))

    async def apply(self, path: str, body: Any, manager: str = "me", **query: str) -> Any:
        return await self.patch(path, body, APPLY_PATCH, fieldManager=manager, **query)

    async def delete(self, path: str, body: Any = None, **query: str) -> Any:
        return await self.request("DELETE", path, body, **query)

    async def names(self, path: str, **query: str) -> list[str]:
        return [one["metadata"]["name"] for one in (await self.get(path, **query))["items"]]

    async def refused(self, asked: Awaitable[Any]) -> ApiError:
        """The error a request is refused with."""
        try:
            answer = await asked
        except ApiError as error:
            return error
        raise AssertionError(f"was accepted: {answer}")

    def watch(self, path: str, **query: str) -> list[WatchEvent]:
        """Events seen from now on, in a list that grows while time passes."""
        seen: list[WatchEvent] = []

        async def follow() -> None:
            try:
                async for event in self._transport.watch(Request("GET", path, query)):
                    seen.append(event)
            except ApiError as error:
                seen.append(WatchEvent("ERROR", {"code": error.code, "reason": error.reason}))

        self._watches.append(asyncio.get_running_loop().create_task(follow()))
        return seen

    async def pause(self, seconds: float = 1.0) -> None:
        await self.clock.sleep(seconds)

    async def close(self) -> None:
        for task in self._watches:
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)


def with_server(story: Callable[[Api], Awaitable[None]], seed: int = 1, history: int = 10_240) -> None:
    """Tell a story against a fresh server, in virtual time."""

    async def main(clock: Clock) -> None:
        server = Server(MemoryStore(history), clock, random.Random(seed))
        await server.start()
        api = Api(server, clock)
        try:
            await story(api)
        finally:
            await api.close()
            await server.stop()

    run_virtual(main)


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata: Object = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def widget_definition(**version: Any) -> Object:
    """A CustomResourceDefinition with a status, a scale and a default."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "default": 3},
                    "color": {"type": "string", "enum": ["red", "blue"]},
                    "replicas": {"type": "integer"},
                },
            },
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                        },
                    },
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                    **version,
                }
            ],
        },
    }


def widget(name: str, **spec: Any) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
