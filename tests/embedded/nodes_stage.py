"""A server with nodes and pods in virtual time, and parts of it that can be killed and started again."""

import asyncio
import random
from contextlib import asynccontextmanager

from pykueue.api.resources import EVENTS, PODS, PRIORITY_CLASSES
from pykueue.api.times import parse_time
from pykueue.clock import run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.controllers import Controllers
from pykueue.embedded.nodes import SimulatedNodes
from pykueue.embedded.nodes.pool import ensure_nodes, parse_pools
from pykueue.embedded.nodes.scaling import NodePools, declare
from pykueue.embedded.podscheduler import PodScheduler
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

SIM = "sim.pykueue.io/"
EPOCH = parse_time("2026-01-01T00:00:00Z")
ONE_NODE = "pools: [{name: n, allocatable: {cpu: 4, memory: 8Gi, pods: 110}, simulation: {startDelay: 1s}}]"


class Stage:
    def __init__(self, clock, wrap=None, feature_gates=(), **nodes):
        self.clock = clock
        self.server = Server(MemoryStore(), clock, random.Random(1), feature_gates=feature_gates)
        self.native_groups = bool(feature_gates)
        self.wrap = wrap or (lambda transport: transport)
        self.nodes_options = nodes
        self.client = None
        self.seen = []
        self.tasks = {}

    @property
    def now(self):
        """Seconds since the stage was set."""
        return round(self.clock.time() - EPOCH, 3)

    def transport(self):
        return self.wrap(self.server.transport())

    def start(self, name, component=None):
        rng = random.Random(len(self.tasks))
        if component is None:
            if name == "nodes":
                component = SimulatedNodes(self.transport(), self.clock, rng, **self.nodes_options)
            elif name == "pools":
                component = NodePools(self.transport(), self.clock)
            elif name == "controllers":
                component = Controllers(self.transport(), self.clock, rng, pace=None)
            else:
                component = PodScheduler(self.transport(), self.clock, rng, native_groups=self.native_groups)
        self.tasks[name] = asyncio.create_task(component.run())

    async def kill(self, *names):
        for name in names or list(self.tasks):
            task = self.tasks.pop(name)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def restart(self, *names):
        await self.kill(*names)
        for name in names:
            self.start(name)

    async def follow(self):
        async for type_, pod in self.client.watch(PODS, resource_version="0"):
            if type_ != "BOOKMARK":
                self.seen.append((self.now, type_, pod))

    async def declare_pools(self, pools):
        """As `declare`, and keep it as what the pools are to be."""
        await declare(self.server.transport(), self.clock, parse_pools(pools))

    async def declare(self, pools):
        await ensure_nodes(self.server.transport(), self.clock, parse_pools(pools))

    async def create(self, *pods):
        for one in pods:
            if "priority" in one["spec"]:
                one = await self._with_class(one)
            await self.client.create(PODS, one)

    async def _with_class(self, pod):
        """The pod with a class of its priority: only classes give pods priorities."""
        spec = dict(pod["spec"])
        value = spec.pop("priority")
        spec["priorityClassName"] = name = f"priority-{value}"
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        try:
            await self.client.create(PRIORITY_CLASSES, {**body, "metadata": {"name": name}})
        except ApiError as error:
            if not error.already_exists:
                raise
        return {**pod, "spec": spec}

    async def pod(self, name):
        return await self.client.get(PODS, name, "default")

    async def pods(self):
        return (await self.client.list(PODS)).items

    async def events(self, name):
        """(reason, message) of the events of one object."""
        found = (await self.client.list(EVENTS)).items
        return [(one["reason"], one["message"]) for one in found if one["involvedObject"]["name"] == name]

    async def until(self, seconds):
        await self.clock.sleep(seconds - self.now)


class Flaky:
    """A transport on which some writes to a subresource fail, some although they were carried out."""

    def __init__(self, inner, subresource):
        self.inner = inner
        self.subresource = subresource
        self.writes = 0

    async def call(self, request):
        if request.method == "GET" or not request.path.endswith(self.subresource):
            return await self.inner.call(request)
        self.writes += 1
        if self.writes % 3 == 0:
            raise ApiError(500, "InternalError", "the disk is full")
        answer = await self.inner.call(request)
        if self.writes % 3 == 1:
            raise ConnectionError("reset by peer")
        return answer

    def watch(self, request):
        return self.inner.watch(request)

    async def close(self):
        await self.inner.close()


@asynccontextmanager
async def stage(clock, *, pools=ONE_NODE, parts=("nodes", "scheduler"), **options):
    set_up = Stage(clock, **options)
    await set_up.server.start()
    set_up.client = Client(set_up.server.transport(), clock=clock)
    await set_up.declare(pools)
    set_up.tasks["follower"] = asyncio.create_task(set_up.follow())
    for name in parts:
        set_up.start(name)
    try:
        yield set_up
    finally:
        await set_up.kill()
        await set_up.server.stop()


def play(story, **options):
    """Run `story(stage)` in virtual time."""

    async def main(clock):
        async with stage(clock, **options) as set_up:
            return await story(set_up)

    return run_virtual(main)


def pod(name, *command, policy="Never", cpu=None, owner=None, labels=None, containers=None, **spec):
    """A pod manifest; keyword arguments `sim_x_y` are annotations `sim.pykueue.io/x-y`."""
    said = {key: spec.pop(key) for key in list(spec) if key.startswith("sim_")}
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": labels or {},
        "annotations": {SIM + key[4:].replace("_", "-"): value for key, value in said.items()},
    }
    if spec.get("finalizers"):
        metadata["finalizers"] = spec.pop("finalizers")
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
        ]
    container = {"name": "main", "image": "busybox", "command": list(command) or ["sleep", "10"]}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"restartPolicy": policy, "containers": containers or [container], **spec},
    }


def condition(obj, kind):
    """(status, reason) of a condition, None when it is not there."""
    for one in obj["status"].get("conditions") or ():
        if one["type"] == kind:
            return one["status"], one.get("reason", "")
    return None


def state(obj, name="main"):
    """The state of a container: (`running`, ``) or (`waiting`, reason) or (`terminated`, exit code)."""
    for field in ("containerStatuses", "initContainerStatuses"):
        for one in obj["status"].get(field) or ():
            if one["name"] == name:
                ((kind, said),) = one["state"].items()
                return kind, said.get("exitCode", said.get("reason", ""))
    return None
