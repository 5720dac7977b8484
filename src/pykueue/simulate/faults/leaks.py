"""What a manager must have forgotten once nothing is left to do.

This reads private fields on purpose: a leak shows nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import key_of
from pykueue.kube.controller import Controller
from pykueue.kube.workqueue import WorkQueue
from pykueue.manager.manager import Manager
from pykueue.manager.scheduler.loop import Scheduler


def leaks(manager: Manager, workloads: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Expectations, queued work, failures and books that outlived their cause."""
    for controller in _controllers(manager):
        yield from _queue_leaks(controller.name, controller.queue)
    scheduler = manager.running["scheduler"]
    assert isinstance(scheduler, Scheduler)
    if scheduler._requeues:
        yield f"reasons that were never written: {sorted(scheduler._requeues)}"
    writer = manager.connection.writer
    if writer._turns:
        yield f"updates that have not ended: {sorted(map(str, writer._turns))}"
    living = {"/".join(key_of(w)) for w in workloads if not conditions.is_finished(w)}
    known = set(manager.engine._state.workloads)
    if living != known:
        yield f"the engine knows {sorted(known)}, there are {sorted(living)}"
    holding = {"/".join(key_of(w)) for w in workloads if conditions.has_quota(w)} & living
    held = {key for key, record in manager.engine._state.workloads.items() if record.place == "reserved"}
    if holding != held:
        yield f"in the engine {sorted(held)} hold quota, by their status {sorted(holding)} do"


def is_retrying(manager: Manager) -> bool:
    """Whether a controller waits to try again what has failed."""
    return any(controller.queue._failures for controller in _controllers(manager))


def _controllers(manager: Manager) -> Iterable[Controller[Any]]:
    for running in manager.running.values():
        controller = getattr(running, "controller", None)
        if isinstance(controller, Controller):
            yield controller


def _queue_leaks(name: str, queue: WorkQueue[Any]) -> Iterable[str]:
    for what, found in (
        ("queued", queue._queue),
        ("dirty", queue._dirty),
        ("in work", queue._working),
        ("failing", queue._failures),
    ):
        if found:
            yield f"{name}: {what} without end: {sorted(map(str, found))}"
