"""How a running container is: its startup, readiness and liveness probes, and its postStart hook."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pykueue.api.objects import Object
from pykueue.embedded.nodes.containers import Container
from pykueue.embedded.nodes.processes.host import Host
from pykueue.embedded.nodes.processes.link import AgentGoneError
from pykueue.embedded.nodes.processes.probes import ProbeFailedError, Target, ask

#: Ends the run: why, and the seconds of grace, None for the pod's.
Restart = Callable[[str, float | None], Awaitable[None]]

_PERIOD, _TIMEOUT, _FAILURES = 10.0, 1.0, 3


class Health:
    """Of one run of one container."""

    def __init__(
        self,
        host: Host,
        target: Target,
        *,
        progressed: Callable[[], None],
        say: Callable[[str], None],
        restart: Restart,
    ) -> None:
        self._host = host
        self._target = target
        self._progressed = progressed
        self._say = say
        self._restart = restart
        spec = target.container
        self.passed_startup = not spec.get("startupProbe")
        self._answers = not spec.get("readinessProbe")
        self._task: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be counted on now."""
        return self.passed_startup and self._answers

    def start(self, container: Container) -> None:
        """Begin to ask."""
        spec = container.spec
        hook = (spec.get("lifecycle") or {}).get("postStart")
        if hook or any(spec.get(f"{kind}Probe") for kind in ("startup", "readiness", "liveness")):
            self._task = asyncio.create_task(self._follow(container, hook))

    def stop(self) -> None:
        """The run is over."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, container: Container, hook: Object | None) -> None:
        spec = container.spec
        try:
            if hook:
                try:
                    await ask(self._host, self._target, hook, None)
                except ProbeFailedError as error:
                    self._say(f"postStart hook failed: {error}")
                    await self._restart("failed its postStart hook, will be ended", None)
                    return
            startup = spec.get("startupProbe")
            if startup:
                if not await self._succeeds("Startup", startup):
                    await self._restart("failed startup probe, will be restarted", _grace(startup))
                    return
                self.passed_startup = container.passed_startup = True
                self._progressed()
            async with asyncio.TaskGroup() as group:
                if spec.get("readinessProbe"):
                    group.create_task(self._watch_readiness(spec["readinessProbe"]))
                if spec.get("livenessProbe"):
                    group.create_task(self._watch_liveness(spec["livenessProbe"]))
        except* AgentGoneError:
            # The task that runs the pod gets the same error.
            pass

    async def _succeeds(self, kind: str, probe: Object) -> bool:
        """Ask until it succeeds, or fails too often."""
        failures = 0
        await self._host.clock.sleep(probe.get("initialDelaySeconds") or 0)
        while True:
            if await self._once(kind, probe):
                return True
            failures += 1
            if failures >= (probe.get("failureThreshold") or _FAILURES):
                return False
            await self._host.clock.sleep(probe.get("periodSeconds") or _PERIOD)

    async def _watch_readiness(self, probe: Object) -> None:
        await self._host.clock.sleep(probe.get("initialDelaySeconds") or 0)
        successes = failures = 0
        while True:
            if await self._once("Readiness", probe):
                successes, failures = successes + 1, 0
                if successes >= (probe.get("successThreshold") or 1):
                    self._answer(True)
            else:
                successes, failures = 0, failures + 1
                if failures >= (probe.get("failureThreshold") or _FAILURES):
                    self._answer(False)
            await self._host.clock.sleep(probe.get("periodSeconds") or _PERIOD)

    def _answer(self, well: bool) -> None:
        if self._answers != well:
            self._answers = well
            self._progressed()

    async def _watch_liveness(self, probe: Object) -> None:
        period = probe.get("periodSeconds") or _PERIOD
        while await self._succeeds("Liveness", probe):
            await self._host.clock.sleep(period)
            probe = {**probe, "initialDelaySeconds": 0}
        await self._restart("failed liveness probe, will be restarted", _grace(probe))

    async def _once(self, kind: str, probe: Object) -> bool:
        try:
            await ask(self._host, self._target, probe, float(probe.get("timeoutSeconds") or _TIMEOUT))
        except ProbeFailedError as error:
            self._say(f"{kind} probe failed: {error}")
            return False
        return True


def _grace(probe: Object) -> float | None:
    seconds = probe.get("terminationGracePeriodSeconds")
    return None if seconds is None else float(seconds)
