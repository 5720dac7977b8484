"""What tests of edited statuses share: conditions that another client writes, and delayed requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from manager_stack import Stack, job

from pykueue.kube.transport import Request

Object = dict[str, Any]
STOPPING = "kueue.x-k8s.io/stopping"


async def running(s: Stack, name: str = "a", size: int = 6) -> str:
    """A Job that runs; returns its Workload's name."""
    await s.apply(job(name, size))
    await s.settle()
    await s.run_job(name)
    await s.settle()
    return str((await s.workload(name))["metadata"]["name"])


def forged(s: Stack, kind: str, status: str = "True") -> Object:
    """A condition that another client writes."""
    return {"type": kind, "status": status, "reason": "ByHand", "message": "", "lastTransitionTime": s.now()}


def replaced(known: Iterable[Object], condition: Object) -> list[Object]:
    """The conditions with this one in place of the one of its type."""
    return [*(c for c in known if c["type"] != condition["type"]), condition]


def delay(s: Stack, method: str, path: str, seconds: float) -> None:
    """Requests of the manager to paths with this end arrive so much later."""
    inner = s.transport.inner.call

    async def call(request: Request) -> Any:
        if request.method == method and request.path.endswith(path):
            await s.clock.sleep(seconds)
        return await inner(request)

    s.transport.inner.call = call  # type: ignore[method-assign]


def on_stored(s: Stack, resource: str, see: Callable[[Object], None]) -> None:
    """Call `see` with every version of the objects that is stored."""

    def stored(new: Any, old: Any) -> None:
        if new is not None:
            see(new.object)

    s.server.core.on_stored(resource, stored)
