"""What every long-running command does: log, and run until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

#: Set once the standard input that `stop_at_end_of_input` reads has ended: a signal that comes before the
#: event loop has a handler for it may be lost.
_input_ended = threading.Event()


def log_to_stderr(verbose: bool) -> None:
    """Warnings only, or everything of note and the decisions of the manager."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if verbose:
        logging.getLogger("pykueue.manager.scheduler.decision_log").setLevel(logging.DEBUG)


def stop_at_end_of_input() -> None:
    """Stop this process, as Ctrl-C would, when its standard input ends: that which started it is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        _input_ended.set()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="end of input", daemon=True).start()


@contextlib.contextmanager
def held_back(logger: str) -> Iterator[Callable[[], None]]:
    """Hold back what a logger says until the given function is called; without that it is dropped.

    For a phase whose first error ends the process and says the same.
    """
    records: list[logging.LogRecord] = []
    source = logging.getLogger(logger)

    def hold(record: logging.LogRecord) -> bool:
        records.append(record)
        return False

    def release() -> None:
        source.removeFilter(hold)
        for record in records:
            source.handle(record)
        records.clear()

    source.addFilter(hold)
    try:
        yield release
    finally:
        source.removeFilter(hold)


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where it is installed: it needs a fifth less CPU than asyncio."""
    try:
        try:
            import uvloop
        except ModuleNotFoundError:
            return asyncio.run(main)
        return uvloop.run(main)
    finally:
        main.close()  # Ctrl-C may come before it has been started.


def collect_less_often() -> None:
    """Look for unused cycles of objects less often, and most of all through everything there is.

    Few things here die in cycles, mostly soon after they were made, while every search goes through objects
    that live long: with Python's own setting a tenth of the time of a write goes into it. A manager finds
    under 200 such objects in all, an hour of a cluster with 50 000 pods none. A search through everything
    takes seconds in a large cluster; it comes after ten million new objects at the earliest.
    """
    gc.set_threshold(50_000, 10, 20)


def leave_out_of_collections() -> None:
    """Look for unused cycles only among what comes from now on: what a start has made lives long."""
    gc.freeze()


@contextlib.asynccontextmanager
async def collecting_after(start: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Within the block, look for unused cycles only when `start` has returned, and among what came since.

    What a start reads lives long; looking through it costs time that grows with it, then and ever after.
    """

    async def began() -> None:
        try:
            await start()
        finally:
            leave_out_of_collections()
            gc.enable()

    gc.disable()
    task = asyncio.ensure_future(began())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def until_stopped(
    work: Coroutine[Any, Any, None],
) -> AsyncIterator[Callable[[Awaitable[Any] | None], Awaitable[None]]]:
    """Run `work` while the body runs; what it is given waits for SIGINT, SIGTERM or the end of `work`.

    Given an awaitable it waits for that too, whichever is first. An error of `work` is raised where it waits.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if _input_ended.is_set():
        stop.set()
    running = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())

    async def wait(sooner: Awaitable[Any] | None = None) -> None:
        others = set() if sooner is None else {asyncio.ensure_future(sooner)}
        await asyncio.wait({running, stopping, *others}, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if running.done():
            running.result()

    try:
        yield wait
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)
