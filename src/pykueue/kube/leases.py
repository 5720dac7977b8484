"""Leader election: of several processes that could do the work, one does it.

The leader holds a Lease and renews it; a candidate that sees a Lease not renewed for its duration, by the
candidate's clock, takes it. A leader that shuts down releases its Lease, so that another takes over within
`retry`; after one that dies, another does within `duration`. A leader that cannot renew stops leading after
`deadline`, which is shorter than `duration`, so that no two lead at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.resources import LEASES
from pykueue.api.times import format_micro_time
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

#: Seconds that are no time at all: a timer may ring that much early, and must not be set again for the rest.
_INSTANT = 1e-3

log = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """The Lease could not be renewed in time. The process should end and start again as a follower."""


class LeaderElector:
    """Runs `lead` while this process, known as `identity`, holds the Lease `namespace/name`.

    All times are in seconds.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float = 15.0,
        deadline: float = 10.0,
        retry: float = 2.0,
    ) -> None:
        if not retry < deadline < duration:
            raise ValueError(
                f"retry ({retry:g} s) must be below deadline ({deadline:g} s) below duration ({duration:g} s)"
            )
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration = duration
        self._deadline = deadline
        self._retry = retry
        #: The Lease as last seen, and when that was on this process's clock.
        self._seen: Object | None = None
        self._seen_at = 0.0
        self.leading = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then lead until `lead` ends, the caller cancels or the Lease is lost.

        Raises LeadershipLost in the last case, after `lead` was cancelled and has ended.
        """
        asked = await self._acquire()
        log.info("%s leads by lease %s/%s", self._identity, self._namespace, self._name)
        self.leading = True
        work = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._keep(asked))
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
                return
            await _cancelled(work)
            await renewing
        finally:
            self.leading = False
            await _cancelled(renewing)
            await _cancelled(work)
            await self._release()

    async def _acquire(self) -> float:
        """Wait until the Lease is ours; when the request that made it so was sent, in loop time."""
        loop = asyncio.get_running_loop()
        while True:
            asked = loop.time()
            try:
                async with asyncio.timeout(self._deadline):
                    if await self._try():
                        return asked
            except (ApiError, ConnectionError, TimeoutError) as error:
                log.info("lease %s/%s: %s", self._namespace, self._name, error)
            await self._clock.sleep(self._retry)

    async def _keep(self, asked: float) -> None:
        """Renew the Lease until that fails for the deadline.

        It counts from when a request was sent: the Lease may have been renewed long before the answer came,
        and others count from what they see.
        """
        loop = asyncio.get_running_loop()
        give_up = asked + self._deadline
        why = ""
        while True:
            await self._clock.sleep(min(self._retry, give_up - loop.time()))
            asked = loop.time()
            try:
                async with asyncio.timeout_at(give_up):
                    held = await self._try()
            except (ApiError, ConnectionError, TimeoutError) as error:
                # A request that the deadline cut off says less than the one before it.
                why = str(error) or why or "the API server does not answer"
                log.info("lease %s/%s not renewed: %s", self._namespace, self._name, why)
            else:
                if held:
                    give_up, why = asked + self._deadline, ""
                else:
                    why = "another client writes it at the same time"
                if not held and self._holder() != self._identity:
                    raise LeadershipLost(f"{self._holder()} holds the lease")
            if loop.time() >= give_up - _INSTANT:
                lease = f"lease {self._namespace}/{self._name}"
                raise LeadershipLost(f"{lease} not renewed for {self._deadline:g} s: {why}")

    async def _try(self) -> bool:
        """Take or renew the Lease if it is ours to take; whether we hold it now."""
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            lease = None
        now = asyncio.get_running_loop().time()
        if lease is None:
            return await self._write(None)
        spec = lease.get("spec") or {}
        if self._seen is None or self._seen.get("spec") != lease.get("spec"):
            self._seen, self._seen_at = lease, now
        holder = spec.get("holderIdentity")
        if holder and holder != self._identity:
            duration = float(spec.get("leaseDurationSeconds") or self._duration)
            if now - self._seen_at < duration:
                return False
        return await self._write(lease)

    async def _write(self, lease: Object | None) -> bool:
        stamp = format_micro_time(self._clock.time())
        old: dict[str, Any] = (lease or {}).get("spec") or {}
        ours = old.get("holderIdentity") == self._identity
        spec: Object = {
            **old,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "acquireTime": old.get("acquireTime", stamp) if ours else stamp,
            "renewTime": stamp,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if ours or lease is None else 1),
        }
        try:
            if lease is None:
                new: Object = {
                    "apiVersion": LEASES.api_version,
                    "kind": LEASES.kind,
                    "metadata": {"name": self._name, "namespace": self._namespace},
                    "spec": spec,
                }
                self._seen = await self._client.create(LEASES, new)
            else:
                self._seen = await self._client.update(LEASES, {**lease, "spec": spec})
        except ApiError as error:
            if error.conflict or error.already_exists:
                # Another replica was faster; the next read says which.
                return False
            raise
        self._seen_at = asyncio.get_running_loop().time()
        return True

    def _holder(self) -> str:
        spec = (self._seen or {}).get("spec") or {}
        return str(spec.get("holderIdentity") or "no replica")

    async def _release(self) -> None:
        """Release the Lease for the next candidate; a failure is ignored."""
        with suppress(ApiError, ConnectionError, TimeoutError):
            async with asyncio.timeout(self._retry):
                lease = await self._client.get(LEASES, self._name, self._namespace)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") != self._identity:
                    return
                stamp = format_micro_time(self._clock.time())
                free = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": stamp}
                await self._client.update(LEASES, {**lease, "spec": free})


async def _cancelled(task: asyncio.Future[None]) -> None:
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
