"""A way for a process to end between two writes.

Cancelling a write that is on its way leaves open whether it takes effect, and lets it take effect after the
process has given up its lease. A draining transport lets the writes that have begun come back and begins no
other; writes requested meanwhile wait until they are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from .transport import Request, Transport, WatchEvent


class DrainingTransport:
    """Carries everything until drained, and then only what does not write. Closing is left to its owner."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._under_way = 0
        self._idle: asyncio.Event | None = None

    async def call(self, request: Request) -> Any:
        if request.method == "GET":
            return await self._inner.call(request)
        if self._idle is not None:
            await asyncio.get_running_loop().create_future()
        self._under_way += 1
        try:
            return await self._inner.call(request)
        finally:
            self._under_way -= 1
            if self._under_way == 0 and self._idle is not None:
                self._idle.set()

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.watch(request)

    async def close(self) -> None:
        """Nothing: the transport inside may have other users."""

    async def drain(self, seconds: float) -> bool:
        """Begin no further write and wait so long for those under way; whether all came back."""
        self._idle = asyncio.Event()
        if self._under_way == 0:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        return self._under_way == 0
