"""A server whose node runs containers as processes, in real time; tests wait for what the API shows."""

import asyncio
import random
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from pykueue.api.resources import EVENTS, PODS
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.nodes.pool import ensure_nodes, parse_pools
from pykueue.embedded.nodes.processes import ProcessLogs, ProcessNodes
from pykueue.embedded.podscheduler import PodScheduler
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

POOL = "pools: [{name: n, runtime: process, allocatable: {cpu: 8, memory: 8Gi, pods: 110}}]"
#: A bound on how long a step may take before the test gives up; nothing is asserted about it.
PATIENCE = 30


class Stage:
    def __init__(self, folder):
        self.clock = Clock()
        self.folder = folder
        self.server = Server(MemoryStore(), self.clock, random.Random(1))
        self.client = Client(self.server.transport(), clock=self.clock)
        self.server.pipeline.log_source = ProcessLogs(folder, self.server.transport(), self.clock)
        self.nodes = None
        self.tasks = {}

    def start(self, name):
        rng = random.Random(len(self.tasks))
        if name == "nodes":
            self.nodes = ProcessNodes(self.server.transport(), self.clock, rng, self.folder)
            component = self.nodes
        else:
            component = PodScheduler(self.server.transport(), self.clock, rng)
        self.tasks[name] = asyncio.create_task(component.run())

    async def kill(self, *names):
        for name in names or list(self.tasks):
            task = self.tasks.pop(name)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def create(self, *objects):
        for one, resource in objects:
            await self.client.create(resource, one)

    async def pod(self, name):
        return await self.client.get(PODS, name, "default")

    async def until(self, name, true):
        """The pod as soon as `true(pod)`; of a pod that is gone, None."""
        async with asyncio.timeout(PATIENCE):
            found = await self._look(name)
            version = (await self.client.list(PODS)).resource_version
            if true(found):
                return found
            async for type_, pod in self.client.watch(PODS, "default", resource_version="0"):
                if type_ == "BOOKMARK" or pod["metadata"]["name"] != name:
                    continue
                found = None if type_ == "DELETED" else pod
                if true(found):
                    return found
        raise AssertionError(version)

    async def _look(self, name):
        try:
            return await self.pod(name)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def ended(self, name):
        return await self.until(
            name, lambda pod: pod and pod["status"].get("phase") in ("Succeeded", "Failed")
        )

    async def ready(self, name):
        return await self.until(name, lambda pod: pod and condition(pod, "Ready") == "True")

    async def eventually(self, true):
        """Poll for a state of this machine that sends no events."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                await self.clock.sleep(0.01)

    async def eventually_logged(self, name, text):
        """Wait until a pod's container has written this."""
        running = await self.until(
            name, lambda found: found and state(found) and state(found)[0] == "running"
        )
        seen = b""
        async with asyncio.timeout(PATIENCE):
            async for part in self.server.pipeline.log_source(running, "main", {"follow": "true"}):
                seen += part
                if text.encode() in seen:
                    return

    async def release(self, name):
        """Take away the finalizers that kept a pod to be looked at."""
        await self.client.patch(PODS, name, "default", {"metadata": {"finalizers": None}})

    async def events(self, name):
        """(reason, message) of the events of one object."""
        found = (await self.client.list(EVENTS)).items
        return [(one["reason"], one["message"]) for one in found if one["involvedObject"]["name"] == name]

    async def said(self, name, reason, text=""):
        """The message of an event that has this text in it, as soon as it is there."""
        async with asyncio.timeout(PATIENCE):
            async for type_, event in self.client.watch(EVENTS, resource_version="0"):
                if type_ == "BOOKMARK":
                    continue
                about = (event["involvedObject"]["name"], event["reason"])
                if about == (name, reason) and text in event["message"]:
                    return event["message"]
        raise AssertionError

    async def log(self, name, container="main", **query):
        """What `kubectl logs` would print."""
        lines = self.server.pipeline.log_source(await self.pod(name), container, query)
        return b"".join([line async for line in lines]).decode()


@asynccontextmanager
async def stage(folder):
    set_up = Stage(folder)
    await set_up.server.start()
    await ensure_nodes(set_up.server.transport(), set_up.clock, parse_pools(POOL))
    for name in ("nodes", "scheduler"):
        set_up.start(name)
    try:
        yield set_up
    finally:
        await set_up.kill()
        await set_up.server.stop()


def play(story):
    """Run `story(stage)` in real time."""
    folder = Path(tempfile.mkdtemp(prefix="pods-"))

    async def main():
        async with stage(folder) as set_up:
            return await story(set_up)

    try:
        return uvloop.run(main())
    finally:
        shutil.rmtree(folder)


def pod(name, *command, policy="Never", containers=None, labels=None, **spec):
    """A pod manifest with its resource; keywords `c_x` are fields of its container."""
    own = {key[2:]: spec.pop(key) for key in list(spec) if key.startswith("c_")}
    main = {"name": "main", "image": "nothing", "command": list(command), **own}
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    if "finalizers" in spec:
        metadata["finalizers"] = spec.pop("finalizers")
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 1,
            "containers": containers or [main],
            **spec,
        },
    }
    return body, PODS


def shell(name, script, **more):
    return pod(name, "bash", "-c", script, **more)


def condition(obj, kind):
    """The status of a condition, None when it is not there."""
    found = [one["status"] for one in obj["status"].get("conditions") or () if one["type"] == kind]
    return found[0] if found else None


def state(obj, name="main"):
    """The state of a container: its kind and what is said of it."""
    for field in ("containerStatuses", "initContainerStatuses"):
        for one in obj["status"].get(field) or ():
            if one["name"] == name:
                ((kind, said),) = one["state"].items()
                return kind, said
    return None


def needs(ability):
    """Skip the test where the user may not have this, saying what is missing."""

    async def look(set_up):
        async with asyncio.timeout(PATIENCE):
            return await set_up.nodes.abilities()

    lacking = getattr(play(look), ability)
    if lacking:
        pytest.skip(f"not possible for this user on this machine: {lacking}")
