"""The life of one pod whose containers are processes.

One task leads it: folders, network, init containers, containers, restarts. What the processes do by
themselves arrives as exits. Stopping cancels the task, not the processes; those are then asked to
end, and ended when their grace is over. Source: docs/reference/cluster-workloads.md, 4.1 and 4.5.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from pathlib import Path

from pykueue.api.objects import Object
from pykueue.api.quantity import parse
from pykueue.clock import Jumps
from pykueue.embedded.nodes.containers import CRASH_EXIT, ENDED, NEW, RUNNING, SIGKILL_EXIT, Container
from pykueue.embedded.nodes.podstate import DEADLINE, PodState, Stop
from pykueue.embedded.nodes.processes.environment import (
    ConfigError,
    Surroundings,
    command_line,
    environment,
)
from pykueue.embedded.nodes.processes.files import PodFiles
from pykueue.embedded.nodes.processes.health import Health
from pykueue.embedded.nodes.processes.host import Host, base_environment
from pykueue.embedded.nodes.processes.launch import PREPARE, TERMINATION_LOG
from pykueue.embedded.nodes.processes.link import AgentError, AgentGoneError, Exit
from pykueue.embedded.nodes.processes.logs import last_words, log_path
from pykueue.embedded.nodes.processes.probes import ProbeFailedError, Target, ask
from pykueue.embedded.nodes.processes.volumes import VolumeError, Volumes
from pykueue.kube.events import NORMAL, WARNING

#: Seconds before something that could not be set up is tried again.
RETRY = 1.0
#: Exit code of a program that could not be executed.
NOT_EXECUTED = 128
_LOST = "The container was running when the program that ran it ended, and ended with it"

log = logging.getLogger(__name__)


class ProcessPod(PodState):
    """One pod; `changed` is called whenever its status may have."""

    def __init__(
        self,
        pod: Object,
        host: Host,
        node_address: str,
        allocatable: Mapping[str, str],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(pod, "process")
        #: The pod as the API shows it now.
        self.pod = pod
        self._host = host
        self._node_address = node_address
        self._allocatable = allocatable
        self._changed = changed
        self._folder = host.folder / self.uid
        self._files = PodFiles(self._folder, pod)
        self._volumes: Volumes | None = None
        #: What runs: the name of the current run, by container.
        self._runs: dict[str, str] = {}
        self._exited: dict[str, asyncio.Event] = {}
        self._health: dict[str, Health] = {}
        self._launching: set[asyncio.Task[None]] = set()
        self._stop_changed = asyncio.Event()
        #: Set whenever a container started, ended, or passed its startup probe.
        self._moved_on = asyncio.Event()
        self._reported: set[str] = set()
        self.sandbox = False
        self._jumps = Jumps(host.clock)
        now = host.clock.time()
        for container in self.containers:
            if container.state == RUNNING:
                container.end(now, CRASH_EXIT, "Unknown", _LOST)

    def _time(self) -> float:
        """The wall-clock time; where it has jumped, the times of the pod have moved with it."""
        if seconds := self._jumps.seconds():
            self.shift(seconds)
        return self._host.clock.time()

    # -- what is asked of it

    def refresh(self, pod: Object) -> None:
        """The pod has changed in the API, or it has been deleted."""
        self.pod = pod
        now = self._time()
        before = self._stop and self._stop.kill_at
        self.observe(pod, now)
        if self._stop is not None and self._stop.kill_at != before:
            self._stop_changed.set()

    def shut_down(self, at: float, last_call: float) -> None:
        """The node shuts down since `at`; everything must have ended by `last_call`."""
        self._time()
        before = self._stop and self._stop.kill_at
        super().shut_down(at, last_call)
        if self._stop is not None and self._stop.kill_at != before:
            self._stop_changed.set()

    def reported_status(self, *, trusted: bool) -> Object:
        """The pod's status as it is now; `trusted` as for `status`."""
        self._now = self._time()
        return self.status(self.pod, self._node_address, trusted=trusted)

    async def run(self) -> None:
        """Live until everything is over. Raises AgentGoneError."""
        self._now = self._time()
        self.acknowledged = self.acknowledged or self._now
        life = asyncio.create_task(self._live())
        try:
            await self._until_stopped(life)
            if life.done():
                life.result()
            else:
                life.cancel()
                await asyncio.gather(life, return_exceptions=True)
                await self._wind_down()
        finally:
            life.cancel()
            for health in self._health.values():
                health.stop()
        self.over = True
        await self._release()
        self._changed()

    def run_of(self, container: str) -> str | None:
        """The name of a container's current run, if it runs."""
        return self._runs.get(container)

    def kill(self) -> None:
        """The pod is gone: kill its processes now."""
        for run in self._runs.values():
            self._host.link.notify("signal", run=run, number=signal.SIGKILL)
        self._host.link.notify("disconnect", pod=self.uid)

    async def _until_stopped(self, life: asyncio.Task[None]) -> None:
        """Wait until the pod has ended, a stop is requested, or its deadline has passed."""
        seconds = self._spec.get("activeDeadlineSeconds")
        deadline = inf if seconds is None else (self.acknowledged or 0.0) + seconds
        waiting: set[asyncio.Task[object]] = set()
        if deadline < inf:
            waiting.add(asyncio.create_task(self._host.clock.sleep_until(deadline)))
        try:
            while self._stop is None and not life.done():
                stop_changed = asyncio.create_task(self._stop_changed.wait())
                try:
                    await asyncio.wait({life, stop_changed, *waiting}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    stop_changed.cancel()
                if self._stop is None and any(one.done() for one in waiting):
                    now = self._time()
                    self._stop = Stop(now, now + self._grace, ending=DEADLINE)
        finally:
            for one in waiting:
                one.cancel()

    # -- living

    async def _live(self) -> None:
        await self._prepare()
        self.sandbox = True
        self._changed()
        sidecars: list[asyncio.Task[None]] = []
        try:
            for container in self._init:
                if container in self._sidecars:
                    sidecars.append(asyncio.create_task(self._supervise(container, "Always")))
                    await self._until_up(container)
                    continue
                await self._supervise(container, "Never" if self._policy == "Never" else "OnFailure")
                if container.exit_code:
                    self._init_failed = True
                    break
            else:
                async with asyncio.TaskGroup() as group:
                    for container in self._regular:
                        group.create_task(self._supervise(container, self._policy))
        finally:
            for task in sidecars:
                task.cancel()
            await asyncio.gather(*sidecars, return_exceptions=True)
        await self._end_sidecars(lambda: self._grace)

    async def _until_up(self, sidecar: Container) -> None:
        while sidecar.state != RUNNING or not sidecar.passed_startup:
            self._moved_on.clear()
            await self._moved_on.wait()

    async def _prepare(self) -> None:
        """Folders, network and volumes; tried until they are there."""
        while True:
            try:
                await self._set_up()
            except AgentGoneError:
                raise
            except VolumeError as error:
                self._say(WARNING, "FailedMount", str(error))
            except (AgentError, OSError, LookupError) as error:
                self._say(WARNING, "FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            else:
                return
            await self._host.clock.sleep(RETRY)

    async def _set_up(self) -> None:
        host, link = self._host, self._host.link
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.sandbox:
            await self._connect()
        around = Surroundings(self.address, self._node_address, self._allocatable)
        sources = host.sources(self.pod["metadata"]["namespace"])
        self._volumes = Volumes(self._folder / "volumes", self.pod, sources, around)

        async def token(audience: str, seconds: int) -> str:
            return await host.token(self.pod, audience, seconds)

        async def in_memory(place: Path, size: int | None) -> None:
            if not host.abilities.mounts:
                await link.call("keep_in_memory", folder=str(place), size=size)

        await self._volumes.set_up(token, in_memory)

    async def _connect(self) -> None:
        """Give the pod its address; a network of its own where that is possible."""
        lacks = self._host.abilities.network
        if self._spec.get("hostNetwork"):
            self.address = self._node_address
        elif lacks:
            if _needs_network(self._spec):
                text = f"pods cannot have a network of their own here: {lacks}"
                for container in self.containers:
                    container.held = ("CreateContainerConfigError", text)
                raise LookupError(f"{text}; with hostNetwork: true it would run in this machine's network")
            self.address = self._node_address
        else:
            self.address = self.address or self._host.addresses.take()
            await self._host.link.call("disconnect", pod=self.uid)
            await self._files.connect(self._host.link, self.address)

    async def _supervise(self, container: Container, policy: str) -> None:
        """Run a container until its restart policy says that it is done."""
        while True:
            if container.state == ENDED:
                if policy == "Never" or (policy == "OnFailure" and not container.exit_code):
                    return
                at = container.back_off() if container.restart_at is None else container.restart_at
                if container.backs_off:
                    self._tell_back_off(container)
                self._changed()
                await self._host.clock.sleep(at - self._time())
            await self._start(container)
            await self._exited[container.name].wait()

    async def _start(self, container: Container) -> None:
        while True:
            task = asyncio.create_task(self._launch(container))
            self._launching.add(task)
            task.add_done_callback(self._launching.discard)
            try:
                await asyncio.shield(task)
            except AgentGoneError:
                raise
            except ConfigError as error:
                self._hold(container, "CreateContainerConfigError", str(error))
            except (AgentError, OSError) as error:
                self._hold(container, "CreateContainerError", str(error))
            else:
                return
            await self._host.clock.sleep(RETRY)

    def _hold(self, container: Container, reason: str, text: str) -> None:
        container.held = (reason, text)
        self._say(WARNING, "Failed", f"Error: {text}")
        self._changed()

    async def _launch(self, container: Container) -> None:
        """Start the next run; ConfigError, AgentError and OSError when that is not possible."""
        number = container.restarts + (container.state == ENDED)
        run = f"{self.uid}/{container.name}/{number}"
        launch = self._launch_of(container)
        path = log_path(self._host.folder, self.uid, container.name, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        limits = (container.spec.get("resources") or {}).get("limits") or {}
        memory = parse(limits["memory"]).nanos // 10**9 if "memory" in limits else None
        cpu = parse(limits["cpu"]).nanos / 10**9 if "cpu" in limits else None
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._host.link.on_exit(run, ended.set_result)
        exited = self._exited[container.name] = asyncio.Event()
        try:
            await self._host.link.call("start", run=run, launch=launch, log=str(path), memory=memory, cpu=cpu)
        except AgentError as error:
            self._host.link.forget(run)
            if isinstance(error, AgentGoneError) or error.stage in ("", PREPARE):
                raise
            now = self._time()
            container.start(now, inf, 0)
            container.end(now, NOT_EXECUTED, "StartError", str(error))
            self._say(WARNING, "Failed", f"Error: {error}")
            exited.set()
            self._changed()
            return
        container.start(self._time(), inf, 0)
        self._runs[container.name] = run
        metadata = self.pod["metadata"]
        self._host.event(self.pod, NORMAL, "Created", f"Created container: {container.name}")
        self._host.event(self.pod, NORMAL, "Started", f"Started container {container.name}")
        log.info("pod %s/%s: container %s runs", metadata["namespace"], metadata["name"], container.name)
        self._watch(container, run)
        ended.add_done_callback(lambda how: self._on_exit(container, how.result()))
        self._progressed()

    def _launch_of(self, container: Container) -> Object:
        """The agent's command that starts the container. Raises ConfigError and OSError."""
        assert self._volumes is not None
        around = Surroundings(self.address, self._node_address, self._allocatable)
        sources = self._host.sources(self.pod["metadata"]["namespace"])
        base = {**base_environment(os.environ), "HOSTNAME": self._files.hostname}
        variables = environment(self.pod, container.spec, base, sources, around)
        argv = command_line(container.spec, variables)
        mounts = self._volumes.mounts(container.spec, variables)
        lacks = self._host.abilities.mounts
        if lacks and mounts:
            raise ConfigError(f"volumes cannot be mounted here: {lacks}")
        if not lacks:
            message_path = container.spec.get("terminationMessagePath") or TERMINATION_LOG
            mounts += self._files.mounts(container.name, message_path, named=not self._host.abilities.network)
        # Parents before children: what is mounted later is seen.
        mounts.sort(key=lambda one: len(Path(one["target"]).parts))
        return {
            "pod": "" if self._spec.get("hostNetwork") else self.uid,
            "argv": argv,
            "environment": variables,
            "folder": container.spec.get("workingDir") or str(self._files.scratch(container.name)),
            "hostname": self._files.hostname,
            "mounts": mounts,
            "stage": str(self._files.stage),
        }

    def _on_exit(self, container: Container, how: Exit) -> None:
        self._runs.pop(container.name, None)
        health = self._health.pop(container.name, None)
        if health is not None:
            health.stop()
        note = self._files.last_words(container.name)
        if (
            not note
            and container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
            and how.code
        ):
            note = last_words(log_path(self._host.folder, self.uid, container.name, container.restarts))
        cause = "OOMKilled" if how.out_of_memory else ""
        container.end(self._time(), how.exit_code, cause, note)
        self._exited[container.name].set()
        self._progressed()

    def _progressed(self) -> None:
        self._moved_on.set()
        self._changed()

    # -- health

    def _watch(self, container: Container, run: str) -> None:
        """Ask the container's program how it is, as its probes say, until its run is over."""
        target = Target(container.spec, run, self.address)
        health = Health(
            self._host,
            target,
            progressed=self._progressed,
            say=lambda text: self._host.event(self.pod, WARNING, "Unhealthy", text),
            restart=lambda why, grace: self._restart(container, why, grace),
        )
        container.passed_startup = health.passed_startup
        self._health[container.name] = health
        health.start(container)

    async def _restart(self, container: Container, why: str, grace: float | None) -> None:
        """End a run that is not well; the restart policy says what follows."""
        self._host.event(self.pod, NORMAL, "Killing", f"Container {container.name} {why}")
        seconds = self._grace if grace is None else grace
        await self._end(container, self._countdown(seconds))

    def _is_ready(self, container: Container) -> bool:
        health = self._health.get(container.name)
        return container.state == RUNNING and health is not None and health.ready

    # -- ending

    async def _wind_down(self) -> None:
        """Ask everything to end, and end what does not; nothing is started any more."""
        await asyncio.gather(*self._launching, return_exceptions=True)
        stop = self._stop
        assert stop is not None
        for container in self.containers:
            container.restart_at = container.held = None
        plain = [one for one in self.containers if one not in self._sidecars and one.state == RUNNING]
        for container in plain:
            self._host.event(self.pod, NORMAL, "Killing", f"Stopping container {container.name}")

        def left() -> float:
            now = self._time()  # before the stop is read: it moves with the clock
            return stop.kill_at - now

        await asyncio.gather(*(self._end(one, left) for one in plain))
        await self._end_sidecars(left)
        now = self._time()
        for container in self.containers:
            if container.state == NEW:
                container.end(now, SIGKILL_EXIT)

    def _countdown(self, seconds: float) -> Callable[[], float]:
        """How many of these seconds are left, beginning now."""
        monotonic = self._host.clock.monotonic
        until = monotonic() + seconds
        return lambda: until - monotonic()

    async def _end_sidecars(self, left: Callable[[], float]) -> None:
        at_first = self._countdown(left())
        for container in reversed(self._sidecars):
            await self._end(container, lambda: min(at_first(), left()))

    async def _end(self, container: Container, left: Callable[[], float]) -> None:
        """preStop, the stop signal, and SIGKILL when no seconds are left."""
        run = self._runs.get(container.name)
        if run is None or container.state != RUNNING:
            return
        exited = self._exited[container.name]
        lifecycle = container.spec.get("lifecycle") or {}
        if lifecycle.get("preStop"):
            hook = self._pre_stop(container, run, lifecycle["preStop"])
            await self._before(left, hook, exited.wait())
        number = getattr(signal, lifecycle.get("stopSignal") or "SIGTERM", signal.SIGTERM)
        self._host.link.notify("signal", run=run, number=number)
        await self._before(left, exited.wait())
        if not exited.is_set():
            self._host.link.notify("signal", run=run, number=signal.SIGKILL)
            await exited.wait()

    async def _pre_stop(self, container: Container, run: str, action: Object) -> None:
        try:
            await ask(self._host, Target(container.spec, run, self.address), action, None)
        except ProbeFailedError as error:
            self._host.event(self.pod, WARNING, "FailedPreStopHook", str(error))

    async def _before(self, left: Callable[[], float], *things: Awaitable[object]) -> None:
        """Wait for the first of some things while seconds are left; those may become fewer meanwhile."""
        waiting = {asyncio.ensure_future(one) for one in things}
        try:
            while True:
                moved = asyncio.ensure_future(self._stop_changed.wait())
                timeout = max(0.0, left())
                try:
                    await asyncio.wait(
                        {*waiting, moved}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    moved.cancel()
                self._stop_changed.clear()
                done = any(one.done() for one in waiting)
                if done or left() <= 0:
                    return
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _release(self) -> None:
        """Give back what the pod held beside its folder."""
        await self._host.link.call("disconnect", pod=self.uid)
        for volume in self._spec.get("volumes") or ():
            if (volume.get("emptyDir") or {}).get("medium") == "Memory" and not self._host.abilities.mounts:
                place = self._folder / "volumes" / volume["name"]
                if place.exists():
                    await self._host.link.call("let_go", folder=str(place))

    # -- telling

    def _say(self, kind: str, reason: str, text: str) -> None:
        """An event, unless it was the last thing said about this."""
        if f"{reason}: {text}" not in self._reported:
            self._reported.add(f"{reason}: {text}")
            self._host.event(self.pod, kind, reason, text)
        self._changed()

    def _tell_back_off(self, container: Container) -> None:
        metadata = self.pod["metadata"]
        where = f"{metadata['name']}_{metadata['namespace']}({self.uid})"
        text = f"Back-off restarting failed container {container.name} in pod {where}"
        self._host.event(self.pod, WARNING, "BackOff", text)


def _needs_network(spec: Object) -> bool:
    """Whether the pod is to be reached by others, as far as it says."""
    if spec.get("subdomain"):
        return True
    for container in spec["containers"]:
        probes = [container.get(f"{kind}Probe") or {} for kind in ("startup", "readiness", "liveness")]
        if container.get("ports") or any("httpGet" in one or "tcpSocket" in one for one in probes):
            return True
    return False


def forget(folder: Path, uid: str) -> None:
    """Remove the logs and files of a pod that is gone."""
    shutil.rmtree(folder / uid, ignore_errors=True)
