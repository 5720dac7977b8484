"""Writes the status of Reservations: whether they are in force, and their current or next window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.meta import format_time, set_condition
from pykueue.api.objects import Object, get, replaced, spec_differs
from pykueue.api.reservations import TEXT_MAX, Reservation, Window, amounts_text, state_of, windows
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
        now = self._clock.time()
        found = _windows(obj, now) if obj is not None else []
        if not found:
            return None
        return max(1.0, (found[0].start if found[0].start > now else found[0].end) - now)

    def _judged(self, obj: Object) -> Mapping[str, Any]:
        now = self._clock.time()
        why = _problem(obj)
        found = _windows(obj, now)
        if why:
            active, reason, message = "False", "Invalid", why
        elif not found:
            active, reason, message = "False", "Over", "The last window is over"
        else:
            active, reason, message = "True", "Ready", "The Reservation is in force"
        known = get(obj, "status", "conditions") or ()
        generation = get(obj, "metadata", "generation")
        status: Object = {
            "conditions": set_condition(known, "Active", active, reason, message, now, generation),
            "state": "Invalid" if why else state_of(found, now),
        }
        if not why:
            status["printed"] = amounts_text(decode_as(Reservation, obj).spec)[:TEXT_MAX]
        if found:
            status["windowStart"], status["windowEnd"] = map(format_time, found[0])
        if len(found) > 1:
            status["nextStart"] = format_time(found[1].start)
        return obj if status == (obj.get("status") or {}) else replaced(obj, ("status",), status)


def _problem(obj: Object) -> str:
    try:
        return "; ".join(map(str, reservation_errors(decode_as(Reservation, obj))))
    except DecodeError as error:
        return str(error)


def _windows(obj: Object, now: float) -> list[Window]:
    """The current and next windows."""
    return [] if _problem(obj) else windows(decode_as(Reservation, obj).spec, now)
