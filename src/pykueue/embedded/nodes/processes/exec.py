"""Commands that are started in a running container, with their input and output: `kubectl exec`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import AsyncGenerator

from pykueue.embedded.nodes.processes.link import AgentError, Exit, Link

OUTPUT, ERRORS = 1, 2
_CHUNK = 32 * 1024
#: Chunks of output that wait to be taken before no more is read.
_WAITING = 16


class Command:
    """One command. Its pipes, or its terminal, are read only as fast as the output is consumed."""

    def __init__(self, link: Link, run: str) -> None:
        self._link = link
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._input: int | None = None
        self._outputs: dict[int, int] = {}
        self._terminal: int | None = None
        self._exit: asyncio.Future[Exit] = self._loop.create_future()

    @classmethod
    async def start(
        cls, link: Link, run: str, inside: str, argv: list[str], *, takes_input: bool, terminal: bool
    ) -> Command:
        """Start it in the container of a run. Raises AgentError."""
        made = cls(link, run)
        theirs = made._open_terminal() if terminal else made._open_pipes(takes_input=takes_input)
        link.on_exit(run, made._exit.set_result)
        try:
            await link.send_descriptors(theirs)
            await link.call("enter", run=run, inside=inside, argv=argv, given=True, terminal=terminal)
        except AgentError:
            link.forget(run)
            made.close()
            raise
        finally:
            for fd in set(theirs):
                os.close(fd)
        return made

    def _open_terminal(self) -> tuple[int, int, int]:
        ours, theirs = os.openpty()
        os.set_blocking(ours, False)
        self._terminal = self._input = ours
        self._outputs = {ours: OUTPUT}
        return theirs, theirs, theirs

    def _open_pipes(self, *, takes_input: bool) -> tuple[int, int, int]:
        if takes_input:
            stdin, self._input = os.pipe()
            os.set_blocking(self._input, False)
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        self._outputs = {out: OUTPUT, err: ERRORS}
        for fd in self._outputs:
            os.set_blocking(fd, False)
        return stdin, stdout, stderr

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What it writes (1: stdout, 2: stderr), until all writers have closed their ends."""
        read: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(_WAITING)
        readers = [asyncio.create_task(self._read(fd, read)) for fd in self._outputs]
        try:
            over = 0
            while over < len(readers):
                fd, data = await read.get()
                if data:
                    yield self._outputs[fd], data
                else:
                    over += 1
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _read(self, fd: int, read: asyncio.Queue[tuple[int, bytes]]) -> None:
        while True:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                await self._able(fd, write=False)
                continue
            except OSError:
                # A terminal whose other end is closed.
                data = b""
            await read.put((fd, data))
            if not data:
                return

    async def _able(self, fd: int, *, write: bool) -> None:
        """Wait until a descriptor can be read from, or written to."""
        ready = asyncio.Event()
        add, remove = (
            (self._loop.add_writer, self._loop.remove_writer)
            if write
            else (self._loop.add_reader, self._loop.remove_reader)
        )
        add(fd, ready.set)
        try:
            await ready.wait()
        finally:
            remove(fd)

    async def write(self, data: bytes) -> None:
        """Write to the process's standard input. Data written after it closed its input is discarded."""
        while data and self._input is not None:
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                await self._able(self._input, write=True)
            except OSError:
                return

    def end_input(self) -> None:
        """There is no more input."""
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                os.write(self._terminal, b"\x04")
        elif self._input is not None:
            os.close(self._input)
            self._input = None

    def resize(self, width: int, height: int) -> None:
        """Its terminal has another size now."""
        if self._terminal is not None:
            size = struct.pack("HHHH", height & 0xFFFF, width & 0xFFFF, 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    async def exit_code(self) -> int:
        """Wait for its end."""
        return (await self._exit).exit_code

    def kill(self) -> None:
        """Kill the process if it has not ended, and close its input and output."""
        if not self._exit.done():
            self._link.notify("signal", run=self._run, number=signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Close its input and output."""
        mine = {*self._outputs, *({self._input} if self._input is not None else ())}
        self._outputs, self._input, self._terminal = {}, None, None
        for fd in mine:
            os.close(fd)
