"""A small cluster with a dashboard on a loop in another thread, for tests over HTTP and in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from pykueue.api.meta import format_time
from pykueue.api.resources import JOBS, NAMESPACES, SERVICE_ACCOUNTS, Resource
from pykueue.clock import Clock
from pykueue.cluster import FRAMEWORKS, Cluster
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.manager.configuration import load
from pykueue.simulate.live.forecasts import Forecasts
from pykueue.simulate.live.protocol import Ask, Start, Starts
from pykueue.web.dashboard.embedded import embedded_dashboard
from pykueue.web.dashboard.server import Dashboard
from pykueue.web.visibility.embedded import serve as serve_visibility
from queue_manifests import cluster_queue, flavor, local_queue

Object = dict[str, Any]
T = TypeVar("T")

#: A bound on how long a step may take before the test gives up; nothing is asserted about it.
PATIENCE = 60.0
RBAC = "rbac.authorization.k8s.io"
#: Rules of roles, as tests name them.
READ_ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
READ_TEAM = [
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["workloads", "localqueues"],
        "verbs": ["get", "list", "watch"],
    },
    {"apiGroups": ["visibility.kueue.x-k8s.io"], "resources": ["workloads/why"], "verbs": ["get"]},
]
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


class ShiftedClock(Clock):
    """A clock whose monotonic time tests set forward; waiting goes on in real time."""

    shift = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift


class Page:
    """An answer of the dashboard."""

    def __init__(self, answer: aiohttp.ClientResponse, text: str) -> None:
        self.status, self.headers, self.text, self.url = answer.status, answer.headers, text, answer.url

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        assert found is not None
        return found[1]


class Visitor:
    """A browser without scripts, with cookies of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cookies = world.call(_jar())

    def get(self, path: str, **headers: str) -> Page:
        return self._world.call(self._request("GET", path, None, headers))

    def post(self, path: str, data: Object | None = None, **headers: str) -> Page:
        return self._world.call(self._request("POST", path, data or {}, headers))

    async def _request(self, method: str, path: str, data: Object | None, headers: Object) -> Page:
        sent = {"Accept": "text/html", **{key.replace("_", "-"): value for key, value in headers.items()}}
        async with (
            aiohttp.ClientSession(cookie_jar=self.cookies) as session,
            session.request(
                method, self._world.url + path, data=data, headers=sent, allow_redirects=False
            ) as answer,
        ):
            return Page(answer, await answer.text())

    def sign_in(self, token: str) -> Visitor:
        self._world.allow_sign_in()
        answer = self.post("/sign-in", {"token": token})
        assert answer.status == 303, answer.text
        return self

    @contextlib.asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
        """Events (name, data) of the stream of a page, read on the loop of the world."""
        async with (
            aiohttp.ClientSession(cookie_jar=self.cookies) as session,
            session.get(f"{self._world.url}/stream", params={"path": path}) as answer,
        ):
            assert answer.status == 200, await answer.text()

            async def events() -> AsyncIterator[tuple[str, str]]:
                name = ""
                async for line in answer.content:
                    if line.startswith(b"event: "):
                        name = line[7:].decode().strip()
                    elif line.startswith(b"data: "):
                        yield name, line[6:].decode().strip()

            yield events()


async def _jar() -> aiohttp.CookieJar:
    return aiohttp.CookieJar(unsafe=True)


class World:
    """The cluster and its dashboard. `call` runs something on their loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: ShiftedClock) -> None:
        self.loop, self.clock = loop, clock
        self.admin: Client
        self.dashboard: Dashboard
        self.url = ""
        self.admin_token = ""
        self.kubeconfig = Path()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def visitor(self) -> Visitor:
        return Visitor(self)

    def allow_sign_in(self) -> None:
        """Let time pass until another attempt to sign in is within the limit."""
        self.clock.shift += 10

    def create(self, resource: Resource, obj: Object) -> Object:
        return self.call(self.admin.create(resource, obj))

    def token(self, name: str, *, everywhere: list[Object] | None = None, **namespaces: list[Object]) -> str:
        """The token of a new ServiceAccount with some rights, in the whole cluster or in namespaces."""
        return self.call(self._token(name, everywhere, namespaces))

    async def _token(self, name: str, everywhere: list[Object] | None, namespaces: dict[str, Any]) -> str:
        await self.admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": "default"}})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        for namespace, rules in (*(("", each) for each in [everywhere] if each), *namespaces.items()):
            kind = "Role" if namespace else "ClusterRole"
            for plural, obj in (
                (f"{kind.lower()}s", {"kind": kind, "rules": rules}),
                (
                    f"{kind.lower()}bindings",
                    {
                        "kind": f"{kind}Binding",
                        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
                        "subjects": [subject],
                    },
                ),
            ):
                path = f"/apis/{RBAC}/v1/{f'namespaces/{namespace}/' if namespace else ''}{plural}"
                body = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}, **obj}
                await self.admin.call(Request("POST", path, body=body))
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
        found = await self.admin.call(Request("POST", path, body=request))
        return str(found["status"]["token"])

    def delete_account(self, name: str) -> None:
        """Delete a ServiceAccount, which ends its tokens."""
        self.call(self.admin.delete(SERVICE_ACCOUNTS, name, "default"))

    def eventually(self, probe: Callable[[], T | None]) -> T:
        """What a probe returns once it is true."""
        ends = self.loop.time() + PATIENCE
        while True:
            found = probe()
            if found:
                return found
            if self.loop.time() > ends:
                raise AssertionError(f"never came true: {probe}")
            threading.Event().wait(0.05)

    def workload_of(self, namespace: str, job: str) -> str:
        """Name of the Workload of a Job, once the dashboard knows it."""

        def probe() -> str | None:
            rows = list(self.dashboard.board.workloads.values())
            names = [row.name for row in rows if row.namespace == namespace and row.job == f"Job {job}"]
            return names[0] if names else None

        return self.eventually(probe)


def job(name: str, namespace: str = "team-a", cpu: str = "1", pods: int = 1, **metadata: Object) -> Object:
    """A Job of the LocalQueue `main` that runs until it is deleted."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {
        "metadata": {
            "annotations": {"sim.pykueue.io/run-time": "forever", "sim.pykueue.io/start-delay": "0s"}
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    labels = {"kueue.x-k8s.io/queue-name": "main", **metadata.pop("labels", {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, **metadata},
        "spec": {"parallelism": pods, "completions": pods, "suspend": True, "template": template},
    }


def own(kind: str, name: str, spec: Object) -> Object:
    """An object of a kind that Kueue does not have."""
    return {"apiVersion": "pykueue.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def submit(world: World, *jobs: Object) -> None:
    for one in jobs:
        world.create(JOBS, one)


async def _fill(client: Client) -> None:
    """Two teams with a ClusterQueue of 2 cpu each, in one cohort."""
    for namespace in ("team-a", "team-b"):
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    objects = [flavor("default")]
    for team in ("team-a", "team-b"):
        objects.append(cluster_queue(team, {"default": {"cpu": 2}}, cohortName="company"))
        objects.append(local_queue("main", team, namespace=team))
    for obj in objects:
        plural = f"{obj['kind'].lower()}s"
        namespace = obj["metadata"].get("namespace")
        place = f"/apis/kueue.x-k8s.io/v1beta2/{f'namespaces/{namespace}/' if namespace else ''}{plural}"
        await client.call(Request("POST", place, body=obj))


async def _forecast(document: bytes) -> bytes:
    """In place of simulated futures: every Workload starts in ten to twenty minutes."""
    ask = msgspec.json.decode(document, type=Ask)
    times = [format_time(int(ask.now) + minutes * 60 + 30) for minutes in (10, 15, 20)]
    start = Start(earliest=times[0], median=times[1], latest=times[2], started=20)
    names = [one["metadata"] for one in ask.objects if one["kind"] == "Workload"]
    found = {f"{one['namespace']}/{one['name']}": start for one in names}
    return msgspec.json.encode(Starts(now=format_time(int(ask.now)), futures=20, hours=24.0, starts=found))


@contextlib.contextmanager
def running_world(folder: Path) -> Iterator[World]:
    """A cluster with simulated nodes and a dashboard, until the body ends."""
    loop = asyncio.new_event_loop()
    clock = ShiftedClock()
    world = World(loop, clock)
    started, stop = threading.Event(), asyncio.Event()
    failed: list[BaseException] = []

    async def main() -> None:
        settings = load(None, frameworks=FRAMEWORKS)
        cluster = Cluster(
            clock=Clock(), rng=random.Random(1), configuration=settings, pace=None, job_kinds=()
        )
        await cluster.start()
        assert cluster.server is not None
        assert cluster.manager is not None
        forecasts = Forecasts(cluster.manager, _forecast)
        await serve_visibility(cluster.server, cluster.manager, forecasts)
        world.admin = Client(cluster.server.transport())
        running = [asyncio.create_task(cluster.run())]
        world.dashboard = await embedded_dashboard(cluster.server, settings, clock)
        try:
            await cluster.synced()
            address = await cluster.server.serve("127.0.0.1", 0, folder)
            world.admin_token, world.kubeconfig = address.token, folder / "kubeconfig"
            await declare_nodes(world.admin)
            await _fill(world.admin)
            world.url = await world.dashboard.open()
            running.append(asyncio.create_task(world.dashboard.run()))
            started.set()
            await stop.wait()
        finally:
            await forecasts.stop()
            await world.dashboard.close()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await cluster.stop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(main())
        except BaseException as error:
            failed.append(error)
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=run, name="dashboard world")
    thread.start()
    try:
        assert started.wait(PATIENCE), "the world did not start"
        if failed:
            raise failed[0]
        yield world
    finally:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
    if failed:
        raise failed[0]


async def declare_nodes(client: Client) -> None:
    """Two simulated nodes."""
    for name in ("node-0", "node-1"):
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        node = {"metadata": {"name": name}, "status": {"allocatable": amounts, "capacity": amounts}}
        with contextlib.suppress(ApiError):
            await client.create(Resource("", "v1", "nodes", "Node", False), node)


async def first(
    events: AsyncIterator[tuple[str, str]], wanted: Callable[[str, str], bool]
) -> tuple[str, str]:
    """The first event of a stream that is wanted."""
    async with asyncio.timeout(PATIENCE):
        async for name, data in events:
            if wanted(name, data):
                return name, data
    raise AssertionError("the stream ended")
