"""An embedded cluster in virtual time for the controllers' tests.

The server and the controllers are the real ones; the test takes the place of users, scheduler and kubelet.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from pykueue.api.resources import EVENTS, JOBS, PODS, Resource
from pykueue.api.times import format_time
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.controllers import Controllers
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import MERGE_PATCH

Object = dict[str, Any]


class Cluster:
    """What a test sees and does."""

    def __init__(self, clock: Clock, seed: int = 0, **options: Any) -> None:
        self.clock = clock
        self.rng = random.Random(seed)
        self.server = Server(clock=clock, rng=random.Random(seed + 1))
        self.client = Client(self.server.transport(), clock=clock, page_size=None)
        self._options = options
        self._controllers: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.server.start()
        self.start_controllers()

    def start_controllers(self) -> None:
        controllers = Controllers(self.server.transport(), self.clock, self.rng, **self._options)
        self._controllers = asyncio.create_task(controllers.run())

    async def stop_controllers(self) -> None:
        """As a crash would: nothing is finished, nothing is handed over."""
        if self._controllers is not None:
            self._controllers.cancel()
            with suppress(asyncio.CancelledError):
                await self._controllers
            self._controllers = None

    async def stop(self) -> None:
        await self.stop_controllers()
        await self.server.stop()

    async def wait(self, seconds: float = 5.0) -> None:
        await self.clock.sleep(seconds)

    # Users

    async def create_job(self, name: str = "job", namespace: str = "default", **spec: Any) -> Object:
        return await self.client.create(JOBS, job(name, namespace, **spec))

    async def patch_job(self, name: str = "job", **spec: Any) -> Object:
        return await self.client.patch(JOBS, name, "default", {"spec": spec})

    async def job(self, name: str = "job") -> Object:
        return await self.client.get(JOBS, name, "default")

    async def status(self, name: str = "job") -> Object:
        status: Object = (await self.job(name)).get("status") or {}
        return status

    async def conditions(self, name: str = "job") -> dict[str, tuple[str, str]]:
        """Type -> (status, reason)."""
        status = await self.status(name)
        return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or ()}

    async def pods(self, job: str | None = None, namespace: str = "default") -> list[Object]:
        """Pods by name, those of one Job if given."""
        selector = f"job-name={job}" if job else None
        found = await self.client.list(PODS, namespace, label_selector=selector)
        return sorted(found.items, key=lambda pod: str(pod["metadata"]["name"]))

    async def active(self, job: str = "job") -> list[Object]:
        return [
            pod
            for pod in await self.pods(job)
            if phase(pod) in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        ]

    async def events(self, name: str = "job") -> list[tuple[str, str, str]]:
        """(type, reason, message) of the events about an object, oldest first."""
        found = await self.client.list(EVENTS, "default", field_selector=f"involvedObject.name={name}")
        ordered = sorted(found.items, key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["type"], event["reason"], event["message"]) for event in ordered]

    async def exists(self, resource: Resource, name: str, namespace: str | None = "default") -> bool:
        try:
            await self.client.get(resource, name, namespace)
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return True

    # Kubelet

    async def set_pod(self, pod: Object, **status: Any) -> Object:
        metadata = pod["metadata"]
        return await self.client.patch(
            PODS,
            metadata["name"],
            metadata["namespace"],
            {"status": status},
            content_type=MERGE_PATCH,
            subresource="status",
        )

    async def bind(self, pod: Object, node: str = "node") -> None:
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.client.create(PODS, binding, name=metadata["name"], subresource="binding")

    async def run_pods(self, pods: Iterable[Object]) -> None:
        """Bind the pods and let them become Running and Ready."""
        for pod in pods:
            if not pod["spec"].get("nodeName"):
                await self.bind(pod)
            await self.set_pod(pod, phase="Running", conditions=[self._ready("True")])

    async def succeed(self, *pods: Object) -> None:
        for pod in pods:
            await self._end(pod, "Succeeded", 0)

    async def fail(self, *pods: Object, exit_code: int = 1, conditions: Iterable[str] = ()) -> None:
        for pod in pods:
            await self._end(pod, "Failed", exit_code, conditions)

    async def _end(self, pod: Object, phase: str, code: int, conditions: Iterable[str] = ()) -> None:
        stamp = format_time(self.clock.time())
        await self.set_pod(
            pod,
            phase=phase,
            conditions=[
                self._ready("False"),
                *({"type": name, "status": "True", "lastTransitionTime": stamp} for name in conditions),
            ],
            containerStatuses=[
                {
                    "name": "main",
                    "image": "x",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": {"exitCode": code, "startedAt": stamp, "finishedAt": stamp}},
                }
            ],
        )

    def _ready(self, status: str) -> Object:
        return {
            "type": "Ready",
            "status": status,
            "lastTransitionTime": format_time(self.clock.time()),
        }

    async def remove(self, pod: Object) -> None:
        """The kubelet's last delete, with grace 0."""
        await self.client.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace_period=0)


def job(name: str, namespace: str = "default", **spec: Any) -> Object:
    """A Job manifest; `restart_policy` and `labels` go into its template."""
    template: Object = {
        "spec": {
            "restartPolicy": spec.pop("restart_policy", "Never"),
            "containers": [{"name": "main", "image": "x"}],
        }
    }
    labels = spec.pop("labels", None)
    if labels:
        template["metadata"] = {"labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": template, **spec},
    }


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase"))


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def story(tell: Callable[[Cluster], Awaitable[None]], seed: int = 0, **options: Any) -> None:
    """Run a test's story on a fresh cluster in virtual time."""

    async def main(clock: Clock) -> None:
        cluster = Cluster(clock, seed, **options)
        await cluster.start()
        try:
            await tell(cluster)
        finally:
            await cluster.stop()

    run_virtual(main)
