"""A manager with a flight recorder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from manager_stack import Manifests, Stack, story

from pykueue.manager.recorder import Limits, component
from pykueue.manager.recorder.files import prepare_directory


def record(
    folder: Path,
    life: Callable[[Stack], Awaitable[None]],
    queues: Manifests,
    limits: Limits | None = None,
) -> None:
    """Record a manager with these queues into a directory, which is created, while `life` happens."""
    prepare_directory(folder)

    async def main(s: Stack) -> None:
        s.manager.add(component(folder, limits or Limits()))
        await s.settle(1)
        await life(s)

    story(main, queues=queues)
