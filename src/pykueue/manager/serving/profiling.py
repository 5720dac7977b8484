"""What the process does and what its memory holds, for those who look into a slow or large manager.

Off unless `pprofBindAddress` is given. The paths are those that people know; what they answer is Python's.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import marshal
import pstats
import sys
import threading
import traceback
import tracemalloc

from .messages import Handler, Request, Response, plain, refusal

_ROOT = "/debug/pprof"
#: Seconds that a profile takes unless asked otherwise, and at most.
_SECONDS, _MOST_SECONDS = 10.0, 120.0
#: Lines of a table.
_LINES = 50
#: Frames kept per allocation.
_FRAMES = 1

_INDEX = f"""{_ROOT}/goroutine   what every task and thread waits for
{_ROOT}/profile?seconds=10&sort=cumulative   where the event loop spends its time; &raw=true for pstats
{_ROOT}/heap?action=start|stop   what holds memory, by line; start it first, then look, then stop it
"""


def handlers() -> dict[str, Handler]:
    """A handler for every path."""
    profiler = _Profiler()
    return {
        _ROOT: _index,
        f"{_ROOT}/": _index,
        f"{_ROOT}/goroutine": _stacks,
        f"{_ROOT}/profile": profiler.profile,
        f"{_ROOT}/heap": _heap,
    }


async def _index(request: Request) -> Response:
    return plain(_INDEX)


async def _stacks(request: Request) -> Response:
    """Every task and every thread with its stack."""
    text = io.StringIO()
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        print(f"task {task.get_name()}: {task.get_coro()}", file=text)
        task.print_stack(file=text)
        print(file=text)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        print(f"thread {names.get(ident, ident)}", file=text)
        traceback.print_stack(frame, file=text)
        print(file=text)
    return plain(text.getvalue())


class _Profiler:
    """One profile at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def profile(self, request: Request) -> Response:
        try:
            seconds = float(request.query.get("seconds", _SECONDS))
        except ValueError:
            seconds = -1.0
        sort = request.query.get("sort", "tottime")
        if not 0 < seconds <= _MOST_SECONDS or sort not in pstats.Stats.sort_arg_dict_default:
            return refusal(400, f"seconds: above 0, at most {_MOST_SECONDS:g}; sort: a column of pstats")
        if self._lock.locked():
            return refusal(503, "a profile is being taken")
        async with self._lock:
            profile = cProfile.Profile()
            try:
                profile.enable()
            except ValueError as error:
                return refusal(503, str(error))
            try:
                await asyncio.sleep(seconds)
            finally:
                profile.disable()
        if request.query.get("raw"):
            return Response(_raw(profile), "application/octet-stream")
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats(sort).print_stats(_LINES)
        return plain(text.getvalue())


def _raw(profile: cProfile.Profile) -> bytes:
    """What `python -m pstats` reads from a file."""
    profile.create_stats()
    return marshal.dumps(profile.stats)


async def _heap(request: Request) -> Response:
    """What was allocated since tracing began and is still held, by line."""
    action = request.query.get("action", "")
    if action == "start":
        tracemalloc.start(_FRAMES)
        return plain("allocations are traced from now on; this costs time and memory\n")
    if action == "stop":
        tracemalloc.stop()
        return plain("allocations are not traced any more\n")
    if action:
        return refusal(400, "action: start or stop")
    if not tracemalloc.is_tracing():
        return refusal(503, f"allocations are not traced: {_ROOT}/heap?action=start")
    found = tracemalloc.take_snapshot().statistics("lineno")
    held, peak = tracemalloc.get_traced_memory()
    lines = [f"held {held} bytes, at most {peak}", *(str(each) for each in found[:_LINES])]
    return plain("\n".join(lines) + "\n")
