"""Commands in containers: what the nodes that run pods offer to requests for `exec`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple, Protocol

from pykueue.api.objects import Object

#: The streams a command writes.
OUTPUT, ERRORS = 1, 2


class Session(Protocol):
    """A command that was started."""

    def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What it writes: OUTPUT or ERRORS, and the text."""

    async def write(self, data: bytes) -> None:
        """Give it input."""

    def end_input(self) -> None:
        """There is no more input."""

    def resize(self, width: int, height: int) -> None:
        """Its terminal has another size now."""

    async def exit_code(self) -> int:
        """Wait for its end."""

    def kill(self) -> None:
        """End the command: its client has gone."""


class Wanted(NamedTuple):
    """What is to be started."""

    container: str
    command: list[str]
    input: bool
    terminal: bool


#: Starts a command in a container of a pod. Raises ApiError when that is not possible.
Enter = Callable[[Object, Wanted], Awaitable[Session]]
