"""Grace periods and restart back-off of process pods keep their length when the wall clock jumps."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from pykueue.api.times import format_time
from pykueue.clock import Clock, JumpingClock, run_virtual
from pykueue.embedded.nodes.addresses import Addresses
from pykueue.embedded.nodes.processes.host import POD_NETWORK, Host
from pykueue.embedded.nodes.processes.link import Abilities, Exit, Link
from pykueue.embedded.nodes.processes.pod import ProcessPod

HOUR = 3600.0
JUMPS = pytest.mark.parametrize("jump", [0.0, HOUR, -HOUR], ids=["no jump", "forward", "back"])


class Programs:
    """In place of the agent: programs that end when they are killed, or after `seconds` with code 1."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock, self._seconds = clock, seconds
        self._ends: dict[str, Callable[[Exit], None]] = {}
        #: Monotonic time and number of each signal; 0 for a start.
        self.log: list[tuple[float, int]] = []

    def on_exit(self, run: str, end: Callable[[Exit], None]) -> None:
        self._ends[run] = end

    async def call(self, method: str, *, run: str = "", **_: Any) -> None:
        if method == "start":
            self.log.append((self._clock.monotonic(), 0))
            if self._seconds is not None:
                self._clock.call_later(self._seconds, self._ends[run], Exit(1))

    def notify(self, _method: str, *, run: str, number: int) -> None:
        self.log.append((self._clock.monotonic(), number))
        if number == signal.SIGKILL:
            self._ends[run](Exit(-number))


def living(
    folder: Path,
    story: Callable[[JumpingClock, ProcessPod, Programs], Coroutine[Any, Any, None]],
    **options: Any,
) -> list[tuple[float, int]]:
    """The signals that the program of a pod's only container gets."""

    async def main(_: Clock) -> list[tuple[float, int]]:
        clock = JumpingClock(1_800_000_000.0)
        programs = Programs(clock, options.pop("seconds", None))
        no = "not here"
        host = Host(
            link=cast(Link, programs),
            abilities=Abilities("", no, no, no),
            folder=folder,
            clock=clock,
            sources=cast(Any, lambda _: None),
            token=cast(Any, None),
            event=lambda *_: None,
            addresses=Addresses(POD_NETWORK),
        )
        pod = ProcessPod(pod_of(options), host, "127.0.0.1", {}, lambda: None)
        life = asyncio.create_task(pod.run())
        try:
            await story(clock, pod, programs)
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        return programs.log

    return run_virtual(main)


def pod_of(options: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    container = {"name": "c", "image": "i", "command": ["program"]}
    return {"metadata": metadata, "spec": {"hostNetwork": True, "containers": [container], **options}}


@JUMPS
def test_grace_period_of_a_deletion_keeps_its_length(tmp_path: Path, jump: float) -> None:
    async def story(clock: JumpingClock, pod: ProcessPod, _: Programs) -> None:
        await clock.sleep(10)
        deletion = {"deletionTimestamp": format_time(clock.time() + 30), "deletionGracePeriodSeconds": 30}
        pod.refresh({**pod.pod, "metadata": {**pod.pod["metadata"], **deletion}})
        await clock.sleep(5)
        clock.offset += jump
        # The deletion is observed again, as at any change of the pod.
        pod.refresh(pod.pod)
        await clock.sleep(200)

    assert living(tmp_path, story) == [(0, 0), (10, signal.SIGTERM), (40, signal.SIGKILL)]


@JUMPS
def test_shortened_grace_period_keeps_its_length(tmp_path: Path, jump: float) -> None:
    async def story(clock: JumpingClock, pod: ProcessPod, _: Programs) -> None:
        await clock.sleep(10)
        pod.shut_down(clock.time(), clock.time() + 100)
        await clock.sleep(5)
        clock.offset += jump
        pod.shut_down(clock.time(), clock.time() + 15)
        await clock.sleep(200)

    log = living(tmp_path, story, terminationGracePeriodSeconds=60)
    assert log == [(0, 0), (10, signal.SIGTERM), (30, signal.SIGKILL)]


@JUMPS
def test_restart_back_off_counts_a_run_by_its_length(tmp_path: Path, jump: float) -> None:
    """Runs of 10 s never reset the back-off, which doubles from 10 s."""

    async def story(clock: JumpingClock, _pod: ProcessPod, _: Programs) -> None:
        await clock.sleep(35)
        clock.offset += jump  # in the third run
        await clock.sleep(200)

    log = living(tmp_path, story, seconds=10.0, restartPolicy="Always")
    assert [at for at, _ in log] == [0, 10, 30, 60, 110, 200]
