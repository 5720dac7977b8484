"""Writes the status of Reservations: whether they are in force, and their current or next window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import format_time, set_condition
from pykueue.api.objects import Object, get, replaced, spec_differs
from pykueue.api.reservations import Reservation, windows
from pykueue.api.validation.reservations import reservation_errors
from pykueue.clock import Clock
from pykueue.kube.controller import Controller
from pykueue.manager.cluster import Cluster
from pykueue.manager.writes import Writer


class Reservations:
    """Reconciles Reservations."""

    def __init__(self, cluster: Cluster, writer: Writer, clock: Clock, workers: int) -> None:
        self._writer = writer
        self._clock = clock
        self._informer = cluster.advance_reservations
        self.controller: Controller[str] = Controller(
            "reservations", self._reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        self._informer.on_event(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and spec_differs(old, new):
            self.controller.queue.add(new["metadata"]["name"])

    async def _reconcile(self, name: str) -> float | None:
        await self._writer.update(self._informer, ("", name), self._judged)
        obj = self._informer.get("", name)
        window = _window(obj, self._clock.time()) if obj is not None else None
        return None if window is None else max(1.0, window[1] - self._clock.time())

    def _judged(self, obj: Object) -> Mapping[str, Any]:
        now = self._clock.time()
        why = _problem(obj)
        window = _window(obj, now)
        if why:
            active, reason, message = "False", "Invalid", why
        elif window is None:
            active, reason, message = "False", "Over", "The last window is over"
        else:
            active, reason, message = "True", "Ready", "The Reservation is in force"
        known = get(obj, "status", "conditions") or ()
        generation = get(obj, "metadata", "generation")
        status: Object = {
            "conditions": set_condition(known, "Active", active, reason, message, now, generation)
        }
        if window is not None:
            status["windowStart"], status["windowEnd"] = map(format_time, window)
        return obj if status == (obj.get("status") or {}) else replaced(obj, ("status",), status)


def _problem(obj: Object) -> str:
    try:
        return "; ".join(map(str, reservation_errors(decode_as(Reservation, obj))))
    except DecodeError as error:
        return str(error)


def _window(obj: Object, now: float) -> tuple[float, float] | None:
    """The current or next window."""
    if _problem(obj):
        return None
    found = windows(decode_as(Reservation, obj).spec, now)
    return found[0] if found else None
