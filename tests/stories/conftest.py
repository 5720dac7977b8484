"""Stories: the whole stack in one process and in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.embedded.nodes.pool import load_pools
from pykueue.kube.client import Client
from pykueue.kube.discovery import Discovery
from pykueue.manager.configuration import Configuration, parse
from pykueue.simulate.history import History
from pykueue.simulate.submit import Submitter

EXAMPLE = Path(__file__).parents[2] / "examples" / "all-or-nothing"


@dataclass
class Story:
    """A running cluster and what a story needs to act on it and to see what happens."""

    clock: Clock
    client: Client
    submitter: Submitter
    history: History


@asynccontextmanager
async def story_cluster(clock: Clock, configuration: Configuration | None = None) -> AsyncIterator[Story]:
    """The cluster of the all-or-nothing example, until the body ends."""
    cluster = Cluster(
        clock=clock,
        rng=random.Random(1),
        configuration=configuration,
        pools=load_pools(EXAMPLE / "nodes.yaml"),
    )
    await cluster.start()
    running = asyncio.create_task(cluster.run())
    await cluster.synced()
    transport = cluster.transport("story")
    client = Client(transport, clock=clock)
    history = History(client, clock)
    following = asyncio.create_task(history.run())
    try:
        yield Story(clock, client, Submitter(client, Discovery(transport), clock), history)
    finally:
        for task in (following, running):
            task.cancel()
        await asyncio.gather(following, running, return_exceptions=True)
        await cluster.stop()


def play(story: Callable[[Story], Awaitable[None]], configuration: str | None = None) -> None:
    """Run a story in virtual time; `configuration` is the text of a configuration file."""

    async def main(clock: Clock) -> None:
        settings = None if configuration is None else parse(configuration)
        async with story_cluster(clock, settings) as ready:
            await story(ready)

    run_virtual(main)
