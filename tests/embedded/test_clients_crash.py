"""Killed at any moment: what was acknowledged is there, versions only grow, watchers resume or start over.

`PYKUEUE_CRASHES` sets how often the server is killed; a few times unless told otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from pykueue.kube.config import load
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import MERGE_PATCH, Request, Transport

CRASHES = int(os.environ.get("PYKUEUE_CRASHES", "4"))
WRITERS = 6
NAMES_EACH = 12
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

#: What the server has of an object: its data, or None when it is not there.
State = dict[str, str] | None


class Server:
    """`pykueue up --only apiserver` in its own process, on one data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pykueue.cli.main", "up", "--only", "apiserver", "--port", "0",
             "--data-dir", str(self._folder)],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "KUBECONFIG=" in line:
                return
        raise AssertionError(f"the server ended with {self._process.wait()}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)

    def bury(self) -> None:
        assert self._process is not None
        self._process.communicate()

    async def transport(self) -> Transport:
        return await load(self._folder / "kubeconfig")


class Ledger:
    """What the server has acknowledged, and what it was asked and has not answered."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, State] = {}
        self.asked: dict[str, State] = {}
        #: The highest resourceVersion any answer or event has shown.
        self.highest = 0
        #: The same when the server was last started: everything new must be above.
        self.highest_at_start = 0
        self.writes = 0

    def saw(self, version: str) -> None:
        self.highest = max(self.highest, int(version))

    def settle(self, found: dict[str, State]) -> None:
        """Compare with what the server has after a restart, and start from there."""
        for name, state in self.acknowledged.items():
            allowed = [state, self.asked[name]] if name in self.asked else [state]
            assert found.get(name) in allowed, f"{name}: acknowledged {allowed[0]}, found {found.get(name)}"
        unknown = found.keys() - self.acknowledged.keys() - self.asked.keys()
        assert not unknown, f"{unknown} were never created"
        self.acknowledged = {name: found.get(name) for name in self.acknowledged.keys() | found.keys()}
        self.asked.clear()
        self.highest_at_start = self.highest


async def write(transport: Transport, ledger: Ledger, rng: random.Random, mine: list[str]) -> None:
    """Create, change and delete objects of one's own until the server is gone."""
    while True:
        name = rng.choice(mine)
        before = ledger.acknowledged.get(name)
        value = str(ledger.writes)
        if before is None:
            after: State = {"value": value}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": after}
            request = Request("POST", CONFIG_MAPS, {}, body)
        elif rng.random() < 0.3:
            after, request = None, Request("DELETE", f"{CONFIG_MAPS}/{name}")
        else:
            after = {"value": value}
            request = Request("PATCH", f"{CONFIG_MAPS}/{name}", {}, {"data": after}, MERGE_PATCH)
        ledger.asked[name] = after
        floor = ledger.highest_at_start
        answer = await transport.call(request)
        del ledger.asked[name]
        ledger.acknowledged[name] = after
        ledger.writes += 1
        version = answer["metadata"].get("resourceVersion")
        if version is not None:
            assert int(version) > floor
            ledger.saw(version)


class Mirror:
    """A cache kept as an informer keeps one: list, watch, resume, list again after 410."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.version = ""
        self.objects: dict[str, State] = {}
        self.started_over = 0

    async def follow(self, transport: Transport) -> None:
        if self.version:
            try:
                await self._watch(transport)
            except ApiError as error:
                if error.code != 410:
                    raise
                self.started_over += 1
        listed = await transport.call(Request("GET", CONFIG_MAPS))
        self.objects = {one["metadata"]["name"]: one.get("data") for one in listed["items"]}
        self.version = listed["metadata"]["resourceVersion"]
        await self._watch(transport)

    async def _watch(self, transport: Transport) -> None:
        query = {"watch": "true", "resourceVersion": self.version, "allowWatchBookmarks": "true"}
        async with aclosing(transport.watch(Request("GET", CONFIG_MAPS, query))) as events:
            async for event in events:
                meta = event.object["metadata"]
                assert int(meta["resourceVersion"]) > int(self.version), "versions go back"
                self.version = meta["resourceVersion"]
                self._ledger.saw(self.version)
                if event.type == "DELETED":
                    del self.objects[meta["name"]]
                elif event.type != "BOOKMARK":
                    self.objects[meta["name"]] = event.object.get("data")


async def contents(transport: Transport) -> tuple[dict[str, State], int]:
    listed = await transport.call(Request("GET", CONFIG_MAPS))
    found: dict[str, Any] = {one["metadata"]["name"]: one.get("data") for one in listed["items"]}
    return found, int(listed["metadata"]["resourceVersion"])


async def until_killed(
    server: Server, transport: Transport, ledger: Ledger, mirror: Mirror, rng: random.Random
) -> None:
    """Write and watch until the server is killed, at a random time."""
    names = [[f"{writer}-{number}" for number in range(NAMES_EACH)] for writer in range(WRITERS)]
    work = [write(transport, ledger, random.Random(rng.random()), mine) for mine in names]
    tasks = [asyncio.ensure_future(one) for one in [*work, mirror.follow(transport)]]
    asyncio.get_running_loop().call_later(rng.uniform(0.0, 0.4), server.kill)
    try:
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, (ConnectionError, TimeoutError)), repr(ended)
    finally:
        for task in tasks:
            task.cancel()


@pytest.mark.timeout(120 + 30 * CRASHES)
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        server, ledger, rng = Server(tmp_path / "data"), Ledger(), random.Random()
        mirror = Mirror(ledger)
        for _ in range(CRASHES):
            server.start()
            transport = await server.transport()
            found, version = await contents(transport)
            assert version >= ledger.highest, "a version that was shown is not there any more"
            ledger.settle(found)
            await until_killed(server, transport, ledger, mirror, rng)
            server.bury()
            await transport.close()
        server.start()
        transport = await server.transport()
        found, version = await contents(transport)
        assert version >= ledger.highest
        ledger.settle(found)
        # The history ended with the process: watches that are behind get 410 and list again.
        first = Request("GET", CONFIG_MAPS, {"watch": "true", "resourceVersion": "1"})
        with pytest.raises(ApiError) as gone:
            await anext(transport.watch(first))
        assert gone.value.code == 410
        following = asyncio.ensure_future(mirror.follow(transport))
        while mirror.objects != found:
            assert not following.done() or following.result()
            await asyncio.sleep(0.01)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await transport.close()
        server.kill()
        server.bury()
        assert ledger.writes
        print(f"{CRASHES} crashes, {ledger.writes} writes, {mirror.started_over} watches started over")

    asyncio.run(main())
