"""The node agents of all nodes that run containers as processes of this machine, as one client of the API.

A node is one of them by the annotation `pykueue.io/runtime: process`. What its pods hold is in their folders
and in the API; the processes themselves end with this program, however it ends, and the next start reports
them as ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from pykueue.api.objects import Key, Object, is_deleting, key_of
from pykueue.api.resources import CONFIG_MAPS, NODES, PODS, SECRETS, SERVICE_ACCOUNTS, SERVICES
from pykueue.clock import Clock
from pykueue.embedded.apiserver.handlers.exec import Wanted
from pykueue.embedded.nodes.addresses import Addresses
from pykueue.embedded.nodes.keeper import PROCESS_NETWORK, NodeKeeper
from pykueue.embedded.nodes.outages import CRASH
from pykueue.embedded.nodes.processes.environment import Sources
from pykueue.embedded.nodes.processes.exec import Command
from pykueue.embedded.nodes.processes.host import GATEWAY, POD_NETWORK, SERVICE_NETWORK, Host
from pykueue.embedded.nodes.processes.link import Abilities, AgentError, Link
from pykueue.embedded.nodes.processes.pod import ProcessPod, forget
from pykueue.embedded.nodes.processes.services import Directory, NameServer, Proxy
from pykueue.embedded.nodes.registration import internal_address, is_ready, runs_processes
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING, EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.transport import Transport

#: Writes that may be under way at the same time.
WORKERS = 8
#: Seconds before a new agent is started for one that ended by itself.
RESTART = 1.0
_TERMINAL = ("Succeeded", "Failed")

log = logging.getLogger(__name__)


class ProcessNodes:
    """Runs the pods of all process nodes until cancelled. `folder` keeps what belongs to the pods."""

    def __init__(self, transport: Transport, clock: Clock, rng: random.Random, folder: Path) -> None:
        self._clock = clock
        self._folder = folder.absolute()
        self._client = Client(transport, clock=clock)
        self._recorder = EventRecorder(self._client, clock, "kubelet", rng)
        self._informers = InformerFactory(self._client, clock=clock)
        self._pods = self._informers.informer(PODS)
        self._nodes = self._informers.informer(NODES)
        self._config_maps = self._informers.informer(CONFIG_MAPS)
        self._secrets = self._informers.informer(SECRETS)
        self._services = self._informers.informer(SERVICES)
        self._directory = Directory(self._services, self._pods)
        self._pods.add_index("node", lambda pod: [pod["spec"].get("nodeName") or ""])
        self._session: _Session | None = None
        self._proxy: Proxy | None = None
        self._entered = itertools.count(1)
        self._abilities: asyncio.Future[Abilities] = asyncio.get_running_loop().create_future()
        self.keeper = NodeKeeper(
            self._client,
            self._informers,
            clock,
            runs_processes,
            self._wake_pods,
            self._recorder,
            network=PROCESS_NETWORK,
        )
        self._pods.on_event(self._on_pod)
        self._nodes.on_event(self._on_node)
        self._services.on_event(self._on_service)

    async def run(self) -> None:
        """Run containers until cancelled. Raises OSError when the agent cannot be started at all."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.run())
            group.create_task(self._recorder.run())
            group.create_task(self.keeper.run())
            await self._informers.synced()
            self._tidy()
            while True:
                await self._one_session()
                log.error("the program that runs containers has ended; starting it again")
                await self._clock.sleep(RESTART)

    async def abilities(self) -> Abilities:
        """What containers can have of their own here, as soon as that is known."""
        return await asyncio.shield(self._abilities)

    async def _one_session(self) -> None:
        """The life of one agent."""
        link = Link()
        with self._empty_folder() as stage:
            await link.start()
            try:
                abilities = await link.begin(stage, GATEWAY, POD_NETWORK, SERVICE_NETWORK)
                host = Host(
                    link,
                    abilities,
                    self._folder,
                    self._clock,
                    self._sources,
                    self._token,
                    self._recorder.event,
                    Addresses(str(POD_NETWORK)),
                )
                for lacking in {abilities.processes, abilities.mounts, abilities.network} - {""}:
                    log.warning("some isolation features are not available: %s", lacking)
                host.addresses.reserve(GATEWAY)
                if not self._abilities.done():
                    self._abilities.set_result(abilities)
                self._session = _Session(self, host)
                async with self._network(link, lacking=abilities.network):
                    await self._session.run()
            except AgentError as error:
                log.error("the program that runs containers failed: %s", error)
            finally:
                self._session = None
                await link.stop()

    @contextlib.contextmanager
    def _empty_folder(self) -> Iterator[Path]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix="stage-", dir=self._folder) as name:
            yield Path(name)

    def _tidy(self) -> None:
        """Remove the files of pods that were deleted while this program did not run."""
        if not self._folder.exists():
            return
        known = {pod["metadata"]["uid"] for pod in self._pods.list()}
        for entry in self._folder.iterdir():
            if entry.name not in known and entry.is_dir():
                forget(self._folder, entry.name)

    async def enter(self, pod: Object, asked: Wanted) -> Command:
        """Start a command in a container (`Enter`). Raises ApiError."""
        life = None if self._session is None else self._session.life(pod["metadata"]["uid"])
        run = None if life is None else life.run_of(asked.container)
        if self._session is None or run is None:
            name = pod["metadata"]["name"]
            message = f"container {asked.container} of pod {name} does not run as a process here"
            raise ApiError(400, "BadRequest", message)
        name = f"{run}/entered-{next(self._entered)}"
        try:
            return await Command.start(
                self._session.link, name, run, asked.command, takes_input=asked.input, terminal=asked.terminal
            )
        except AgentError as error:
            raise ApiError(500, "InternalError", f"failed to exec in container: {error}") from None

    # -- watch events

    def _on_pod(self, _type: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            uid = old["metadata"]["uid"]
            if self._session is not None:
                self._session.drop(uid)
            if (self._folder / uid).exists():
                forget(self._folder, uid)
        elif self._session is not None and new["spec"].get("nodeName"):
            self._session.work.queue.add(key_of(new))

    @contextlib.asynccontextmanager
    async def _network(self, link: Link, lacking: str) -> AsyncIterator[None]:
        """Services, as pods find them, where pods have a network of their own."""
        if lacking:
            yield
            return
        names = NameServer(self._directory)
        await names.start(link)
        self._proxy = Proxy(link, self._directory, self._services)
        passing = asyncio.create_task(self._proxy.run())
        try:
            yield
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
            self._proxy = None
            names.stop()

    def _on_service(self, _type: str, _old: Object | None, _new: Object | None) -> None:
        if self._proxy is not None:
            self._proxy.look_again()

    def _on_node(self, _type: str, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None and is_ready(old) != is_ready(new):
            self._wake_pods(new["metadata"]["name"])

    def _wake_pods(self, node: str) -> None:
        if self._session is not None:
            for pod in self.pods_of(node):
                self._session.work.queue.add(key_of(pod))

    # -- what sessions ask

    @property
    def client(self) -> Client:
        """Speaks for the nodes."""
        return self._client

    @property
    def clock(self) -> Clock:
        """The clock of the nodes and their pods."""
        return self._clock

    def pods_of(self, node: str) -> list[Object]:
        """The pods bound to a node."""
        return self._pods.by_index("node", node)

    def pods(self) -> list[Object]:
        """All pods of process nodes."""
        return [pod for node in self._nodes.list() for pod in self.pods_of(node["metadata"]["name"])]

    def pod(self, key: Key) -> Object | None:
        """The pod as last seen."""
        found: Object | None = self._pods.get(*key)
        return found

    def node(self, name: str) -> Object | None:
        """The node, if its pods are ours to run."""
        node: Object | None = self._nodes.get(None, name)
        return node if node is not None and runs_processes(node) else None

    def note(self, pod: Object) -> None:
        """Take in what a write returned."""
        self._pods.note(pod)

    def _sources(self, namespace: str) -> Sources:
        return Sources(
            lambda name: _of_kind(self._config_maps.get(namespace, name), "ConfigMap"),
            lambda name: _of_kind(self._secrets.get(namespace, name), "Secret"),
        )

    async def _token(self, pod: Object, audience: str, seconds: int) -> str:
        spec: dict[str, Any] = {"expirationSeconds": seconds, "audiences": [audience] if audience else []}
        metadata = pod["metadata"]
        reference = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"namespace": metadata["namespace"]},
            "spec": {**spec, "boundObjectRef": reference},
        }
        account = pod["spec"].get("serviceAccountName") or "default"
        answer = await self._client.create(SERVICE_ACCOUNTS, request, subresource="token", name=account)
        return str(answer["status"]["token"])


class _Session:
    """The pods of one agent's life."""

    def __init__(self, nodes: ProcessNodes, host: Host) -> None:
        self._nodes = nodes
        self._host = host
        self._lives: dict[str, ProcessPod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unlimited: set[str] = set()
        self.work: Controller[Key] = Controller(
            "process pods", self._sync, clock=nodes.clock, workers=WORKERS
        )

    async def run(self) -> None:
        """Run pods until the agent is gone."""
        for pod in self._nodes.pods():
            # Addresses that are still shown stay reserved, in whatever order pods are started.
            status = pod.get("status") or {}
            if status.get("podIP") and status.get("phase") not in _TERMINAL:
                self._host.addresses.reserve(status["podIP"])
            self.work.queue.add(key_of(pod))
        working = asyncio.create_task(self.work.run())
        try:
            await self._host.link.gone.wait()
        finally:
            tasks = [working, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def link(self) -> Link:
        return self._host.link

    def life(self, uid: str) -> ProcessPod | None:
        """The pod, if it is alive here."""
        return self._lives.get(uid)

    def drop(self, uid: str) -> None:
        """The pod is no more, or its node is not: so is everything of it that runs."""
        life = self._lives.pop(uid, None)
        task = self._tasks.pop(uid, None)
        if life is not None:
            life.kill()
            self._host.addresses.release(life.address)
        if task is not None:
            task.cancel()

    async def _sync(self, key: Key) -> float | None:
        pod = self._nodes.pod(key)
        node = None if pod is None else self._nodes.node(pod["spec"].get("nodeName") or "")
        address = "" if node is None else internal_address(node)
        state = None if node is None else self._nodes.keeper.state(node["metadata"]["name"])
        if pod is None or node is None or state is None or not address:
            return None
        uid = pod["metadata"]["uid"]
        if state.silent:
            if state.failure == CRASH:
                self.drop(uid)
            return None
        if (pod.get("status") or {}).get("phase") in _TERMINAL:
            self._leave(uid)
            await self._remove(pod)
            return None
        life = self._lives.get(uid)
        if life is None:
            life = self._lives[uid] = self._begin(pod, node, address)
        else:
            life.refresh(pod)
        if state.notice is not None:
            life.shut_down(state.notice, state.last_call)
        # What is written now is the end only if it was over before.
        over = life.over
        status = life.reported_status(trusted=is_ready(node))
        if status != (pod.get("status") or {}):
            pod = await self._write(pod, status)
        if over:
            self._leave(uid)
            await self._remove(pod)
        return None

    def _begin(self, pod: Object, node: Object, address: str) -> ProcessPod:
        key = key_of(pod)
        shown = (pod.get("status") or {}).get("podIP")
        if shown:
            self._host.addresses.reserve(shown)
        amounts = (node.get("status") or {}).get("allocatable") or {}
        life = ProcessPod(pod, self._host, address, amounts, lambda: self.work.queue.add(key))
        life.refresh(pod)
        self._tasks[life.uid] = asyncio.create_task(self._lead(life))
        self._complain(pod, node)
        return life

    async def _lead(self, life: ProcessPod) -> None:
        try:
            await life.run()
        except Exception:
            if not self._host.link.gone.is_set():
                log.exception("pod %s: unexpected error", life.pod["metadata"]["name"])

    def _leave(self, uid: str) -> None:
        """Everything of the pod is over but its object and its logs."""
        life = self._lives.pop(uid, None)
        self._tasks.pop(uid, None)
        if life is not None:
            self._host.addresses.release(life.address)

    async def _write(self, pod: Object, status: Object) -> Object:
        metadata = pod["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        written = await self._nodes.client.patch(
            PODS, metadata["name"], metadata["namespace"], patch, subresource="status"
        )
        self._nodes.note(written)
        return written

    async def _remove(self, pod: Object) -> None:
        """Delete a terminating pod for good, once none of its containers runs."""
        metadata = pod["metadata"]
        if not is_deleting(pod) or not metadata.get("deletionGracePeriodSeconds"):
            return
        try:
            await self._nodes.client.delete(
                PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_period=0
            )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    def _complain(self, pod: Object, node: Object) -> None:
        """Record a warning once per node when a pod has limits that cannot be enforced."""
        lacks, name = self._host.abilities.limits, node["metadata"]["name"]
        limited = any((one.get("resources") or {}).get("limits") for one in pod["spec"]["containers"])
        if lacks and limited and name not in self._unlimited:
            self._unlimited.add(name)
            text = f"CPU and memory limits of containers are not kept here: {lacks}"
            self._host.event(node, WARNING, "LimitsNotKept", text)


def _of_kind(obj: Object | None, kind: str) -> Object | None:
    """Items of a list do not always say what they are."""
    return None if obj is None else {**obj, "kind": kind}
