"""Informers that take their first list from a watch, and servers that cannot send it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from pykueue.api.resources import NODES
from pykueue.clock import Clock, run_virtual
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.kube.transport import Request, WatchEvent


class WithoutStreamedLists:
    """A server that lists, and refuses to send lists as watches, as kube-apiserver does on some storage."""

    def __init__(self) -> None:
        self.refused = 0

    async def call(self, request: Request) -> Any:
        metadata = {"name": "node-0", "uid": "1", "resourceVersion": "7"}
        return {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": metadata}]}

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        if "sendInitialEvents" in request.query:
            self.refused += 1
            raise ApiError(
                500, "InternalError", "the required storage feature RequestWatchProgress is disabled"
            )
        await asyncio.get_running_loop().create_future()
        yield WatchEvent("BOOKMARK", {})

    async def close(self) -> None:
        """Nothing to give back."""


def test_a_refused_streamed_list_is_replaced_by_a_plain_one() -> None:
    async def main(clock: Clock) -> None:
        server = WithoutStreamedLists()
        informer = Informer(Client(server, clock=clock), NODES, clock=clock, stream=True)
        running = asyncio.create_task(informer.run())
        async with asyncio.timeout(5):
            await informer.synced()
        assert [node["metadata"]["name"] for node in informer.list()] == ["node-0"]
        assert server.refused == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtual(main)
