"""Controllers that wait for pods of jobs that are over look at them when these pods change, and only then."""

from __future__ import annotations

from typing import Any

from pykueue.api.resources import PODS
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer
from pykueue.kube.workqueue import WorkQueue
from pykueue.manager.awaited_pods import AwaitedPods

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pod", "namespace": "default", "uid": "1", "labels": {"job-uid": "a"}},
}
Key = tuple[str, str]


async def taken(queue: WorkQueue[Key]) -> Key:
    key = await queue.get()
    queue.done(key)
    return key


def test_pods_are_awaited_by_uid_and_queue() -> None:
    async def main(clock: Clock) -> None:
        server = Server(None, clock)
        await server.start()
        pods = Informer(Client(server.transport("test"), clock=clock), PODS, clock=clock)
        awaited = AwaitedPods(pods)
        first: WorkQueue[Key] = WorkQueue(clock)
        second: WorkQueue[Key] = WorkQueue(clock)

        def pod_changes() -> tuple[int, int]:
            awaited._pod_changed("MODIFIED", POD, POD)
            return len(first), len(second)

        assert pod_changes() == (0, 0)
        awaited.expect("a", first, ("default", "job"))
        awaited.expect("a", second, ("default", "workload"))
        awaited.expect("b", first, ("default", "other"))
        assert pod_changes() == (1, 1)
        assert await taken(first) == ("default", "job")
        assert await taken(second) == ("default", "workload")
        awaited.forget("a", first)
        assert pod_changes() == (0, 1)
        awaited.forget_all(second)
        await taken(second)
        assert pod_changes() == (0, 0)
        await server.stop()

    run_virtual(main)
