"""The client of the agent: starts it, sends requests, receives sockets and reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, NamedTuple

Message = dict[str, Any]

#: The agent's program; two file descriptors follow.
PROGRAM = (sys.executable, "-m", "pykueue.embedded.nodes.processes.agent")
#: Seconds after which an agent that was asked to end is killed.
_STOP_TIME = 5.0
_CHUNK = 256 * 1024


class AgentError(Exception):
    """The agent refused or failed: `stage` is that of a launch (see `launch`), or empty."""

    def __init__(self, text: str, stage: str = "") -> None:
        super().__init__(text)
        self.stage = stage


class AgentGoneError(AgentError):
    """The agent has ended, and everything it ran with it."""


class Exit(NamedTuple):
    """How a process ended."""

    #: Negative: the number of the signal that ended it.
    code: int
    #: Whether it was killed for want of memory.
    out_of_memory: bool = False
    #: Of commands inside a container.
    output: str = ""

    @property
    def exit_code(self) -> int:
        """As a shell reports it: 128 and the signal's number."""
        return self.code if self.code >= 0 else 128 - self.code


class Abilities(NamedTuple):
    """What the user may do on this machine: empty, or why not."""

    processes: str
    mounts: str
    network: str
    limits: str


class Link:
    """One agent."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._descriptors: socket.socket | None = None
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._exits: dict[str, Callable[[Exit], None]] = {}
        self._count = 0
        self._partial = b""
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        #: Done when the agent has ended.
        self.gone = asyncio.Event()

    async def start(self) -> None:
        """Start the agent. Raises OSError."""
        control, theirs = socket.socketpair()
        descriptors, their_descriptors = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, their_descriptors:
            fds = (theirs.fileno(), their_descriptors.fileno())
            self._process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                *map(str, fds),
                pass_fds=fds,
                stdin=asyncio.subprocess.DEVNULL,
            )
        control.setblocking(False)
        self._control, self._descriptors = control, descriptors
        asyncio.get_running_loop().add_reader(control.fileno(), self._readable)
        self._writer = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """End the agent, and with it everything it runs."""
        if self._control is None:
            return
        self._close()
        assert self._process is not None
        assert self._writer is not None
        assert self._descriptors is not None
        self._writer.cancel()
        await asyncio.gather(self._writer, return_exceptions=True)
        self._descriptors.close()
        try:
            async with asyncio.timeout(_STOP_TIME):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def call(self, do: str, **arguments: Any) -> Any:
        """Send a request and return its result. Raises AgentError."""
        if self._control is None or self.gone.is_set():
            raise AgentGoneError("the program that runs containers has ended")
        self._count += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[self._count] = future
        request = {"id": self._count, "do": do, **arguments}
        self._outgoing.put_nowait(json.dumps(request).encode() + b"\n")
        return await future

    def notify(self, do: str, **arguments: Any) -> None:
        """Send a request without waiting for its result."""
        if self._control is not None and not self.gone.is_set():
            self._outgoing.put_nowait(json.dumps({"id": 0, "do": do, **arguments}).encode() + b"\n")

    async def begin(self, folder: Path, gateway: str, pods: IPv4Network, services: IPv4Network) -> Abilities:
        """Set up what pods share; what there is, and why there is not more. `folder` is empty. AgentError."""
        found = await self.call(
            "begin",
            folder=str(folder),
            gateway=gateway,
            prefix=pods.prefixlen,
            services=str(services.network_address),
            services_prefix=services.prefixlen,
        )
        return Abilities(**found)

    def on_exit(self, run: str, callback: Callable[[Exit], None]) -> None:
        """Call back once when the run has ended."""
        self._exits[run] = callback

    def forget(self, run: str) -> None:
        """The run was not started after all."""
        self._exits.pop(run, None)

    async def socket(self, kind: str, bind: tuple[str, int] | None = None) -> socket.socket:
        """A socket (`tcp` or `udp`) of the nodes' network; bound if an address is given. AgentError."""
        assert self._descriptors is not None
        await self.call("socket", kind=kind, bind=bind)
        _, (fd, *_), _, _ = socket.recv_fds(self._descriptors, 1, 1, socket.MSG_CMSG_CLOEXEC)
        made = socket.socket(fileno=fd)
        made.setblocking(False)
        return made

    async def send_descriptors(self, fds: Sequence[int]) -> None:
        """Hand over descriptors, for the call that follows. Raises AgentGoneError."""
        if self._descriptors is None or self.gone.is_set():
            raise AgentGoneError("the program that runs containers has ended")
        socket.send_fds(self._descriptors, [b"d"], list(fds))

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._control is not None:
            data = await self._outgoing.get()
            with contextlib.suppress(OSError):
                await loop.sock_sendall(self._control, data)

    def _readable(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: Message) -> None:
        if "exited" in message:
            on_exit = self._exits.pop(message["exited"], None)
            if on_exit is not None:
                on_exit(Exit(message["code"], message["oom"], message.get("output", "")))
            return
        future = self._asked.pop(message["id"], None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(AgentError(message["error"], message["stage"]))
        else:
            future.set_result(message["result"])

    def _close(self) -> None:
        if self.gone.is_set():
            return
        assert self._control is not None
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self.gone.set()
        asked, self._asked = self._asked, {}
        for future in asked.values():
            if not future.done():
                future.set_exception(AgentGoneError("the program that runs containers has ended"))
