"""How commands connect to a cluster and to its leading manager."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError, load
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request

T = TypeVar("T")

#: Attempts to reach the leader: the Service sends requests to replicas that do not lead, too.
ATTEMPTS = 10


def ask(kubeconfig: Path | None, question: Callable[[Client], Awaitable[T]]) -> T:
    """What a function reads from the cluster. Raises ClickException where that fails."""

    async def answer() -> T:
        transport = await load(kubeconfig)
        try:
            return await question(Client(transport))
        finally:
            await transport.close()

    try:
        return asyncio.run(answer())
    except (ApiError, ConfigError, ConnectionError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None


async def from_leader(client: Client, path: str) -> dict[str, Any]:
    """The object that the leading manager serves at a path of the visibility API. Raises ApiError."""
    request = Request("GET", path)
    for _ in range(ATTEMPTS - 1):
        try:
            first: dict[str, Any] = await client.call(request)
            return first
        except ApiError as error:
            if error.code != 503:
                raise
    last: dict[str, Any] = await client.call(request)
    return last
