"""The kubelets of all simulated nodes, as one client of the API.

Every Node counts as simulated unless its annotation `sim.pykueue.io/simulated` is "false". What a pod does
next is a timer, not a task; a few workers write what happened. Nothing is kept that cannot be taken up again
from the API: a pod's times from its status, its random numbers from its uid and its node's seed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from pykueue.api.objects import Key, Object, controller_of, is_deleting, key_of
from pykueue.api.resources import NODES, PODS
from pykueue.api.times import parse_time
from pykueue.clock import Clock, Jumps
from pykueue.embedded.nodes.addresses import Addresses
from pykueue.embedded.nodes.annotations import DOMAIN, SEED
from pykueue.embedded.nodes.behaviour import Behaviour, Program, read
from pykueue.embedded.nodes.containers import NEW
from pykueue.embedded.nodes.devices import DeviceDriver
from pykueue.embedded.nodes.keeper import NodeKeeper
from pykueue.embedded.nodes.life import PodLife
from pykueue.embedded.nodes.outages import CRASH
from pykueue.embedded.nodes.registration import LEASE_DURATION, internal_address, is_ready, runs_processes
from pykueue.embedded.nodes.siblings import Families
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.transport import Transport

#: Annotation of a Node: "false" leaves it to another kubelet.
SIMULATED = DOMAIN + "simulated"
POD_NETWORK = "10.0.0.0/9"
#: Writes that may be under way at the same time.
WORKERS = 16
#: Seconds by which a timer may fire early: a time since 1970 has no finer grain.
_GRAIN = 1e-6
_TERMINAL = ("Succeeded", "Failed")

log = logging.getLogger(__name__)


class SimulatedNodes:
    """Runs the pods of all simulated nodes until cancelled.

    `lease_duration` is how long the nodes' Leases last, in seconds. With `events` pods get the events a
    kubelet gives them.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        *,
        lease_duration: int = LEASE_DURATION,
        events: bool = True,
    ) -> None:
        self._clock = clock
        self._client = Client(transport, clock=clock)
        self._recorder = EventRecorder(self._client, clock, "kubelet", rng) if events else None
        self._informers = InformerFactory(self._client, clock=clock)
        self._pods = self._informers.informer(PODS)
        self._nodes = self._informers.informer(NODES)
        self._pods.add_index("node", lambda pod: [pod["spec"].get("nodeName") or ""])
        #: The pods that live, by uid.
        self._lives: dict[str, PodLife] = {}
        #: Runs of containers for which events were emitted, by uid.
        self._reported: dict[str, set[tuple[str, int]]] = {}
        self._families = Families()
        #: Of the wall clock, since `run`.
        self._jumps: Jumps | None = None
        self._keys: dict[str, Key] = {}
        self._defaults: dict[str, Behaviour] = {}
        self._pod_addresses = Addresses(POD_NETWORK)
        #: What is being noted in the cache is our own doing, and nothing to look at again.
        self._noting = False
        ready = (self._informers.synced,)
        self._pod_work: Controller[Key] = Controller(
            "kubelet", self._sync_pod, clock=clock, workers=WORKERS, wait_for=ready
        )
        self._keeper = NodeKeeper(
            self._client,
            self._informers,
            clock,
            is_simulated,
            self._wake_pods,
            self._recorder,
            lease_duration=lease_duration,
        )
        self._driver = DeviceDriver(self._client, self._informers, clock)
        self._nodes.on_event(self._on_node)
        self._pods.on_event(self._on_pod)

    async def run(self) -> None:
        """Simulate until cancelled."""
        self._jumps = Jumps(self._clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.run())
            group.create_task(self._keeper.run())
            group.create_task(self._driver.run())
            group.create_task(self._pod_work.run())
            if self._recorder is not None:
                group.create_task(self._recorder.run())

    # Watch events

    def _on_node(self, _type: str, old: Object | None, new: Object | None) -> None:
        node = new or old
        assert node is not None
        name = node["metadata"]["name"]
        self._defaults.pop(name, None)
        if old is not None and new is not None and is_ready(old) != is_ready(new):
            self._wake_pods(name)

    def _wake_pods(self, node: str) -> None:
        for pod in self._pods.by_index("node", node):
            self._pod_work.queue.add(key_of(pod))

    def _on_pod(self, _type: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._forget(old)
            return
        if not new["spec"].get("nodeName"):
            return
        if old is None:
            self._meet(new)
        if not self._noting and not self._is_done_with(new):
            self._pod_work.queue.add(key_of(new))

    def _is_done_with(self, pod: Object) -> bool:
        """Whether a pod has ended and nothing of it is left to be done: others may still change it."""
        if (pod.get("status") or {}).get("phase") not in _TERMINAL or is_deleting(pod):
            return False
        return pod["metadata"]["uid"] not in self._lives

    def _meet(self, pod: Object) -> None:
        """A pod that was there before this program was: what it has, and when it ran."""
        status = pod.get("status") or {}
        if status.get("podIP") and status.get("phase") not in _TERMINAL:
            self._pod_addresses.reserve(status["podIP"])
        owner = _controller_uid(pod)
        ran = _ran(status)
        if owner is None or ran is None or not _waits(pod):
            return
        uid = pod["metadata"]["uid"]
        start, end = ran
        if end is None:
            self._families.started(owner, uid, start)
        else:
            self._families.ended(owner, uid, start, end, status.get("phase") == "Succeeded")

    def _forget(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        life = self._lives.pop(uid, None)
        self._reported.pop(uid, None)
        self._keys.pop(uid, None)
        status = pod.get("status") or {}
        if life is not None:
            self._pod_addresses.release(life.address)
        elif status.get("phase") not in _TERMINAL:
            self._pod_addresses.release(status.get("podIP") or "")
        owner = _controller_uid(pod)
        if owner is not None:
            self._families.forget(owner, uid, self._now())

    # Nodes

    def _node_defaults(self, node: Object) -> Behaviour:
        name = node["metadata"]["name"]
        found = self._defaults.get(name)
        if found is None:
            found, wrong = read(node["metadata"].get("annotations") or {})
            self._defaults[name] = found
            self._complain(node, wrong)
        return found

    # Pods

    def _now(self) -> float:
        """The wall-clock time; where it has jumped, the times of all pods that run have moved with it."""
        seconds = 0.0 if self._jumps is None else self._jumps.seconds()
        if seconds:
            self._families.shift(seconds)
            for life in self._lives.values():
                life.shift(seconds)
        return self._clock.time()

    async def _sync_pod(self, key: Key) -> float | None:
        pod: Object | None = self._pods.get(*key)
        if pod is None:
            return None
        name = pod["spec"].get("nodeName") or ""
        node: Object | None = self._nodes.get(None, name)
        state = self._keeper.state(name)
        if node is None or state is None:
            return None
        if state.silent:
            if state.failure == CRASH and (pod.get("status") or {}).get("phase") not in _TERMINAL:
                life = self._life(pod, node)
                life.crash(state.since, self._gathered(pod, life))
            return None
        host = internal_address(node)
        if not host:
            return None
        if (pod.get("status") or {}).get("phase") in _TERMINAL:
            ended = self._lives.pop(pod["metadata"]["uid"], None)
            if ended is not None:
                self._pod_addresses.release(ended.address)
            await self._remove(pod)
            return None
        now, since = self._now(), self._clock.monotonic()
        life = self._life(pod, node)
        if is_deleting(pod):
            life.observe(pod, now)
        if state.notice is not None:
            life.shut_down(state.notice, state.last_call)
        following = life.advance(now + _GRAIN, self._gathered(pod, life))
        pod = await self._write(pod, life, node, host)
        self._tell(pod, life)
        self._count_in(pod, life)
        if life.over:
            self._lives.pop(life.uid, None)
            self._pod_addresses.release(life.address)
            await self._remove(pod)
            return None
        return None if following is None else max(0.0, following - now - (self._clock.monotonic() - since))

    def _life(self, pod: Object, node: Object) -> PodLife:
        uid = pod["metadata"]["uid"]
        life = self._lives.get(uid)
        if life is None:
            own, wrong = read(pod["metadata"].get("annotations") or {})
            self._complain(pod, wrong)
            seed = (node["metadata"].get("annotations") or {}).get(SEED) or ""
            life = self._lives[uid] = PodLife(pod, Program(own, self._node_defaults(node), seed, uid))
            self._keys[uid] = key_of(pod)
            self._reported[uid] = {(one.name, one.restarts) for one in life.containers if one.state != NEW}
        return life

    def _gathered(self, pod: Object, life: PodLife) -> Callable[[float], float | None]:
        owner, wanted = _controller_uid(pod), life.program.waits_for
        if owner is None:
            return lambda start: start
        return lambda start: self._families.gathered(owner, start, wanted)

    async def _write(self, pod: Object, life: PodLife, node: Object, host: str) -> Object:
        """Write the pod's status as it is now; of a node that is not ready, pods stay as they are shown."""
        shown = pod.get("status") or {}
        if life.sandbox and not life.address:
            hosted = pod["spec"].get("hostNetwork")
            life.address = shown.get("podIP") or (host if hosted else self._pod_addresses.take())
        status = life.status(pod, host, trusted=is_ready(node))
        if status == shown:
            return pod
        metadata = pod["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        written = await self._client.patch(
            PODS, metadata["name"], metadata["namespace"], patch, subresource="status", given=True
        )
        self._note(written)
        return written

    def _note(self, pod: Object) -> None:
        self._noting = True
        try:
            self._pods.note(pod)
        finally:
            self._noting = False

    def _count_in(self, pod: Object, life: PodLife) -> None:
        """Let siblings know that the pod runs, or no longer does."""
        owner, since = _controller_uid(pod), life.running_since
        if owner is None or since is None or not life.program.waits_for:
            return
        if life.over:
            succeeded = (pod.get("status") or {}).get("phase") == "Succeeded"
            self._families.ended(owner, life.uid, since, life.ended_at, succeeded)
            return
        if not self._families.started(owner, life.uid, since):
            return
        if self._families.gathered(owner, since, life.program.waits_for) is not None:
            for uid in self._families.members(owner):
                if uid in self._lives:
                    self._pod_work.queue.add(self._keys[uid])

    async def _remove(self, pod: Object) -> None:
        """Delete a terminating pod for good, once none of its containers runs."""
        metadata = pod["metadata"]
        if not is_deleting(pod) or not metadata.get("deletionGracePeriodSeconds"):
            return
        try:
            await self._client.delete(
                PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_period=0
            )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    # Events

    def _complain(self, obj: Object, wrong: list[str]) -> None:
        for text in wrong:
            if self._recorder is not None:
                self._recorder.event(obj, WARNING, "InvalidSimulation", text)
            else:
                log.warning("%s: %s", obj["metadata"]["name"], text)

    def _tell(self, pod: Object, life: PodLife) -> None:
        """Events for what the pod's containers did since the last time."""
        if self._recorder is None:
            return
        reported = self._reported.setdefault(life.uid, set())
        for container in life.containers:
            if container.state == NEW or container.lost:
                continue
            run = (container.name, container.restarts)
            if run not in reported:
                reported.add(run)
                image = f'Container image "{container.image}" already present on machine'
                self._recorder.event(pod, NORMAL, "Pulled", image)
                self._recorder.event(pod, NORMAL, "Created", f"Created container: {container.name}")
                self._recorder.event(pod, NORMAL, "Started", f"Started container {container.name}")
            if container.backs_off and (container.name, -container.restarts - 1) not in reported:
                reported.add((container.name, -container.restarts - 1))
                metadata = pod["metadata"]
                where = f"{metadata['name']}_{metadata['namespace']}({life.uid})"
                text = f"Back-off restarting failed container {container.name} in pod {where}"
                self._recorder.event(pod, WARNING, "BackOff", text)


def is_simulated(node: Object) -> bool:
    """Whether the node's pods are ours to run."""
    specified = (node["metadata"].get("annotations") or {}).get(SIMULATED)
    return specified != "false" and not runs_processes(node)


def _waits(pod: Object) -> bool:
    return DOMAIN + "waits-for-siblings" in (pod["metadata"].get("annotations") or {})


def _ran(status: Object) -> tuple[float, float | None] | None:
    """When a pod's containers ran, by what the API shows; None when they did not."""
    starts: list[float] = []
    ends: list[float] = []
    for container in status.get("containerStatuses") or ():
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            for kind in ("running", "terminated"):
                shown = state.get(kind) or {}
                if shown.get("startedAt"):
                    starts.append(parse_time(shown["startedAt"]))
                if shown.get("finishedAt"):
                    ends.append(parse_time(shown["finishedAt"]))
    if not starts:
        return None
    return min(starts), (max(ends, default=None) if status.get("phase") in _TERMINAL else None)


def _controller_uid(pod: Object) -> str | None:
    owner = controller_of(pod)
    return str(owner["uid"]) if owner is not None else None
