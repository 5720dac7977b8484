"""`/healthz`, `/livez` and `/readyz`: whether the server works, and which part does not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from pykueue.clock import Clock
from pykueue.embedded.store.memory import MemoryStore, StoreError

#: Seconds a write may take to settle before the store counts as stuck.
_STORE_TIME = 2.0

#: Seconds a look at the store counts.
_LOOK_AGE = 1.0

ENDPOINTS = ("healthz", "livez", "readyz")


class Verdict(NamedTuple):
    """The answer to a health request."""

    code: int
    text: str


class Health:
    """Runs the checks."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: What the last look at the store found, and until when that counts.
        self._found, self._until = "", 0.0
        #: Set once everything stored is served, and no longer when the server stops.
        self.serving = False

    async def _store_fault(self) -> str:
        """Why writes do not become durable, or nothing: the store is made to write, at most once a second."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._found = await self._look()
            self._until = now + _LOOK_AGE
        return self._found

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(_STORE_TIME):
                await self._store.settle()
                await self._store.prove()
        except StoreError as error:
            return str(error)
        except TimeoutError:
            return f"writes did not become durable within {_STORE_TIME:g}s"
        return ""

    async def _check(self, name: str) -> str:
        match name:
            case "store":
                return await self._store_fault()
            case "serving":
                return "" if self.serving else "the server is starting or stopping"
        return ""  # ping: being asked at all

    async def answer(self, path: str, query: Mapping[str, str]) -> Verdict:
        """The answer at a path such as `readyz` or `livez/store`."""
        endpoint, _, wanted = path.strip("/").partition("/")
        names = ["ping", "store", *(["serving"] if endpoint == "readyz" else [])]
        if endpoint not in ENDPOINTS or (wanted and wanted not in names):
            return Verdict(404, "404 page not found\n")
        if wanted:
            names = [wanted]
        excluded = set(query.get("exclude", "").split(","))
        lines, failed = [], False
        for name in names:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            fault = await self._check(name)
            failed = failed or bool(fault)
            lines.append(f"[-]{name} failed: {fault}" if fault else f"[+]{name} ok")
        if failed:
            return Verdict(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
        if "verbose" in query and not wanted:
            return Verdict(200, "\n".join([*lines, f"{endpoint} check passed", ""]))
        return Verdict(200, "ok")
